"""Online migration: a live classic group becomes one of a newer kind, and back. Each conversion is one atomic batch.

Upgrade: a member joins a classic group with a heartbeat. The members of the group become members that speak the classic
protocol, each with the assignment that it has; see `mixed_group` for their requests. Downgrade: the last member on the
new protocol goes, and only members on the classic protocol are left.

This is what all kinds do alike; each has its own `upgrade` and `downgrade` (`consumer.consumer_conversion`,
`connect.connect_conversion`).

Source: KIP-848 "Supporting Online Consumer Group Upgrade"; Kafka's ``ConsumerGroup.fromClassicGroup``,
``ClassicGroup.fromConsumerGroup``, ``GroupMetadataManager.convertToConsumerGroup`` and ``convertToClassicGroup``.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    count_protocols,
    select_protocol,
    subscribed_topics,
)
from kip848_client.testing.coordinator.classic.rebalance import CLASSIC_TIMERS, ClassicOutcome
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import ArmTimer, CancelTimer, CoordinatorRecord
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.testing.coordinator.modern.member_record import (
    ClassicProtocols,
    KeyT,
    MemberRecord,
    MetadataT,
    SharedMetadata,
)
from kip848_client.testing.coordinator.modern.member_timers import session_timeout_ms
from kip848_client.testing.coordinator.modern.modern_group import ModernGroup

# --- upgrade


def end_classic_group(
    state: CoordinatorState,
    classic: ClassicGroup,
    group: ModernGroup[KeyT, MetadataT],
    batch: Batch,
    *,
    written: Iterable[CoordinatorRecord],
    now_ms: int,
    wall_ms: int,
) -> None:
    """Put *group* into the place of *classic*: its record, its parked requests and its timers.

    Args:
        written: the records of *group*.
    """
    group_id = classic.group_id
    batch.records += [*classic.tombstones(), *written]
    outcome = ClassicOutcome(state, classic, now_ms=now_ms, wall_ms=wall_ms)
    for member_id in tuple(classic.awaiting_join):
        outcome.refuse_join(member_id, ErrorCode.REBALANCE_IN_PROGRESS)
    for member_id in tuple(classic.awaiting_sync):
        outcome.refuse_sync(member_id, ErrorCode.REBALANCE_IN_PROGRESS)
    batch.replies += outcome.result().replies
    batch.soft += [
        CancelTimer(TimerKey(kind, group_id, member_id))
        for member_id in ("", *sorted(classic.pending_joins), *classic.members)
        for kind in sorted(CLASSIC_TIMERS)
    ]
    batch.soft += [
        ArmTimer(
            TimerKey(TimerKind.SESSION, group_id, member.member_id),
            deadline_ms=now_ms + session_timeout_ms(state, group, member),
            member_epoch=member.current.member_epoch,
        )
        for member in group.members.values()
    ]
    _note(batch, to=group.kind, group_epoch=classic.generation, members=classic.members)


def check_upgrade(
    state: CoordinatorState, classic: ClassicGroup, *, kind: str, protocol_type: str, size_max: int
) -> None:
    """Refuse what cannot become a group of this kind.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, it stays classic; COORDINATOR_LOAD_IN_PROGRESS, it has no generation yet.
    """
    if not state.config.may_upgrade:
        raise cannot_upgrade(classic, "the online upgrade is disabled", kind=kind)
    if classic.protocol_type != protocol_type:
        raise cannot_upgrade(
            classic, f"its protocol type is {classic.protocol_type} and not {protocol_type}", kind=kind
        )
    if len(classic.members) > size_max:
        raise cannot_upgrade(classic, f"it has {len(classic.members)} members, more than {size_max}", kind=kind)
    if classic.protocol is None:
        raise Refused(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"Group {classic.group_id} forms its first generation; try again.",
        )


def shared_metadata(member: ClassicMember) -> SharedMetadata:
    """The metadata of a member of a classic group, without the bytes of its protocols."""
    return SharedMetadata(
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicProtocols(member.session_timeout_ms, member.protocols),
    )


def cannot_upgrade(classic: ClassicGroup, why: str, *, kind: str) -> Refused:
    """GROUP_ID_NOT_FOUND: the group stays classic."""
    return Refused(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to {kind} group because {why}.",
    )


# --- downgrade


def can_downgrade(
    state: CoordinatorState, group: ModernGroup[KeyT, MetadataT], *, gone: Iterable[MemberRecord[KeyT, MetadataT]]
) -> bool:
    """Whether only members on the classic protocol are left when *gone* are, and the group may be theirs."""
    classic_gone = [member.metadata.classic is not None for member in gone]
    left = len(group.members) - len(classic_gone)
    return (
        state.config.may_downgrade
        and 0 < left <= state.config.classic_max_size
        and group.classic_count - sum(classic_gone) == left
    )


def start_classic_group(
    state: CoordinatorState,
    group: ModernGroup[KeyT, MetadataT],
    batch: Batch,
    *,
    members: Iterable[ClassicMember],
    protocol_type: str,
    now_ms: int,
    wall_ms: int,
) -> ClassicOutcome:
    """Put a classic group of *members* into the place of *group*; its generation is the group epoch."""
    batch.records += group.tombstones()
    for member_id in group.sorted_member_ids:
        batch.cancel_timers(member_id)
    downgraded = {member.member_id: member for member in members}
    classic = ClassicGroup(
        group_id=group.group_id,
        state=ClassicState.STABLE,
        generation=group.group_epoch,
        protocol_type=protocol_type,
        leader=next(iter(downgraded)),
        members=downgraded,
        static_members={
            member.instance_id: member_id for member_id, member in downgraded.items() if member.instance_id is not None
        },
        protocol_counts=count_protocols(downgraded.values()),
        state_timestamp_ms=wall_ms,
    )
    protocol = select_protocol(classic)
    classic = replace(
        classic,
        protocol=protocol,
        subscribed_topics=subscribed_topics(
            protocol_type, [member.metadata(protocol) for member in downgraded.values()]
        ),
    )
    _note(batch, to="classic", group_epoch=group.group_epoch, members=classic.members)
    outcome = ClassicOutcome(state, classic, now_ms=now_ms, wall_ms=wall_ms)
    outcome.log()
    for member in classic.members.values():
        outcome.arm_session(member.member_id, member.session_timeout_ms)
    return outcome


def downgraded_member(member: MemberRecord[KeyT, MetadataT], *, assignment: bytes) -> ClassicMember:
    """The member, which speaks the classic protocol, as a member of a classic group."""
    metadata = member.metadata
    classic = protocols_of(member)
    return ClassicMember(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=classic.protocols,
        assignment=assignment,
    )


def protocols_of(member: MemberRecord[KeyT, MetadataT]) -> ClassicProtocols:
    """The protocols that a member offers; the member must speak the classic protocol."""
    classic: ClassicProtocols | None = member.metadata.classic
    assert classic is not None
    return classic


def _note(batch: Batch, *, to: str, group_epoch: int, members: Iterable[str]) -> None:
    batch.happened("group_converted", group_epoch=group_epoch, fields={"type": to, "members": sorted(members)})
