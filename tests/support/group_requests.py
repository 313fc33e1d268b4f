"""Requests of one member of the group ``g`` that subscribes to ``orders``, for tests that write them by hand."""

from __future__ import annotations

from collections.abc import Mapping

from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)


def join(member_id: str = "m") -> ConsumerGroupHeartbeatRequest:
    """A heartbeat that joins."""
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )


def heartbeat(epoch: int, member_id: str = "m") -> ConsumerGroupHeartbeatRequest:
    """A heartbeat without changes."""
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch)


def commit(offsets: Mapping[int, int], *, epoch: int = -1, member_id: str = "") -> OffsetCommitRequest:
    """A commit of partition -> offset."""
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=(
            OffsetCommitRequestTopic(
                name="orders",
                partitions=tuple(
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                    for index, offset in offsets.items()
                ),
            ),
        ),
    )
