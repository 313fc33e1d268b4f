"""Run benchmarks, one after the other::

    python -m benchmarks                          # all; results are kept in benchmarks/results; a quarter of an hour
    python -m benchmarks heartbeat rebalance      # these
    python -m benchmarks --quick                  # all, with few and short rounds, in three minutes; keeps nothing
    python -m benchmarks --json                   # one JSON object with every result on standard output
    python -m benchmarks handover spark_source    # those of NAMED_ONLY run only when they are named: they take minutes

A benchmark is a file here without an underscore in its name, or one of those; it prints ratios and takes
``--json-file`` and ``--quick``. To run one alone with its own options: ``python benchmarks/consume.py --help``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results"
TIMEOUT_S = 900.0
QUICK_TIMEOUT_S = 120.0
NAMED_ONLY = {
    "handover": "a real Kafka broker is fetched by Maven; an hour",
    "idle": "twenty minutes, most of them asleep",
    "share": "Go fetches franz-go; five minutes",
    "table": "ten minutes; Go fetches kfake, and Maven a real Kafka broker",
    "standbys": "four minutes, most of them asleep",
    "spark_source": "a real Kafka broker and Spark's Kafka connector are fetched by Maven; ten minutes",
    "spark_sweep": "six minutes",
    "spark_groups": "ten minutes",
}
"""What is run only if it is named, and what it takes on two idle cores."""
NAMED_TIMEOUT_S = 7200.0


def names() -> list[str]:
    """Every benchmark that is run if none is named."""
    return sorted(path.stem for path in HERE.glob("*.py") if "_" not in path.stem and path.stem not in NAMED_ONLY)


def run(name: str, *, folder: Path, quick: bool, quiet: bool) -> bool:
    """Run one and keep its result in *folder*; returns whether it could be run."""
    command = [sys.executable, str(HERE / f"{name}.py"), "--json-file", str(folder / f"{name}.json")]
    if quick:
        command.append("--quick")
    try:
        done = subprocess.run(
            command,
            stdout=sys.stderr if quiet else None,
            timeout=NAMED_TIMEOUT_S if name in NAMED_ONLY else QUICK_TIMEOUT_S if quick else TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        print(f"{name} was given up after {error.timeout:.0f} s", file=sys.stderr)
        return False
    return not done.returncode


def main() -> int:
    """Run what was asked for; the status is 1 if one could not be run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    named_only = "; ".join(f"{name} ({why})" for name, why in NAMED_ONLY.items())
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(names())}; all of these if none is given. Only if named: {named_only}",
    )
    parser.add_argument("--quick", action="store_true", help="few and short rounds: to see that they work")
    parser.add_argument("--json", action="store_true", help="print one JSON object; what they say goes to stderr")
    arguments = parser.parse_args()
    there = [*names(), *NAMED_ONLY]
    unknown = sorted(set(arguments.names) - set(there))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(there)}")
    wanted = arguments.names or names()
    failed = []
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if arguments.quick else RESULTS
        folder.mkdir(exist_ok=True)
        out = sys.stderr if arguments.json else sys.stdout
        for number, name in enumerate(wanted, 1):
            print(f"\n== {name} ({number} of {len(wanted)})", file=out, flush=True)
            began = time.monotonic()
            if run(name, folder=folder, quick=arguments.quick, quiet=arguments.json):
                results[name] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            else:
                failed.append(name)
            print(f"-- {name}: {time.monotonic() - began:.0f} s", file=out, flush=True)
    if arguments.json:
        print(json.dumps(results))
    if failed:
        print(f"could not be run: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
