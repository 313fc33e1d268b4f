"""Throughput of `AsyncConsumer` against `Consumer`, on asyncio and trio.

::

    python benchmarks/asynchronous.py            # two minutes

Each reads the same records in a process of its own, turn by turn: one record at a time (iteration), and in batches.
Read the ratio: it is the price of the event loop and of the thread that owns the consumer.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from typing import Any

from consume_source import TOPIC, embedded_broker
from report_file import in_a_process, keep, machine, median, options, table, versions

SIDES = ("Consumer", "asyncio", "trio")
CALLS = ("iteration", "batches")


def settings(task: dict[str, Any]) -> dict[str, Any]:
    return {
        "bootstrap.servers": task["bootstrap_servers"],
        "group.id": f"async-{time.time_ns()}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
    }


def read(task: dict[str, Any]) -> float:
    """Records per second of the synchronous consumer."""
    from kip848_client import Consumer

    count, first_s = 0, 0.0
    with Consumer(settings(task)) as consumer:
        consumer.subscribe([TOPIC])
        if task["call"] == "iteration":
            for _ in consumer:
                first_s = first_s or time.perf_counter()
                count += 1
                if count >= task["records"]:
                    break
        else:
            for batch in consumer.batches():
                first_s = first_s or time.perf_counter()
                count += len(batch)
                if count >= task["records"]:
                    break
        return count / (time.perf_counter() - first_s)


async def read_in_loop(task: dict[str, Any]) -> float:
    """The same with AsyncConsumer."""
    from kip848_client import AsyncConsumer

    count, first_s = 0, 0.0
    async with AsyncConsumer(settings(task)) as consumer:
        await consumer.subscribe([TOPIC])
        if task["call"] == "iteration":
            async for _ in consumer:
                first_s = first_s or time.perf_counter()
                count += 1
                if count >= task["records"]:
                    break
        else:
            async for batch in consumer.batches():
                first_s = first_s or time.perf_counter()
                count += len(batch)
                if count >= task["records"]:
                    break
        return count / (time.perf_counter() - first_s)


def measure(task: dict[str, Any]) -> float:
    """Records per second of one side."""
    import anyio

    if task["side"] == "Consumer":
        return read(task)
    return anyio.run(functools.partial(read_in_loop, task), backend=task["side"])


def main() -> int:
    """Compare; the status says whether it could be done."""
    arguments = options(__doc__).parse_args()
    if arguments.task:
        print(json.dumps(measure(json.loads(arguments.task))))
        return 0
    records, rounds = (200_000, 1) if arguments.quick else (1_000_000, 5)
    results = []
    with embedded_broker(records=records, value_bytes=100) as source:
        for call in CALLS:
            rates: dict[str, list[float]] = {side: [] for side in SIDES}
            for number in range(rounds):
                for side in SIDES if number % 2 == 0 else SIDES[::-1]:
                    task = {
                        "bootstrap_servers": source.bootstrap_servers,
                        "records": records,
                        "call": call,
                        "side": side,
                    }
                    rates[side].append(in_a_process(__file__, task))
            results += [
                {
                    "call": call,
                    "side": side,
                    "records_per_s": round(median(rates[side])),
                    "ratio": median([a / b for a, b in zip(rates[side], rates["Consumer"], strict=True)]),
                }
                for side in SIDES
            ]
    rows = [[row["call"], row["side"], f"{row['records_per_s']:,}", f"{row['ratio']:.2f}"] for row in results]
    table([["", "", "records/s", "of Consumer"], *rows])
    keep(
        {
            "benchmark": "asynchronous",
            "records": records,
            "results": results,
            "machine": machine(),
            "versions": versions("confluent-kafka", "anyio", "trio"),
        },
        arguments,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
