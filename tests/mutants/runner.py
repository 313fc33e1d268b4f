"""Every mutant in a process of its own, a few at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from tests.mutants.equivalent import reason_to_leave_out
from tests.mutants.generated import Mutation, sample
from tests.mutants.plays import PLAYS
from tests.mutants.sources import ROOT
from tests.mutants.worker import CPU_S


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a mutant; see `worker.verdict`."""

    name: str
    kind: str
    caught_by: str
    message: str
    play: int
    cpu_s: float

    @property
    def caught(self) -> bool:
        """Whether anything noticed it."""
        return bool(self.caught_by)

    @property
    def by_simulation(self) -> bool:
        """Whether a play noticed it, and not a unit test."""
        return self.caught and not self.caught_by.startswith("tests/")


class Targets(msgspec.Struct, frozen=True):
    """What a sample was drawn from.

    Args:
        every: number of all changes.
        left_out: number of those that change no decision (`equivalent`).
        chosen: the sample.
    """

    every: int
    left_out: int
    chosen: list[Mutation]


def targets(everything: Sequence[Mutation], *, count: int, seed: int) -> Targets:
    """Draw *count* of the changes that matter."""
    candidates = [mutation for mutation in everything if reason_to_leave_out(mutation) is None]
    return Targets(len(everything), len(everything) - len(candidates), sample(candidates, count=count, seed=seed))


def try_all(
    mutations: Iterable[Mutation], *, jobs: int, on_outcome: Callable[[Outcome], None], play_count: int = PLAYS
) -> list[Outcome]:
    """Try every mutant; *on_outcome* is called as they end. Returns the outcomes in the order of *mutations*."""

    def one(mutation: Mutation) -> Outcome:
        outcome = try_one(mutation, play_count=play_count)
        on_outcome(outcome)
        return outcome

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, mutations))


def try_one(mutation: Mutation, *, play_count: int = PLAYS) -> Outcome:
    """Try one mutant in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants.worker"],
        input=json.dumps([mutation.module, mutation.name, play_count]),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if done.returncode:
        # Killed for its processor time or memory, by what no handler in Python can stop.
        last = done.stderr.strip().splitlines()[-1:] or [f"ended with status {done.returncode}"]
        found: dict[str, object] = {"caught_by": "hang", "message": last[0], "play": 0, "cpu_s": float(CPU_S)}
    else:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    return msgspec.convert({"name": mutation.name, "kind": mutation.kind, **found}, Outcome)
