"""ConsumerGroupPrepareAssignment and ConsumerGroupInstallAssignment: the chosen member computes the group's target.

Its assignment is checked against the snapshot of the group that Prepare returned. It is installed even if the group has
changed since, so that a group that changes often still makes progress. The next round then starts at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from uuid import UUID

import msgspec
from msgspec.structs import replace

from kip848_client.assignors.server.spec import TopicPartitions
from kip848_client.testing.coordinator.consumer import consumer_records
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.consumer_member import ConsumerMember
from kip848_client.testing.coordinator.consumer.subscriptions import Subscriptions
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.refusal import Refused
from kip848_client.testing.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.modern.assignment_round import Prepared, TargetComputed
from kip848_client.testing.coordinator.modern.client_assignment import RoundPlanner, client_assignor
from kip848_client.testing.coordinator.modern.computed_target import (
    find_round,
    invalid,
    not_chosen,
    note_refusal,
    note_target,
    parts_of_present,
    prepared_for,
)
from kip848_client.testing.coordinator.modern.member_record import NO_METADATA, AssignmentMetadata
from kip848_client.wire.messages import consumer_group_install_assignment as install_wire
from kip848_client.wire.messages import consumer_group_prepare_assignment as prepare_wire
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)


class PreparedGroup(Prepared, frozen=True):
    """A consumer group.

    Args:
        subscriptions: member id -> ids of the topics that it subscribes to and that exist.
        topics: id of every subscribed topic -> number of its partitions.
    """

    subscriptions: Mapping[str, tuple[UUID, ...]]
    topics: Mapping[UUID, int]


class SubmittedTarget(msgspec.Struct, frozen=True):
    """One member's part of the target that a member computed and submitted with Install."""

    partitions: TopicPartitions
    metadata: AssignmentMetadata


_NOTHING = SubmittedTarget({}, NO_METADATA)


