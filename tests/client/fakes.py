"""Stand-ins for the network and for librdkafka, which write down what they were asked. No expectations here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

import anyio
import anyio.abc
import confluent_kafka
import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from kip848_client.consumer.records.data_plane import RecordConsumer
from kip848_client.errors import ConnectionLostError, Kip848Error
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Request, Response

ResponseT = TypeVar("ResponseT", bound=Response)

needs_own_messages: Final = pytest.mark.skipif(
    confluent_kafka.libversion()[1] < 0x020D0000,
    reason="this confluent-kafka lets only librdkafka make a Message",
)
"""For tests that deliver records of their own; tests/interop/client covers the same with real ones."""

VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    ApiKey.METADATA: (0, 13),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.LIST_OFFSETS: (1, 11),
}


class FakeConnection:
    """A connection whose answers come from *answer*; an exception among them is raised."""

    def __init__(
        self,
        answer: Callable[[Request[Any]], Response | Kip848Error],
        *,
        versions: Mapping[int, tuple[int, int]] = VERSIONS,
    ) -> None:
        self.api_versions = versions
        self.sent: list[Request[Any]] = []
        self.closed = False
        self._answer = answer
        self._ended = anyio.Event()

    async def send(self, request: Request[ResponseT], *, timeout_ms: int, max_version: int | None = None) -> ResponseT:
        self.sent.append(request)
        answer = self._answer(request)
        if isinstance(answer, Kip848Error):
            raise answer
        return cast("ResponseT", answer)

    def start(self, request: Request[Any], **_: object) -> bool:
        return False

    async def wait_closed(self) -> None:
        await self._ended.wait()

    def break_off(self) -> None:
        """The peer is gone."""
        self.closed = True
        self._ended.set()

    async def aclose(self) -> None:
        self.break_off()


class FakeNetwork:
    """Opens fake connections by address; an address without one refuses."""

    def __init__(self, connections: Mapping[tuple[str, int], FakeConnection | Kip848Error]) -> None:
        self.connections = dict(connections)
        self.dialled: list[tuple[str, int]] = []
        self.meant: list[tuple[str | None, int]] = []
        """Of each connection the cluster and node that the client meant."""

    async def __call__(
        self,
        *,
        host: str,
        port: int,
        timeout_ms: int,
        tasks: anyio.abc.TaskGroup,
        cluster_id: str | None = None,
        node_id: int = -1,
    ) -> FakeConnection:
        self.dialled.append((host, port))
        self.meant.append((cluster_id, node_id))
        found = self.connections.get((host, port))
        if found is None:
            raise ConnectionLostError(f"no broker listens on {host}:{port}")
        if isinstance(found, Kip848Error):
            raise found
        return found


class FakePlane:
    """librdkafka's consumer as far as the fetcher uses it: a queue of messages, positions, and a list of calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []
        self.queue: list[Message] = []
        self.assigned: dict[tuple[str, int], int] = {}
        self.positions: dict[tuple[str, int], int] = {}
        self.topics: list[str] = []
        """Those that a request for all topics finds."""
        self.paused: set[tuple[str, int]] = set()

    def deliver(self, topic: str, partition: int, *offsets: int) -> None:
        """Records arrive."""
        self.queue.extend(Message(topic=topic, partition=partition, offset=offset, value=b"v") for offset in offsets)

    def deliver_error(self, error: int, *, topic: str | None = None, partition: int = -1, offset: int = -1) -> None:
        """An error arrives in place of a record."""
        self.queue.append(
            Message(topic=topic, partition=partition, offset=offset, error=KafkaError(error, "told by the broker"))
        )

    def named(self, name: str) -> list[object]:
        """The arguments of every call of one name."""
        return [argument for called, argument in self.calls if called == name]

    def as_consumer(self) -> RecordConsumer:
        """Itself, for the type checker."""
        return cast("RecordConsumer", self)

    # --- for the fetcher

    def consume(self, count: int, timeout: float) -> list[Message]:
        batch, self.queue = self.queue[:count], self.queue[count:]
        for message in batch:
            if message.error() is None:
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None
                assert partition is not None
                assert offset is not None
                self.positions[topic, partition] = offset + 1
        return batch

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [
            TopicPartition(p.topic, p.partition, self.positions.get((p.topic, p.partition), -1001)) for p in partitions
        ]

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self._note("incremental_assign", partitions)
        for one in partitions:
            assert (one.topic, one.partition) not in self.assigned, "librdkafka refuses a partition that it has"
            self.assigned[one.topic, one.partition] = one.offset

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self._note("incremental_unassign", partitions)
        if any((one.topic, one.partition) not in self.assigned for one in partitions):
            raise confluent_kafka.KafkaException(KafkaError(KafkaError._INVALID_ARG))  # and nothing is taken off
        for one in partitions:
            del self.assigned[one.topic, one.partition]
            self.positions.pop((one.topic, one.partition), None)
            self._purge(one)

    def unassign(self) -> None:
        self._note("unassign", [TopicPartition(topic, partition) for topic, partition in self.assigned])
        self.assigned.clear()
        self.positions.clear()
        self.queue.clear()

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._note("pause", partitions)
        self.paused.update((one.topic, one.partition) for one in partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._note("resume", partitions)
        self.paused.difference_update((one.topic, one.partition) for one in partitions)

    def seek(self, partition: TopicPartition) -> None:
        self.calls.append(("seek", (partition.topic, partition.partition, partition.offset)))
        self.positions.pop((partition.topic, partition.partition), None)

    def list_topics(self, topic: str | None = None, *, timeout: float) -> SimpleNamespace:
        self.calls.append(("list_topics", topic))
        found = self.topics if topic is None else [topic]
        return SimpleNamespace(topics=dict.fromkeys(found, SimpleNamespace(error=None)))

    def close(self) -> None:
        self.calls.append(("close", None))

    def _purge(self, gone: TopicPartition) -> None:
        self.queue = [each for each in self.queue if (each.topic(), each.partition()) != (gone.topic, gone.partition)]

    def _note(self, name: str, partitions: list[TopicPartition]) -> None:
        self.calls.append((name, [(one.topic, one.partition, one.offset) for one in partitions]))
