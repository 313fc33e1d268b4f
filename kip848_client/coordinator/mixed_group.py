"""JoinGroup, SyncGroup and Heartbeat of members on the classic protocol in a consumer group.

Such a member has an epoch, a target and an assignment as every other, and takes the same steps. JoinGroup is its
heartbeat: the epoch is the generation of the answer, which names no leader, so the client never assigns. SyncGroup
fetches the assignment. Heartbeat says whether another JoinGroup would change anything.

Source: KIP-848 "Supporting Online Consumer Group Upgrade"; Kafka's ``GroupMetadataManager``
(``classicGroupJoinToConsumerGroup``, ``classicGroupSyncToConsumerGroup``, ``classicGroupHeartbeatToConsumerGroup``).
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kip848_client.coordinator.batch import Batch
from kip848_client.coordinator.classic.group import ClassicState, Parked
from kip848_client.coordinator.classic.membership import new_classic_member_id
from kip848_client.coordinator.classic.rebalance import refused_join
from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.group_member import (
    ClassicProtocols,
    Current,
    CurrentAssignment,
    GroupMember,
    Member,
    MemberMetadata,
    MemberState,
)
from kip848_client.coordinator.member_steps import MemberSteps
from kip848_client.coordinator.membership import Found, FoundMember, check_room, returned, static_member, unknown_member
from kip848_client.coordinator.migration import (
    assignment_bytes,
    classic_metadata,
    downgrade_for,
    partitions_by_id,
)
from kip848_client.coordinator.refusal import Refused
from kip848_client.coordinator.requests import ApiRequest
from kip848_client.coordinator.result import ArmTimer, CancelTimer, CoordinatorResult, Reply
from kip848_client.coordinator.state import CoordinatorState
from kip848_client.coordinator.timers import TimerKey, TimerKind
from kip848_client.errors import ErrorCode, ProtocolError
from kip848_client.wire.messages.consumer_protocol import (
    CONSUMER_PROTOCOL,
    ConsumerProtocolSubscription,
    decode_subscription,
)
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

MEMBER_ID_ROUND_VERSION: Final = 4
"""From this version of JoinGroup on, a dynamic member is sent an id first (KIP-394)."""


def join_mixed_group(
    state: CoordinatorState,
    request: ApiRequest,
    message: JoinGroupRequest,
    group: ConsumerGroup,
    *,
    rebalance_timeout_ms: int,
    now_ms: int,
) -> CoordinatorResult:
    """Answer one JoinGroup to a consumer group with members; its fields are within their bounds."""
    try:
        return _Join(state, request, message, group, rebalance_timeout_ms=rebalance_timeout_ms, now_ms=now_ms).run()
    except Refused as refused:
        # A classic client knows no epochs: what fences one on the new protocol lets this one begin anew.
        is_fenced = refused.code is ErrorCode.FENCED_MEMBER_EPOCH
        code = ErrorCode.ILLEGAL_GENERATION if is_fenced else refused.code
        refusal = refused_join(code, member_id="", api_version=request.api_version)
        return CoordinatorResult(replies=(Reply(request.request_id, refusal),))


class _Join:
    """One JoinGroup on its way."""

    def __init__(
        self,
        state: CoordinatorState,
        request: ApiRequest,
        message: JoinGroupRequest,
        group: ConsumerGroup,
        *,
        rebalance_timeout_ms: int,
        now_ms: int,
    ) -> None:
        self._state = state
        self._request = request
        self._message = message
        self._group = group
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._now_ms = now_ms
        self._batch = Batch(group.group_id)

    def run(self) -> CoordinatorResult:
        state, message = self._state, self._message
        self._check()
        if not message.member_id and message.group_instance_id is None and self._has_id_round():
            refusal = refused_join(
                ErrorCode.MEMBER_ID_REQUIRED, member_id=self._new_id(), api_version=self._request.api_version
            )
            return self._batch.result(Reply(self._request.request_id, refusal))
        found = self._find()
        subscription = self._subscription()
        metadata = self._metadata(found.member.metadata, subscription)
        if found.replaced is not None and self._is_last(found.replaced):
            return self._downgrade(found.replaced, Member(found.member.member_id, metadata, found.member.current))
        owned = partitions_by_id(subscription.owned_partitions, image=state.image)
        steps = MemberSteps(state, self._request, self._group, self._batch, owned=owned, now_ms=self._now_ms)
        is_join = found.is_new or found.replaced is not None
        joined = steps.run(found, metadata, is_join=is_join)
        self._batch.soft += [
            CancelTimer(self._key(TimerKind.MIXED_JOIN, joined)),
            _arm(self._group, joined, TimerKind.MIXED_SYNC, self._now_ms + self._rebalance_timeout_ms),
        ]
        return self._batch.result(Reply(self._request.request_id, self._response(joined)))

    # Who it is

    def _check(self) -> None:
        state, group, message = self._state, self._group, self._message
        if state.config.migration_policy == "disabled":
            raise _inconsistent(f"Group {group.group_id} is a consumer group, and the online migration is disabled.")
        if message.member_id not in group.members:
            if len(group.members) >= state.config.consumer_max_size:
                raise Refused(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The consumer group {group.group_id} has reached its maximum capacity of "
                    f"{state.config.consumer_max_size} members.",
                )
            if message.group_instance_id not in group.static_members:
                check_room(state, group)
        if message.protocol_type != CONSUMER_PROTOCOL or not any(
            group.classic_protocols.get(protocol.name, 0) == group.classic_count for protocol in message.protocols
        ):
            raise _inconsistent(
                f"The members of group {group.group_id} on the classic protocol offer "
                f"{', '.join(sorted(group.classic_protocols)) or 'nothing'}; they and this one have none in common."
            )

    def _has_id_round(self) -> bool:
        return self._request.api_version >= MEMBER_ID_ROUND_VERSION

    def _new_id(self) -> str:
        return new_classic_member_id(
            self._state.rng, client_id=self._request.client_id, instance_id=self._message.group_instance_id
        )

    def _find(self) -> FoundMember:
        group, member_id, instance_id = self._group, self._message.member_id, self._message.group_instance_id
        if instance_id is not None and member_id:
            return Found(static_member(group, instance_id=instance_id, member_id=member_id))
        if instance_id is not None and instance_id in group.static_members:
            holder = group.members[group.static_members[instance_id]]
            taken = replace(holder, member_id=self._new_id(), current=returned(holder.current))
            return Found(taken, replaced=holder)
        known = group.members.get(member_id)
        if known is not None:
            return Found(known)
        new: GroupMember = Member(member_id or self._new_id(), MemberMetadata(), Current())
        return Found(new, is_new=True)

    # What it says

    def _subscription(self) -> ConsumerProtocolSubscription:
        try:
            return decode_subscription(bytes(self._message.protocols[0].metadata))
        except ProtocolError as error:
            raise _inconsistent(f"The subscription cannot be read: {error}") from None

    def _metadata(self, before: MemberMetadata, subscription: ConsumerProtocolSubscription) -> MemberMetadata:
        message = self._message
        after = classic_metadata(
            subscription,
            instance_id=before.instance_id if message.group_instance_id is None else message.group_instance_id,
            client_id=self._request.client_id,
            client_host=self._request.client_host,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            classic=ClassicProtocols(
                message.session_timeout_ms,
                tuple([(protocol.name, bytes(protocol.metadata)) for protocol in message.protocols]),
            ),
        )
        return before if after == before else after

    # How it ends

    def _is_last(self, replaced: GroupMember) -> bool:
        """Whether only members on the classic protocol are left once the sender has taken the place of *replaced*."""
        group, config = self._group, self._state.config
        return (
            config.may_downgrade
            and replaced.metadata.classic is None
            and group.classic_count == len(group.members) - 1
            and len(group.members) <= config.classic_max_size
        )

    def _downgrade(self, replaced: GroupMember, joining: GroupMember) -> CoordinatorResult:
        fields = {"reason": "replaced"}
        self._batch.happened("member_left", member=replaced, group_epoch=self._group.group_epoch, fields=fields)
        turn = downgrade_for(
            self._state,
            self._group,
            self._batch,
            replaced=replaced,
            joining=joining,
            parked=Parked(self._request.request_id, self._request.api_version),
            now_ms=self._now_ms,
            wall_ms=self._request.wall_ms,
        )
        if turn.group.state is ClassicState.STABLE:
            # No leader is named: the group has its assignment, and the client is not to compute one.
            response = turn.join_response(joining.member_id, with_members=False)
            turn.reply(self._request.request_id, replace(response, leader=""))
        self._batch.add(turn.result())
        return self._batch.result()

    def _response(self, member: GroupMember) -> JoinGroupResponse:
        return JoinGroupResponse(
            generation_id=member.current.member_epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=self._message.protocols[0].name,
            leader="",
            member_id=member.member_id,
        )

    def _key(self, kind: TimerKind, member: GroupMember) -> TimerKey:
        return TimerKey(kind, self._group.group_id, member.member_id)


def sync_mixed_group(
    state: CoordinatorState, request: ApiRequest, message: SyncGroupRequest, group: ConsumerGroup, *, now_ms: int
) -> CoordinatorResult:
    """Answer one SyncGroup with what the member may use now.

    Raises:
        Refused: the code for the answer; nothing changed.
    """
    member, classic = _find_classic(
        group, message.member_id, instance_id=message.group_instance_id, generation=message.generation_id
    )
    for sent, expected in (
        (message.protocol_type, CONSUMER_PROTOCOL),
        (message.protocol_name, classic.protocols[0][0]),
    ):
        if sent is not None and sent != expected:
            raise _inconsistent(f"The member joined with {expected}, and {sent} was sent.")
    current = member.current
    if _is_behind(group, current) and current.state is not MemberState.UNREVOKED_PARTITIONS:
        refusal = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        join = _expect_join(state, group, member, now_ms=now_ms)
        return CoordinatorResult(replies=(Reply(request.request_id, refusal),), soft=join)
    response = SyncGroupResponse(
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=classic.protocols[0][0],
        assignment=assignment_bytes(classic, current.assigned, image=state.image),
    )
    return CoordinatorResult(
        replies=(Reply(request.request_id, response),),
        soft=(
            CancelTimer(TimerKey(TimerKind.MIXED_SYNC, group.group_id, member.member_id)),
            _arm(group, member, TimerKind.SESSION, now_ms + classic.session_timeout_ms),
        ),
    )


def beat_in_mixed_group(
    state: CoordinatorState, message: HeartbeatRequest, group: ConsumerGroup, *, now_ms: int
) -> tuple[ErrorCode, tuple[ArmTimer, ...]]:
    """The code for one Heartbeat, and the timers that it arms.

    Raises:
        Refused: the code for the answer; nothing changed.
    """
    member, classic = _find_classic(
        group, message.member_id, instance_id=message.group_instance_id, generation=message.generation_id
    )
    session = _arm(group, member, TimerKind.SESSION, now_ms + classic.session_timeout_ms)
    if not _must_rejoin(state, group, member):
        return ErrorCode.NONE, (session,)
    return ErrorCode.REBALANCE_IN_PROGRESS, (session, *_expect_join(state, group, member, now_ms=now_ms))


def _find_classic(
    group: ConsumerGroup, member_id: str, *, instance_id: str | None, generation: int
) -> tuple[GroupMember, ClassicProtocols]:
    if instance_id is None:
        member = group.members.get(member_id)
    else:
        member = static_member(group, instance_id=instance_id, member_id=member_id)
    if member is None or member.metadata.classic is None:
        raise unknown_member(group, member_id=member_id)
    if generation != member.current.member_epoch:
        raise Refused(
            ErrorCode.ILLEGAL_GENERATION,
            f"Member {member_id} is at generation {member.current.member_epoch}, and {generation} was sent.",
        )
    return member, member.metadata.classic


def _is_behind(group: ConsumerGroup, current: CurrentAssignment) -> bool:
    """Whether there is, or will be, a newer target.

    Heartbeats of members on the new protocol compute it. In a group without such members a JoinGroup must do it, so a
    classic member has to be told to join.
    """
    is_alone = group.classic_count == len(group.members)
    return current.member_epoch < (group.group_epoch if is_alone else group.target_epoch)


def _must_rejoin(state: CoordinatorState, group: ConsumerGroup, member: GroupMember) -> bool:
    """Whether a JoinGroup would change the member's assignment or epoch."""
    current = member.current
    if _is_behind(group, current) or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return current.state is MemberState.UNRELEASED_PARTITIONS and all(
        group.holders(topic_id).get(partition) in (None, member.member_id)
        for topic_id, partitions in group.target_of(member.member_id).items()
        if topic_id in state.image.by_id
        for partition in partitions
    )


def _expect_join(
    state: CoordinatorState, group: ConsumerGroup, member: GroupMember, *, now_ms: int
) -> tuple[ArmTimer, ...]:
    """Start the timer for the JoinGroup that the member was told to send, unless it runs already."""
    if state.timers.get(TimerKey(TimerKind.MIXED_JOIN, group.group_id, member.member_id)) is not None:
        return ()
    return (_arm(group, member, TimerKind.MIXED_JOIN, now_ms + member.metadata.rebalance_timeout_ms),)


def _arm(group: ConsumerGroup, member: GroupMember, kind: TimerKind, deadline_ms: int) -> ArmTimer:
    return ArmTimer(
        TimerKey(kind, group.group_id, member.member_id),
        deadline_ms=deadline_ms,
        member_epoch=member.current.member_epoch,
    )


def _inconsistent(message: str) -> Refused:
    return Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)
