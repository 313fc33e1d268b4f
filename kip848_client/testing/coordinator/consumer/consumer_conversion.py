"""Online migration of consumers: a classic group becomes a consumer group, and back. The common part is in `migration`.

Upgrade: a member joins a classic group with ConsumerGroupHeartbeat. Downgrade: the last member on the new protocol
goes, and the members that are left join again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from uuid import UUID

from kip848_client.assignors.server.spec import TopicPartitions
from kip848_client.errors import ProtocolError
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup, ClassicMember, ClassicState
from kip848_client.testing.coordinator.classic.rebalance import ClassicOutcome
from kip848_client.testing.coordinator.consumer import consumer_records
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.consumer_member import (
    ConsumerMember,
    ConsumerMetadata,
    CurrentAssignment,
)
from kip848_client.testing.coordinator.consumer.subscriptions import Subscriptions
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.result import CoordinatorRecord
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.core.topics_image import TopicsImage
from kip848_client.testing.coordinator.migration.conversion import (
    cannot_upgrade,
    check_upgrade,
    downgraded_member,
    end_classic_group,
    protocols_of,
    shared_metadata,
    start_classic_group,
)
from kip848_client.testing.coordinator.modern.member_record import (
    ClassicProtocols,
    Current,
    MemberRecord,
    SharedMetadata,
)
from kip848_client.wire.messages.consumer_protocol import (
    CONSUMER_PROTOCOL,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    embedded_version,
    encode_assignment,
)
from kip848_client.wire.messages.group_records import OffsetCommitKey

# --- upgrade


def upgrade(
    state: CoordinatorState, classic: ClassicGroup, batch: Batch, *, now_ms: int, wall_ms: int
) -> ConsumerGroup:
    """Turn a classic group with members into a consumer group.

    Its epoch is the generation. Every member is at that epoch and has what the leader gave it last. Requests that are
    parked are answered REBALANCE_IN_PROGRESS.

    Args:
        batch: takes the records, timers and answers.

    Returns:
        The group as the records make it, for the join that follows.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, the group cannot be converted; COORDINATOR_LOAD_IN_PROGRESS, it has no generation
            yet, and the client tries again. Nothing changed.
    """
    members = _upgraded_members(state, classic)
    group_id, epoch = classic.group_id, classic.generation
    topics = frozenset(name for member in members for name in member.metadata.subscribed_topic_names)
    written: list[CoordinatorRecord] = [
        consumer_records.member_metadata_record(group_id, member_id=member.member_id, metadata=member.metadata)
        for member in members
    ]
    written.append(
        consumer_records.group_epoch_record(
            group_id, epoch=epoch, metadata_hash=state.part(Subscriptions).metadata_hash(topics)
        )
    )
    written += [
        consumer_records.target_record(group_id, member_id=member.member_id, target=_target(member.current))
        for member in members
    ]
    written.append(consumer_records.target_epoch_record(group_id, epoch=epoch, timestamp_ms=wall_ms))
    written += [
        consumer_records.current_record(group_id, member_id=member.member_id, current=member.current)
        for member in members
    ]
    group = ConsumerGroup(group_id)
    for record in written:
        assert not isinstance(record.key, OffsetCommitKey)
        group.replay(record.key, record.value)
    end_classic_group(state, classic, group, batch, written=written, now_ms=now_ms, wall_ms=wall_ms)
    return group


def is_settled(state: CoordinatorState, classic: ClassicGroup, group: ConsumerGroup) -> bool:
    """Whether *group* may go on with the assignment of *classic*, so that no member has to join again.

    In the middle of a rebalance members have something else than the coordinator recorded, and only a JoinGroup says
    what. And an assignment may leave partitions out, or have topics that a static member no longer subscribes to.
    Otherwise the group has to move by an epoch, which sends every classic member to join again.
    """
    if classic.state is not ClassicState.STABLE:
        return False
    count = 0
    for member in group.members.values():
        wanted = set(state.image.ids_of(frozenset(member.metadata.subscribed_topic_names)))
        if not wanted >= member.current.assigned.keys():
            return False
        count += sum(map(len, member.current.assigned.values()))
    topics = (state.image.by_name.get(name) for name in group.subscribed_topics)
    return count == sum(topic.partition_count for topic in topics if topic is not None)


def _upgraded_members(state: CoordinatorState, classic: ClassicGroup) -> list[ConsumerMember]:
    size_max = state.config.consumer_max_size
    check_upgrade(state, classic, kind="consumer", protocol_type=CONSUMER_PROTOCOL, size_max=size_max)
    given: dict[UUID, set[int]] = {}
    return [_upgraded_member(state, classic, member, given=given) for member in classic.members.values()]


def _upgraded_member(
    state: CoordinatorState, classic: ClassicGroup, member: ClassicMember, *, given: dict[UUID, set[int]]
) -> ConsumerMember:
    """The member, with its partitions.

    Args:
        given: partitions that other members have, so that one that the leader assigned twice gets a single owner.
    """
    # A member that joined after the vote need not offer the chosen assignor.
    subscription = member.metadata(classic.protocol) or member.protocols[0][1]
    try:
        subscribed = decode_subscription(subscription)
        assignment = decode_assignment(member.assignment) if member.assignment else ConsumerProtocolAssignment()
    except ProtocolError as error:
        why = f"the bytes of member {member.member_id} cannot be read: {error}"
        raise cannot_upgrade(classic, why, kind="consumer") from None
    if assignment.user_data:
        # librdkafka writes the user data of a member's subscription into its assignment, and its cooperative-sticky
        # has some from the second rebalance on.
        raise cannot_upgrade(
            classic,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            f"assignor before re-attempting the upgrade. The assignment of member {member.member_id} has "
            f"{len(assignment.user_data)} bytes of user data; the leader may be librdkafka with cooperative-sticky",
            kind="consumer",
        )
    assigned: dict[UUID, Mapping[int, int]] = {}
    for topic_id, partitions in partitions_by_id(assignment.assigned_partitions, image=state.image).items():
        taken = given.setdefault(topic_id, set())
        if free := sorted(partitions - taken):
            assigned[topic_id] = dict.fromkeys(free, classic.generation)
            taken.update(free)
    metadata = classic_metadata(subscribed, shared_metadata(member))
    return MemberRecord(member.member_id, metadata, Current(classic.generation, classic.generation, assigned=assigned))


def classic_metadata(subscription: ConsumerProtocolSubscription, common: SharedMetadata) -> ConsumerMetadata:
    """The metadata of a member on the classic protocol."""
    return ConsumerMetadata(
        instance_id=common.instance_id,
        rack_id=subscription.rack_id,
        client_id=common.client_id,
        client_host=common.client_host,
        rebalance_timeout_ms=common.rebalance_timeout_ms,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        classic=common.classic,
    )


def partitions_by_id(named: Iterable[TopicPartition], *, image: TopicsImage) -> dict[UUID, set[int]]:
    """Topic id -> partitions; topics that do not exist are left out."""
    found: dict[UUID, set[int]] = {}
    for topic in named:
        info = image.by_name.get(topic.topic)
        if info is not None and (known := {n for n in topic.partitions if 0 <= n < info.partition_count}):
            found.setdefault(info.topic_id, set()).update(known)
    return found


def _target(current: CurrentAssignment) -> TopicPartitions:
    return {topic_id: tuple(sorted(epochs)) for topic_id, epochs in current.assigned.items()}


# --- downgrade


def downgrade(
    state: CoordinatorState, group: ConsumerGroup, batch: Batch, *, gone: AbstractSet[str], now_ms: int, wall_ms: int
) -> None:
    """Turn a consumer group into a classic one of the members that are left, and let all of them join again.

    The generation is the group epoch, and each member gets its part of the target.

    Args:
        gone: ids of members that leave with this.
    """
    members = [member for member_id, member in group.members.items() if member_id not in gone]
    targets = {member.member_id: group.target_of(member.member_id) for member in members}
    outcome = begin_downgrade(state, group, batch, members=members, targets=targets, now_ms=now_ms, wall_ms=wall_ms)
    outcome.prepare()
    batch.add(outcome.result())


def begin_downgrade(
    state: CoordinatorState,
    group: ConsumerGroup,
    batch: Batch,
    *,
    members: Iterable[ConsumerMember],
    targets: Mapping[str, TopicPartitions],
    now_ms: int,
    wall_ms: int,
) -> ClassicOutcome:
    """Write the tombstones of a consumer group; `ClassicOutcome.result` writes the record of the classic group."""
    classic = [
        downgraded_member(
            member,
            assignment=assignment_bytes(protocols_of(member), targets[member.member_id], image=state.image),
        )
        for member in members
    ]
    return start_classic_group(
        state, group, batch, members=classic, protocol_type=CONSUMER_PROTOCOL, now_ms=now_ms, wall_ms=wall_ms
    )


def assignment_bytes(
    classic: ClassicProtocols, partitions: Mapping[UUID, Iterable[int]], *, image: TopicsImage
) -> bytes:
    """Partitions as a member on the classic protocol reads them, in the version that it writes itself.

    Topics that are gone are left out.
    """
    named = {
        image.by_id[topic_id].name: tuple(sorted(partitions[topic_id]))
        for topic_id in partitions
        if topic_id in image.by_id
    }
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=tuple(TopicPartition(topic=name, partitions=named[name]) for name in sorted(named))
    )
    version = min(embedded_version(classic.protocols[0][1]), ConsumerProtocolAssignment.WIRE.versions.last)
    return encode_assignment(assignment, version=version)
