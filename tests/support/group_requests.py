"""Requests of groups that subscribe to ``orders`` unless told otherwise, and a member that is spoken by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest


def join(
    member_id: str = "m", *, group: str = "g", topics: tuple[str, ...] | None = ("orders",), **fields: Any
) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat that joins."""
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=0,
        subscribed_topic_names=topics,
        **{"rebalance_timeout_ms": 60_000, "topic_partitions": (), **fields},
    )


def heartbeat(epoch: int, member_id: str = "m", *, group: str = "g", **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat that says nothing but its epoch, and *fields*; -1 leaves."""
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)


def commit(
    offsets: Mapping[int, int], *, epoch: int = -1, member_id: str = "", group: str = "g", topic: str = "orders"
) -> OffsetCommitRequest:
    """A commit of partition -> offset."""
    partitions = [{"partition_index": index, "committed_offset": offset} for index, offset in offsets.items()]
    return build(
        OffsetCommitRequest,
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[{"name": topic, "partitions": partitions}],
    )


def commit_offset(connection: RawConnection, offset: int, *, partition: int = 0, **fields: Any) -> int:
    """Commit one offset; the error code."""
    answer = connection.ask(commit({partition: offset}, **fields), version=9)
    return answer.topics[0].partitions[0].error_code


class Member:
    """A member that remembers its epoch and what it was given.

    Attributes:
        owned: the last assignment that it was sent.
    """

    def __init__(self, connection: RawConnection, member_id: str = "m1", group_id: str = "g") -> None:
        self.connection = connection
        self.member_id = member_id
        self.group_id = group_id
        self.epoch = 0
        self.owned: tuple[TopicPartitions, ...] = ()

    def join(self, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Join with a subscription to these topics."""
        first: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topic_partitions": ()}
        return self.heartbeat(**{**first, "subscribed_topic_names": topics or None, **fields})

    def acknowledge(self) -> ConsumerGroupHeartbeatResponse:
        """Say that it owns what it was given last."""
        return self.heartbeat(topic_partitions=self.owned)

    def heartbeat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat with its epoch, and take note of the answer."""
        request = heartbeat(self.epoch, self.member_id, group=self.group_id, **fields)
        response = self.connection.ask(request, version=1)
        if not response.error_code:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.owned = response.assignment.topic_partitions
        return response

    def commit(self, partition: int, offset: int) -> int:
        """Commit one offset of ``orders`` as a member; the error code."""
        claimed: dict[str, Any] = {"epoch": self.epoch, "member_id": self.member_id, "group": self.group_id}
        return commit_offset(self.connection, offset, partition=partition, **claimed)
