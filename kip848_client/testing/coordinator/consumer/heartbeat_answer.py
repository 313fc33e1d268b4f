"""The assignment in the answer to a heartbeat: whether there is one, and what it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias
from uuid import UUID

from kip848_client.assignors.server.spec import TopicPartitions
from kip848_client.testing.coordinator.consumer.consumer_member import CurrentAssignment, PartitionEpochs
from kip848_client.testing.coordinator.modern.member_record import JOIN_EPOCH, ReconciliationState
from kip848_client.wire.messages.consumer_group_heartbeat import Assignment, ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.consumer_group_heartbeat import TopicPartitions as WireTopicPartitions

Waiting: TypeAlias = Mapping[UUID, list[int]]
"""Topic id -> partitions of a target that others still have."""


def plain_assignment(
    message: ConsumerGroupHeartbeatRequest, *, before: CurrentAssignment, after: CurrentAssignment
) -> Assignment | None:
    """For a member without client-side assignors: its assignment, if that changed or it asks."""
    if _same_partitions(after.assigned, before.assigned) and not _asks_for_assignment(message):
        return None
    return Assignment(topic_partitions=_topics(after.assigned))


def extended_assignment(
    message: ConsumerGroupHeartbeatRequest,
    *,
    before: CurrentAssignment,
    after: CurrentAssignment,
    waited: Waiting,
    waits: Waiting,
) -> Assignment | None:
    """For a member with client-side assignors: also the partitions that it waits for, and its assignor's metadata.

    The answer has it even if only one of these changed. A target that was installed since the last heartbeat shows
    in the epoch.

    Args:
        waited: partitions that the member waited for before this heartbeat, from `waiting`. waits: those that it waits
            for now.
    """
    unreleased = ReconciliationState.UNRELEASED_PARTITIONS in (before.state, after.state)
    if (
        _same_partitions(after.assigned, before.assigned)
        and after.metadata == before.metadata
        and waits == waited
        and not (unreleased and after.member_epoch != before.member_epoch)
        and not _asks_for_assignment(message)
    ):
        return None
    return Assignment(
        topic_partitions=_topics(after.assigned),
        error=after.metadata.error,
        pending_topic_partitions=_topics(waits),
        metadata_version=after.metadata.version,
        metadata_bytes=after.metadata.data,
        assignor_name=after.metadata.assignor,
    )


def waiting(current: CurrentAssignment, *, target: TopicPartitions, subscribed: Iterable[UUID]) -> Waiting:
    """Target partitions of a member that others still hold: topic id -> partitions, ascending.

    Args:
        target: the member's part of the target.
        subscribed: ids of the topics that it subscribes to.
    """
    if current.state is not ReconciliationState.UNRELEASED_PARTITIONS:
        return {}
    pending: dict[UUID, list[int]] = {}
    for topic_id in subscribed:
        held = current.assigned.get(topic_id, {})
        missing = [partition for partition in sorted(target.get(topic_id, ())) if partition not in held]
        if missing:
            pending[topic_id] = missing
    return pending


def _asks_for_assignment(message: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the answer must repeat the assignment: a join, or a request with every field."""
    return message.member_epoch == JOIN_EPOCH or (
        message.rebalance_timeout_ms != -1
        and message.topic_partitions is not None
        and (message.subscribed_topic_names is not None or message.subscribed_topic_regex is not None)
    )


def _same_partitions(one: PartitionEpochs, other: PartitionEpochs) -> bool:
    return one is other or (
        one.keys() == other.keys() and all(one[topic_id].keys() == other[topic_id].keys() for topic_id in one)
    )


def _topics(partitions: Mapping[UUID, Mapping[int, int] | list[int]]) -> tuple[WireTopicPartitions, ...]:
    return tuple(
        WireTopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions[topic_id])))
        for topic_id in sorted(partitions)
    )
