"""JoinGroup, SyncGroup and Heartbeat of members on the classic protocol in a group of the new one.

Such a member has an epoch, a target and an assignment like every other member, and takes the same steps. It sends
JoinGroup in place of a heartbeat: the generation in the answer is its epoch, and the answer names no leader, so the
client never assigns. SyncGroup fetches the assignment. The answer to Heartbeat says whether it must join again.

Kinds of groups differ only in the bytes that members exchange: see `consumer.mixed_consumer_group` and
`connect.mixed_connect_group`.

Source: KIP-848 "Supporting Online Consumer Group Upgrade"; Kafka's ``GroupMetadataManager``
(``classicGroupJoinToConsumerGroup``, ``classicGroupSyncToConsumerGroup``, ``classicGroupHeartbeatToConsumerGroup``).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Final, Generic, TypeVar

from msgspec.structs import replace

from kip848_client.errors import ErrorCode, ProtocolError
from kip848_client.testing.coordinator.classic.classic_group import ClassicState, Parked
from kip848_client.testing.coordinator.classic.classic_lookup import MEMBER_ID_ROUND_VERSION, new_classic_member_id
from kip848_client.testing.coordinator.classic.rebalance import ClassicOutcome, refused_join
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.kind import ClassicSide
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import ArmTimer, CancelTimer, CoordinatorResult, Reply
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.testing.coordinator.modern.member_lookup import (
    Found,
    check_room,
    returned,
    static_member,
    unknown_member,
)
from kip848_client.testing.coordinator.modern.member_record import (
    ClassicProtocols,
    Current,
    KeyT,
    MemberRecord,
    MetadataT,
    ReconciliationState,
    SharedMetadata,
)
from kip848_client.testing.coordinator.modern.modern_group import ModernGroup
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

SaidT = TypeVar("SaidT")


class MixedGroup(ClassicSide, Generic[KeyT, MetadataT, SaidT]):
    """A group of the new protocol that has, or may get, members on the classic one."""

    protocol_type: ClassVar[str]
    """The ``protocol_type`` that its members send."""

    def __init__(self, state: CoordinatorState, group: ModernGroup[KeyT, MetadataT]) -> None:
        self.state: Final = state
        self.group: Final = group

    # --- for each kind of group

    @property
    @abstractmethod
    def size_max(self) -> int:
        """How many members the group may have."""

    @abstractmethod
    def read(self, message: JoinGroupRequest) -> SaidT:
        """Decode the bytes of the member's first protocol.

        Raises:
            ProtocolError: they cannot be read.
        """

    @abstractmethod
    def metadata(self, said: SaidT, common: SharedMetadata) -> MetadataT:
        """The member's new metadata; *common* has the fields that every kind of group shares."""

    @abstractmethod
    def take_steps(
        self,
        request: ApiRequest,
        batch: Batch,
        found: Found[KeyT, MetadataT],
        metadata: MetadataT,
        said: SaidT,
        *,
        is_join: bool,
        now_ms: int,
    ) -> MemberRecord[KeyT, MetadataT]:
        """Take the three steps of a heartbeat; returns the member after them.

        Raises:
            Refused: the code for the answer; the batch is to be dropped.
        """

    @abstractmethod
    def downgrade_for(
        self,
        batch: Batch,
        *,
        replaced: MemberRecord[KeyT, MetadataT],
        joining: MemberRecord[KeyT, MetadataT],
        now_ms: int,
        wall_ms: int,
        parked: Parked,
    ) -> ClassicOutcome:
        """Turn the group into a classic one, because a classic static member takes the last other member's place."""

    @abstractmethod
    def protocol_of(self, classic: ClassicProtocols) -> str:
        """The protocol (assignor) that the answer names to a member."""

    @abstractmethod
    def assignment_of(self, member: MemberRecord[KeyT, MetadataT], classic: ClassicProtocols) -> bytes:
        """The member's present assignment, encoded for it."""

    @abstractmethod
    def exists(self, key: KeyT, number: int) -> bool:
        """Whether there is such a partition, or unit."""

    def has_news(self, member: MemberRecord[KeyT, MetadataT]) -> bool:
        """Whether the member has to join for a reason of this kind of group."""
        return False

    # --- JoinGroup

    def join(
        self, request: ApiRequest, message: JoinGroupRequest, *, rebalance_timeout_ms: int, now_ms: int
    ) -> CoordinatorResult:
        """Answer one JoinGroup to a group with members; its fields are within their bounds."""
        try:
            return self._join(request, message, rebalance_timeout_ms=rebalance_timeout_ms, now_ms=now_ms)
        except Refused as refused:
            # A classic client knows no epochs and no assignors: what fences one on the new protocol lets this one
            # begin anew.
            code = _CLASSIC_CODES.get(refused.code, refused.code)
            refusal = refused_join(code, member_id="", api_version=request.api_version)
            return CoordinatorResult(replies=(Reply(request.request_id, refusal),))

    def _join(
        self, request: ApiRequest, message: JoinGroupRequest, *, rebalance_timeout_ms: int, now_ms: int
    ) -> CoordinatorResult:
        batch = Batch(self.group.group_id)
        self._check(message)
        if (
            not message.member_id
            and message.group_instance_id is None
            and request.api_version >= MEMBER_ID_ROUND_VERSION
        ):
            refusal = refused_join(
                ErrorCode.MEMBER_ID_REQUIRED,
                member_id=self._new_id(request, message),
                api_version=request.api_version,
            )
            return batch.result(Reply(request.request_id, refusal))
        found = self._find(request, message)
        try:
            said = self.read(message)
        except ProtocolError as error:
            raise _inconsistent(f"What the member says cannot be read: {error}") from None
        before = found.member.metadata
        classic = ClassicProtocols(
            message.session_timeout_ms,
            tuple([(protocol.name, bytes(protocol.metadata)) for protocol in message.protocols]),
        )
        common = SharedMetadata(
            instance_id=before.instance_id if message.group_instance_id is None else message.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms,
            classic=classic,
        )
        after = self.metadata(said, common)
        metadata = before if after == before else after
        if found.replaced is not None and self._is_last(found.replaced):
            joining = MemberRecord(found.member.member_id, metadata, found.member.current)
            return self._downgrade(request, batch, replaced=found.replaced, joining=joining, now_ms=now_ms)
        is_join = found.is_new or found.replaced is not None
        joined = self.take_steps(request, batch, found, metadata, said, is_join=is_join, now_ms=now_ms)
        batch.soft += [
            CancelTimer(TimerKey(TimerKind.MIXED_JOIN, self.group.group_id, joined.member_id)),
            self._arm(joined, TimerKind.MIXED_SYNC, now_ms + rebalance_timeout_ms),
        ]
        response = JoinGroupResponse(
            generation_id=joined.current.member_epoch,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_of(classic),
            leader="",
            member_id=joined.member_id,
        )
        return batch.result(Reply(request.request_id, response))

    def _check(self, message: JoinGroupRequest) -> None:
        state, group = self.state, self.group
        if state.config.migration_policy == "disabled":
            raise _inconsistent(
                f"Group {group.group_id} is a {self.group.kind} group, and the online migration is disabled."
            )
        if message.member_id not in group.members and message.group_instance_id not in group.static_members:
            if len(group.members) >= self.size_max:
                raise Refused(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The {self.group.kind} group {group.group_id} has reached its maximum capacity of {self.size_max} "
                    "members.",
                )
            check_room(state, group.group_id)
        if message.protocol_type != self.protocol_type or not any(
            group.classic_protocols.get(protocol.name, 0) == group.classic_count for protocol in message.protocols
        ):
            raise _inconsistent(
                f"The members of group {group.group_id} on the classic protocol offer "
                f"{', '.join(sorted(group.classic_protocols)) or 'nothing'}; they and this one have none in common."
            )

    def _new_id(self, request: ApiRequest, message: JoinGroupRequest) -> str:
        return new_classic_member_id(self.state.rng, client_id=request.client_id, instance_id=message.group_instance_id)

    def _find(self, request: ApiRequest, message: JoinGroupRequest) -> Found[KeyT, MetadataT]:
        group, member_id, instance_id = self.group, message.member_id, message.group_instance_id
        if instance_id is not None and member_id:
            return Found(static_member(group, instance_id=instance_id, member_id=member_id))
        if instance_id is not None and instance_id in group.static_members:
            holder = group.members[group.static_members[instance_id]]
            new_id = self._new_id(request, message)
            return Found(replace(holder, member_id=new_id, current=returned(holder.current)), replaced=holder)
        known = group.members.get(member_id)
        if known is not None:
            return Found(known)
        return Found(group.new_member(member_id or self._new_id(request, message)), is_new=True)

    def _is_last(self, replaced: MemberRecord[KeyT, MetadataT]) -> bool:
        """Whether only members on the classic protocol are left once the sender has taken the place of *replaced*."""
        group, config = self.group, self.state.config
        return (
            config.may_downgrade
            and replaced.metadata.classic is None
            and group.classic_count == len(group.members) - 1
            and len(group.members) <= config.classic_max_size
        )

    def _downgrade(
        self,
        request: ApiRequest,
        batch: Batch,
        *,
        replaced: MemberRecord[KeyT, MetadataT],
        joining: MemberRecord[KeyT, MetadataT],
        now_ms: int,
    ) -> CoordinatorResult:
        fields = {"reason": "replaced"}
        batch.happened("member_left", member=replaced, group_epoch=self.group.group_epoch, fields=fields)
        outcome = self.downgrade_for(
            batch,
            replaced=replaced,
            joining=joining,
            parked=Parked(request.request_id, request.api_version),
            now_ms=now_ms,
            wall_ms=request.wall_ms,
        )
        if outcome.group.state is ClassicState.STABLE:
            # No leader is named: the group has its assignment, and the client is not to compute one.
            response = outcome.join_response(joining.member_id, with_members=False)
            outcome.reply(request.request_id, replace(response, leader=""))
        batch.add(outcome.result())
        return batch.result()

    # --- SyncGroup

    def sync(self, request: ApiRequest, message: SyncGroupRequest, *, now_ms: int) -> CoordinatorResult:
        """Answer one SyncGroup with what the member may use now.

        Raises:
            Refused: the code for the answer; nothing changed.
        """
        member, classic = self._find_classic(
            message.member_id, instance_id=message.group_instance_id, generation=message.generation_id
        )
        protocol = self.protocol_of(classic)
        for sent, expected in ((message.protocol_type, self.protocol_type), (message.protocol_name, protocol)):
            if sent is not None and sent != expected:
                raise _inconsistent(f"The member joined with {expected}, and {sent} was sent.")
        current = member.current
        if self._is_behind(current) and current.state is not ReconciliationState.UNREVOKED_PARTITIONS:
            refusal = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            join = self._expect_join(member, now_ms=now_ms)
            return CoordinatorResult(replies=(Reply(request.request_id, refusal),), soft=join)
        response = SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=protocol,
            assignment=self.assignment_of(member, classic),
        )
        return CoordinatorResult(
            replies=(Reply(request.request_id, response),),
            soft=(
                CancelTimer(TimerKey(TimerKind.MIXED_SYNC, self.group.group_id, member.member_id)),
                self._arm(member, TimerKind.SESSION, now_ms + classic.session_timeout_ms),
            ),
        )

    # --- Heartbeat

    def beat(self, message: HeartbeatRequest, *, now_ms: int) -> tuple[ErrorCode, tuple[ArmTimer, ...]]:
        """The code for one Heartbeat, and the timers that it arms.

        Raises:
            Refused: the code for the answer; nothing changed.
        """
        member, classic = self._find_classic(
            message.member_id, instance_id=message.group_instance_id, generation=message.generation_id
        )
        session = self._arm(member, TimerKind.SESSION, now_ms + classic.session_timeout_ms)
        if not self._must_rejoin(member):
            return ErrorCode.NONE, (session,)
        return ErrorCode.REBALANCE_IN_PROGRESS, (session, *self._expect_join(member, now_ms=now_ms))

    def _find_classic(
        self, member_id: str, *, instance_id: str | None, generation: int
    ) -> tuple[MemberRecord[KeyT, MetadataT], ClassicProtocols]:
        group = self.group
        member: MemberRecord[KeyT, MetadataT] | None
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

    def _is_behind(self, current: Current[KeyT]) -> bool:
        """Whether there is, or will be, a newer target.

        Heartbeats of members on the new protocol compute it. In a group without such members a JoinGroup must do it, so
        a classic member has to be asked to join.
        """
        group = self.group
        is_alone = group.classic_count == len(group.members)
        return current.member_epoch < (group.group_epoch if is_alone else group.target_epoch)

    def _must_rejoin(self, member: MemberRecord[KeyT, MetadataT]) -> bool:
        """Whether a JoinGroup would change the member's assignment or epoch."""
        group, current = self.group, member.current
        if (
            self._is_behind(current)
            or current.state is ReconciliationState.UNREVOKED_PARTITIONS
            or self.has_news(member)
        ):
            return True
        return current.state is ReconciliationState.UNRELEASED_PARTITIONS and all(
            group.holders(key).get(number) in (None, member.member_id)
            for key, numbers in group.target_of(member.member_id).items()
            for number in numbers
            if self.exists(key, number)
        )

    def _expect_join(self, member: MemberRecord[KeyT, MetadataT], *, now_ms: int) -> tuple[ArmTimer, ...]:
        """Start the timer for the JoinGroup that the member was asked for, unless it runs already."""
        if self.state.timers.get(TimerKey(TimerKind.MIXED_JOIN, self.group.group_id, member.member_id)) is not None:
            return ()
        return (self._arm(member, TimerKind.MIXED_JOIN, now_ms + member.metadata.rebalance_timeout_ms),)

    def _arm(self, member: MemberRecord[KeyT, MetadataT], kind: TimerKind, deadline_ms: int) -> ArmTimer:
        return ArmTimer(
            TimerKey(kind, self.group.group_id, member.member_id),
            deadline_ms=deadline_ms,
            member_epoch=member.current.member_epoch,
        )


_CLASSIC_CODES: Final = {
    ErrorCode.FENCED_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNSUPPORTED_ASSIGNOR: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
}
"""Codes that JoinGroup does not have -> the code that it answers in their place."""


def _inconsistent(message: str) -> Refused:
    return Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)
