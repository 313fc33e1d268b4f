"""One consumer in a process of its own, to be stopped and killed: reads, writes down what it read, commits.

``python -m tests.interop.real.worker CLIENT FILE TOPICS CONFIGURATION-AS-JSON``; CLIENT is ``ours`` or ``librdkafka``,
TOPICS are separated by commas, client.id is its name. FILE gets its entries (see ledger.py), one write each, so that a
killed process has told everything that it did; the event log of ours is beside it. SIGTERM makes it leave.

Every batch is committed synchronously: with each rebalance some commit meets an epoch that has just moved.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from kip848_client import Consumer, Kip848Error
from kip848_client.journal import JsonLinesJournal
from tests.interop.real.ledger import Entry, Kind
from tests.interop.real.members import number_of

POLL_S = 0.05


class Worker:
    """Reads until told to stop."""

    def __init__(self, consumer: Any, errors: tuple[type[Exception], ...], *, name: str, descriptor: int) -> None:
        self._consumer = consumer
        self._errors = errors
        self._name = name
        self._descriptor = descriptor
        self._stopping = False
        self._behind = False
        """The last commit failed; no record need come that would make a new one."""

    def run(self, topics: list[str]) -> None:
        """Read, write down, commit. What was read is committed before it can be revoked: each batch was."""
        self._consumer.subscribe(
            topics,
            on_assign=lambda _, partitions: self._moved("assigned", partitions),
            on_revoke=lambda _, partitions: self._moved("revoked", partitions),
            on_lost=lambda _, partitions: self._moved("lost", partitions),
        )
        while not self._stopping:
            runs: dict[tuple[str, int], list[int]] = {}
            for message in self._consumer.consume(500, POLL_S):
                if message.error() is None:
                    place, number = number_of(message)
                    runs.setdefault(place, []).append(number)
            now_ns = time.monotonic_ns()
            for place, numbers in runs.items():
                assert numbers == list(range(numbers[0], numbers[-1] + 1)), (place, numbers)
                self._tell(Entry(now_ns, self._name, "read", *place, numbers[0], numbers[-1] + 1))
            if runs or self._behind:
                self._commit()

    def stop(self, *_: object) -> None:
        """Leave after this batch."""
        self._stopping = True

    def fail(self, error: Exception) -> None:
        """Write down an error."""
        self._tell(Entry(time.monotonic_ns(), self._name, "error", text=f"{type(error).__name__}: {error}"))

    def _commit(self) -> None:
        self._behind = False
        try:
            committed = self._consumer.commit(asynchronous=False)
        except self._errors as error:
            self._behind = bool(self._consumer.assignment())
            self.fail(error)
            return
        now_ns = time.monotonic_ns()
        for one in committed or ():
            self._tell(Entry(now_ns, self._name, "committed", one.topic, one.partition, end=one.offset))

    def _moved(self, kind: Kind, partitions: list[Any]) -> None:
        now_ns = time.monotonic_ns()
        for partition in partitions:
            self._tell(Entry(now_ns, self._name, kind, partition.topic, partition.partition))

    def _tell(self, entry: Entry) -> None:
        os.write(self._descriptor, entry.to_line())


def main(client: str, path: str, topics: str, configuration: str) -> None:
    """Run one worker."""
    conf = json.loads(configuration)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with contextlib.ExitStack() as stack:
        consumer: Any
        errors: tuple[type[Exception], ...]
        if client == "ours":
            journal = stack.enter_context(contextlib.closing(JsonLinesJournal.open(Path(path).with_suffix(".journal"))))
            consumer, errors = Consumer(conf, journal=journal), (Kip848Error,)
        else:
            from confluent_kafka import Consumer as LibrdkafkaConsumer
            from confluent_kafka import KafkaException

            consumer, errors = LibrdkafkaConsumer({"group.protocol": "consumer"} | conf), (KafkaException,)
        worker = Worker(consumer, errors, name=conf["client.id"], descriptor=descriptor)
        signal.signal(signal.SIGTERM, worker.stop)
        try:
            with contextlib.closing(consumer):
                worker.run(topics.split(","))
        except Exception as error:
            worker.fail(error)
            raise


if __name__ == "__main__":
    main(*sys.argv[1:])
