"""A consumer before a `ScriptedCoordinator`, whose every callback and error goes into the coordinator's story."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from kip848_client import Consumer, ConsumerRebalanceListener, SubscriptionPattern, TopicPartition
from kip848_client.errors import Kip848Error
from tests.interop.client.drive import Key, key
from tests.interop.client.scripted import ScriptedCoordinator

TIMEOUT_S: Final = 60.0
SLICE_S: Final = 0.01

Hook = Callable[[list[TopicPartition]], object]


class Watched(ConsumerRebalanceListener):
    """Polls when told to; never otherwise.

    Attributes:
        hooks: what to do inside ``assigned``, ``revoked`` or ``lost``, after it was written down.
        records: (topic, partition, offset) of everything delivered.
        errors: what poll() raised.
    """

    def __init__(self, coordinator: ScriptedCoordinator, consumer: Consumer) -> None:
        self.coordinator: Final = coordinator
        self.consumer: Final = consumer
        self.hooks: Final[dict[str, Hook]] = {}
        self.records: Final[list[Key]] = []
        self.errors: Final[list[Exception]] = []

    def subscribe(self, *topics: str | SubscriptionPattern) -> Watched:
        """Subscribe with itself as the listener; nothing is polled."""
        self.consumer.subscribe(topics or ("orders",), self)
        return self

    def poll(self, timeout_s: float = SLICE_S) -> None:
        """Poll once; errors are kept."""
        try:
            self.records.extend(key(message) for message in self.consumer.consume(500, timeout_s))
        except Kip848Error as error:
            if not any(known is error for known in self.errors):  # a fatal one is raised by every call
                self.errors.append(error)
                self.coordinator.note(f"raised {type(error).__name__}")

    def drive(self, until: Callable[[], object], timeout_s: float = TIMEOUT_S) -> Watched:
        """Poll until *until* holds.

        Raises:
            AssertionError: it does not; the message tells the story.
        """
        deadline_s = time.monotonic() + timeout_s
        while not until():
            assert time.monotonic() < deadline_s, f"it did not come about: {self.coordinator.story[-40:]} {self!r}"
            self.poll()
        return self

    def drive_for(self, seconds: float) -> Watched:
        """Poll for some time, to see that something does not happen."""
        end_s = time.monotonic() + seconds
        return self.drive(lambda: time.monotonic() >= end_s)

    def drive_to(self, *words: str) -> Watched:
        """Poll until the story has these words, in this order."""
        return self.drive(lambda: in_order(self.coordinator.story, words))

    @property
    def assigned(self) -> list[int]:
        """Numbers of the partitions that the consumer says it has."""
        return [partition.partition for partition in self.consumer.assignment()]

    @property
    def told(self) -> list[str]:
        """What the listener was told."""
        return [words for words in self.coordinator.story if words.split()[0] in {"assigned", "revoked", "lost"}]

    def on_partitions_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._tell("assigned", partitions)

    def on_partitions_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._tell("revoked", partitions)

    def on_partitions_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._tell("lost", partitions)

    def _tell(self, name: str, partitions: list[TopicPartition]) -> None:
        named = " ".join(f"{one.topic}-{one.partition}" for one in partitions)
        self.coordinator.note(f"{name} {named or 'nothing'}")
        if name in self.hooks:
            self.hooks[name](partitions)

    def __repr__(self) -> str:
        return f"{self.consumer!r} has {self.assigned}, {len(self.records)} records, raised {self.errors[-3:]}"


def in_order(story: list[str], words: tuple[str, ...]) -> bool:
    """Whether *words* occur in *story* in this order, with anything in between."""
    rest = iter(list(story))
    return all(word in rest for word in words)
