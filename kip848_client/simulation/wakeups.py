"""Waking a member when nothing is due: told nothing new, it must do nothing, and its deadline must be true. C9.

A deadline that is too late, or missing, shows itself as something that a member does when it is asked before that time.
What is asked changes nothing where all is well.

And C8, of the same members: every request that is over is over for the member as well, and a commit that a closing
member cannot send any more is answered.

Does not own: when the shell wakes a member (`consumer`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kip848_client.member.events import MemberEffect, MemberEvent, SendRequest, Tick
from kip848_client.simulation.violation import fail
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest

if TYPE_CHECKING:
    from kip848_client.simulation.consumer import SimulatedConsumer

_SHORT_MS: Final = 500
_LONGEST_MS: Final = 3_000
"""How far ahead a member without a deadline is asked."""


class Wakeups:
    """Asks one member at times that nobody told it.

    Args:
        rng: when; nothing else is drawn from it.
    """

    def __init__(self, consumer: SimulatedConsumer, rng: random.Random) -> None:
        self._consumer = consumer
        self._rng = rng
        self._planned = False
        self._under_way: dict[int, MemberEffect] = {}
        self._last_number = 0

    def close_ms(self, longest_ms: int) -> int:
        """How long a close() may take: sometimes less than the answer to a leave does."""
        return min(longest_ms, _SHORT_MS + int(self._rng.random() * longest_ms))

    def told(self, event: MemberEvent) -> None:
        """The member is about to be told the end of a request."""
        self._under_way.pop(getattr(event, "request_id", None) or 0, None)

    def asked(self, effects: Iterable[MemberEffect]) -> None:
        """The member asks for requests."""
        for effect in effects:
            number = getattr(effect, "request_id", None)
            if number is None:
                continue
            if number <= self._last_number:
                fail("C8", f"{self._consumer.name} asks for {effect}, and asked for {self._last_number} before")
            self._last_number = number
            self._under_way[number] = effect

    def _compare(self) -> None:
        consumer = self._consumer
        count = consumer.member.requests_under_way
        if count != len(self._under_way):
            fail("C8", f"{consumer.name} counts {count} requests, under way are {sorted(self._under_way)}")
        closing = consumer.commits_asked and (consumer.leaving or consumer.closed)
        if closing and consumer.member.coordinator is None:
            sent = sum(_is_commit(effect) for effect in self._under_way.values())
            if len(consumer.commits_asked) > sent:
                fail("C8", f"{consumer.name} closes, and nobody hears of commits {sorted(consumer.commits_asked)}")

    def stepped(self) -> None:
        """The member did all that its event called for; ask it again now, and once before its deadline."""
        self._compare()
        self._ask("again at once")
        if not self._planned:
            self._planned = True
            consumer = self._consumer
            deadline_ms = consumer.member.deadline_ms()
            wait_ms = _LONGEST_MS if deadline_ms is None else min(_LONGEST_MS, deadline_ms - consumer.now_ms)
            consumer.world.call_in(int(self._rng.random() * max(0, wait_ms)), self._ask_early)

    def _ask_early(self) -> None:
        self._planned = False
        if not self._consumer.frozen:
            self._ask("before its deadline")

    def _ask(self, when: str) -> None:
        consumer = self._consumer
        member, now_ms = consumer.member, consumer.now_ms
        deadline_ms = member.deadline_ms()
        if consumer.closed or (deadline_ms is not None and deadline_ms <= now_ms):
            return  # the shell is about to wake it
        before = member.view()
        effects = member.step(Tick(consumer.app_polled_ms), now_ms=now_ms)
        after_ms = member.deadline_ms()
        if effects or member.view() is not before:
            fail("C9", f"{consumer.name} has nothing to do until {deadline_ms}, and asked {when} does {effects}")
        if after_ms != deadline_ms and (after_ms is None or deadline_ms is None or after_ms < deadline_ms):
            fail("C9", f"{consumer.name} asked {when} moves its deadline from {deadline_ms} to {after_ms}")


def _is_commit(effect: MemberEffect) -> bool:
    return isinstance(effect, SendRequest) and isinstance(effect.request, OffsetCommitRequest)
