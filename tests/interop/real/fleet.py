"""Worker processes of one group, and records that keep coming meanwhile."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
from confluent_kafka import KafkaError, Message, Producer

from kip848_client.common.model import NamedPartition
from tests.interop.real.ledger import Entry, Ledger, entries_of
from tests.support.driving import dotted
from tests.support.waiting import TIMEOUT_S

REPOSITORY: Final = Path(__file__).parents[3]
LINES_SHOWN: Final = 30
"""Of each file of a worker, if a test fails."""


class WorkerProcess(msgspec.Struct, frozen=True):
    """One running worker."""

    name: str
    client: str
    process: subprocess.Popen[bytes]
    path: Path

    def stop(self) -> None:
        """Tell it to leave, and wait until it has."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(TIMEOUT_S)
        assert code == 0, f"{self.name} ended with {code}: {entries_of(self.path)[-1:]}"


class Fleet:
    """Workers of one group.

    Args:
        folder: for what they write.
        topics: separated by commas.
        conf: of their consumers, without client.id.
    """

    def __init__(self, folder: Path, topics: str, conf: Mapping[str, object]) -> None:
        self.running: Final[list[WorkerProcess]] = []
        self._folder = folder
        self._topics = topics
        self._conf = conf
        self._numbers = itertools.count()
        self._paths: list[Path] = []
        self._killed: list[Entry] = []

    def start(self, client: str = "ours", *, topics: str | None = None, **conf: str) -> WorkerProcess:
        """Start one more worker, of ours or of ``librdkafka``; underscores in *conf* stand for dots."""
        name = f"worker-{next(self._numbers)}"
        path = self._folder / f"{name}.jsonl"
        path.touch()
        settings = {**self._conf, **dotted(conf), "client.id": name, "log_level": 0}
        command = [sys.executable, "-W", "error", "-m", "tests.interop.real.worker", client, str(path)]
        with path.with_suffix(".output").open("wb") as output:
            process = subprocess.Popen(
                [*command, topics or self._topics, json.dumps(settings)],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        worker = WorkerProcess(name, client, process, path)
        self.running.append(worker)
        self._paths.append(path)
        return worker

    def stop(self, worker: WorkerProcess) -> None:
        """Let one worker leave in good order."""
        self.running.remove(worker)
        worker.stop()

    def kill(self, worker: WorkerProcess) -> None:
        """End one worker with SIGKILL: nothing of it runs on."""
        self.running.remove(worker)
        worker.process.kill()
        worker.process.wait(TIMEOUT_S)
        self._killed.append(Entry(time.monotonic_ns(), worker.name, "killed"))

    def ledger(self) -> Ledger:
        """What all workers have written so far."""
        return Ledger([*self._killed, *(entry for path in self._paths for entry in entries_of(path))])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.running:
            worker.process.kill()
            worker.process.wait(TIMEOUT_S)
        if error is not None:
            error.add_note(self.ledger().summary())
            for path in self._paths:
                error.add_note(_story(path))


def _story(path: Path) -> str:
    """The end of what one worker wrote beside its entries: its event log, and its output."""
    parts = [f"--- {path}"]
    for suffix in (".journal", ".output"):
        of_it = path.with_suffix(suffix)
        parts += of_it.read_text(errors="replace").splitlines()[-LINES_SHOWN:] if of_it.exists() else []
    return "\n".join(parts)


class Stream:
    """Writes numbered records to every partition until it is stopped, on a thread of its own.

    Args:
        records_per_second: of all partitions together.
        life: which life of the topic the records are of, if it is deleted and created again.

    Attributes:
        written: how many each partition has; complete once the stream has stopped.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        partitions: int,
        records_per_second: int,
        life: str | None = None,
    ) -> None:
        self.written: Final[dict[NamedPartition, int]] = {}
        self.failures: Final[list[KafkaError]] = []
        self._topic = topic
        self._life = life
        self._rate = records_per_second
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "log_level": 0,
                "linger.ms": 1,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 1_000,
            }
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stream")
        self.grow(partitions)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def grow(self, partitions: int) -> None:
        """From now on write to so many partitions."""
        topic = self._topic if self._life is None else f"{self._topic}#{self._life}"
        for index in range(partitions):
            self.written.setdefault(NamedPartition(topic, index), 0)

    def stop(self) -> None:
        """Stop, and wait until everything written is acknowledged; may be called again."""
        self._stopped.set()
        self._thread.join(TIMEOUT_S)
        assert self._producer.flush(TIMEOUT_S) == 0, "records were not written"
        assert not self.failures, self.failures

    def _run(self) -> None:
        while not self._stopped.wait(len(self.written) / self._rate):
            for place, number in list(self.written.items()):
                try:
                    self._producer.produce(
                        self._topic, str(number), self._life, place.partition, on_delivery=self._delivered
                    )
                except BufferError:  # the broker has been away for long
                    break
                self.written[place] = number + 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failures.append(error)


def seconds(name: str, default: float) -> float:
    """How long a test is to run: an environment variable, or *default*."""
    return float(os.environ.get(name, default))
