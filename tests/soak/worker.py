"""One consumer in a process of its own: reads, writes down what it read, commits.

``python -m tests.soak.worker CLIENT FILE TOPICS CONFIGURATION-AS-JSON``; CLIENT is ``ours`` or ``librdkafka``,
TOPICS are separated by commas. SIGTERM makes it leave.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import msgspec

from tests.soak.evidence import Line

_POLL_S = 0.2


class Worker:
    """Reads until told to stop."""

    def __init__(self, consumer: Any, errors: tuple[type[Exception], ...], descriptor: int) -> None:
        self._consumer = consumer
        self._errors = errors
        self._descriptor = descriptor
        self._stopping = False

    def run(self, topics: list[str]) -> None:
        """Read, write down, commit."""
        self._consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        while not self._stopping:
            try:
                messages = [one for one in self._consumer.consume(500, _POLL_S) if one.error() is None]
            except self._errors as error:
                self.tell("error", text=f"{type(error).__name__}: {error}")
                continue
            if messages:
                self._write_down(messages)
                self._commit()

    def stop(self, *_: object) -> None:
        """Leave after this batch."""
        self._stopping = True

    def tell(self, kind: Any, **fields: Any) -> None:
        """Write one line, in one write, so that a killed process has told everything it did."""
        line = Line(time.monotonic_ns() // 1_000_000, kind, **fields)
        os.write(self._descriptor, msgspec.json.encode(line) + b"\n")

    def _write_down(self, messages: list[Any]) -> None:
        runs: dict[tuple[str, int, int], list[int]] = {}
        for message in messages:
            place = (message.topic(), message.partition(), int(message.value()))
            offsets = runs.setdefault(place, [message.offset(), message.offset()])
            if message.offset() != offsets[1]:
                self.tell("fatal", text=f"{place}: offset {message.offset()} where {offsets[1]} was next")
            offsets[1] = message.offset() + 1
        for (topic, partition, generation), (first, end) in runs.items():
            self.tell("read", topic=topic, partition=partition, generation=generation, first=first, end=end)

    def _commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except self._errors as error:
            self.tell("error", text=f"commit {type(error).__name__}: {error}")

    def _assigned(self, _: object, partitions: list[Any]) -> None:
        self._moved("assigned", partitions)

    def _revoked(self, _: object, partitions: list[Any]) -> None:
        self._moved("revoked", partitions)

    def _lost(self, _: object, partitions: list[Any]) -> None:
        self._moved("lost", partitions)

    def _moved(self, kind: str, partitions: list[Any]) -> None:
        for partition in partitions:
            self.tell(kind, topic=partition.topic, partition=partition.partition)


def main(client: str, path: str, topics: str, configuration: str) -> None:
    """Run one worker."""
    if client == "ours":
        from kip848_client import Consumer, Kip848Error

        errors: tuple[type[Exception], ...] = (Kip848Error,)
    else:
        from confluent_kafka import Consumer, KafkaException  # type: ignore[assignment]

        errors = (KafkaException,)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    consumer = Consumer(json.loads(configuration))
    worker = Worker(consumer, errors, descriptor)
    signal.signal(signal.SIGTERM, worker.stop)
    try:
        worker.run(topics.split(","))
        consumer.close()
    except Exception as error:
        worker.tell("fatal", text=f"{type(error).__name__}: {error}")
        raise
    worker.tell("left")


if __name__ == "__main__":
    main(*sys.argv[1:])
