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
from pathlib import Path
from typing import Any, Final

from tests.mutants.equivalent import reason_to_leave_out
from tests.mutants.generated import every_mutation, sample
from tests.mutants.plays import PLAYS
from tests.mutants.sources import ROOT
from tests.mutants.trial import UNIT_TESTS, Outcome, try_all

RESULT: Final = ROOT / "benchmarks" / "results" / "mutants.json"
_SAMPLE: Final = 200
_WANTED_PERCENT: Final = 97.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it. The exit status is 1 if more than five mutants of 200 were not noticed."""
    asked = _parser().parse_args(arguments)
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(1_000_000)
    everything = every_mutation()
    candidates = [one for one in everything if (reason_to_leave_out(one) is not None) == asked.left_out]
    chosen = sample(candidates, count=asked.sample, seed=seed)
    if asked.only or asked.left_out:
        chosen = [one for one in candidates if not asked.only or any(text in one.name for text in asked.only)]
    print(f"seed {seed}: {len(chosen)} of {len(everything):,} changes", file=sys.stderr)
    began_s = time.monotonic()
    tried = try_all(chosen, unit_tests=asked.tests or UNIT_TESTS, play_count=asked.plays, jobs=asked.jobs, tell=_tell)
    missed = [outcome for outcome in tried if not outcome.caught_by]
    print(f"caught: {len(tried) - len(missed)} of {len(tried)}")
    for outcome in missed:
        print(f"  missed: {outcome.name}")
    kept = asked.result or (None if asked.only or asked.left_out else RESULT)
    if kept is not None:
        drawn_from = {
            "plays_each": asked.plays,
            "changes_possible": len(everything),
            "changes_left_out": len(everything) - len(candidates),
        }
        kept.write_text(result(tried, seed=seed, seconds=round(time.monotonic() - began_s), **drawn_from))
    return 0 if 100 * len(missed) <= (100 - _WANTED_PERCENT) * len(tried) else 1


def _tell(outcome: Outcome) -> None:
    what = outcome.caught_by or f"MISSED by {outcome.tests} unit tests {outcome.message}"
    print(f"{what}  {outcome.cpu_s:.1f} s  {outcome.name}", file=sys.stderr, flush=True)


def result(tried: Sequence[Outcome], **facts: Any) -> str:
    """The JSON object that is kept: *facts*, and every outcome."""
    by_play = [outcome for outcome in tried if outcome.by_simulation]
    caught = sum(bool(outcome.caught_by) for outcome in tried)
    return (
        json.dumps(
            {
                "tried": len(tried),
                "caught": caught,
                "caught_by_simulation": len(by_play),
                "caught_by_unit_tests": caught - len(by_play),
                **facts,
                "by_invariant": dict(sorted(Counter(outcome.caught_by for outcome in by_play).items())),
                "missed": [outcome.name for outcome in tried if not outcome.caught_by],
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
    parser.add_argument("--left-out", action="store_true", help="try the changes that are left out as equivalent")
    parser.add_argument("--tests", action="append", default=[], metavar="PATH", help="ask these unit tests only")
    parser.add_argument(
        "--plays", type=int, default=PLAYS, help="plays for each that no unit test notices (%(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (%(default)s)")
    parser.add_argument("--result", type=Path, help=f"write here instead of {RESULT.relative_to(ROOT)}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
