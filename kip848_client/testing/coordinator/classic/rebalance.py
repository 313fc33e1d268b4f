"""The phases of a rebalance of a classic group: removals, timers and the answers to parked requests.

A `ClassicOutcome` collects what one event does to one group: the group after it, replies, timers, and the record.
Requests (`join`, `sync`, `leave`) and timers (`time_is_up`) use it.

Source: Kafka's ``GroupMetadataManager`` (``prepareRebalance``, ``completeClassicGroupJoin``, ``expire...``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import (
    ClassicGroup,
    ClassicGroupChanged,
    ClassicMember,
    ClassicState,
    Parked,
    group_record,
    next_generation,
    transition,
    with_assignments,
    without,
)
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.group_events import FactValue, GroupEvent
from kip848_client.testing.coordinator.core.result import ArmTimer, CancelTimer, CoordinatorResult, Reply
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kip848_client.wire.messages.sync_group import SyncGroupResponse
from kip848_client.wire.schema import Response

CLASSIC_TIMERS: Final = frozenset({TimerKind.CLASSIC_SESSION, TimerKind.CLASSIC_JOIN, TimerKind.CLASSIC_SYNC})

_NEW_MEMBER_TIMEOUT_MS: Final = 300_000
"""Session timeout of a member that waits for the answer to its first JoinGroup: it cannot send heartbeats yet."""
_NULL_PROTOCOL_VERSION: Final = 7
"""From this version of JoinGroup on, a refusal has null as the protocol's name; before, an empty string."""
_WHOLE_GROUP: Final = ""
"""The member id in the key of a timer that concerns the whole group."""


