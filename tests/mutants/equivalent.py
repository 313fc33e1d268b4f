"""Generated mutants that are left out, each with the reason: nothing that a member or a coordinator does can show them.

A name is looked up as `generated` gives it; a test demands that every one still exists. Whole functions and statements
that only tell people something are left out by `only_tells`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.mutants.generated import Mutation
from tests.mutants.sources import short

_SHORT_CUT: Final = "a short cut: the long way comes to the same"

EQUIVALENT: Final[Mapping[str, str]] = {
    "coordinator/client_assignment RoundPlanner.suits: return theirs is not None and own is not None and "
    "own.reads(theirs.written, theirs.written) => return None": _SHORT_CUT,
    "coordinator/heartbeat _Heartbeat._ask_a_member: is_same or planner.suits(updated) => "
    "is_same and planner.suits(updated)": _SHORT_CUT,
    "coordinator/client_assignment member_gone: return => nothing": _SHORT_CUT,
    "coordinator/heartbeat _Heartbeat._move_group: return => nothing": _SHORT_CUT,
    "coordinator/heartbeat _Heartbeat._check_versions: metadata.client_assignors and self._offers is not None => "
    "metadata.client_assignors or self._offers is not None": _SHORT_CUT,
    "coordinator/steady_heartbeat steady_member: message.topic_partitions is None => "
    "message.topic_partitions is not None": _SHORT_CUT,
    "coordinator/consumer_group ConsumerGroup._count_metadata: change > 0 => change > 1": (
        "a cache is emptied more often than needed"
    ),
    "coordinator/consumer_group ConsumerGroup._count_metadata: self._subscribed = None => nothing #2": (
        "a pattern adds topics when it is matched, and that empties the cache as well"
    ),
    "coordinator/departure time_is_up: not batch.records => batch.records": (
        "a timer is cancelled with its reason: none fires for nothing, and to cancel one twice does nothing"
    ),
    "coordinator/subscriptions resolution_due: if count => every one": (
        "a pattern that nobody wants any more is matched once more, and its topics are dropped"
    ),
    "coordinator/target_assignment _instance_ids: instance_ids.pop(replaced.member_id, None) => nothing": (
        "assignors look up members that subscribe; the one that was replaced is none of them"
    ),
    "member/commits Commits.advance: return => nothing": _SHORT_CUT,
    "member/leaving Leaving.advance: return => nothing": _SHORT_CUT,
    "member/member Member._readable: self._last_readable = (context.owned, blocked, readable) => nothing": (
        "the same set is made again; views are compared by value"
    ),
    "member/assignor_notices AssignorNotices.__init__: self._target = _Target() => nothing": (
        "it is set again before it is read: nothing was told yet"
    ),
}
"""Name of the mutant -> why it behaves as the original does."""

_NEXT_HEARTBEAT: Final = (
    "the next heartbeat of anybody starts a round anew; only time is lost, and who was tried already"
)
_SELDOM: Final = "checked, and hardly ever played"

SURVIVORS: Final[Mapping[str, str]] = {
    "coordinator/client_assignment RoundPlanner.move_on: leaves => not (leaves)": _NEXT_HEARTBEAT,
    "coordinator/heartbeat _Heartbeat._reason_to_bump: regex is None or regex in group.resolved_regexes => "
    "regex is None and regex in group.resolved_regexes": "the bump comes when the patterns are matched, a moment later",
    "member/commits Commits._try: self._end(commit, self._failed(commit, 'the consumer closes and no coordinator is "
    "known', None)) => nothing": "what becomes of commits inside close() is not asked (`tests/threads`)",
    "member/commits Commits._decide: error_class in {CommitErrorClass.RETRY, CommitErrorClass.RETRY_UNLESS_REVOKING} "
    "=> error_class not in {CommitErrorClass.RETRY, CommitErrorClass.RETRY_UNLESS_REVOKING}": (
        "an automatic commit after one that failed comes sooner, or later; only its interval is checked"
    ),
    "member/heartbeat Heartbeats.restart: removals > 1 => removals > 2": f"two removals in a row (R34): {_SELDOM}",
    "member/leaving Leaving.deadline_ms: min((waiter.deadline_ms for waiter in self._waiters)) => "
    "max((waiter.deadline_ms for waiter in self._waiters))": (
        "a leave is answered, or its request fails, before close() has to return"
    ),
    "member/positions Positions.hold: slot.stage in {_Stage.FETCHING, _Stage.START} => "
    "slot.stage not in {_Stage.FETCHING, _Stage.START}": f"a revocation that is taken back (C6): {_SELDOM}",
    "member/reconciler Reconciler.reset: self._resolve() => nothing": (
        f"a member that is removed while it waits for the name of a topic: {_SELDOM}"
    ),
}
"""Name of a mutant that nobody notices, and that is counted as such -> why that is so."""

TELLING: Final[Mapping[str, str]] = {
    "member/statistics": "counts and times for metrics; nothing is decided by them",
    "coordinator/consumer_group ConsumerGroup.check_invariants": "what the simulation asks for, to check the group",
    "coordinator/target_assignment check_assignment": "refuses what a user's assignor did wrong; those played do right",
    "coordinator/coordinator GroupCoordinator.check_invariants": "what the simulation asks for, to check the groups",
}
"""Modules, or functions of them, that no decision depends on -> what they are for."""


def reason_to_leave_out(mutation: Mutation) -> str | None:
    """Why a mutant is no target, or None if it is one."""
    found = EQUIVALENT.get(mutation.name)
    if found is not None:
        return found
    module = short(mutation.module)
    place = mutation.name.split(": ", 1)[0]
    for prefix, reason in TELLING.items():
        if prefix in (module, place):
            return reason
    return None
