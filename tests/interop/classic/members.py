"""A member of ours on the classic protocol that polls on a thread of its own, beside those of other libraries."""

from __future__ import annotations

from typing import Any, Final

from kip848_client import Consumer, TopicPartition
from tests.interop.embedded.classic_members import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS
from tests.interop.embedded.holding import Polling
from tests.support.driving import HearingListener, Kind, key, quiet, settings

CLASSIC: Final[dict[str, Any]] = {
    "group.protocol": "classic",
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": HEARTBEAT_MS,
    "topic.metadata.refresh.interval.ms": 300,
}


class OurMember(Polling, HearingListener):
    """Polls until it is told to leave.

    Attributes:
        told: (``assigned`` | ``revoked`` | ``lost``, partition numbers), in order.
        errors: what poll() raised.
    """

    def __init__(self, bootstrap_servers: str, topic: str, conf: dict[str, Any], *, group_id: str) -> None:
        self.told: Final[list[tuple[str, frozenset[int]]]] = []
        self.errors: Final[list[Exception]] = []
        self.consumer: Final = Consumer(
            quiet(settings(bootstrap_servers, group_id=group_id, max_poll_interval_ms=REBALANCE_MS) | conf)
        )
        self._topic = topic
        super().__init__()

    def _run(self) -> None:
        self.consumer.subscribe([self._topic], self)
        with self.consumer:
            while not self._stop.is_set():
                message = self.consumer.poll(0.05)
                if message is not None:
                    self.delivered.append(key(message))
            self.give_up()

    def hear(self, kind: Kind, partitions: list[TopicPartition]) -> None:
        """Write it down."""
        (self.gain if kind == "assigned" else self.give_up)((one.topic, one.partition) for one in partitions)
        self.told.append((kind, frozenset(one.partition for one in partitions)))
