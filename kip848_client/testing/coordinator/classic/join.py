"""JoinGroup in a classic group: admission, and the effect of a join in each state of the group.

The checks are in Kafka's order, so that a request with two mistakes gets the same answer.

Source: Kafka's ``GroupMetadataManager.classicGroupJoin...``; KIP-394 (member ids), KIP-345 (static members), KIP-814
(a static leader that returns does not assign again).
"""

from __future__ import annotations

from typing import Final

import msgspec

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    Parked,
    select_protocol,
    subscribed_topics,
    with_member,
    with_replacement,
)
from kip848_client.testing.coordinator.classic.classic_lookup import (
    MEMBER_ID_ROUND_VERSION,
    find_member,
    new_classic_member_id,
)
from kip848_client.testing.coordinator.classic.rebalance import ClassicOutcome, refused_join
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.kind import Kinds
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

_SKIP_ASSIGNMENT_VERSION: Final = 9
"""First version whose answer can tell the leader not to assign."""


def handle_join(
    state: CoordinatorState, request: ApiRequest, message: JoinGroupRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one JoinGroup, or park it until the join phase completes."""
    config, group_id, member_id = state.config, message.group_id, message.member_id
    shortest, longest = config.classic_min_session_timeout_ms, config.classic_max_session_timeout_ms
    if not group_id:
        return _refuse(request, ErrorCode.INVALID_GROUP_ID, member_id=member_id)
    if not shortest <= message.session_timeout_ms <= longest:
        return _refuse(request, ErrorCode.INVALID_SESSION_TIMEOUT, member_id=member_id)
    other = state.groups.get(group_id)
    if other is not None and not isinstance(other, ClassicGroup):
        side = state.part(Kinds).classic_side(group_id)
        if side is None:
            return _refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=member_id)
        if not other.is_empty:
            return side.join(request, message, rebalance_timeout_ms=_rebalance_timeout_ms(message), now_ms=now_ms)
    group = state.find(ClassicGroup, group_id)
    if group is None:
        if member_id:
            return _refuse(request, ErrorCode.UNKNOWN_MEMBER_ID, member_id=member_id)
        if not state.has_room_for_group(group_id):
            return _refuse(request, ErrorCode.GROUP_MAX_SIZE_REACHED)
        group = ClassicGroup(group_id)
    outcome = ClassicOutcome(state, group, now_ms=now_ms, wall_ms=request.wall_ms)
    join = _Join(outcome, request, message)
    join.run()
    if other is not None and not isinstance(other, ClassicGroup) and outcome.group.exists:
        # The classic group replaces an empty group of another kind; the offsets stay.
        # The first join of a group writes no other record.
        outcome.batch.records.extend(other.tombstones())
    return outcome.result()


class _Join:
    """One JoinGroup for a group that is classic or may become classic."""

    def __init__(self, outcome: ClassicOutcome, request: ApiRequest, message: JoinGroupRequest) -> None:
        self._outcome = outcome
        self._request = request
        self._message = message
        self._parked = Parked(request.request_id, request.api_version)

    def run(self) -> None:
        """Check, and join."""
        outcome, message, member_id = self._outcome, self._message, self._message.member_id
        if not self._has_room():
            if member_id in outcome.group.members:
                outcome.remove([member_id], reason="group_too_large")
                outcome.after_removal()
            self._refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not outcome.group.supports(
            protocol_type=message.protocol_type, names=[protocol.name for protocol in message.protocols]
        ):
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=member_id)
        elif not member_id:
            self._join_without_id()
        elif member_id in outcome.group.pending_joins:
            if message.group_instance_id is not None:
                self._refuse(ErrorCode.UNKNOWN_MEMBER_ID, member_id=member_id)
            else:
                self._add(member_id)
        else:
            try:
                member = find_member(outcome.group, member_id=member_id, instance_id=message.group_instance_id)
            except Refused as refused:
                self._refuse(refused.code, member_id=member_id)
            else:
                self._join_again(member)

    def _has_room(self) -> bool:
        """Whether the group and the coordinator have room for the sender. A present member is always admitted.

        In PREPARING only members that have joined count, so a group that is too large loses the members that join last.
        """
        group, state = self._outcome.group, self._outcome.state
        member_id, size_max = self._message.member_id, state.config.classic_max_size
        is_member = member_id in group.members
        if group.state is ClassicState.PREPARING:
            has_room = member_id in group.awaiting_join or len(group.awaiting_join) < size_max
        else:
            has_room = group.state is ClassicState.EMPTY or is_member or len(group.members) < size_max
        is_counted = is_member or member_id in group.pending_joins
        return has_room and (
            is_counted or self._message.group_instance_id in group.static_members or state.has_room_for_member
        )

    # --- members without an id

    def _join_without_id(self) -> None:
        outcome, message = self._outcome, self._message
        instance_id = message.group_instance_id
        new_id = new_classic_member_id(outcome.state.rng, client_id=self._request.client_id, instance_id=instance_id)
        if instance_id is None and self._request.api_version >= MEMBER_ID_ROUND_VERSION:
            # KIP-394: a client that does not join with its new id costs only this id.
            outcome.change(pending_joins=outcome.group.pending_joins | {new_id})
            outcome.arm_session(new_id, message.session_timeout_ms)
            self._refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id=new_id)
        elif instance_id is not None and instance_id in outcome.group.static_members:
            self._replace(outcome.group.static_members[instance_id], new_id=new_id)
        else:
            self._add(new_id)

    def _add(self, member_id: str) -> None:
        outcome = self._outcome
        member = self._member(member_id, is_new=True)
        outcome.group = with_member(outcome.group, member, protocol_type=self._message.protocol_type)
        outcome.park_join(member_id, self._parked)
        outcome.arm_new_member(member_id)
        self._note_join(member)
        if outcome.group.is_initial:
            outcome.change(newcomer=True)
        outcome.rebalance_or_complete()

    def _replace(self, old_id: str, *, new_id: str) -> None:
        """A static member is back under a new id. A parked request of the old id is answered with an error."""
        outcome = self._outcome
        old = outcome.group.members[old_id]
        outcome.refuse_join(old_id, ErrorCode.FENCED_INSTANCE_ID)
        outcome.refuse_sync(old_id, ErrorCode.FENCED_INSTANCE_ID)
        outcome.cancel_session(old_id)
        leader_before = outcome.group.leader
        member = msgspec.structs.replace(
            self._member(new_id, is_new=False), assignment=old.assignment, instance_id=old.instance_id
        )
        outcome.group = with_replacement(outcome.group, old_id=old_id, member=member)
        outcome.arm_session(new_id, old.session_timeout_ms)
        outcome.note("member_left", member=old, fields={"reason": "replaced"})
        self._note_join(member)
        if outcome.group.state is ClassicState.STABLE and select_protocol(outcome.group) == outcome.group.protocol:
            outcome.log()
            outcome.reply(self._request.request_id, self._answer_to_replacement(new_id, leader_before=leader_before))
        else:
            outcome.park_join(new_id, self._parked)
            outcome.rebalance_or_complete()

    def _answer_to_replacement(self, member_id: str, *, leader_before: str | None) -> JoinGroupResponse:
        """Nothing changes for the others, so a returning leader must not assign again.

        From version 9 on the answer says so. Earlier versions name the replaced member as the leader.
        """
        outcome = self._outcome
        if self._request.api_version < _SKIP_ASSIGNMENT_VERSION:
            return outcome.join_response(member_id, with_members=False, leader=leader_before)
        is_leader = outcome.group.leader == member_id
        return outcome.join_response(member_id, with_members=is_leader, skip_assignment=is_leader)

    # --- members that join again

    def _join_again(self, member: ClassicMember) -> None:
        outcome, group = self._outcome, self._outcome.group
        is_leader = group.leader == member.member_id
        is_same = member.protocols == self._protocols()
        if is_same and (
            group.state is ClassicState.COMPLETING or (group.state is ClassicState.STABLE and not is_leader)
        ):
            # It lost the answer to its join, or joins although no rebalance is due.
            outcome.reply(self._request.request_id, outcome.join_response(member.member_id, with_members=is_leader))
            return
        updated = msgspec.structs.replace(
            member,
            protocols=self._protocols(),
            rebalance_timeout_ms=_rebalance_timeout_ms(self._message),
            session_timeout_ms=self._message.session_timeout_ms,
        )
        if updated != member:
            outcome.group = with_member(group, updated, protocol_type=self._message.protocol_type)
        outcome.park_join(member.member_id, self._parked)
        outcome.rebalance_or_complete()

    # --- steps

    def _member(self, member_id: str, *, is_new: bool) -> ClassicMember:
        return ClassicMember(
            member_id=member_id,
            instance_id=self._message.group_instance_id,
            client_id=self._request.client_id,
            client_host=self._request.client_host,
            rebalance_timeout_ms=_rebalance_timeout_ms(self._message),
            session_timeout_ms=self._message.session_timeout_ms,
            protocols=self._protocols(),
            is_new=is_new,
        )

    def _protocols(self) -> tuple[tuple[str, bytes], ...]:
        return tuple([(protocol.name, bytes(protocol.metadata)) for protocol in self._message.protocols])

    def _note_join(self, member: ClassicMember) -> None:
        topics = subscribed_topics(self._message.protocol_type, [data for _, data in member.protocols])
        fields = {
            "topics": sorted(topics or ()),
            "instance_id": member.instance_id,
            "client_host": member.client_host,
        }
        self._outcome.note("member_joined", member=member, fields=fields)

    def _refuse(self, code: ErrorCode, *, member_id: str = "") -> None:
        response = refused_join(code, member_id=member_id, api_version=self._request.api_version)
        self._outcome.reply(self._request.request_id, response)


def _rebalance_timeout_ms(message: JoinGroupRequest) -> int:
    """The rebalance timeout; a request of version 0 has none and uses the session timeout."""
    return message.rebalance_timeout_ms if message.rebalance_timeout_ms >= 0 else message.session_timeout_ms


def _refuse(request: ApiRequest, code: ErrorCode, *, member_id: str = "") -> CoordinatorResult:
    response = refused_join(code, member_id=member_id, api_version=request.api_version)
    return CoordinatorResult(replies=(Reply(request.request_id, response),))
