"""librdkafka's consumers, producers and administrators, as these tests need them. No expectations here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kip848_client.testing.broker.net.logged_request import LoggedRequest
from kip848_client.wire.messages.fetch import FetchRequest
from tests.interop.embedded.holding import Polling
from tests.support.driving import Key, dotted, quiet, settings
from tests.support.waiting import TIMEOUT_S, wait_until


class MemberThread(Polling):
    """A librdkafka member of a consumer group.

    What it holds is told by its callbacks: `Consumer.assignment` holds the interpreter while it waits for librdkafka's
    thread, which can wait for an embedded broker of the same process.

    Attributes:
        errors: errors that poll returned.
    """

    def __init__(self, bootstrap_servers: str, topics: Iterable[str], *, group_id: str = "g", **conf: object) -> None:
        own = {"group.protocol": "consumer", "auto.commit.interval.ms": 100, "reconnect.backoff.max.ms": 200}
        self.consumer: Final = Consumer(quiet(settings(bootstrap_servers, group_id=group_id) | own | dotted(conf)))
        self.errors: Final[list[KafkaError]] = []
        self._topics: Final = list(topics)
        super().__init__()

    def _run(self) -> None:
        self.consumer.subscribe(self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke)
        while not self._stop.is_set():
            message = self.consumer.poll(0.02)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                self.errors.append(error)
            else:
                self.delivered.append((message.topic() or "", *place_of(message)))
        self.give_up()
        self.consumer.close()

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.gain((partition.topic, partition.partition) for partition in partitions)

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.give_up((partition.topic, partition.partition) for partition in partitions)


def place_of(message: Message) -> tuple[int, int]:
    """(partition, offset) of a record."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def read_committed(
    bootstrap_servers: str, topic: str, *, partitions: int = 1, isolation: str = "read_committed"
) -> list[Message]:
    """What a reader of committed transactions, or of another isolation level, sees of a whole topic."""
    conf = {"bootstrap.servers": bootstrap_servers, "group.id": "auditor", "enable.auto.commit": False}
    consumer = Consumer(quiet({**conf, "enable.partition.eof": True, "isolation.level": isolation}))
    consumer.incremental_assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[Message] = []
    ended: set[int | None] = set()

    def has_ended() -> bool:
        for message in consumer.consume(10_000, 0.1):
            if (error := message.error()) is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        return len(ended) == partitions

    wait_until(has_ended, TIMEOUT_S, f"the end of every partition of {topic}")
    consumer.close()
    return found


def produce(bootstrap_servers: str, topic: str, count: int, *, partitions: int = 1, **conf: object) -> None:
    """Write *count* records, their number as value, round robin over the partitions; all acknowledged on return."""
    producer = Producer(quiet({"bootstrap.servers": bootstrap_servers, "linger.ms": 1} | dotted(conf)))
    failures: Counter[str] = Counter()

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failures[str(error)] += 1

    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % partitions, on_delivery=delivered)
    left = producer.flush(TIMEOUT_S)
    assert not left, f"{left} records were not acknowledged"
    assert not failures, failures


def all_keys(topic: str, count: int, *, partitions: int = 1) -> set[Key]:
    """What `produce` writes into an empty topic."""
    return {(topic, number % partitions, number // partitions) for number in range(count)}


def continues_a_session(logged: LoggedRequest) -> bool:
    """Whether a Fetch is one of a fetch session that was opened earlier."""
    return isinstance(logged.request, FetchRequest) and logged.request.session_epoch > 0


def admin_of(bootstrap_servers: str) -> AdminClient:
    """An administrator."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
