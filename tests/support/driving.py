"""Consumers that poll only when the test lets them: what they were told and what they handed out is written down."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol, Self

import confluent_kafka

from kip848_client import Consumer, ConsumerRebalanceListener, Message, SubscriptionPattern
from kip848_client import TopicPartition as PublicPartition
from kip848_client.common.clock import SystemClock
from kip848_client.common.model import NamedPartition
from kip848_client.config import ConfigValue
from tests.support.waiting import TIMEOUT_S

SLICE_S: Final = 0.02
BATCH: Final = 500
QUIET: Final[dict[str, ConfigValue]] = {"log_level": 0, "error_cb": lambda _error: None}
"""Without librdkafka's own lines on stderr: these tests break connections on purpose."""
UNDERSCORES: Final = {"on_commit", "on_deserialization_error", "error_cb", "oauth_cb", "stats_cb"}
"""Settings that are spelled with underscores."""

Key = tuple[str, int, int]
"""(topic, partition, offset) of a record."""

Kind = Literal["assigned", "revoked", "lost"]


def settings(bootstrap_servers: str, **conf: Any) -> dict[str, ConfigValue]:
    """Settings of a member of the group ``g`` that reads from the beginning; underscores in names stand for dots."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "reconnect.backoff.ms": 20,
        **dotted(conf),
    }


def quiet(conf: Mapping[str, Any]) -> dict[str, Any]:
    """*conf* without librdkafka's own lines on stderr."""
    return {**QUIET, **conf}


def dotted(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under their own names."""
    return {name if name in UNDERSCORES else name.replace("_", "."): value for name, value in conf.items()}


def key(message: confluent_kafka.Message) -> Key:
    """Where a record is."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


class ClockAhead(SystemClock):
    """Runs as the machine's, and jumps when a test says so."""

    ahead_ms = 0

    def now_ms(self) -> int:
        """The machine's, and the jumps."""
        return super().now_ms() + self.ahead_ms


class Driven(Protocol):
    """A member that acts when it gets its turn."""

    def take(self) -> object:
        """Poll for a moment."""
        ...


def drive(
    *members: Driven, until: Callable[[], object], what: str = "the condition", timeout_s: float = TIMEOUT_S
) -> None:
    """Let the members poll in turns until *until* holds.

    Raises:
        AssertionError: it did not come about.
    """
    deadline_s = time.monotonic() + timeout_s
    while not until():
        assert time.monotonic() < deadline_s, f"waited {timeout_s:.0f} s in vain for {what}; {[*map(str, members)]}"
        for member in members:
            member.take()


class HearingListener(ConsumerRebalanceListener):
    """Has one method for all three calls."""

    def hear(self, kind: Kind, partitions: list[PublicPartition]) -> None:
        """Take note of a call."""

    def on_partitions_assigned(self, consumer: Consumer, partitions: list[PublicPartition]) -> None:
        """As `hear`."""
        self.hear("assigned", partitions)

    def on_partitions_revoked(self, consumer: Consumer, partitions: list[PublicPartition]) -> None:
        """As `hear`."""
        self.hear("revoked", partitions)

    def on_partitions_lost(self, consumer: Consumer, partitions: list[PublicPartition]) -> None:
        """As `hear`."""
        self.hear("lost", partitions)


class DrivenConsumer(HearingListener):
    """A consumer that is its own listener.

    Attributes:
        told: every call of the listener, in order.
        delivered: every record, in order.
    """

    def __init__(self, consumer: Consumer) -> None:
        self.raw: Final = consumer
        self.told: Final[list[tuple[Kind, frozenset[NamedPartition]]]] = []
        self.delivered: Final[list[Key]] = []

    def __str__(self) -> str:
        has = sorted(map(str, self.partitions))
        return f"{self.raw!r} has {has}, {len(self.delivered)} delivered, told {self.calls}"

    def subscribe(self, *topics: str | SubscriptionPattern) -> Self:
        """Subscribe with this object as the listener."""
        self.raw.subscribe(topics, self)
        return self

    def take(self, timeout_s: float = SLICE_S) -> list[Message]:
        """Consume once; return what came."""
        messages = next(self.raw.batches(BATCH, timeout_s), [])
        self.delivered.extend(map(key, messages))
        return messages

    def poll(self, timeout_s: float = 10.0) -> Message:
        """Poll one record, which must come."""
        message = self.raw.poll(timeout_s)
        assert message is not None
        self.delivered.append(key(message))
        return message

    @property
    def partitions(self) -> frozenset[NamedPartition]:
        """What it has."""
        return frozenset(NamedPartition(one.topic, one.partition) for one in self.raw.assignment())

    @property
    def numbers(self) -> list[int]:
        """Numbers of the partitions that it has."""
        return sorted(one.partition for one in self.partitions)

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of the listener's calls, in order."""
        return [kind for kind, _ in self.told]

    @property
    def calls(self) -> list[tuple[Kind, list[int]]]:
        """The listener's calls with numbers of partitions."""
        return [(kind, sorted(one.partition for one in partitions)) for kind, partitions in self.told]

    def vanish(self) -> None:
        """End the heartbeats as a crash would: no leave, no commit, nothing closed."""
        self.raw._core.manager.stop(timeout_s=5)

    def hear(self, kind: Kind, partitions: list[PublicPartition]) -> None:
        """Write a call down."""
        self.told.append((kind, frozenset(NamedPartition(one.topic, one.partition) for one in partitions)))
