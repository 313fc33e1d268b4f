"""One consumer in a process of its own, to be stopped and killed: reads, writes down what it read, commits.

``python -m tests.interop.real.worker FILE TOPIC CONFIGURATION-AS-JSON``; client.id is its name. FILE gets its entries
(see ledger.py), one write each, so that a killed process has told everything that it did; its event log is beside it.
SIGTERM makes it leave.

Every batch is committed synchronously: with each rebalance some commit meets an epoch that has just moved.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from kip848_client import Consumer, ConsumerRebalanceListener, Kip848Error, TopicPartition
from kip848_client.journal import JsonLinesJournal
from tests.interop.real.ledger import Entry, Kind
from tests.interop.real.members import number_of

POLL_S = 0.05


class Worker(ConsumerRebalanceListener):
    """Reads until told to stop."""

    def __init__(self, consumer: Consumer, *, name: str, descriptor: int) -> None:
        self._consumer = consumer
        self._name = name
        self._descriptor = descriptor
        self._stopping = False
        self._behind = False
        """The last commit failed; no record need come that would make a new one."""

    def run(self, topic: str) -> None:
        """Read, write down, commit."""
        self._consumer.subscribe([topic], self)
        while not self._stopping:
            runs: dict[tuple[str, int], list[int]] = {}
            for message in self._consumer.consume(500, POLL_S):
                place, number = number_of(message)
                runs.setdefault(place, []).append(number)
            now_ns = time.monotonic_ns()
            for place, numbers in runs.items():
                assert numbers == list(range(numbers[0], numbers[-1] + 1)), numbers
                self._tell(Entry(now_ns, self._name, "read", *place, numbers[0], numbers[-1] + 1))
            if runs or self._behind:
                self._commit()

    def stop(self, *_: object) -> None:
        """Leave after this batch."""
        self._stopping = True

    def on_partitions_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Write it down."""
        self._moved("assigned", partitions)

    def on_partitions_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Everything read is committed already: each batch was."""
        self._moved("revoked", partitions)

    def on_partitions_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Write it down."""
        self._moved("lost", partitions)

    def _commit(self) -> None:
        self._behind = False
        try:
            committed = self._consumer.commit(asynchronous=False)
        except Kip848Error as error:
            self._behind = True
            self._tell(Entry(time.monotonic_ns(), self._name, "error", text=f"{type(error).__name__}: {error}"))
            return
        now_ns = time.monotonic_ns()
        for one in committed or ():
            self._tell(Entry(now_ns, self._name, "committed", one.topic, one.partition, end=one.offset))

    def _moved(self, kind: Kind, partitions: Iterable[TopicPartition]) -> None:
        now_ns = time.monotonic_ns()
        for partition in partitions:
            self._tell(Entry(now_ns, self._name, kind, partition.topic, partition.partition))

    def _tell(self, entry: Entry) -> None:
        os.write(self._descriptor, entry.to_line())


def main(path: str, topic: str, configuration: str) -> None:
    """Run one worker."""
    conf = json.loads(configuration)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    name = conf["client.id"]
    try:
        journal = JsonLinesJournal.open(Path(path).with_suffix(".journal"))
        with closing(journal), Consumer(conf, journal=journal) as consumer:
            worker = Worker(consumer, name=name, descriptor=descriptor)
            signal.signal(signal.SIGTERM, worker.stop)
            worker.run(topic)
    except Kip848Error as error:
        os.write(
            descriptor, Entry(time.monotonic_ns(), name, "error", text=f"{type(error).__name__}: {error}").to_line()
        )
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
