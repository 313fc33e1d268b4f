"""What ``process()`` costs, and what it gains, beside a plain loop and a pool made by hand.

::

    python benchmarks/processing.py            # two minutes

*Cost*: CPU time per record of the reader's process, with a handler that does nothing. The pool made by hand gathers
batches of 1,000 behind a semaphore, and commits each. *Gain*: records per second with a handler that waits for 10 ms,
one partition and 1,000 keys. Each side runs in a process of its own, turn by turn; the broker is in another one.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from report_file import in_a_process, keep, machine, median, options, table, versions

TOPIC = "records"
KEYS = 1_000
IN_HAND = 1_000
WAIT_S = 0.01
SIDES = ("plain loop", "pool by hand", "process()")


async def work(task: dict[str, Any]) -> dict[str, float]:
    """Handle all records on one side; CPU in us a record, and records a second."""
    from kip848_client import AsyncConsumer

    count, done = task["records"], 0
    wait_s = WAIT_S if task["waits"] else 0
    finished = asyncio.Event()

    async def handle(_: object) -> None:
        nonlocal done
        if wait_s:
            await asyncio.sleep(wait_s)
        done += 1
        if done == count:
            finished.set()

    conf = {
        "bootstrap.servers": task["bootstrap_servers"],
        "group.id": f"processing-{time.time_ns()}",
        "auto.offset.reset": "earliest",
    }
    async with AsyncConsumer(conf) as consumer:
        await consumer.subscribe([TOPIC])
        first = await consumer.poll()  # joining is not measured
        assert first is not None
        await handle(first)
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        if task["side"] == "process()":
            running = asyncio.create_task(consumer.process(handle, concurrency=IN_HAND))
            await finished.wait()
            seconds, cpu = time.perf_counter() - begun_s, time.process_time() - cpu_s
            running.cancel()
        elif task["side"] == "plain loop":
            async for message in consumer:
                await handle(message)
                if done >= count:
                    break
            seconds, cpu = time.perf_counter() - begun_s, time.process_time() - cpu_s
        else:
            slots = asyncio.Semaphore(IN_HAND)

            async def one(message: object) -> None:
                async with slots:
                    await handle(message)

            async for batch in consumer.batches(IN_HAND):
                await asyncio.gather(*map(one, batch))
                await consumer.commit()
                if done >= count:
                    break
            seconds, cpu = time.perf_counter() - begun_s, time.process_time() - cpu_s
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"us": cpu / done * 1e6, "per_s": done / seconds, "megabytes": megabytes}


@contextmanager
def filled_broker(records: int) -> Iterator[str]:
    """An embedded broker in another process, with one partition of keyed records."""
    process = subprocess.Popen([sys.executable, __file__, "--serve", str(records)], stdin=-1, stdout=-1, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def serve(records: int) -> None:
    """Run the broker until standard input ends."""
    from kip848_client.testing import EmbeddedBroker, NewRecord

    with EmbeddedBroker({TOPIC: 1}) as broker:
        for start in range(0, records, 5_000):
            broker.produce_many(TOPIC, [NewRecord("x" * 100, key=str(n % KEYS)) for n in range(start, start + 5_000)])
        print(broker.bootstrap_servers, flush=True)
        sys.stdin.read()


def main() -> int:
    """Compare; the status says whether it could be done."""
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]))
        return 0
    parser = options(__doc__)
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a Kafka whose topic records is filled already")
    arguments = parser.parse_args()
    if arguments.task:
        print(json.dumps(asyncio.run(work(json.loads(arguments.task)))))
        return 0
    records, rounds = (20_000, 1) if arguments.quick else (200_000, 3)
    results = []
    with filled_broker(records) as served:
        for waits in (False, True):
            measured: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
            for number in range(rounds):
                for side in SIDES if number % 2 == 0 else SIDES[::-1]:
                    plain = waits and side == "plain loop"
                    task = {
                        "bootstrap_servers": arguments.bootstrap or served,
                        "records": 500 if plain else records // (4 if waits else 1),
                        "waits": waits,
                        "side": side,
                    }
                    measured[side].append(in_a_process(__file__, task))
            plain_rates = [each["per_s"] for each in measured["plain loop"]]
            results += [
                {
                    "handler": "waits 10 ms" if waits else "does nothing",
                    "side": side,
                    "cpu_us": round(median([each["us"] for each in measured[side]]), 1),
                    "records_per_s": round(median([each["per_s"] for each in measured[side]])),
                    "ratio": median([a["per_s"] / b for a, b in zip(measured[side], plain_rates, strict=True)]),
                    "megabytes": round(median([each["megabytes"] for each in measured[side]])),
                }
                for side in SIDES
            ]
    rows = [
        [
            row["handler"],
            row["side"],
            f"{row['cpu_us']:.1f}",
            f"{row['records_per_s']:,}",
            f"{row['ratio']:.2f}",
            f"{row['megabytes']}",
        ]
        for row in results
    ]
    table([["handler", "", "CPU us/record", "records/s", "of the loop", "MB"], *rows])
    keep(
        {
            "benchmark": "processing",
            "records": records,
            "results": results,
            "machine": machine(),
            "versions": versions("confluent-kafka", "anyio"),
        },
        arguments,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
