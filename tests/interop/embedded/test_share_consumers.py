"""Share consumers of librdkafka and of Apache Kafka on the embedded broker: a group of three, one of which crashes.

KIP848_SHARE_RECORDS: how many records there are; 20,000 without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Final

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.common.clock import ManualClock
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.record_batch import Record, build_batch
from tests.interop.embedded.installing import INSTALL_TIMEOUT_S, go_program
from tests.support.waiting import TIMEOUT_S, wait_until

GROUP, TOPIC, PARTITIONS = "workers", "jobs", 3
BATCH: Final = 100
PARTITION_RECORDS: Final = int(os.environ.get("KIP848_SHARE_RECORDS", "20000")) // PARTITIONS // BATCH * BATCH

RENEWALS: Final = 4

pytestmark = [
    pytest.mark.kip848_broker(topics={TOPIC: PARTITIONS}),
    pytest.mark.interop,
]

Place = tuple[int, int]
"""Partition and offset."""


class WorkerProcess:
    """A share consumer in a process of its own; what it took and what was accepted stands on its output."""

    def __init__(self, command: Sequence[str]) -> None:
        self.taken: Final[list[tuple[Place, int]]] = []
        self.accepted: Final[list[Place]] = []
        self.renewed: Final[list[Place]] = []
        self.refused: Final[list[str]] = []
        self.process: Final = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self._reader: Final = threading.Thread(target=self._read, args=(self.process.stdout,), name="share-output")
        self._reader.start()

    def say(self, order: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()

    def leave(self) -> None:
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.write("end\n")
            self.process.stdin.close()
        self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)

    def crash(self) -> None:
        self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()
        self._reader.join(TIMEOUT_S)

    def _read(self, output: IO[str]) -> None:
        with output:
            for line in output:
                fact, *words = line.split()
                if fact == "took":
                    self.taken.extend(((p, o), n) for p, o, n in grouped(words, 3))
                elif fact == "done":
                    self.accepted.extend((p, o) for p, o in grouped(words, 2))
                elif fact == "renewed":
                    self.renewed.extend((p, o) for p, o in grouped(words, 2))
                else:
                    self.refused.append(line)


def grouped(words: Sequence[str], size: int) -> Iterator[tuple[int, ...]]:
    return zip(*[map(int, words)] * size, strict=True)


Start = Callable[..., WorkerProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a worker; whatever still runs in the end is killed."""
    workers: list[WorkerProcess] = []

    def start_worker(*command: str) -> WorkerProcess:
        workers.append(WorkerProcess(command))
        return workers[-1]

    yield start_worker
    for worker in workers:
        worker.crash()


def work_through_a_crash(broker: EmbeddedBroker, start: Start, command: Sequence[str]) -> None:
    """Three workers share the jobs, one is killed with jobs in hand, and all jobs are done in the end."""
    broker.groups.set_config(GROUP, {"share.auto.offset.reset": "earliest"})
    fill(broker)
    victim = start(*command)
    wait_until(lambda: len(victim.taken) > 0, TIMEOUT_S, "the first job of the victim")
    (member,) = broker.wait_for_group(GROUP, members=1).members
    workers = [victim, start(*command), start(*command)]
    broker.wait_for_group(GROUP, members=3, timeout_s=TIMEOUT_S)
    victim.crash()
    broker.groups.expire_session(GROUP, member.member_id)
    broker.shares.wait_for(
        GROUP,
        lambda partitions: len(partitions) == PARTITIONS and not sum(each.unfinished for each in partitions),
        timeout_s=TIMEOUT_S,
        what="all jobs done",
    )
    for worker in workers[1:]:
        worker.leave()
    check(workers, victim)


def check(workers: Sequence[WorkerProcess], victim: WorkerProcess) -> None:
    """Every record was accepted once; those that the victim had were delivered again, as their counts say."""
    assert [line for worker in workers for line in worker.refused] == []
    accepted = Counter(place for worker in workers for place in worker.accepted)
    assert set(accepted.values()) <= {1}
    untold = {place for place, _ in victim.taken} - set(victim.accepted)  # the victim did not live to tell
    everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(PARTITION_RECORDS)}
    assert everything - set(accepted) <= untold
    deliveries = Counter(place for worker in workers for place, _ in worker.taken)
    again = {place for worker in workers for place, count in worker.taken if count > 1}
    assert {place for place, count in deliveries.items() if count > 1} <= again
    assert len(accepted) >= len(everything) - len(untold)


def fill(broker: EmbeddedBroker) -> None:
    """Write the jobs, in batches as a busy producer makes them."""
    batch = build_batch([Record(value=b"job")] * BATCH)

    def write(state: BrokerState) -> None:
        for partition in range(PARTITIONS):
            for _ in range(PARTITION_RECORDS // BATCH):
                state.topics.append(state.topics.find(TOPIC), partition, batch)

    broker._on_loop(write)


@pytest.mark.parametrize("mode", ["implicit", "sync", "async"])
def test_librdkafka_works_through_all_jobs_though_a_worker_crashes(
    broker: EmbeddedBroker, start: Start, mode: str
) -> None:
    """A Python worker must neither lose a job nor do an accepted one again when its neighbour is killed."""
    work_through_a_crash(broker, start, librdkafka_worker(broker, mode))


def librdkafka_worker(broker: EmbeddedBroker, mode: str) -> tuple[str, ...]:
    module = "tests.interop.embedded.share_worker"
    return sys.executable, "-m", module, broker.bootstrap_servers, GROUP, TOPIC, mode


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_java_works_through_all_jobs_though_a_worker_crashes(
    broker: EmbeddedBroker, java: list[str], start: Start
) -> None:
    """The same with Apache Kafka's own share consumer."""
    work_through_a_crash(broker, start, (*java, "share", broker.bootstrap_servers, GROUP, TOPIC))


@pytest.mark.kafka
def test_java_keeps_a_job_whose_lock_it_renews(java: list[str], start: Start) -> None:
    """A handler that is slower than the lock of its record does the job once, and no other worker gets it meanwhile."""
    with EmbeddedBroker({TOPIC: 1}, clock=ManualClock()) as broker:
        broker.groups.set_config(
            GROUP, {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000"}
        )
        broker.produce(TOPIC, "a long job")
        slow = start(*java, "renew", broker.bootstrap_servers, GROUP, TOPIC)
        wait_until(lambda: slow.taken, TIMEOUT_S, "the job of the slow worker")
        other = start(*librdkafka_worker(broker, "sync"))
        broker.wait_for_group(GROUP, members=2, timeout_s=TIMEOUT_S)
        for times in range(1, RENEWALS + 1):
            broker.clock.advance(900)
            slow.say("renew")
            wait_until(lambda times=times: len(slow.renewed) + len(slow.refused) == times)  # type: ignore[misc]
        slow.say("accept")
        broker.shares.wait_for(
            GROUP, lambda partitions: not partitions[0].unfinished, timeout_s=TIMEOUT_S, what="the job done"
        )
        slow.leave()
        other.leave()
    assert slow.refused == []
    assert slow.accepted == [(0, 0)]
    assert set(slow.taken) == {((0, 0), 1)}
    assert other.taken == []


@pytest.mark.kafka  # not that it needs one: it is run where packages of others may be fetched
@pytest.mark.slow
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 600)
def test_franz_go_works_through_all_jobs_though_a_worker_crashes(broker: EmbeddedBroker, start: Start) -> None:
    """The same with the share consumer that programs in Go have; it commits as much as it polls."""
    work_through_a_crash(broker, start, (*go_program("franz_go_share"), broker.bootstrap_servers, GROUP, TOPIC))
