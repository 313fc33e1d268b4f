"""Members of one group, ours and librdkafka's, driven in turns by one thread and writing into one ledger.

One thread, so that the order in the ledger is the order in which things happened; heartbeats of both go on meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from confluent_kafka import Consumer as LibrdkafkaConsumer

from kip848_client import Consumer, ConsumerRebalanceListener, Message, SubscriptionPattern
from kip848_client import TopicPartition as PublicPartition
from kip848_client.config import ConfigValue
from kip848_client.journal import MemoryJournal
from kip848_client.model import TopicPartition
from tests.interop.real.ledger import Ledger
from tests.support.waiting import TIMEOUT_S

SLICE_S: Final = 0.02
BATCH: Final = 500
QUIET: Final[dict[str, ConfigValue]] = {"log_level": 0, "error_cb": lambda _error: None}
"""Without librdkafka's own lines on stderr: these tests break connections on purpose."""


class Member(Protocol):
    """A member that acts when it gets its turn."""

    def take(self) -> int:
        """Poll for a moment; return how many records came."""
        ...

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What it has."""
        ...


class OurMember(ConsumerRebalanceListener):
    """A `kip848_client.Consumer`.

    Attributes:
        told: (``assigned`` | ``revoked`` | ``lost``, partitions), in order; without calls about no partition.
        journal: its event log.
    """

    def __init__(self, name: str, conf: Mapping[str, ConfigValue], ledger: Ledger) -> None:
        self.name: Final = name
        self.journal: Final = MemoryJournal()
        self.told: Final[list[tuple[str, frozenset[TopicPartition]]]] = []
        self._ledger = ledger
        self.consumer: Final = Consumer({**QUIET, "client.id": name, **conf}, journal=self.journal)

    def subscribe(self, *topics: str | SubscriptionPattern) -> OurMember:
        """Subscribe with this object as the listener."""
        self.consumer.subscribe(topics, self)
        return self

    def take(self) -> int:
        """Consume once."""
        messages = self.consumer.consume(BATCH, SLICE_S)
        for message in messages:
            self._ledger.read(self.name, *number_of(message))
        return len(messages)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What it has."""
        return frozenset(TopicPartition(one.topic, one.partition) for one in self.consumer.assignment())

    def kinds(self) -> list[str]:
        """The kinds of the listener calls, in order."""
        return [kind for kind, _ in self.told]

    def close(self, timeout_s: float = 30.0) -> None:
        """Commit, leave and close."""
        self.consumer.close(timeout_s)

    def vanish(self) -> None:
        """End the heartbeats as a crash would: no leave, no commit, nothing closed."""
        self.consumer._manager.stop(timeout_s=5)

    def on_partitions_assigned(self, consumer: Consumer, partitions: list[PublicPartition]) -> None:
        """Write it down."""
        self._ledger.moved(self.name, "assigned", [(p.topic, p.partition) for p in partitions])
        self._tell("assigned", partitions)

    def on_partitions_revoked(self, consumer: Consumer, partitions: list[PublicPartition]) -> None:
        """Write it down."""
        self._ledger.moved(self.name, "revoked", [(p.topic, p.partition) for p in partitions])
        self._tell("revoked", partitions)

    def on_partitions_lost(self, consumer: Consumer, partitions: list[PublicPartition]) -> None:
        """Write it down."""
        self._ledger.moved(self.name, "lost", [(p.topic, p.partition) for p in partitions])
        self._tell("lost", partitions)

    def _tell(self, kind: str, partitions: list[PublicPartition]) -> None:
        if partitions:  # a rebalance that brings nothing is told as well
            self.told.append((kind, frozenset(TopicPartition(p.topic, p.partition) for p in partitions)))


class LibrdkafkaMember:
    """A member of librdkafka's with ``group.protocol=consumer``."""

    def __init__(self, name: str, conf: Mapping[str, ConfigValue], ledger: Ledger) -> None:
        self.name: Final = name
        self._ledger = ledger
        self._closed = False
        self.consumer: Final = LibrdkafkaConsumer(
            {**QUIET, "client.id": name, "group.protocol": "consumer", "enable.partition.eof": False, **conf}
        )

    def subscribe(self, *topics: str) -> LibrdkafkaMember:
        """Subscribe, writing down what moves."""
        self.consumer.subscribe(
            list(topics),
            on_assign=lambda _, partitions: self._moved("assigned", partitions),
            on_revoke=lambda _, partitions: self._moved("revoked", partitions),
            on_lost=lambda _, partitions: self._moved("lost", partitions),
        )
        return self

    def take(self) -> int:
        """Poll until there is nothing more at once."""
        count = 0
        message = self.consumer.poll(SLICE_S)
        while message is not None:
            if message.error() is None:
                self._ledger.read(self.name, *number_of(message))
                count += 1
            if count >= BATCH:
                break
            message = self.consumer.poll(0)
        return count

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What it has."""
        return frozenset(TopicPartition(one.topic, one.partition) for one in self.consumer.assignment())

    def close(self, _timeout_s: float = 0.0) -> None:
        """Commit, leave and close; may be called again."""
        if not self._closed:
            self._closed = True
            self.consumer.close()

    def _moved(self, kind: str, partitions: list[PublicPartition]) -> None:
        assert kind in {"assigned", "revoked", "lost"}
        self._ledger.moved(self.name, kind, [(p.topic, p.partition) for p in partitions])  # type: ignore[arg-type]


def number_of(message: Message) -> tuple[tuple[str, int], int]:
    """Where a record is, and its number there. The key of a record says which life of its topic it is of, if any."""
    topic, partition, value = message.topic(), message.partition(), message.value()
    assert topic is not None
    assert partition is not None
    assert value is not None
    life = message.key()
    return (topic if life is None else f"{topic}#{life.decode()}", partition), int(value)


def take_turns(*members: Member, until: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Let the members poll in turns until *until* holds.

    Raises:
        AssertionError: it did not come about.
    """
    deadline_s = time.monotonic() + timeout_s
    while not until():
        shown = "; ".join(f"{vars(member).get('name')} has {sorted(map(str, member.partitions))}" for member in members)
        assert time.monotonic() < deadline_s, f"waited {timeout_s:.0f} s in vain for {what}; {shown}"
        for member in members:
            member.take()
