"""A member of ours on the classic protocol that polls on a thread of its own, beside those of other libraries."""

from __future__ import annotations

from typing import Any, Final

from kip848_client import Consumer, ConsumerRebalanceListener, TopicPartition
from tests.interop.embedded.classic_members import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS
from tests.interop.embedded.holding import Polling

CLASSIC: Final[dict[str, Any]] = {
    "group.protocol": "classic",
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": HEARTBEAT_MS,
    "topic.metadata.refresh.interval.ms": 300,
}


class OurMember(Polling, ConsumerRebalanceListener):
    """Polls until it is told to leave.

    Attributes:
        told: (``assigned`` | ``revoked`` | ``lost``, partition numbers), in order.
        errors: what poll() raised.
    """

    def __init__(self, bootstrap_servers: str, topic: str, conf: dict[str, Any], *, group_id: str) -> None:
        self.told: Final[list[tuple[str, frozenset[int]]]] = []
        self.errors: Final[list[Exception]] = []
        self.consumer: Final = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group_id,
                "auto.offset.reset": "earliest",
                "max.poll.interval.ms": REBALANCE_MS,
                "log_level": 0,
                **conf,
            }
        )
        self._topic = topic
        super().__init__()

    def _run(self) -> None:
        self.consumer.subscribe([self._topic], self)
        with self.consumer:
            while not self._stop.is_set():
                message = self.consumer.poll(0.05)
                if message is not None:
                    topic, partition, offset = message.topic(), message.partition(), message.offset()
                    assert topic is not None
                    assert partition is not None
                    assert offset is not None
                    self.delivered.append((topic, partition, offset))
            self.give_up()

    def _tell(self, kind: str, partitions: list[TopicPartition]) -> None:
        self.told.append((kind, frozenset(partition.partition for partition in partitions)))

    def on_partitions_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Write it down."""
        self.gain((partition.topic, partition.partition) for partition in partitions)
        self._tell("assigned", partitions)

    def on_partitions_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Write it down."""
        self.give_up((partition.topic, partition.partition) for partition in partitions)
        self._tell("revoked", partitions)

    def on_partitions_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Write it down."""
        self.give_up((partition.topic, partition.partition) for partition in partitions)
        self._tell("lost", partitions)
