"""``python -m tests.soak.jobs``: a queue of jobs on a real Kafka, with workers that are killed and deployed.

Some processes handle jobs of a share group in `AsyncShareConsumer.process()`. Each writes down a job when it is done,
before it is accepted, and each acceptance that no leader confirmed. Processes get SIGKILL, all of them are replaced one
after the other with SIGTERM, and a leader is killed and comes back: the one broker, or with ``--embedded`` one of three
nodes. At the end every job must have been done; a job may have been done twice only if a process that had it was
killed, or was not told that it counts. Prints how many.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import anyio.abc
import confluent_kafka

from kip848_client import AsyncShareConsumer, EmbeddedBroker, Kip848Error, ShareMessage
from kip848_client.consumer.records.data_plane import TopicPartition
from tests.interop.kafka_broker import KafkaBroker

kit: Any = importlib.import_module("confluent_kafka.admin")  # its stubs do not export what it has

REPOSITORY: Final = Path(__file__).parents[2]
TOPIC: Final = "jobs"
GROUP: Final = "soak-jobs"
LOCK_MS: Final = 15_000
"""The least that Kafka allows by default."""
QUIET_S: Final = 120
DOWN_S: Final = 5.0
"""How long a killed leader is away, at least."""


class Done(NamedTuple):
    """One line of a ledger: a job is done."""

    at_s: float
    process: str
    delivery: int
    place: tuple[int, int]
    """(partition, offset)"""


def work(bootstrap_servers: str, path: str, concurrency: int, job_s: float) -> None:
    """One process: does jobs until SIGTERM."""

    async def main() -> None:
        ledger = -1
        conf = {"bootstrap.servers": bootstrap_servers, "group.id": GROUP}
        async with AsyncShareConsumer(conf) as queue, anyio.create_task_group() as tasks:
            await queue.subscribe([TOPIC])

            async def stop(*, task_status: anyio.abc.TaskStatus[None]) -> None:
                nonlocal ledger
                with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                    ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                    task_status.started()
                    async for _ in signals:
                        queue.hand_over()
                        return

            async def handle(message: ShareMessage[bytes | None, bytes | None]) -> None:
                await anyio.sleep(job_s)
                job, count = int(message.value() or b""), message.delivery_count()
                line = f"done {time.monotonic():.4f} {job} {count} {message.partition()} {message.offset()}\n"
                os.write(ledger, line.encode())

            def told(offsets: Mapping[TopicPartition, frozenset[int]], error: Kip848Error | None) -> None:
                for of, found in offsets.items() if error is not None else ():
                    lines = (f"unconfirmed {of.partition} {offset}\n" for offset in sorted(found))
                    os.write(ledger, "".join(lines).encode())

            queue.set_acknowledgement_commit_callback(told)
            await tasks.start(stop)
            await queue.process(handle, concurrency=concurrency)
            tasks.cancel_scope.cancel()

    anyio.run(main)


class Fleet:
    """The processes of one run."""

    def __init__(self, bootstrap_servers: str, folder: Path, *, concurrency: int, job_s: float) -> None:
        self._arguments = (bootstrap_servers, concurrency, job_s)
        self._folder = folder
        self._number = 0
        self.killed: set[str] = set()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.stop_s: list[float] = []

    def start(self) -> None:
        """Start one more."""
        self._number += 1
        name = f"process-{self._number}"
        servers, concurrency, job_s = self._arguments
        command = [sys.executable, "-m", "tests.soak.jobs", "--work", servers, "--ledger", str(self._folder / name)]
        command += ["--concurrency", str(concurrency), "--job-s", str(job_s)]
        self.running[name] = subprocess.Popen(command, cwd=REPOSITORY)

    def kill(self, rng: random.Random) -> None:
        """Kill one, and start another."""
        name = rng.choice(sorted(self.running))
        process = self.running.pop(name)
        process.kill()
        process.wait()
        self.killed.add(name)
        self.start()

    def deploy(self) -> None:
        """Replace all, one after the other."""
        for name in sorted(self.running):
            process = self.running.pop(name)
            began_s = time.monotonic()
            process.terminate()
            code = process.wait(60)
            self.stop_s.append(time.monotonic() - began_s)
            early = code == -signal.SIGTERM and not (self._folder / name).exists()  # it had not begun
            assert code == 0 or early, f"{name} ended with {code}"
            self.start()

    def end(self) -> None:
        """Let all end."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(60)

    def done(self) -> dict[int, list[Done]]:
        """Job -> each time that it was done."""
        found: defaultdict[int, list[Done]] = defaultdict(list)
        for name, line in self._lines("done"):
            at_s, job, count, partition, offset = line
            found[int(job)].append(Done(float(at_s), name, int(count), (int(partition), int(offset))))
        return found

    def unconfirmed(self) -> set[tuple[str, tuple[int, int]]]:
        """(process, place) of what a process said and no leader confirmed."""
        return {(name, (int(partition), int(offset))) for name, (partition, offset) in self._lines("unconfirmed")}

    def _lines(self, kind: str) -> Iterator[tuple[str, list[str]]]:
        for path in self._folder.iterdir():
            for line in path.read_text().splitlines(keepends=True):
                word, *rest = line.split()
                if word == kind and line.endswith("\n"):  # a line may be on its way
                    yield path.name, rest


