"""One consumer in a process of its own: reads what is there, writes down when, commits it, and so on.

``python -m tests.soak.diary.reader CLIENT FILE TOPIC CONFIGURATION-AS-JSON``; CLIENT is ``ours``, ``librdkafka`` or
``kafka-python``. FILE gets entries (tests/interop/real/ledger.py) of what was read. SIGTERM makes it leave; SIGUSR1
makes it too slow between two polls; SIGUSR2 makes its next revocation take long. `DiaryReader.java` is the Java client.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from tests.interop.real.ledger import Entry, Kind

POLL_S: Final = 0.1
BATCH: Final = 1_000
"""So many that a backlog of one partition does not keep the others waiting."""
LATE_S: Final = 18.0
"""Longer than max.poll.interval.ms of these groups."""
HOLD_S: Final = 4.0
HOLDS_WITHIN_S: Final = 10.0


class Reader:
    """What the three clients have in common."""

    def __init__(self, name: str, topic: str, descriptor: int) -> None:
        self._name, self._topic, self._descriptor = name, topic, descriptor
        self._leaves = False
        self._late = False
        self._holds_until_s = 0.0
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_leaves", True))
        signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "_late", True))
        signal.signal(signal.SIGUSR2, lambda *_: setattr(self, "_holds_until_s", time.monotonic() + HOLDS_WITHIN_S))

    def run(self, poll: Callable[[], bool], commit: Callable[[], object], errors: tuple[type[Exception], ...]) -> None:
        """Read until told to leave.

        Args:
            poll: reads the records that are there, and tells of them; returns whether there were any.
            commit: commits what was read.
        """
        while not self._leaves:
            try:
                if poll():
                    commit()
            except errors as error:
                self.tell("error", text=f"{type(error).__name__}: {error}")
            if self._late:
                self._late = False
                time.sleep(LATE_S)  # being late is what it plays

    def revoked(self, *_: object) -> None:
        """Take long, if so told."""
        if time.monotonic() < self._holds_until_s:
            self._holds_until_s = 0.0
            time.sleep(HOLD_S)  # taking long is what it plays

    def tell(self, kind: Kind, partition: int = -1, *, text: str = "") -> None:
        """Write an entry."""
        entry = Entry(time.monotonic_ns(), self._name, kind, self._topic, partition, text=text)
        os.write(self._descriptor, entry.to_line())


def read_with_confluent(reader: Reader, consumer: Any, topic: str, errors: tuple[type[Exception], ...]) -> None:
    """Ours and librdkafka's, which have the same methods."""

    def poll() -> bool:
        read = 0
        message = consumer.poll(POLL_S)
        while message is not None and read < BATCH:
            if message.error() is None:
                reader.tell("read", message.partition())  # at once: the next poll may call a listener
                read += 1
            message = consumer.poll(0)
        return bool(read)

    with contextlib.closing(consumer):
        consumer.subscribe([topic], on_revoke=reader.revoked)
        reader.run(poll, lambda: consumer.commit(asynchronous=False), errors)


def read_with_kafka_python(reader: Reader, topic: str, conf: dict[str, Any]) -> None:
    """A classic group."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: object) -> None:
            reader.revoked(revoked)

        def on_partitions_assigned(self, assigned: object) -> None:
            pass

    consumer = KafkaConsumer(**{name.replace(".", "_"): value for name, value in conf.items()})

    def poll() -> bool:
        batches = consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=BATCH)
        for place in batches:
            reader.tell("read", place.partition)
        return bool(batches)

    with contextlib.closing(consumer):
        consumer.subscribe([topic], listener=Listener())
        reader.run(poll, consumer.commit, (KafkaError,))


def main(client: str, path: str, topic: str, configuration: str) -> None:
    """Run one reader."""
    conf = json.loads(configuration)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    reader = Reader(conf["client.id"], topic, descriptor)
    if client == "ours":
        from kip848_client import Consumer, Kip848Error

        read_with_confluent(reader, Consumer(conf), topic, (Kip848Error,))
    elif client == "librdkafka":
        from confluent_kafka import Consumer as LibrdkafkaConsumer
        from confluent_kafka import KafkaException

        read_with_confluent(reader, LibrdkafkaConsumer(conf), topic, (KafkaException,))
    else:
        read_with_kafka_python(reader, topic, conf)


if __name__ == "__main__":
    main(*sys.argv[1:])
