"""Run every benchmark, one after the other: ``python -m benchmarks``. Results are kept in ``benchmarks/results``.

A benchmark is a file here without an underscore in its name; it prints ratios and takes ``--json-file``. To run one
alone: ``python benchmarks/consume.py --help``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results"


def main() -> int:
    """Run all; the status is 1 if one could not be run."""
    RESULTS.mkdir(exist_ok=True)
    failed = []
    for script in sorted(path for path in HERE.glob("*.py") if "_" not in path.stem):
        print(f"\n== {script.stem}", flush=True)
        result = RESULTS / f"{script.stem}.json"
        if subprocess.run([sys.executable, str(script), "--json-file", str(result)], check=False).returncode:
            failed.append(script.stem)
    if failed:
        print(f"could not be run: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
