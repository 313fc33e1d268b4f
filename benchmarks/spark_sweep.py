"""How much faster a sweep of the simulation is on Spark than in one process, on the same cores.

::

    python benchmarks/spark_sweep.py              # 20,000 scenarios; six minutes on two cores
    python -m benchmarks spark_sweep              # the same, kept in benchmarks/results
    python benchmarks/spark_sweep.py --quick

Both play the same seeds of ``mixed`` by the same function, and keep the same row of each. Starting Spark, its workers
and their imports is not counted. One process plays every tenth seed, half of them before Spark and half after it, so
that a machine whose speed drifts does not favour either. Give the machine nothing else to do.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from report_file import keep, machine, options, table, versions

from kip848_client.spark import spark_session
from kip848_client.spark.sweeps.sweep import Sweep, play_row, play_sweep
from kip848_client.spark.sweeps.sweep_summary import summarize

SCENARIO: Final = "mixed"
RATIO_GOAL: Final = 1.4
"""Times one process, on two cores."""
STRIDE: Final = 10


def alone(sweep: Sweep, seeds: range) -> float:
    """Seconds of wall-clock time in this process."""
    began_s = time.perf_counter()
    for seed in seeds:
        play_row(sweep, seed)
    return time.perf_counter() - began_s


def main() -> int:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--seeds", type=int, default=20_000, help="scenarios (20000)")
    arguments = parser.parse_args()
    count = 400 if arguments.quick else arguments.seeds
    cores = os.cpu_count() or 1
    found: dict[str, Any] = {
        "benchmark": "spark_sweep",
        "machine": machine(),
        "versions": versions("pyspark", "pyarrow"),
    }
    sweep = Sweep(SCENARIO, range(count), traces="none", part=count)

    alone(sweep, range(count, count + 40))
    sample = range(0, count, STRIDE)
    half = len(sample) // 2
    before_s = alone(sweep, sample[:half])

    with tempfile.TemporaryDirectory() as folder:
        spark = spark_session("kip848 sweep benchmark", master=f"local[{cores}]")
        try:
            warming = Sweep(SCENARIO, range(count, count + 20 * cores), traces="none", part=20 * cores)
            play_sweep(spark, warming, Path(folder) / "warm").count()
            began_s = time.perf_counter()
            runs = play_sweep(spark, sweep, Path(folder) / "sweep")
            spark_s = time.perf_counter() - began_s
            summary = summarize(runs)
        finally:
            spark.stop()
    after_s = alone(sweep, sample[half:])

    assert summary.runs == count, f"{summary.runs} of {count} runs are there"
    alone_s = before_s + after_s
    alone_rate, spark_rate = len(sample) / alone_s, count / spark_s
    found |= {
        "scenarios": count,
        "cores": cores,
        "events": summary.events,
        "broken": summary.broken_count,
        "one_process": {"scenarios": len(sample), "seconds": round(alone_s, 2), "per_second": round(alone_rate, 1)},
        "spark": {"seconds": round(spark_s, 2), "per_second": round(spark_rate, 1)},
        "ratio": round(spark_rate / alone_rate, 2),
        "goal": RATIO_GOAL,
    }
    table(
        [
            ["", "scenarios", "seconds", "a second"],
            ["one process", len(sample), f"{alone_s:.1f}", f"{alone_rate:.1f}"],
            [f"Spark, {cores} cores", count, f"{spark_s:.1f}", f"{spark_rate:.1f}"],
        ]
    )
    print(f"Spark is {found['ratio']} times as fast as one process (goal {RATIO_GOAL}); {summary.broken_count} broken")
    keep(found, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
