"""Members of one group, ours and librdkafka's, driven in turns by one thread and writing into one ledger.

One thread, so that the order in the ledger is the order in which things happened; heartbeats of both go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import Message as LibrdkafkaMessage

from kip848_client import Consumer, Message
from kip848_client import TopicPartition as PublicPartition
from kip848_client.common.model import NamedPartition
from kip848_client.config import ConfigValue
from kip848_client.journal import MemoryJournal
from tests.interop.real.ledger import Ledger
from tests.support.driving import BATCH, QUIET, SLICE_S, Driven, DrivenConsumer, Kind, key


class Member(Driven, Protocol):
    """A member of ours or of librdkafka's."""

    @property
    def partitions(self) -> frozenset[NamedPartition]:
        """What it has."""
        ...


class OurMember(DrivenConsumer):
    """A `kip848_client.Consumer`; `told` is without calls about no partition.

    Attributes:
        journal: its event log.
    """

    def __init__(self, name: str, conf: Mapping[str, ConfigValue], ledger: Ledger) -> None:
        self.name: Final = name
        self.journal: Final = MemoryJournal()
        self._ledger = ledger
        super().__init__(Consumer({**QUIET, "client.id": name, **conf}, journal=self.journal))

    def take(self, timeout_s: float = SLICE_S) -> list[Message]:
        """Consume once."""
        messages = super().take(timeout_s)
        for message in messages:
            self._ledger.read(self.name, *number_of(message))
        return messages

    def close(self, timeout_s: float = 30.0) -> None:
        """Commit, leave and close."""
        self.raw.close(timeout_s)

    def hear(self, kind: Kind, partitions: list[PublicPartition]) -> None:
        """Write it down."""
        self._ledger.moved(self.name, kind, [(p.topic, p.partition) for p in partitions])
        if partitions:  # a rebalance that brings nothing is told as well
            super().hear(kind, partitions)


class LibrdkafkaMember:
    """A member of librdkafka's with ``group.protocol=consumer``."""

    def __init__(self, name: str, conf: Mapping[str, ConfigValue], ledger: Ledger) -> None:
        self.name: Final = name
        self._ledger = ledger
        self._closed = False
        self.raw: Final = LibrdkafkaConsumer(
            {**QUIET, "client.id": name, "group.protocol": "consumer", "enable.partition.eof": False, **conf}
        )

    def __str__(self) -> str:
        return f"{self.name} has {sorted(map(str, self.partitions))}"

    def subscribe(self, *topics: str) -> LibrdkafkaMember:
        """Subscribe, writing down what moves."""
        self.raw.subscribe(
            list(topics),
            on_assign=lambda _, partitions: self._moved("assigned", partitions),
            on_revoke=lambda _, partitions: self._moved("revoked", partitions),
            on_lost=lambda _, partitions: self._moved("lost", partitions),
        )
        return self

    def take(self) -> int:
        """Poll until there is nothing more at once."""
        count = 0
        message = self.raw.poll(SLICE_S)
        while message is not None:
            if message.error() is None:
                self._ledger.read(self.name, *number_of(message))
                count += 1
            if count >= BATCH:
                break
            message = self.raw.poll(0)
        return count

    @property
    def partitions(self) -> frozenset[NamedPartition]:
        """What it has."""
        return frozenset(NamedPartition(one.topic, one.partition) for one in self.raw.assignment())

    def close(self, _timeout_s: float = 0.0) -> None:
        """Commit, leave and close; may be called again."""
        if not self._closed:
            self._closed = True
            self.raw.close()

    def _moved(self, kind: Kind, partitions: list[PublicPartition]) -> None:
        self._ledger.moved(self.name, kind, [(p.topic, p.partition) for p in partitions])


def number_of(message: LibrdkafkaMessage) -> tuple[tuple[str, int], int]:
    """Where a record is, and its number there. The key of a record says which life of its topic it is of, if any."""
    (topic, partition, _), value = key(message), message.value()
    assert value is not None
    life = message.key()
    return (topic if life is None else f"{topic}#{life.decode()}", partition), int(value)
