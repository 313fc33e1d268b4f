"""``python -m tests.soak.workers``: workers and a leader on a real Kafka, for minutes, with faults.

Eight processes share 40 units, and one of them leads. Processes and the broker are killed, stopped and restarted, and
one heartbeat in a hundred is lost. Each act of a unit is written down with its token. No act may have a smaller token
than an act before it, and every unit must run at the end. The result tells how long units did not run: at most a
session and two seconds after the last failure, or two sessions if workers fail within a session of each other.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kip848_client import LeaderElection, OwnedUnit, Worker
from kip848_client.testing.broker.proxy.fault_proxy import FaultProxy
from kip848_client.testing.faults import ALWAYS, drop
from tests.interop.kafka_broker import KafkaBroker, KafkaBrokerError
from tests.interop.old_kafka import OldKafka
from tests.support.waiting import outlast

REPOSITORY: Final = Path(__file__).parents[2]
PROCESSES: Final = 8
UNITS: Final = [f"unit-{number}" for number in range(40)]
LEADER: Final = "leader"
SESSION_S: Final = 6
BOUND_S: Final = SESSION_S + 2
ACT_S: Final = 0.2
HEARTBEAT_MS: Final = 500
FAULTS: Final = {
    "kill a process": 6,
    "stop a process for longer than its session": 6,
    "restart a process": 2,
    "restart the broker": 1,
    "kill the broker": 1,
}
"""Fault -> how often, relative to the others."""


class Act(NamedTuple):
    """One act of a unit, on the monotonic clock of the machine."""

    at_s: float
    token: int
    process: str


def work(bootstrap_servers: str, path: str, name: str) -> None:
    """One process: runs its units, and leads if it is elected, until SIGTERM."""
    conf = {
        "bootstrap.servers": bootstrap_servers,
        "worker.id": name,
        "session.timeout.ms": SESSION_S * 1_000,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }
    ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    worker = Worker({**conf, "group.id": "soak-units"}, units=UNITS)
    election = LeaderElection({**conf, "group.id": "soak-leader"}, name=LEADER)

    def act(unit: str, token: int, *, holds: Callable[[], bool]) -> None:
        at_s = time.monotonic()  # before the look at the lease: a process may be stopped right after it
        if holds():
            os.write(ledger, f"{at_s:.4f} {unit} {token} {name}\n".encode())

    @worker.runner
    def run(owned: OwnedUnit, stop: threading.Event) -> None:
        while True:
            act(owned.name, owned.token, holds=lambda: worker.lease_remaining_s > 0)
            if stop.wait(ACT_S):
                return

    with worker, election:
        while not ends.wait(ACT_S):
            token = election.token
            if token is not None:
                act(LEADER, token, holds=lambda: election.is_leader)


class Soak:
    """The processes, the broker, and what is done to them."""

    def __init__(self, broker: KafkaBroker, proxy: FaultProxy, folder: Path, rng: random.Random) -> None:
        self._broker: Final = broker
        self._proxy: Final = proxy
        self._folder: Final = folder
        self._rng: Final = rng
        self._number = 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self.done: Final = dict.fromkeys(FAULTS, 0)
        self.failures: Final[list[tuple[float, str]]] = []
        """When something failed, or came back, and what."""

    @property
    def ledger(self) -> Path:
        """Where all processes write their acts."""
        return self._folder / "ledger"

    def run(self, minutes: float) -> None:
        """Play it."""
        try:
            for _ in range(PROCESSES):
                self._start()
            outlast(15.0)
            ends_s = time.monotonic() + 60 * minutes
            while time.monotonic() < ends_s:
                fault = self._rng.choices(list(FAULTS), list(FAULTS.values()))[0]
                self._harm(fault)
                self.done[fault] += 1
                outlast(self._rng.uniform(0.5, 6))
            outlast(2.0 * SESSION_S + 3)
        finally:
            for process in self._processes:
                process.kill()
                process.wait()

    def _harm(self, fault: str) -> None:
        place = self._rng.randrange(PROCESSES)
        process = self._processes[place]
        match fault:
            case "kill a process":
                process.kill()
                process.wait()
                self._note(fault)
                self._processes.pop(place)
                self._start()
            case "stop a process for longer than its session":
                process.send_signal(signal.SIGSTOP)
                self._note(fault)
                outlast(SESSION_S + self._rng.uniform(0.5, 4))
                process.send_signal(signal.SIGCONT)
                self._note("it goes on")
            case "restart a process":
                process.terminate()
                process.wait(60)
                self._processes.pop(place)
                self._start()
            case "restart the broker":
                self._note(fault)
                self._broker.restart()
                self._note("the broker is back")
            case _:
                self._note(fault)
                self._broker.kill()
                self._start_broker()
                self._note("the broker is back")

    def _start_broker(self) -> None:
        for _ in range(5):  # an old one cannot register while ZooKeeper keeps the session of the one that was killed
            with contextlib.suppress(KafkaBrokerError):
                self._broker.start()
                return
            self._broker.kill()
        raise AssertionError(f"the broker does not start again: {self._broker.log_tail()}")

    def _note(self, what: str) -> None:
        self.failures.append((time.monotonic(), what))

    def _start(self) -> None:
        self._number += 1
        name = f"p{self._number}"
        with (self._folder / f"{name}.output").open("wb") as output:
            command = [sys.executable, "-m", "tests.soak.workers", "--process", name, "--ledger", str(self.ledger)]
            self._processes.append(
                subprocess.Popen(
                    [*command, "--bootstrap", self._proxy.bootstrap_servers],
                    cwd=REPOSITORY,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )


def read(path: Path) -> dict[str, list[Act]]:
    """The acts of each unit, in the order of time."""
    acts: dict[str, list[Act]] = {unit: [] for unit in (*UNITS, LEADER)}
    for line in path.read_text().splitlines():
        at_s, unit, token, process = line.split()
        acts[unit].append(Act(float(at_s), int(token), process))
    for of_unit in acts.values():
        of_unit.sort()
    return acts


class Gap(NamedTuple):
    """A time in which a unit did not run.

    Args:
        late_s: from the last failure before its end to its end.
        failures: in it, and in the session before it.
    """

    length_s: float
    late_s: float
    unit: str
    failures: list[str]


def gaps(acts: dict[str, list[Act]], failures: list[tuple[float, str]]) -> Iterator[Gap]:
    """All times of more than a second without an act."""
    times = [at_s for at_s, _ in failures]
    for unit, of_unit in acts.items():
        for one, following in itertools.pairwise(of_unit):
            if following.at_s - one.at_s > 1.0:
                last = bisect.bisect_left(times, following.at_s) - 1
                late_s = following.at_s - max(one.at_s, times[last] if last >= 0 else 0.0)
                seen = [
                    f"{at_s - one.at_s:+.1f} {what}"
                    for at_s, what in failures
                    if one.at_s - SESSION_S <= at_s <= following.at_s
                ]
                yield Gap(following.at_s - one.at_s, late_s, unit, seen)


def main() -> int:
    """Run it; the exit code says whether everything was as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.workers", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, default=None, help="of the order of faults (default: a new one)")
    parser.add_argument("--oldest", action="store_true", help="on the oldest Kafka that starts here")
    parser.add_argument("--process", help=argparse.SUPPRESS)
    parser.add_argument("--ledger", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.process:
        work(arguments.bootstrap, arguments.ledger, arguments.process)
        return 0
    seed = random.SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    print(f"soak of {arguments.minutes:g} minutes, seed {seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="kip848-soak-") as folder,
        OldKafka() if arguments.oldest else KafkaBroker() as broker,
        FaultProxy(broker.bootstrap_servers) as proxy,
    ):
        proxy.faults.on("Heartbeat", drop(), times=ALWAYS, probability=0.01)
        soak = Soak(broker, proxy, Path(folder), random.Random(seed))
        soak.run(arguments.minutes)
        acts = read(soak.ledger)
        version = broker.version
    falls = [
        f"{unit}: {one} then {following}"
        for unit, of_unit in acts.items()
        for one, following in itertools.pairwise(of_unit)
        if following.token < one.token or (following.token == one.token and following.process != one.process)
    ]
    ended_s = max(of_unit[-1].at_s for of_unit in acts.values() if of_unit)
    idle = [unit for unit, of_unit in acts.items() if not of_unit or of_unit[-1].at_s < ended_s - 2]
    found = sorted(gaps(acts, soak.failures), reverse=True)
    late = sorted(found, key=lambda gap: gap.late_s, reverse=True)
    result = {
        "kafka": version,
        "seed": seed,
        "faults": soak.done,
        "acts": sum(map(len, acts.values())),
        "changes of an owner": sum(
            one.token != following.token for of_unit in acts.values() for one, following in itertools.pairwise(of_unit)
        ),
        "falling tokens": falls,
        "idle at the end": idle,
        "gaps": len(found),
        "longest": found[:3],
        "longest after the last failure": late[:3],
        f"above {BOUND_S} s after the last failure": sum(gap.late_s > BOUND_S for gap in late),
    }
    print(json.dumps(result, indent=1))
    return 1 if falls or idle else 0


if __name__ == "__main__":
    sys.exit(main())