class Leader(NamedTuple):
    """What leads partitions of the jobs, and can be killed."""

    kill: Callable[[], object]
    start: Callable[[], object]


def play(servers: str, leader: Leader, options: argparse.Namespace) -> bool:
    """One run; whether all went well."""
    admin = kit.AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([kit.NewTopic(TOPIC, options.partitions, 3 if options.embedded else 1)])[TOPIC].result(30)
    entries = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(LOCK_MS)}
    resource = kit.ConfigResource(
        kit.ResourceType.GROUP,
        GROUP,
        incremental_configs=[
            kit.ConfigEntry(name, value, incremental_operation=kit.AlterConfigOpType.SET)
            for name, value in entries.items()
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 0})
    for number in range(options.jobs):
        producer.produce(TOPIC, str(number), partition=number % options.partitions)
        if number % 5_000 == 0:
            producer.poll(0.1)
    assert producer.flush(60) == 0
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(servers, Path(folder), concurrency=options.concurrency, job_s=options.job_s)
        began_s = time.monotonic()
        for _ in range(options.processes):
            fleet.start()
        marks = [(rng.uniform(0.05, 0.8), "kill") for _ in range(options.kills)]
        marks += [(number / (options.deploys + 1), "deploy") for number in range(1, options.deploys + 1)]
        marks += [(0.5 + number / 10, "leader") for number in range(options.leader_kills)]
        marks.sort()
        down_s: float | None = None
        last, last_s = 0, time.monotonic()
        while True:
            count = len(fleet.done())
            if count >= options.jobs:
                break
            if count > last:
                last, last_s = count, time.monotonic()
            elif time.monotonic() - last_s > QUIET_S:
                break
            while marks and count >= marks[0][0] * options.jobs:
                match marks.pop(0)[1]:
                    case "kill":
                        fleet.kill(rng)
                    case "deploy":
                        fleet.deploy()
                    case _ if down_s is None:
                        leader.kill()
                        down_s = time.monotonic()
            if down_s is not None and time.monotonic() - down_s > DOWN_S:
                leader.start()
                down_s = None
            time.sleep(0.05)  # the ledgers are files, and nothing tells when they grow
        took_s = time.monotonic() - began_s
        fleet.end()
        return report(fleet, options, took_s=took_s)


def report(fleet: Fleet, options: argparse.Namespace, *, took_s: float) -> bool:
    """Print what came of it; whether every job was done, and twice only after a kill or a lost answer."""
    done = fleet.done()
    missing = [number for number in range(options.jobs) if number not in done]
    twice = {job: found for job, found in done.items() if len(found) > 1}
    unconfirmed = fleet.unconfirmed()
    why = {job: why_twice(found, fleet.killed, unconfirmed) for job, found in twice.items()}
    odd = {job: twice[job] for job, reason in why.items() if reason == "without a reason"}
    print(
        json.dumps(
            {
                "jobs": options.jobs,
                "processes": options.processes,
                "kills": len(fleet.killed),
                "missing": len(missing),
                "done twice": dict(Counter(why.values())),
                "not confirmed": len(unconfirmed),
                "jobs a second": round(options.jobs / took_s),
                "SIGTERM to end, s": [round(each, 2) for each in fleet.stop_s],
            }
        )
    )
    for job, found in sorted(odd.items())[:5]:
        print(job, found)
    return not missing and not odd


def why_twice(found: list[Done], killed: set[str], unconfirmed: set[tuple[str, tuple[int, int]]]) -> str:
    """Why a job was done more than once."""
    if any(each.process in killed for each in found):
        return "a process was killed"
    if any((each.process, each.place) in unconfirmed for each in found):
        return "an answer was lost, or a lock"
    return "without a reason"


def main() -> int:
    """Play the run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--deploys", type=int, default=2)
    parser.add_argument("--leader-kills", type=int, default=1)
    parser.add_argument("--embedded", action="store_true", help="three nodes of the embedded broker")
    parser.add_argument("--job-s", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", metavar="SERVERS", help="be one process")
    parser.add_argument("--ledger")
    options = parser.parse_args()
    if options.work:
        work(options.work, options.ledger, options.concurrency, options.job_s)
        return 0
    if options.embedded:
        with EmbeddedBroker(nodes=3) as broker:
            killed: list[int] = []

            def kill() -> None:
                killed.append(broker.nodes.leader(TOPIC, 0))
                broker.nodes.kill(killed[-1])

            leader = Leader(kill, lambda: broker.nodes.start(killed[-1], preferred=True))
            return 0 if play(",".join(broker.all_bootstrap_servers), leader, options) else 1
    with KafkaBroker() as kafka:
        return 0 if play(kafka.bootstrap_servers, Leader(kafka.kill, kafka.start), options) else 1


if __name__ == "__main__":
    sys.exit(main())
