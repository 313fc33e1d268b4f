"""Members of classic groups from three libraries, each on a thread of its own. No expectations here."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from tests.interop.embedded.clients import MemberThread
from tests.interop.embedded.holding import Member, Polling

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python: importlib.resources.read_text
    from aiokafka import AIOKafkaConsumer
    from aiokafka.abc import ConsumerRebalanceListener as AioListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
    from kafka import KafkaConsumer
    from kafka.consumer.subscription_state import ConsumerRebalanceListener as PythonListener
    from kafka.coordinator.assignors.range import RangePartitionAssignor as PythonRange

SESSION_MS: Final = 45_000
"""On a busy machine a client may not run for seconds; a test of a member that dies gives it less."""
HEARTBEAT_MS: Final = 100
REBALANCE_MS: Final = 60_000


class _Listener(PythonListener, AioListener):  # type: ignore[misc]
    """The callbacks of kafka-python and of aiokafka, which have the same names."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Note it."""
        self._member.gain((topic, partition) for topic, partition in assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Note it."""
        self._member.give_up((topic, partition) for topic, partition in revoked)


class PythonMember(Polling):
    """kafka-python."""

    def __init__(self, bootstrap_servers: str, topics: Iterable[str], conf: dict[str, Any]) -> None:
        self._topics = tuple(topics)
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap_servers,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=REBALANCE_MS,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            **conf,
        )
        super().__init__()

    def leave(self) -> None:
        """As in `Member`."""
        try:
            super().leave()
        finally:
            # kafka-python 3.0.12 never closes a socket that could not connect. A later test would be blamed for it.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()

    def _run(self) -> None:
        self._consumer.subscribe(self._topics, listener=_Listener(self))
        while not self._stop.is_set():
            # Not shorter: a poll that ends while the client joins may leave it waiting for itself.
            for records in self._consumer.poll(timeout_ms=500).values():
                self.delivered.extend((record.topic, record.partition, record.offset) for record in records)
        self.give_up()
        self._consumer.close()


class AioMember(Polling):
    """aiokafka."""

    def __init__(self, bootstrap_servers: str, topics: Iterable[str], conf: dict[str, Any]) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topics = tuple(topics)
        self._conf = conf
        super().__init__()

    def _run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap_servers,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
            heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            retry_backoff_ms=20,
            **self._conf,
        )
        consumer.subscribe(self._topics, listener=_Listener(self))
        await consumer.start()
        try:
            while not self._stop.is_set():
                for records in (await consumer.getmany(timeout_ms=20)).values():
                    self.delivered.extend((record.topic, record.partition, record.offset) for record in records)
        finally:
            self.give_up()
            with suppress(asyncio.CancelledError):
                await consumer.stop()


LIBRARIES: Final = ("librdkafka range", "librdkafka cooperative-sticky", "kafka-python", "aiokafka")


def classic_member(
    library: str,
    bootstrap_servers: str,
    topics: Iterable[str] = ("orders",),
    *,
    group_id: str = "g",
    client_id: str = "client",
    instance: str | None = None,
    session_ms: int = SESSION_MS,
) -> Member:
    """Start a member of *library*, one of `LIBRARIES`; all but the cooperative one offer ``range``.

    ``librdkafka consumer`` is one that speaks KIP-848.
    """
    static: dict[str, object] = {} if instance is None else {"group_instance_id": instance}
    if library == "librdkafka consumer":
        return MemberThread(bootstrap_servers, topics, group_id=group_id, client_id=client_id, **static)
    if library.startswith("librdkafka"):
        return MemberThread(
            bootstrap_servers,
            topics,
            group_id=group_id,
            client_id=client_id,
            group_protocol="classic",
            partition_assignment_strategy=library.removeprefix("librdkafka "),
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=max(REBALANCE_MS, session_ms),
            **static,
        )
    conf = {
        "group_id": group_id,
        "client_id": client_id,
        "group_instance_id": instance,
        "session_timeout_ms": session_ms,
    }
    if library == "aiokafka":
        return AioMember(bootstrap_servers, topics, conf | {"partition_assignment_strategy": (AioRange,)})
    return PythonMember(bootstrap_servers, topics, conf | {"partition_assignment_strategy": (PythonRange,)})