def handle_prepare(
    state: CoordinatorState, request: ApiRequest, message: ConsumerGroupPrepareAssignmentRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one ConsumerGroupPrepareAssignment with a snapshot of the group. Only the last snapshot counts."""
    batch = Batch(message.group_id)
    try:
        group, _ = find_round(state, message, find_group=partial(state.existing, ConsumerGroup))
        member = group.members[message.member_id]
        planner = RoundPlanner(state, group, batch, group_epoch=group.group_epoch)
        assignor_name = planner.renew(client_assignor(state, group), member_id=member.member_id)
        if assignor_name is None:
            raise not_chosen(group, member_id=member.member_id)
    except Refused as refused:
        refusal = ConsumerGroupPrepareAssignmentResponse(error_code=refused.code, error_message=refused.message)
        return batch.result(Reply(request.request_id, refusal))
    subscriptions = {
        member_id: state.part(Subscriptions).of_member(group, group.members[member_id].metadata)
        for member_id in group.sorted_member_ids
    }
    subscribed = sorted({topic_id for topic_ids in subscriptions.values() for topic_id in topic_ids})
    prepared = PreparedGroup(
        group_epoch=group.group_epoch,
        subscriptions=subscriptions,
        instance_ids={member_id: instance_id for instance_id, member_id in group.static_members.items()},
        topics={topic_id: state.image.partition_counts[topic_id] for topic_id in subscribed},
    )
    planner.prepared(member, prepared, now_ms=now_ms)
    response = ConsumerGroupPrepareAssignmentResponse(
        group_epoch=prepared.group_epoch,
        assignor_name=assignor_name,
        members=tuple(
            [
                _described(group, group.members[member_id], topic_ids, assignor_name=assignor_name)
                for member_id, topic_ids in subscriptions.items()
            ]
        ),
        topics=tuple(
            [
                prepare_wire.TopicMetadata(
                    topic_id=topic_id, topic_name=state.image.by_id[topic_id].name, num_partitions=count
                )
                for topic_id, count in prepared.topics.items()
            ]
        ),
    )
    return batch.result(Reply(request.request_id, response))


def handle_install(
    state: CoordinatorState, request: ApiRequest, message: ConsumerGroupInstallAssignmentRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one ConsumerGroupInstallAssignment. A refused one changes nothing; the member may try again."""
    batch = Batch(message.group_id)
    try:
        group, flying = find_round(state, message, find_group=partial(state.existing, ConsumerGroup))
        prepared = prepared_for(flying, message, kind=PreparedGroup)
        submitted = None
        if not message.error:
            bytes_max = state.config.client_assignors_bytes_max
            submitted = read_assignment(prepared, message.members, bytes_max=bytes_max)
    except Refused as refused:
        note_refusal(batch, state.find(ConsumerGroup, message.group_id), member_id=message.member_id, refused=refused)
        refusal = ConsumerGroupInstallAssignmentResponse(error_code=refused.code, error_message=refused.message)
        return batch.result(Reply(request.request_id, refusal))
    epoch = prepared.group_epoch
    if submitted is None:
        _write(group, batch, _target_kept(state, group, error=message.error, assignor=flying.assignor_name))
    else:
        signed = {member_id: _signed(part, assignor=flying.assignor_name) for member_id, part in submitted.items()}
        parts = parts_of_present(group, prepared, signed, known=prepared.subscriptions)
        _write(group, batch, {member_id: part or _NOTHING for member_id, part in parts.items()})
    batch.records.append(
        consumer_records.target_epoch_record(
            group.group_id, epoch=epoch, timestamp_ms=request.wall_ms, client_assignor=flying.assignor_name
        )
    )
    computed = {member_id: part.partitions for member_id, part in (submitted or {}).items()}
    note_target(batch, group, flying, epoch=epoch, error=message.error, members=computed)
    batch.soft.append(TargetComputed(group.group_id, now_ms))
    is_behind = group.group_epoch > epoch and not state.group_config(group.group_id).assignment_interval_ms
    planner = RoundPlanner(state, group, batch, group_epoch=group.group_epoch)
    planner.start_next(client_assignor(state, group) if is_behind else None)
    return batch.result(Reply(request.request_id, ConsumerGroupInstallAssignmentResponse()))


def read_assignment(
    prepared: PreparedGroup, members: tuple[install_wire.Member, ...], *, bytes_max: int
) -> Mapping[str, SubmittedTarget]:
    """The target of each member, checked against the snapshot of Prepare.

    Args:
        bytes_max: of the metadata of one member.

    Returns:
        Member id -> its part. A member that the request leaves out is left out here too.

    Raises:
        Refused: INVALID_ASSIGNMENT; names the member and the partition.

    Source:
        KIP-848 "Assignment Validation": all partitions are assigned, each once, and all members are known. We also
        demand that topics and partitions exist and that the member subscribes to them, because it could not own them.
    """
    owners: dict[UUID, list[str | None]] = {topic_id: [None] * count for topic_id, count in prepared.topics.items()}
    submitted: dict[str, SubmittedTarget] = {}
    for member in members:
        member_id = member.member_id
        subscribed = prepared.subscriptions.get(member_id)
        if subscribed is None:
            raise invalid(f"{member_id!r} is not a member of the group at epoch {prepared.group_epoch}.")
        if member_id in submitted:
            raise invalid(f"member {member_id!r} is there twice.")
        if len(member.metadata_bytes) > bytes_max:
            raise invalid(
                f"member {member_id!r} is told {len(member.metadata_bytes)} bytes; at most {bytes_max} are "
                "allowed (kip848.client.assignors.max.bytes of the broker)."
            )
        partitions: dict[UUID, tuple[int, ...]] = {}
        for topic in member.partitions:
            topic_id, given = topic.topic_id, topic.partitions
            if topic_id not in subscribed:
                raise invalid(f"member {member_id!r} does not subscribe to topic id {topic_id}.")
            taken = owners[topic_id]
            for partition in given:
                if not 0 <= partition < len(taken):
                    raise invalid(
                        f"partition {partition} of topic id {topic_id} (member {member_id!r}) does not exist; the "
                        f"topic has {len(taken)}."
                    )
                if taken[partition] is not None:
                    raise invalid(
                        f"partition {partition} of topic id {topic_id} is given twice: to {taken[partition]!r} and to "
                        f"{member_id!r}."
                    )
                taken[partition] = member_id
            if given:
                partitions[topic_id] = tuple(sorted((*partitions.get(topic_id, ()), *given)))
        told = AssignmentMetadata(version=member.metadata_version, data=member.metadata_bytes)
        submitted[member_id] = SubmittedTarget(partitions, told)
    for topic_id, taken in owners.items():
        missing = [partition for partition, owner in enumerate(taken) if owner is None]
        if missing:
            shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
            raise invalid(f"{len(missing)} partitions of topic id {topic_id} have no member: {shown}.")
    return submitted


def _described(
    group: ConsumerGroup, member: ConsumerMember, topic_ids: tuple[UUID, ...], *, assignor_name: str
) -> prepare_wire.Member:
    metadata, target = member.metadata, group.target_of(member.member_id)
    offered = next(item for item in metadata.client_assignors if item.name == assignor_name)
    return prepare_wire.Member(
        member_id=member.member_id,
        member_epoch=member.current.member_epoch,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        subscribed_topic_ids=topic_ids,
        assignor=prepare_wire.Assignor(
            reason=offered.reason,
            metadata_version=offered.metadata_version,
            metadata_bytes=offered.metadata_bytes,
        ),
        topic_partitions=tuple(
            [prepare_wire.TopicPartition(topic_id=topic_id, partitions=target[topic_id]) for topic_id in sorted(target)]
        ),
    )


def _signed(part: SubmittedTarget, *, assignor: str) -> SubmittedTarget:
    """Add the assignor's name to a member's metadata, because a member may offer several assignors."""
    return part if part.metadata == NO_METADATA else replace(part, metadata=replace(part.metadata, assignor=assignor))


def _target_kept(
    state: CoordinatorState, group: ConsumerGroup, *, error: int, assignor: str
) -> dict[str, SubmittedTarget]:
    """The current target without deleted or unsubscribed topics; it becomes the target of the newer epoch."""
    target = {}
    for member_id in group.sorted_member_ids:
        subscribed = state.part(Subscriptions).of_member(group, group.members[member_id].metadata)
        kept = group.target_metadata_of(member_id)
        if kept.assignor not in ("", assignor):
            kept = NO_METADATA  # metadata of another assignor would not fit the error
        partitions = {topic: held for topic, held in group.target_of(member_id).items() if topic in subscribed}
        target[member_id] = SubmittedTarget(partitions, replace(kept, error=error, assignor=assignor))
    return target


def _write(group: ConsumerGroup, batch: Batch, target: Mapping[str, SubmittedTarget]) -> None:
    """Write a record for each member whose part changed."""
    for member_id, part in target.items():
        if (
            member_id not in group.target
            or group.target[member_id] != part.partitions
            or group.target_metadata_of(member_id) != part.metadata
        ):
            batch.records.append(
                consumer_records.target_record(
                    group.group_id, member_id=member_id, target=part.partitions, metadata=part.metadata
                )
            )
