"""``examples/exactly_once.py`` in processes that join, leave, freeze and are killed: each result is there once.

Environment:
    KIP848_EXACTLY_ONCE_RECORDS: how many records; 30,000 without it.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from kip848_client.common.model import NamedPartition
from tests.interop.embedded.clients import read_committed
from tests.interop.real.group import ON_KAFKA, Group
from tests.support.waiting import wait_until

pytestmark = [*ON_KAFKA, pytest.mark.slow]

RECORDS: Final = int(os.environ.get("KIP848_EXACTLY_ONCE_RECORDS", "30000"))
PARTITIONS: Final = 12
SINK_PARTITIONS: Final = 4
MEMBERS: Final = 3
SESSION_TIMEOUT_MS: Final = 2_000
ASK_EVERY_S: Final = 0.1
"""Asking more often would take the broker's time from the workers."""
STEPS: Final = ("kill", "join", "freeze", "kill", "leave", "freeze", "kill", "kill", "join", "freeze", "leave")
"""What happens, one step after each equal part of the records."""
TIMEOUT_S: Final = 120 + RECORDS / 400
EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "exactly_once.py"


class Workers:
    """Processes that run the example, one name each; a name that was killed is started again, as a supervisor does."""

    def __init__(self, group: Group, source: str, sink: str, folder: Path, example: Path) -> None:
        self.running: Final[dict[str, subprocess.Popen[bytes]]] = {}
        self._group = group
        self._arguments = (group.bootstrap_servers, source, sink)
        self._folder = folder
        self._example = example
        self._names = (f"worker-{number}" for number in itertools.count())

    def join(self, name: str | None = None) -> None:
        """Start one more, or one again."""
        name = name or next(self._names)
        command = [sys.executable, str(self._example), *self._arguments, name, self._group.group_id]
        with (self._folder / name).open("ab") as output:
            self.running[name] = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        """End the oldest one with SIGKILL, whatever it does, and start it again."""
        name, process = next(iter(self.running.items()))
        process.kill()
        process.wait(60)
        del self.running[name]
        self.join(name)

    def leave(self) -> None:
        """Stop the oldest one in good order."""
        name, process = next(iter(self.running.items()))
        del self.running[name]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, self.said(name)

    def freeze(self) -> None:
        """Stop the oldest one where it is until the group has gone on without it; then it wakes, and knows nothing."""
        name, process = next(iter(self.running.items()))
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: name not in self._members(), what=f"{name} to be removed", every_s=ASK_EVERY_S)
        process.send_signal(signal.SIGCONT)
        self.running[name] = self.running.pop(name)  # it is the next one's turn

    def _members(self) -> set[str]:
        return {member.client_id for member in self._group.shown().members}

    def check(self) -> None:
        """Fail if one has ended by itself."""
        for name, process in self.running.items():
            assert process.poll() is None, self.said(name)

    def said(self, name: str) -> str:
        """What it wrote."""
        return (self._folder / name).read_text()

    def aborted(self) -> int:
        """How many transactions were refused, and done again."""
        return sum(path.read_text().count("aborted:") for path in self._folder.iterdir())


@contextmanager
def workers_of(group: Group, source: str, sink: str, folder: Path, example: Path = EXAMPLE) -> Iterator[Workers]:
    workers = Workers(group, source, sink, folder, example)
    try:
        yield workers
    finally:
        for process in workers.running.values():
            process.kill()
            process.wait(60)


class Orders:
    """Numbered records, written on a thread of its own, in step with the work on them."""

    def __init__(self, servers: str, source: str) -> None:
        self.written = 0
        self.allowed = 0
        self._source = source
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 0, "acks": "all"})
        self._thread = threading.Thread(target=self._write, name="orders")

    def start(self) -> None:
        self._thread.start()

    def _write(self) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while self.written < RECORDS and time.monotonic() < deadline_s:
            for _ in range(min(1_000, self.allowed - self.written)):
                self._producer.produce(self._source, str(self.written).encode(), partition=self.written % PARTITIONS)
                self.written += 1
            self._producer.poll(0.01)

    def finish(self) -> None:
        self._thread.join(TIMEOUT_S)
        assert self._producer.flush(30) == 0


@pytest.mark.timeout(30 + TIMEOUT_S * 2)
def test_each_result_is_there_once_while_processes_join_leave_freeze_and_are_killed(
    group: Group, tmp_path: Path
) -> None:
    """Money depends on this promise of the example: no result is missing, and none is there twice."""
    servers = group.bootstrap_servers
    source, sink = group.topic(partitions=PARTITIONS), group.topic(partitions=SINK_PARTITIONS)
    group.configure(consumer_session_timeout_ms=SESSION_TIMEOUT_MS)
    places = [NamedPartition(source, partition) for partition in range(PARTITIONS)]
    orders = Orders(servers, source)

    def done() -> int:
        return sum(group.committed(places).values())

    with workers_of(group, source, sink, tmp_path) as workers:
        for _ in range(MEMBERS):
            workers.join()
        began_s = time.monotonic()
        orders.start()
        part = RECORDS // (len(STEPS) + 1)
        for number, step in enumerate(STEPS, 1):
            orders.allowed = part * (number + 1)

            def reached(count: int = part * number) -> bool:
                workers.check()
                return done() >= count

            wait_until(reached, TIMEOUT_S, f"{part * number} records before {step}", every_s=ASK_EVERY_S)
            getattr(workers, step)()
        orders.allowed = RECORDS
        orders.finish()
        wait_until(lambda: done() == RECORDS, TIMEOUT_S, "everything to be transformed", every_s=ASK_EVERY_S)
        took_s = time.monotonic() - began_s
        while workers.running:
            workers.leave()
        aborted = workers.aborted()

    found = [one.value() for one in read_committed(servers, sink, partitions=SINK_PARTITIONS)]
    expected = {b"invoice for %d" % number for number in range(RECORDS)}
    print(f"{RECORDS} records in {took_s:.1f} s, {aborted} transactions refused and done again")
    assert len(found) == RECORDS
    assert set(found) == expected
