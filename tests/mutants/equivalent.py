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
_INVALID: Final = "requests that break the protocol are not played (`tests/coordinator`)"
_LIMITS: Final = "the limits of a whole broker are not reached (`tests/coordinator`)"

_SOONER: Final = "lookups follow each other sooner; brokers that disagree for long are not played"

SURVIVORS: Final[Mapping[str, str]] = {
    "member/assignor_round AssignorRound._hurry_reason: self._advertise() => nothing": "the next description does",
    "member/assignor_round AssignorRound._installed: response.error_code => not (response.error_code)": _NEXT_HEARTBEAT,
    "member/assignor_round AssignorRound._installed: return => nothing #2": _NEXT_HEARTBEAT,
    "member/assignor_round AssignorRound._drop_stale: self._round = None => nothing": (
        "the coordinator refuses what an earlier life of the member computed"
    ),
    "member/backoff Backoff.wait_ms: min(base_ms, self._max_ms) => max(base_ms, self._max_ms)": (
        "retries wait longer, and not longer than the longest wait allowed"
    ),
    "member/backoff Backoff.pace: now_ms + self.wait_ms(0) => now_ms - self.wait_ms(0)": _SOONER,
    "member/discovery Discovery._found: self._backoff.pace(self._context.now_ms) => nothing": _SOONER,
    "member/commit_requests read_commit: not first => first": "of several errors in one answer another one is told",
    "member/commits Commits._try: self._end(commit, self._failed(commit, 'the consumer closes and no coordinator is "
    "known', None)) => nothing": "what becomes of commits inside close() is not asked (`tests/threads`)",
    "coordinator/client_assignment RoundPlanner.move_on: choice is None => choice is not None": _NEXT_HEARTBEAT,
    "coordinator/client_assignment RoundPlanner.move_on: leaves => not (leaves)": _NEXT_HEARTBEAT,
    "coordinator/client_assignors asks_for_a_target: True => False": (
        "nobody changes the number of its assignors while it is a member"
    ),
    "coordinator/client_assignors asks_for_a_target: before != after and (not (after.reason == 0 and "
    "replace(before, reason=0) == after)) => before != after or not (after.reason == 0 and "
    "replace(before, reason=0) == after)": "one target more than needed, where something else changed as well",
    "coordinator/coordinator GroupCoordinator._apply: state.regex_check_due.discard(group_id) => nothing": (
        "patterns are matched more often than needed, with the same outcome"
    ),
    "coordinator/heartbeat _Heartbeat._ask_a_member: self._group_epoch > group.group_epoch => "
    "self._group_epoch <= group.group_epoch": "another member is asked first; no order is demanded",
    "coordinator/heartbeat_answer extended_assignment: partition not in held => partition in held": (
        "what an assignor hears of partitions that are still to come is not compared (`tests/coordinator`)"
    ),
    "coordinator/heartbeat_validation validate_heartbeat: api_version >= 1 => api_version < 1": _INVALID,
    "coordinator/heartbeat_validation validate_heartbeat: _validate_join(message) => nothing": _INVALID,
    "coordinator/offset_fetch _check_member: group.member_epoch < 0 => group.member_epoch <= 0": _INVALID,
    "coordinator/install_assignment handle_install: _write(group, batch, _target_kept(group, error=message.error, "
    "assignor=flying.assignor_name)) => nothing": (
        "what members hear of an assignor's error is not compared (`tests/coordinator`)"
    ),
    "coordinator/membership find_member: known is None => known is not None #2": _LIMITS,
    "coordinator/membership find_member: known is None and message.member_epoch == JOIN_EPOCH and "
    "(message.instance_id not in group.static_members) => not (known is None and message.member_epoch == JOIN_EPOCH "
    "and (message.instance_id not in group.static_members))": _LIMITS,
    "coordinator/offset_commit _commit_partition: request.wall_ms + retention_ms => request.wall_ms - retention_ms": (
        "offsets do not expire in a simulation (`tests/coordinator`)"
    ),
    "coordinator/target_assignment _rack_ids: member.metadata.rack_id is None and replaced is None => "
    "not (member.metadata.rack_id is None and replaced is None)": "a simulation has no racks (`tests/assignors`)",
}
"""Name of a mutant that nobody notices, and that is counted as such -> why that is so."""

TELLING: Final[Mapping[str, str]] = {
    "member/statistics": "counts and times for metrics; nothing is decided by them",
    "coordinator/consumer_group ConsumerGroup.check_invariants": "what the simulation asks for, to check the group",
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
