"""Metrics of the records that a consumer reads. Without an OpenTelemetry SDK nothing is counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from kip848_client.common.model import NamedPartition
from kip848_client.common.telemetry import ClientMetrics
from kip848_client.consumer.records.data_plane import Message

Values = list[tuple[float, Mapping[str, str]]]


class ReadMeter:
    """Counts what librdkafka returns, on the thread that polls.

    Args:
        metrics: those of the consumer.
        lags: how far positions are behind the ends of their partitions, as of the last look; any thread.
    """

    def __init__(
        self, metrics: ClientMetrics, *, group_id: str, lags: Callable[[], Mapping[NamedPartition, int]]
    ) -> None:
        self.metrics: Final = metrics
        self._lags: Final = lags
        self._poll: Final = {
            "messaging.system": "kafka",
            "messaging.operation.name": "poll",
            "messaging.operation.type": "receive",
            "messaging.consumer.group.name": group_id,
        }
        self._last: Final[dict[NamedPartition, tuple[int, int]]] = {}
        """The timestamp of the last record that was read of each assigned partition."""

    def took(self, batch: Sequence[Message[Any, Any]], seconds: float) -> None:
        """A read of so many seconds returned these, ends of partitions included."""
        metrics = self.metrics
        metrics.record("messaging.client.operation.duration", seconds, self._poll)
        if any(map(Message.error, batch)):
            batch = [message for message in batch if message.error() is None]
        # Records of one partition come one after the other.
        for topic, of_topic in groupby(batch, Message.topic):
            assert topic is not None
            count = size = 0
            for partition, run in groupby(of_topic, Message.partition):
                assert partition is not None
                messages = list(run)
                count += len(messages)
                size += sum(map(len, messages)) + sum(map(len, filter(None, map(Message.key, messages))))
                self._last[NamedPartition(topic, partition)] = messages[-1].timestamp()
            metrics.add("messaging.client.consumed.messages", count, self._poll | {"messaging.destination.name": topic})
            metrics.add("kafka.consumer.bytes.consumed.total", size, {**metrics.attributes, "topic": topic})

    def stopped(self, partitions: Iterable[NamedPartition]) -> None:
        """They are not assigned any more; if they come back, others have read on meanwhile."""
        for partition in partitions:
            self._last.pop(partition, None)

    def figures(self) -> dict[str, Callable[[], float | Values]]:
        """The functions behind the gauges about lag, called on the collector's thread."""
        return {
            "kafka.consumer.records.lag": lambda: [(lag, _tags(p)) for p, lag in self._lags().items()],
            "kafka.consumer.records.lag.max": lambda: max(self._lags().values(), default=0),
            "kafka.consumer.lag.seconds": self._seconds,
        }

    def _seconds(self) -> Values:
        values: Values = []
        for partition, lag in self._lags().items():
            kind, timestamp_ms = self._last.get(partition, (0, 0))
            if not lag:
                values.append((0.0, _tags(partition)))
            elif kind:
                values.append((max(0.0, time.time() - timestamp_ms / 1000), _tags(partition)))
        return values


def _tags(partition: NamedPartition) -> Mapping[str, str]:
    return {"topic": partition.topic, "partition": str(partition.partition)}
