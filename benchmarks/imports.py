"""What importing costs: the consumer over `confluent_kafka` alone, the bare package, the pytest plugin, the broker.

::

    python benchmarks/imports.py                 # half a minute
    python benchmarks/imports.py --modules       # and the dearest modules of ours, by ``-X importtime``

Every import happens in a new process, from compiled bytecode as an installed package has it, all kinds turn by turn.
Processor time of the whole process is measured, less that of an interpreter that imports nothing: wall-clock time would
measure what else the machine does. Both are kept in the result.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from typing import Any

from report_file import keep, machine, median, options, table, versions

NOTHING = "nothing"
THEIRS = "confluent_kafka"
CONSUMER = "Consumer"
IMPORTS = {
    NOTHING: "pass",
    THEIRS: "import confluent_kafka",
    CONSUMER: "import kip848_client; kip848_client.Consumer",
    "kip848_client": "import kip848_client",
    "pytest": "import pytest",
    "pytest and plugin": "import pytest, kip848_client.testing.pytest_plugin",
    "EmbeddedBroker": "import kip848_client; kip848_client.EmbeddedBroker",
    "GroupMember": "import kip848_client.consumer.group.assembly",
}
GOAL_MS = 150.0
MODULES_SHOWN = 25


def run_once(statement: str, environment: dict[str, str]) -> tuple[float, float]:
    """(CPU ms, wall ms) of one new process."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", statement], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall_ms = (time.perf_counter() - begun) * 1000
    if process.returncode:
        raise RuntimeError(f"{statement!r} failed with {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1000, wall_ms


def dearest_modules(environment: dict[str, str]) -> list[tuple[str, float]]:
    """Modules by the milliseconds that they cost themselves, on top of confluent_kafka."""
    statement = f"{IMPORTS[THEIRS]}; {IMPORTS[CONSUMER]}"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", statement],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.findall(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)", done.stderr)
    names = [name for _, name in found]
    ours = found[names.index(THEIRS) + 1 :]
    ours.sort(key=lambda row: -int(row[0]))
    return [(name, int(own_us) / 1000) for own_us, name in ours[:MODULES_SHOWN]]


def main() -> int:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--modules", action="store_true", help="list the dearest modules")
    arguments = parser.parse_args()
    rounds = 5 if arguments.quick else 15
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in IMPORTS}
    modules: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = folder
        for statement in IMPORTS.values():
            run_once(statement, environment)  # compiles
        for number in range(rounds):
            for name in list(IMPORTS)[:: 1 if number % 2 == 0 else -1]:
                runs[name].append(run_once(IMPORTS[name], environment))
        print(f"  {rounds} rounds done", flush=True)
        if arguments.modules:
            modules = dearest_modules(environment)
    cpu_ms = {name: median([cpu for cpu, _ in results], 1) for name, results in runs.items()}
    wall_ms = {name: median([wall for _, wall in results], 1) for name, results in runs.items()}
    over = [ours[0] - theirs[0] for ours, theirs in zip(runs[CONSUMER], runs[THEIRS], strict=True)]
    over_wall = [ours[1] - theirs[1] for ours, theirs in zip(runs[CONSUMER], runs[THEIRS], strict=True)]
    result: dict[str, Any] = {
        "benchmark": "imports",
        "machine": machine(),
        "versions": versions("confluent-kafka", "anyio", "pytest"),
        "rounds": rounds,
        "cpu_ms": {name: round(cost - cpu_ms[NOTHING], 1) for name, cost in cpu_ms.items() if name != NOTHING},
        "wall_ms": {name: round(cost - wall_ms[NOTHING], 1) for name, cost in wall_ms.items() if name != NOTHING},
        "consumer_over_confluent_kafka_ms": {
            "cpu": median(over, 1),
            "wall": median(over_wall, 1),
            "wall_min": round(min(over_wall), 1),
        },
        "goals": {"consumer_over_confluent_kafka_ms": GOAL_MS},
    }
    rows: list[list[object]] = [["import of", "CPU ms", "wall ms"]]
    rows += [[name, result["cpu_ms"][name], result["wall_ms"][name]] for name in result["cpu_ms"]]
    table(rows)
    print(f"Consumer over confluent_kafka: {result['consumer_over_confluent_kafka_ms']} (goal {GOAL_MS} ms)")
    if modules:
        table([["module", "own ms"], *modules])
    keep(result, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
