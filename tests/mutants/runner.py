"""Every mutant in a process of its own, a few at a time; collects what became of them."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from tests.mutants.equivalent import reason_to_leave_out
from tests.mutants.generated import Mutation, sample
from tests.mutants.plays import Play, plays
from tests.mutants.reach import Reach
from tests.mutants.sources import CACHE, ROOT, digest_of_sources
from tests.mutants.worker import Verdict

REACHED_BY: Final = 100
"""One play in so many has to execute a statement that is a target."""
PLAY_CPU_S: Final = 20.0
CPU_S: Final = 900.0


class Mutant(msgspec.Struct, frozen=True):
    """One bug to try.

    Args:
        module: empty for a known one.
        kind: what sort of change; "known" for a known one.
        expected: invariants that may notice it; empty for any.
        plays: numbers of the plays that reach it.
        line: of the statement; 0 for a known one.
    """

    name: str
    module: str
    kind: str
    plays: Sequence[int]
    expected: frozenset[str] = frozenset()
    line: int = 0


class Outcome(msgspec.Struct, frozen=True):
    """What became of a mutant.

    Args:
        caught: noticed, and by what may notice it.
    """

    mutant: Mutant
    verdict: Verdict

    @property
    def caught(self) -> bool:
        """Whether the simulation found it."""
        return bool(self.verdict.caught_by)

    @property
    def as_expected(self) -> bool:
        """Whether it was found by what is there to find it."""
        return self.caught and (not self.mutant.expected or self.verdict.caught_by in self.mutant.expected)


class Targets(msgspec.Struct, frozen=True):
    """What generated mutants were chosen from.

    Args:
        all: changes to any function.
        reachable: of these, those in statements that enough plays execute.
        left_out: of these, those that nothing can show -> why.
        chosen: the sample.
    """

    all: int
    reachable: int
    left_out: dict[str, str]
    chosen: list[Mutant]


def known_mutants(count: int) -> list[Mutant]:
    """The bugs that are written down, each with all plays."""
    from tests.mutants.known import MUTANTS  # it imports what is tested

    every = range(count)
    return [Mutant(mutant.name, "", "known", every, mutant.killed_by) for mutant in MUTANTS]


def generated_mutants(
    everything: Sequence[Mutation], found: Reach, *, play_count: int, count: int, seed: int
) -> Targets:
    """Choose *count* of the changes that matter."""
    enough = max(1, play_count // REACHED_BY)
    reachable = [mutation for mutation in everything if len(found.plays_of(mutation)) >= enough]
    left_out = {mutation.name: reason for mutation in reachable if (reason := reason_to_leave_out(mutation))}
    candidates = [mutation for mutation in reachable if mutation.name not in left_out]
    chosen = [_mutant(mutation, found) for mutation in sample(candidates, count=count, seed=seed)]
    return Targets(len(everything), len(reachable), left_out, chosen)


def _mutant(mutation: Mutation, found: Reach) -> Mutant:
    return Mutant(mutation.name, mutation.module, mutation.kind, found.plays_of(mutation), line=mutation.line)


class Kept:
    """Verdicts of earlier runs with the same code and plays, so that a run which was stopped goes on where it was."""

    def __init__(self, play_count: int, *, fresh: bool) -> None:
        written = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("known*.py")))
        self._path = CACHE / f"verdicts-{digest_of_sources()}-{play_count}.jsonl"
        self._list = hashlib.sha256(written).hexdigest()[:16]
        """Digest of the bugs that are written down."""
        self._known: dict[str, Verdict] = {}
        if self._path.exists() and not fresh:
            for line in self._path.read_text().splitlines():
                key, verdict = json.loads(line)
                self._known[key] = Verdict(**verdict)

    def get(self, mutant: Mutant) -> Verdict | None:
        """What became of it; None if it was not tried."""
        return self._known.get(self._key(mutant))

    def add(self, outcome: Outcome) -> None:
        """Keep one more."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps([self._key(outcome.mutant), msgspec.structs.asdict(outcome.verdict)]) + "\n")

    def _key(self, mutant: Mutant) -> str:
        return mutant.name if mutant.module else f"{mutant.name} {self._list}"


def try_all(
    mutants: Iterable[Mutant], *, play_count: int, jobs: int, fresh: bool, on_outcome: Callable[[Outcome], None]
) -> list[Outcome]:
    """Try every mutant; *on_outcome* is called as they end.

    Args:
        fresh: try them again, though nothing has changed since they were tried.

    Returns:
        In the order of *mutants*.
    """
    every = plays(play_count)
    kept = Kept(play_count, fresh=fresh)

    def one(mutant: Mutant) -> Outcome:
        verdict = kept.get(mutant)
        if verdict is None:
            outcome = try_one(mutant, every)
            kept.add(outcome)
        else:
            outcome = Outcome(mutant, verdict)
        on_outcome(outcome)
        return outcome

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, mutants))


def try_one(mutant: Mutant, every: Sequence[Play]) -> Outcome:
    """Try one mutant in a process of its own."""
    task = {
        "module": mutant.module,
        "name": mutant.name,
        "plays": [(number, every[number]) for number in mutant.plays],
        "play_cpu_s": PLAY_CPU_S,
        "cpu_s": CPU_S,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants.worker"],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if done.returncode:
        # Killed for its processor time or memory, by what no handler in Python can stop.
        last = done.stderr.strip().splitlines()[-1:] or [f"ended with status {done.returncode}"]
        return Outcome(mutant, Verdict("hang", last[0], mutant.plays[0], "", 0, CPU_S))
    return Outcome(mutant, Verdict(**json.loads(done.stdout.strip().splitlines()[-1])))
