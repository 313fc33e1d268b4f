"""Throughput of our Consumer against confluent_kafka's, which delivers the same records through the same librdkafka.

::

    python benchmarks/consume.py                          # median ratio of 7 interleaved pairs, consume() and poll()
    python benchmarks/consume.py --bootstrap HOST:PORT    # a running Kafka instead of the embedded broker
    python benchmarks/consume.py --json-file out.json

What is compared: the price of our state machine, ownership filter and positions on top of librdkafka. So both sides get
the same librdkafka properties (`SAME_FOR_BOTH`), the same topics and a fresh group, each in a process of its own, turn
by turn, so that whatever else the machine does hits both. Read the ratio; the absolute numbers belong to this machine.
The ratio is worth something only if the source is faster than both: `source_margin` says by how much (plain fetches on
one connection, records not looked at), and less than 1.5 is marked.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from consume_source import TOPIC, Source, drain, embedded_broker, running_cluster
from report_file import keep

SAME_FOR_BOTH = {"fetch.queue.backoff.ms": 10, "fetch.wait.max.ms": 100}
"""Our default for the first: librdkafka's 1000 ms stalls a fast reader, and the comparison would measure that."""

MARGIN_WANTED = 1.5
READER = Path(__file__).with_name("consume_reader.py")


def measure(source: Source, side: str, call: str) -> dict[str, float]:
    """Read everything once, in a fresh process."""
    task = {
        "bootstrap_servers": source.bootstrap_servers,
        "topics": [TOPIC],
        "records": source.records,
        "side": side,
        "call": call,
        "properties": SAME_FOR_BOTH,
    }
    done = subprocess.run(
        [sys.executable, str(READER), json.dumps(task)], capture_output=True, text=True, timeout=180, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{side} {call} failed:\n{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def compare(source: Source, *, call: str, sides: tuple[str, str], pairs: int) -> dict[str, Any]:
    """Measure *pairs* pairs, swapping who goes first; the ratio is ours over theirs."""
    ours, theirs = sides
    rates: dict[str, list[float]] = {ours: [], theirs: []}
    cpu: dict[str, list[float]] = {ours: [], theirs: []}
    for number in range(pairs):
        for side in sides if number % 2 == 0 else sides[::-1]:
            result = measure(source, side, call)
            rates[side].append(result["records"] / result["seconds"])
            cpu[side].append(result["cpu_s"] * 1e6 / result["records"])
        print(
            f"  {call} {number + 1}/{pairs}: {_thousands(rates[ours][-1])} / {_thousands(rates[theirs][-1])}",
            flush=True,
        )
    ratios = [a / b for a, b in zip(rates[ours], rates[theirs], strict=True)]
    return {
        "call": call,
        "sides": list(sides),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "records_per_s": {side: round(statistics.median(values)) for side, values in rates.items()},
        "cpu_us_per_record": {side: round(statistics.median(values), 3) for side, values in cpu.items()},
    }


def main() -> int:
    """Run the comparison; the status says whether it could be made, not whether we won."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--records", type=int, default=1_800_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--calls", nargs="+", choices=("consume", "batches", "poll"), default=["consume", "poll"])
    parser.add_argument("--sides", nargs=2, default=["ours", "theirs-consumer"], metavar=("A", "B"))
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="a running Kafka; a topic 'bench' is made, filled, deleted"
    )
    parser.add_argument("--json-file", type=Path, help="keep the result here")
    parser.add_argument("--quick", action="store_true", help="two pairs of fewer records: to see that it works")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.pairs, arguments.records = 2, 600_000
    with _source(arguments) as source:
        capacity = max(drain(source) for _ in range(3))
        print(
            f"source: {source.records:,} records of {source.value_bytes} B, delivers {_thousands(capacity)}", flush=True
        )
        sides = (arguments.sides[0], arguments.sides[1])
        comparisons = [compare(source, call=call, sides=sides, pairs=arguments.pairs) for call in arguments.calls]
    result = {
        "benchmark": "consume",
        "records": source.records,
        "value_bytes": source.value_bytes,
        "properties": SAME_FOR_BOTH,
        "machine": {"python": platform.python_version(), "system": platform.platform()},
        "versions": _versions(),
        "source_records_per_s": round(capacity),
        "comparisons": comparisons,
    }
    for comparison in comparisons:
        fastest = max(comparison["records_per_s"].values())
        comparison["source_margin"] = round(capacity / fastest, 2)
        _report(comparison)
    keep(result, arguments)
    return 0


def _source(arguments: argparse.Namespace) -> AbstractContextManager[Source]:
    size = {"records": arguments.records, "value_bytes": arguments.value_bytes}
    return embedded_broker(**size) if arguments.bootstrap is None else running_cluster(arguments.bootstrap, **size)


def _report(comparison: dict[str, Any]) -> None:
    ours, theirs = comparison["sides"]
    rates, cpu = comparison["records_per_s"], comparison["cpu_us_per_record"]
    margin = comparison["source_margin"]
    print(f"{comparison['call']}(): {ours} / {theirs} = {comparison['ratio']:.2f}  (median of {comparison['ratios']})")
    for side in (ours, theirs):
        print(f"  {side:<16} {_thousands(rates[side]):>16}   {cpu[side]:.2f} us CPU a record")
    doubt = "" if margin >= MARGIN_WANTED else "  << the source may be the limit: the ratio flatters the slower side"
    print(f"  source margin {margin:.2f}{doubt}")


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("kip848_client", "confluent-kafka")}


def _thousands(rate: float) -> str:
    return f"{rate / 1000:,.0f} k records/s"


if __name__ == "__main__":
    sys.exit(main())
