"""`python -m tests.mutants`: put bugs into the cores and see whether simulation and unit tests find them."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.mutants.generated import Mutation, every_mutation
from tests.mutants.plays import PLAYS
from tests.mutants.runner import Outcome, Targets, targets, try_all
from tests.mutants.sources import ROOT

RESULT: Final = ROOT / "benchmarks" / "results" / "mutants.json"
_SAMPLE: Final = 200
_WANTED_PERCENT: Final = 95.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it. The exit status is 1 if more than one mutant in twenty was not noticed."""
    asked = _parser().parse_args(arguments)
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(1_000_000)
    everything = every_mutation()
    drawn = targets(everything, count=asked.sample, seed=seed)
    chosen = drawn.chosen
    if asked.only:
        chosen = [one for one in everything if any(text in one.name for text in asked.only)]
    print(f"seed {seed}: {len(chosen)} of {drawn.every:,} changes", file=sys.stderr)
    began_s = time.monotonic()
    tried = _try(chosen, jobs=asked.jobs)
    missed = [outcome for outcome in tried if not outcome.caught]
    print(f"caught: {len(tried) - len(missed)} of {len(tried)}")
    for outcome in missed:
        print(f"  missed: {outcome.name}")
    if not asked.only and not asked.no_result:
        RESULT.write_text(result(tried, drawn, seed=seed, seconds=time.monotonic() - began_s))
    return 0 if 100 * len(missed) <= (100 - _WANTED_PERCENT) * len(tried) else 1


def _try(chosen: Sequence[Mutation], *, jobs: int) -> list[Outcome]:
    done = 0

    def note(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        what = outcome.caught_by or "MISSED"
        print(f"{done:4} {what}  {outcome.cpu_s:.0f} s  {outcome.name}", file=sys.stderr, flush=True)

    return try_all(chosen, jobs=jobs, on_outcome=note)


def result(tried: Sequence[Outcome], drawn: Targets, *, seed: int, seconds: float) -> str:
    """The JSON object that is kept."""
    caught = [outcome for outcome in tried if outcome.caught]
    by_play = [outcome for outcome in caught if outcome.by_simulation]
    return (
        json.dumps(
            {
                "seed": seed,
                "tried": len(tried),
                "caught": len(caught),
                "caught_by_simulation": len(by_play),
                "caught_by_unit_tests": len(caught) - len(by_play),
                "plays_each": PLAYS,
                "changes_possible": drawn.every,
                "changes_left_out": drawn.left_out,
                "seconds": round(seconds),
                "by_invariant": dict(sorted(Counter(outcome.caught_by for outcome in by_play).items())),
                "missed": [outcome.name for outcome in tried if not outcome.caught],
                "mutants": {outcome.name: outcome.caught_by for outcome in tried},
            },
            indent=1,
        )
        + "\n"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=_SAMPLE, help="mutants to draw (%(default)s)")
    parser.add_argument("--seed", type=int, help="draw the same ones as another time (a new seed each time)")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="all mutants with TEXT in the name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (%(default)s)")
    parser.add_argument("--no-result", action="store_true", help=f"leave {RESULT.relative_to(ROOT)} as it is")
    return parser


if __name__ == "__main__":
    sys.exit(main())
