"""`python -m tests.mutants`: put bugs into the cores and see whether the simulation finds them."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from tests.mutants import document
from tests.mutants.generated import every_mutation
from tests.mutants.plays import DEFAULT_PLAYS
from tests.mutants.reach import reach
from tests.mutants.runner import Mutant, Outcome, generated_mutants, known_mutants, try_all

_SAMPLE: Final = 200
_SEED: Final = 14
_WANTED_PERCENT: Final = 95.0
_BAR: Final = 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it. The exit status is 1 if a bug of the list survived, or more than one generated mutant in twenty."""
    asked = _parser().parse_args(arguments)
    bar = _Bar(asked.plays, "plays without a mutant")
    found = reach(asked.plays, progress=bar.show)
    bar.end()
    every = every_mutation()
    targets = generated_mutants(every, found, play_count=asked.plays, count=asked.sample, seed=asked.seed)
    known, generated = known_mutants(asked.plays), targets.chosen
    if asked.only:
        everything = generated_mutants(every, found, play_count=asked.plays, count=sys.maxsize, seed=asked.seed).chosen
        known, generated = _only(asked.only, known), _only(asked.only, generated) or _only(asked.only, everything)
    if asked.list:
        for mutant in (*known, *generated):
            print(f"{mutant.kind:18} {len(mutant.plays):5}  {mutant.name}")
        return 0
    bar = _Bar(len(known) + len(generated), "mutants")
    outcomes: list[Outcome] = []

    def note(outcome: Outcome) -> None:
        outcomes.append(outcome)
        bar.clear()
        if not asked.json:
            print(_line(outcome), flush=True)
        bar.show(len(outcomes))

    tried = try_all([*known, *generated], play_count=asked.plays, jobs=asked.jobs, fresh=asked.fresh, on_outcome=note)
    bar.end()
    of_list, of_sample = tried[: len(known)], tried[len(known) :]
    good = all(outcome.caught for outcome in of_list) and document.percent(of_sample) >= _WANTED_PERCENT
    if asked.json:
        print(
            json.dumps(
                {"seed": asked.seed, "plays": asked.plays, "good": good, "mutants": [_json(one) for one in tried]}
            )
        )
    else:
        print(f"caught: {_caught(of_list)} bugs of the list, {_caught(of_sample)} generated mutants")
    if not asked.only and not asked.no_document:
        document.write(of_list, of_sample, targets, seed=asked.seed, plays=asked.plays)
    return 0 if good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=_SAMPLE, help="generated mutants to try (%(default)s)")
    parser.add_argument("--seed", type=int, default=_SEED, help="which ones (%(default)s)")
    parser.add_argument("--plays", type=int, default=DEFAULT_PLAYS, help="plays at most for each mutant (%(default)s)")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="mutants with TEXT in their name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (%(default)s)")
    parser.add_argument("--fresh", action="store_true", help="try again what was tried with this very code")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--list", action="store_true", help="print the mutants and try none")
    parser.add_argument("--no-document", action="store_true", help=f"leave {document.PATH.name} as it is")
    return parser


def _only(texts: Sequence[str], mutants: Sequence[Mutant]) -> list[Mutant]:
    return [mutant for mutant in mutants if any(text in mutant.name for text in texts)]


def _caught(outcomes: Sequence[Outcome]) -> str:
    return f"{sum(one.caught for one in outcomes)} of {len(outcomes)} ({document.percent(outcomes):.1f} %)"


def _line(outcome: Outcome) -> str:
    verdict = outcome.verdict
    if not outcome.caught:
        what = f"SURVIVED {verdict.played} plays" + (" (time ran out)" if verdict.ran_out else "")
    elif outcome.as_expected:
        what = f"{verdict.caught_by} in play {verdict.play + 1}"
    else:
        what = (
            f"{verdict.caught_by} in play {verdict.play + 1}, wanted was {' or '.join(sorted(outcome.mutant.expected))}"
        )
    return f"{what:24} {verdict.cpu_s:6.1f} s  {outcome.mutant.name}"


def _json(outcome: Outcome) -> dict[str, Any]:
    mutant, verdict = outcome.mutant, outcome.verdict
    return {
        "name": mutant.name,
        "kind": mutant.kind,
        "line": mutant.line,
        "caught_by": verdict.caught_by or None,
        "as_expected": outcome.as_expected,
        "message": verdict.message,
        "play": verdict.play + 1,
        "played": verdict.played,
        "command": verdict.command,
        "cpu_s": round(verdict.cpu_s, 1),
    }


class _Bar:
    """A progress bar on a terminal; silent elsewhere."""

    def __init__(self, total: int, what: str) -> None:
        self._total = max(1, total)
        self._what = what
        self._visible = sys.stderr.isatty()
        self._began_s = time.monotonic()

    def show(self, done: int) -> None:
        if self._visible:
            filled = _BAR * done // self._total
            seconds = time.monotonic() - self._began_s
            text = f"[{'#' * filled:{_BAR}}] {done}/{self._total} {self._what}, {seconds:.0f} s"
            print(f"\r{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._visible:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        self.clear()


if __name__ == "__main__":
    sys.exit(main())
