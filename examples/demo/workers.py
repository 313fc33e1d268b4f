"""``make demo DEMO=--workers``: three processes share twelve feeds; one is killed, one is drained.

The broker is embedded in this process. Each worker is a process of its own and prints when it starts and
stops a feed; this process checks that the times of one feed never overlap.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

import msgspec

from kip848_client import EmbeddedBroker
from kip848_client.errors import Kip848Error

FEEDS: Final = tuple(f"feed-{number:02}" for number in range(12))
GROUP: Final = "feeds"
SESSION_MS: Final = 3_000
STEP_TIMEOUT_S: Final = 30.0

_CHILD: Final = """
import json, signal, sys, time
from kip848_client import Worker

def tell(event, owned):
    sys.stdout.write(json.dumps([event, owned.name, owned.token, time.monotonic()]) + "\\n")
    sys.stdout.flush()

conf = {"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "worker.id": sys.argv[3]}
worker = Worker(conf, units=sys.argv[4].split(","))

@worker.runner
def show_workers(owned, stop):
    tell("start", owned)
    stop.wait()
    tell("stop", owned)

signal.signal(signal.SIGTERM, lambda *_: worker.drain())
signal.signal(signal.SIGINT, signal.SIG_IGN)
with worker:
    worker.wait()
"""
"""A worker; SIGTERM drains it."""


class DemoStuckError(Kip848Error):
    """The workers did not get where they should."""


class _Run(msgspec.Struct):
    """One time that a feed ran."""

    worker: str
    token: int
    begin_s: float
    end_s: float | None = None


class WorkersDemo:
    """The processes, and what they reported."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._children: dict[str, subprocess.Popen[str]] = {}
        self._readers: list[threading.Thread] = []
        self._changed = threading.Condition()
        self.runs: dict[str, list[_Run]] = {feed: [] for feed in FEEDS}

    def start(self, worker: str) -> None:
        """Start a worker."""
        child = self._children[worker] = subprocess.Popen(
            [sys.executable, "-c", _CHILD, self._bootstrap_servers, GROUP, worker, ",".join(FEEDS)],
            stdout=subprocess.PIPE,
            text=True,
        )
        reader = threading.Thread(target=self._read, args=(worker, child), daemon=True)
        self._readers.append(reader)
        reader.start()

    def kill(self, worker: str) -> None:
        """End a worker as by ``kill -9``: it cannot say anything."""
        child = self._children.pop(worker)
        child.kill()
        child.wait()
        with self._changed:
            for runs in self.runs.values():
                for run in runs:
                    if run.worker == worker and run.end_s is None:
                        run.end_s = time.monotonic()

    def drain(self, worker: str) -> None:
        """Ask a worker to hand its feeds over and end."""
        self._children[worker].send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End all."""
        for child in self._children.values():
            child.kill()
            child.wait()
        for reader in self._readers:
            reader.join()

    def wait_for(self, counts: Mapping[str, int]) -> float:
        """Wait until each worker runs this many feeds; return the seconds that it took.

        Raises:
            DemoStuckError: they did not in time.
        """
        begin_s = time.monotonic()
        with self._changed:
            if not self._changed.wait_for(lambda: self.counts() == counts, STEP_TIMEOUT_S):
                raise DemoStuckError(f"waited {STEP_TIMEOUT_S:g} s for {dict(counts)}, and it is {self.counts()}")
        return time.monotonic() - begin_s

    def counts(self) -> dict[str, int]:
        """Worker -> number of feeds that it runs; workers without feeds are left out."""
        found: dict[str, int] = {}
        for runs in self.runs.values():
            for run in runs:
                if run.end_s is None:
                    found[run.worker] = found.get(run.worker, 0) + 1
        return found

    def faults(self) -> list[str]:
        """Feeds that ran twice at a time, or whose token did not grow."""
        faults = []
        for feed, runs in self.runs.items():
            ordered = sorted(runs, key=lambda run: run.begin_s)
            for before, after in itertools.pairwise(ordered):
                if before.end_s is None or before.end_s > after.begin_s:
                    faults.append(f"{feed} ran on {before.worker} and {after.worker} at a time")
                if before.token >= after.token:
                    faults.append(f"{feed} has token {after.token} after {before.token}")
        return faults

    def _read(self, worker: str, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        with child.stdout:
            for line in child.stdout:
                event, feed, token, at_s = json.loads(line)
                with self._changed:
                    if event == "start":
                        self.runs[feed].append(_Run(worker, token, at_s))
                    else:
                        next(run for run in self.runs[feed] if run.token == token and run.end_s is None).end_s = at_s
                    self._changed.notify_all()


def show_workers(*, as_json: bool) -> int:
    """Tell the story; 0 if no feed ever ran twice, 1 otherwise.

    Raises:
        DemoStuckError: a step did not end in time.
    """

    def say(text: str) -> None:
        if not as_json:
            print(text, flush=True)

    config = {"group.connect.session.timeout.ms": SESSION_MS}
    steps: dict[str, float] = {}
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker(connect_groups=True, config=config))
        demo = WorkersDemo(broker.bootstrap_servers)
        stack.callback(demo.close)
        say(f"{len(FEEDS)} feeds, group {GROUP!r}, session timeout {SESSION_MS / 1000:g} s\n")
        demo.start("w1")
        steps["one worker"] = demo.wait_for({"w1": 12})
        say("w1 runs all 12 feeds")
        for worker in ("w2", "w3"):
            demo.start(worker)
        steps["two more"] = demo.wait_for({"w1": 4, "w2": 4, "w3": 4})
        say("w2 and w3 joined: 4 feeds each; w1 stopped a feed before another worker started it")
        demo.kill("w2")
        steps["one killed"] = demo.wait_for({"w1": 6, "w3": 6})
        say(f"w2 was killed: its feeds run on w1 and w3 again after {steps['one killed']:.1f} s")
        demo.start("w4")
        steps["one in its place"] = demo.wait_for({"w1": 4, "w3": 4, "w4": 4})
        say("w4 took its place")
        demo.drain("w1")
        steps["one drained"] = demo.wait_for({"w3": 6, "w4": 6})
        say(f"w1 was drained: its feeds moved in {steps['one drained']:.2f} s")
        faults = demo.faults()
        moves = sum(len(runs) - 1 for runs in demo.runs.values())
    if as_json:
        print(msgspec.json.encode({"ok": not faults, "moves": moves, "seconds": steps, "faults": faults}).decode())
    else:
        say(
            f"\n{moves} moves; " + ("no feed ever ran twice, and tokens only grew" if not faults else "; ".join(faults))
        )
    return 1 if faults else 0
