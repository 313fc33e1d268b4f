"""What the tests of `AsyncConsumer` have in common: a cluster, consumers on it, and records that are counted."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import anyio

from kip848_client import EmbeddedBroker, Message, TopicPartition
from kip848_client.aio.consumer import AsyncConsumer, AsyncConsumerRebalanceListener
from kip848_client.common.model import NamedPartition as InternalPartition
from kip848_client.config import ConfigValue
from kip848_client.journal import Journal
from tests.support.driving import QUIET, Key, key, settings
from tests.support.waiting import TIMEOUT_S


class Notes(AsyncConsumerRebalanceListener):
    """Writes down what it is told, and does what *acts* says inside."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.acts: dict[str, Callable[[AsyncConsumer, list[TopicPartition]], Awaitable[None]]] = {}

    async def on_partitions_assigned(self, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        await self._note("assigned", consumer, partitions)

    async def on_partitions_revoked(self, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        await self._note("revoked", consumer, partitions)

    async def on_partitions_lost(self, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        await self._note("lost", consumer, partitions)

    async def _note(self, name: str, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        self.told.append(f"{name} {' '.join(str(one.partition) for one in partitions)}".strip())
        act = self.acts.get(name)
        if act is not None:
            await act(consumer, partitions)


async def read(consumer: AsyncConsumer, count: int) -> list[Key]:
    """Poll until *count* records came."""
    keys: list[Key] = []
    with anyio.fail_after(TIMEOUT_S):
        while len(keys) < count:
            message = await consumer.poll(1.0)
            if message is not None:
                keys.append(key(message))
    return keys


async def poll_until(consumer: AsyncConsumer, condition: Callable[[], object]) -> list[Message]:
    """Poll until *condition* holds."""
    messages = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"it did not come about: {consumer!r}"
        message = await consumer.poll(0.02)
        if message is not None:
            messages.append(message)
    return messages


async def until(condition: Callable[[], object]) -> None:
    """Wait for *condition*, while other tasks run."""
    with anyio.fail_after(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110  what changes is in other threads and processes
            await anyio.sleep(0.005)  # nothing signals the awaited state: it is asked again until the limit


def new_consumer(broker: EmbeddedBroker, *, journal: Journal | None = None, **conf: ConfigValue) -> AsyncConsumer:
    """A consumer in the group ``g``; underscores in names of settings stand for dots."""
    return AsyncConsumer({**QUIET, **settings(broker.bootstrap_servers, **conf)}, journal=journal)


def committed(broker: EmbeddedBroker) -> list[int]:
    """The group's offsets of the four partitions of ``orders``; 0 where there is none."""
    offsets = broker.groups.committed("g")
    return [offsets.get(InternalPartition("orders", partition), 0) for partition in range(4)]


def state_of_group(broker: EmbeddedBroker) -> str:
    """Of the group ``g``."""
    group = broker.wait_for_group("g")
    return group.state