class ClassicOutcome:
    """The outcome of one event for one group: the group after it, replies, timers and the record; `result` ends it."""

    def __init__(self, state: CoordinatorState, group: ClassicGroup, *, now_ms: int, wall_ms: int) -> None:
        self.state: Final = state
        self.group: ClassicGroup = group
        self.batch: Final = Batch(group.group_id)
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._before = group
        self._replies: list[Reply] = []
        self._is_logged = False

    def result(self) -> CoordinatorResult:
        """The collected result. Call it last."""
        group = self.group
        if self._is_logged:
            self.group = group = msgspec.structs.replace(group, is_logged=True)
            self.batch.records.append(group_record(group))
        if group is not self._before:
            self.batch.soft.append(ClassicGroupChanged(group.group_id, group if group.exists else None))
            if group.state is not self._before.state:
                self.note("group_state_changed", fields={"old": str(self._before.state), "new": str(group.state)})
        return self.batch.result(*self._replies)

    def change(self, **fields: object) -> None:
        """Replace fields of the group."""
        self.group = msgspec.structs.replace(self.group, **fields)

    def log(self) -> None:
        """Let `result` write a record of the group."""
        self._is_logged = True

    def note(self, event: str, *, member: ClassicMember | None = None, fields: Mapping[str, FactValue]) -> None:
        """Note one fact for the event log."""
        self.batch.events.append(
            GroupEvent(
                event=event,
                group_id=self.group.group_id,
                member_id=None if member is None else member.member_id,
                client_id=None if member is None else member.client_id,
                group_epoch=self.group.generation,
                fields=fields,
            )
        )

    # --- answers

    def reply(self, request_id: int, response: Response) -> None:
        """Answer a request."""
        self._replies.append(Reply(request_id, response))

    def park_join(self, member_id: str, request: Parked) -> None:
        """Answer *request* when the join phase completes. It replaces the member's older JoinGroup."""
        self.refuse_join(member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        self.change(awaiting_join={**self.group.awaiting_join, member_id: request})

    def park_sync(self, member_id: str, request: Parked) -> None:
        """Answer *request* when the leader's assignment arrives. It replaces the member's older SyncGroup."""
        self.refuse_sync(member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        self.change(awaiting_sync={**self.group.awaiting_sync, member_id: request})

    def refuse_join(self, member_id: str, code: ErrorCode, *, answered_id: str | None = None) -> None:
        """Answer the member's parked JoinGroup, if there is one, with *code*.

        Args:
            answered_id: the member id of the answer; by default the member's.
        """
        parked = self.group.awaiting_join.get(member_id)
        if parked is not None:
            self.change(awaiting_join=_less(self.group.awaiting_join, member_id))
            self.reply(
                parked.request_id,
                refused_join(
                    code,
                    member_id=member_id if answered_id is None else answered_id,
                    api_version=parked.api_version,
                ),
            )

    def refuse_sync(self, member_id: str, code: ErrorCode) -> None:
        """Answer the member's parked SyncGroup, if there is one, with *code*."""
        parked = self.group.awaiting_sync.get(member_id)
        if parked is not None:
            self.change(awaiting_sync=_less(self.group.awaiting_sync, member_id))
            self.reply(parked.request_id, SyncGroupResponse(error_code=code))

    # --- timers

    def arm_session(self, member_id: str, timeout_ms: int) -> None:
        """Start a member's session timer."""
        self._arm(TimerKind.CLASSIC_SESSION, member_id, timeout_ms)

    def cancel_session(self, member_id: str) -> None:
        """Stop a member's session timer."""
        self._cancel(TimerKind.CLASSIC_SESSION, member_id)

    def cancel_sync_timer(self) -> None:
        """Stop the timer of the sync phase."""
        self._cancel(TimerKind.CLASSIC_SYNC)

    # --- phases

    def rebalance_or_complete(self) -> None:
        """Begin a rebalance; or, if one is being prepared, end that if all members have joined."""
        if self.group.state is ClassicState.PREPARING:
            self.try_complete()
        else:
            self.prepare()

    def prepare(self) -> None:
        """Let every member join again.

        From EMPTY the group waits for others to come; from elsewhere it is complete as soon as all have joined.
        """
        group = self.group
        if group.state is ClassicState.COMPLETING:
            waiting = tuple(group.awaiting_sync)
            for member_id in waiting:
                self.refuse_sync(member_id, ErrorCode.REBALANCE_IN_PROGRESS)
                self.arm_session(member_id, group.members[member_id].session_timeout_ms)
            self.group = with_assignments(self.group, {})
        self.cancel_sync_timer()
        is_initial = group.state is ClassicState.EMPTY
        self.group = transition(self.group, ClassicState.PREPARING, wall_ms=self._wall_ms)
        self.change(pending_syncs=frozenset(), is_initial=is_initial, newcomer=False)
        if is_initial:
            delay_ms = self.state.config.classic_initial_rebalance_delay_ms
            self.change(initial_left_ms=max(group.rebalance_timeout_ms - delay_ms, 0))
            if delay_ms:
                self._arm(TimerKind.CLASSIC_JOIN, _WHOLE_GROUP, delay_ms)
            else:
                self._complete()
        elif self.group.all_joined:
            self._complete()
        else:
            self.await_joins()

    def await_joins(self) -> None:
        """Start the timer that ends the join phase."""
        self._arm(TimerKind.CLASSIC_JOIN, _WHOLE_GROUP, self.group.rebalance_timeout_ms)

    def try_complete(self) -> None:
        """End the join phase if it waits for no member. An initial join phase ends only by its timer."""
        group = self.group
        if group.state is ClassicState.PREPARING and not group.is_initial and group.all_joined:
            self._complete()

    def remove(self, member_ids: Iterable[str], *, reason: str) -> None:
        """Remove members and answer their parked requests. The caller decides about the group."""
        gone = tuple(member_ids)
        for member_id in gone:
            self.refuse_join(member_id, ErrorCode.UNKNOWN_MEMBER_ID, answered_id="")
            self.refuse_sync(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            self.cancel_session(member_id)
            self.note("member_left", member=self.group.members[member_id], fields={"reason": reason})
        self.group = without(self.group, gone)

    def forget_pending(self, member_id: str) -> None:
        """Forget an id that was handed out and not used."""
        self.change(pending_joins=self.group.pending_joins - {member_id})
        self.cancel_session(member_id)

    def after_removal(self) -> None:
        """Begin a rebalance without the members that were removed, or go on with the one that is being prepared."""
        if self.group.state in (ClassicState.STABLE, ClassicState.COMPLETING):
            self.prepare()
        else:
            self.try_complete()

    def synced(self, assignments: Mapping[str, bytes]) -> None:
        """The leader sent the assignment: the group is stable, and every parked SyncGroup is answered."""
        self.group = with_assignments(self.group, assignments)
        self.group = transition(self.group, ClassicState.STABLE, wall_ms=self._wall_ms)
        self.log()
        waiting = self.group.awaiting_sync
        self.change(awaiting_sync={})
        for member_id, parked in waiting.items():
            self.reply(parked.request_id, self.sync_response(member_id))
            self.arm_session(member_id, self.group.members[member_id].session_timeout_ms)

    def sync_response(self, member_id: str) -> SyncGroupResponse:
        """The SyncGroup answer for a member of a stable group."""
        return SyncGroupResponse(
            protocol_type=self.group.protocol_type,
            protocol_name=self.group.protocol,
            assignment=self.group.members[member_id].assignment,
        )

    def join_response(
        self, member_id: str, *, with_members: bool, leader: str | None = None, skip_assignment: bool = False
    ) -> JoinGroupResponse:
        """The JoinGroup answer for a member of this generation; lists the members if it leads.

        Args:
            leader: named as the leader; by default the one of the group.
            skip_assignment: the leader fetches its assignment and computes none.
        """
        group = self.group
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=leader or group.leader or "",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=tuple(
                JoinGroupResponseMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    metadata=member.metadata(group.protocol),
                )
                for member in group.members.values()
            )
            if with_members
            else (),
        )

    def time_is_up(self, key: TimerKey) -> None:
        """Handle a timer that fired. Timers of a phase are cancelled when it ends."""
        group = self.group
        match key.kind:
            case TimerKind.CLASSIC_SESSION if key.member_id in group.pending_joins:
                self.forget_pending(key.member_id)
                self.try_complete()
            case TimerKind.CLASSIC_SESSION if (member := group.members.get(key.member_id)) is not None:
                # A known member whose request is parked cannot send heartbeats; the answer arms its timer again.
                is_parked = key.member_id in group.awaiting_join or key.member_id in group.awaiting_sync
                if member.is_new or not is_parked:
                    self.remove([key.member_id], reason="session_timeout")
                    self.after_removal()
            case TimerKind.CLASSIC_JOIN:
                self._join_time_is_up()
            case TimerKind.CLASSIC_SYNC:
                self.remove([m for m in group.members if m in group.pending_syncs], reason="sync_timeout")
                self.prepare()

    # --- internals

    def _join_time_is_up(self) -> None:
        group = self.group
        if group.is_initial and group.newcomer and group.initial_left_ms:
            delay_ms = self.state.config.classic_initial_rebalance_delay_ms
            self._arm(TimerKind.CLASSIC_JOIN, _WHOLE_GROUP, min(delay_ms, group.initial_left_ms))
            self.change(newcomer=False, initial_left_ms=max(group.initial_left_ms - delay_ms, 0))
        else:
            self._complete()

    def _complete(self) -> None:
        """End the join phase with those who have joined, and with static members that have not."""
        self._cancel(TimerKind.CLASSIC_JOIN)
        waiting = self.group.awaiting_join
        self.remove(
            [
                member_id
                for member_id, member in self.group.members.items()
                if member_id not in waiting and member.instance_id is None
            ],
            reason="rebalance_timeout",
        )
        if self.group.members and not waiting:
            # Static members alone, and none of them is here: wait until one comes or its session ends.
            self.await_joins()
            return
        if self.group.members and self.group.leader not in waiting:
            self.change(leader=next(member_id for member_id in self.group.members if member_id in waiting))
        self.group = next_generation(self.group, wall_ms=self._wall_ms)
        if not self.group.members:
            self.log()
            return
        for member_id, member in self.group.members.items():
            parked = waiting.get(member_id)
            if parked is not None:
                is_leader = member_id == self.group.leader
                self.reply(parked.request_id, self.join_response(member_id, with_members=is_leader))
            self.arm_session(member_id, member.session_timeout_ms)
        self._arm(TimerKind.CLASSIC_SYNC, _WHOLE_GROUP, self.group.rebalance_timeout_ms)
        self.note(
            "classic_generation_began",
            fields={
                "protocol": self.group.protocol,
                "leader": self.group.leader,
                "members": list(self.group.members),
            },
        )

    def arm_new_member(self, member_id: str) -> None:
        """Start the longer timer of a member that waits for its first answer."""
        self.arm_session(member_id, _NEW_MEMBER_TIMEOUT_MS)

    def _arm(self, kind: TimerKind, member_id: str, delay_ms: int) -> None:
        self.batch.soft.append(
            ArmTimer(
                TimerKey(kind, self.group.group_id, member_id),
                deadline_ms=self._now_ms + delay_ms,
                member_epoch=self.group.generation,
            )
        )

    def _cancel(self, kind: TimerKind, member_id: str = _WHOLE_GROUP) -> None:
        self.batch.soft.append(CancelTimer(TimerKey(kind, self.group.group_id, member_id)))


def refused_join(code: ErrorCode, *, member_id: str, api_version: int) -> JoinGroupResponse:
    """The answer to a JoinGroup that failed."""
    return JoinGroupResponse(
        error_code=code, protocol_name=None if api_version >= _NULL_PROTOCOL_VERSION else "", member_id=member_id
    )


def time_is_up(
    state: CoordinatorState, group: ClassicGroup, key: TimerKey, *, now_ms: int, wall_ms: int
) -> CoordinatorResult:
    """Handle a timer of a classic group. Ignored if the member is gone."""
    outcome = ClassicOutcome(state, group, now_ms=now_ms, wall_ms=wall_ms)
    outcome.batch.soft.append(CancelTimer(key))  # first: what follows may arm it again
    outcome.time_is_up(key)
    return outcome.result()


def refuse_all(state: CoordinatorState, *, code: ErrorCode) -> CoordinatorResult:
    """Answer every parked request with *code*."""
    groups = state.all_of(ClassicGroup)
    replies = [
        reply
        for group in sorted(groups, key=lambda one: one.group_id)
        for reply in (
            *[
                Reply(parked.request_id, refused_join(code, member_id=member_id, api_version=parked.api_version))
                for member_id, parked in group.awaiting_join.items()
            ],
            *[Reply(parked.request_id, SyncGroupResponse(error_code=code)) for parked in group.awaiting_sync.values()],
        )
    ]
    changed = [
        ClassicGroupChanged(group.group_id, msgspec.structs.replace(group, awaiting_join={}, awaiting_sync={}))
        for group in groups
    ]
    return CoordinatorResult(replies=tuple(replies), soft=tuple(changed))


def loaded(state: CoordinatorState, group: ClassicGroup, *, now_ms: int) -> CoordinatorResult:
    """Start the session of every member of a loaded group, and the join timer if its record says PREPARING.

    A group that exceeds the size limit rebalances.
    """
    outcome = ClassicOutcome(state, group, now_ms=now_ms, wall_ms=group.state_timestamp_ms)
    for member in group.members.values():
        outcome.arm_session(member.member_id, member.session_timeout_ms)
    if group.state is ClassicState.PREPARING:
        outcome.await_joins()
    elif len(group.members) > state.config.classic_max_size:
        outcome.prepare()
    return outcome.result()


def _less(parked: Mapping[str, Parked], member_id: str) -> Mapping[str, Parked]:
    return {waiting: request for waiting, request in parked.items() if waiting != member_id}
