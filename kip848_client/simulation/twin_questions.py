"""Asks members what they would do, by their twins: C10. Which question is drawn from those that fit the moment.

Does not own: the questions (`twin_heartbeats`, `twin_coordinators`, `twin_commits`, `twin_offsets`, ...).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from kip848_client.member.events import MemberEvent
from kip848_client.member.member import Member
from kip848_client.member.settings import MemberConfig
from kip848_client.member.states import Phase
from kip848_client.simulation.twin_assignors import (
    ask_about_a_round,
    ask_about_a_told_target,
    ask_about_a_wish_for_another_target,
    ask_about_an_unknown_assignor,
)
from kip848_client.simulation.twin_calls import ask_about_a_leave, ask_about_a_wish
from kip848_client.simulation.twin_commits import ask_about_a_commit, ask_about_an_automatic_commit
from kip848_client.simulation.twin_coordinators import (
    ask_about_a_connection,
    ask_about_a_lookup,
    ask_about_a_word_of_before,
)
from kip848_client.simulation.twin_detours import ask_about_a_detour, ask_about_a_short_stay
from kip848_client.simulation.twin_heartbeats import (
    ask_about_a_strange_answer,
    ask_about_an_error,
    ask_about_silence,
)
from kip848_client.simulation.twin_lapses import (
    ask_about_a_lapse,
    ask_about_a_lapse_in_a_call,
    ask_about_a_leave_in_a_call,
    ask_about_an_own_instance,
    ask_about_removals,
)
from kip848_client.simulation.twin_moved_commits import ask_about_a_commit_of_before
from kip848_client.simulation.twin_names import ask_about_names
from kip848_client.simulation.twin_offsets import ask_about_committed
from kip848_client.simulation.twin_positions import (
    ask_about_a_seek,
    ask_about_a_start,
    ask_about_an_end,
)
from kip848_client.simulation.twin_targets import (
    ask_about_a_lost_call,
    ask_about_a_removal_in_a_run,
    ask_about_a_target,
)
from kip848_client.simulation.twins import Diary, Twin

_PART: Final = 0.08
"""Of the steps of a member, those after which a twin of it is asked something."""
_SELDOM_PART: Final = 0.3
"""The same where a member is seldom."""
_AT_RANDOM: Final = 0.5
"""Of the questions, those that are not preferred because they fit few moments."""
_TOLD_MAX: Final = 1_000
"""Events that a twin is told at most: a member that was told more has none, for each would cost more than the last."""
_SELDOM: Final = frozenset(
    {Phase.JOINING, Phase.COMMITTING, Phase.REVOKING, Phase.ASSIGNING, Phase.FENCED_RELEASE, Phase.LEAVE_REVOKING}
)

Question: TypeAlias = Callable[[Twin, random.Random], bool]
"""Asks something, and says whether it could."""

OF_THE_MOMENT: Final[Sequence[Question]] = (
    ask_about_a_lookup,
    ask_about_a_connection,
    ask_about_an_automatic_commit,
    ask_about_a_start,
    ask_about_an_end,
    ask_about_names,
    ask_about_a_removal_in_a_run,
    ask_about_a_leave_in_a_call,
    ask_about_a_lost_call,
    ask_about_a_detour,
    ask_about_a_short_stay,
    ask_about_removals,
    ask_about_an_own_instance,
    ask_about_a_lapse_in_a_call,
    ask_about_a_round,
    ask_about_an_unknown_assignor,
    ask_about_a_wish_for_another_target,
    ask_about_a_told_target,
)
"""What fits few moments."""

OF_HEARTBEATS: Final[Sequence[Question]] = (
    ask_about_an_error,
    ask_about_silence,
    ask_about_a_strange_answer,
    ask_about_a_target,
)
"""What fits while a heartbeat is under way."""

OF_CALLS: Final[Sequence[Question]] = (
    ask_about_a_commit,
    ask_about_a_commit_of_before,
    ask_about_committed,
    ask_about_a_seek,
    ask_about_a_leave,
    ask_about_a_wish,
    ask_about_a_lapse,
    ask_about_a_word_of_before,
)
"""What an application may do at any time."""


class TwinQuestions:
    """C10: whatever a member is told, it does what docs/protocol.md says.

    Args:
        source: the jitter of the member.
        rng: when what is asked; nothing else is drawn from it.
    """

    def __init__(self, name: str, config: MemberConfig, *, source: random.Random, rng: random.Random) -> None:
        self._diary: Final = Diary(name, config, source)
        self._rng: Final = rng
        self.jitter: Final = self._diary.jitter

    def told(self, event: MemberEvent, *, now_ms: int) -> None:
        """The member is about to be told something."""
        if len(self._diary.told) <= _TOLD_MAX:
            self._diary.told.append((event, now_ms))

    def stepped(self, member: Member, *, now_ms: int) -> None:
        """The member did what that called for; now and then, ask its twin."""
        rng = self._rng
        if len(self._diary.told) > _TOLD_MAX:
            return
        if rng.random() >= (_SELDOM_PART if member.phase in _SELDOM else _PART):
            return
        twin = self._diary.twin(rng, now_ms=now_ms)
        ours, theirs = (replace(one.snapshot(), fatal_error=None) for one in (twin.member, member))
        if ours != theirs:
            twin.wrong(f"is {ours}, and its original is {theirs}")
        groups = [OF_THE_MOMENT, OF_HEARTBEATS, OF_CALLS]
        if rng.random() < _AT_RANDOM:
            rng.shuffle(groups)
        for group in groups:
            for question in rng.sample(group, len(group)):
                if question(twin, rng):
                    return
