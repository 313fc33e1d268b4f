"""What a consumer costs that has nothing to read: CPU and wake-ups a second, beside librdkafka.

::

    python benchmarks/idle.py                        # twenty minutes
    python benchmarks/idle.py --quick
    python benchmarks/idle.py --partitions 1500
    python benchmarks/idle.py --bootstrap HOST:PORT  # a broker that has the topics idle-4 and idle-1500

Each side is one consumer in a process of its own, turn by turn, with default settings, on a broker in another process:

* ``poll``, ``iterate``, ``async``: a member that calls poll(1.0), ``for message in consumer``, or `AsyncConsumer`.
* ``paused``: poll(1.0), with all partitions paused.
* ``librdkafka``: a `confluent_kafka.Consumer` with ``group.protocol=consumer`` that calls poll(1.0); ``paused`` as
  above, ``assigned``: it has the same partitions by ``assign``, without a group.

CPU time is that of the whole process. A wake-up is a voluntary context switch, as Linux counts them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from broker_process import broker_process
from report_file import in_a_process, keep, machine, median, options, table, versions

SETTLE_S = 8.0
"""Longer than auto.commit.interval.ms, whose first commit says where each partition begins."""
SIDES = ("poll", "iterate", "async", "paused", "librdkafka", "librdkafka, paused", "librdkafka, assigned")
PEER = {"paused": "librdkafka, paused"}
"""Side -> what it is compared with, if not with ``librdkafka``."""
RATIO_GOAL = 1.25
PARTITIONS = (4, 1_500)


def threads() -> Counter[tuple[str, str]]:
    """(thread, what) -> nanoseconds of CPU, and voluntary context switches, of this process so far."""
    counts: Counter[tuple[str, str]] = Counter()
    for task in Path("/proc/self/task").iterdir():
        name = (task / "comm").read_text(encoding="utf-8").strip()
        if task.name == str(os.getpid()):
            name = "application"
        counts[name, "cpu_ns"] += int((task / "schedstat").read_text(encoding="ascii").split()[0])
        status = dict(line.split(":", 1) for line in (task / "status").read_text(encoding="utf-8").splitlines())
        counts[name, "wake_ups"] += int(status["voluntary_ctxt_switches"])
    return counts


class Window:
    """Counts from `SETTLE_S` after the first call of `over` on, for *seconds*."""

    def __init__(self, seconds: float) -> None:
        self._from_s = time.monotonic() + SETTLE_S
        self._seconds = seconds
        self._before: tuple[float, float, Counter[tuple[str, str]]] | None = None
        self.result: dict[str, Any] = {}

    def over(self) -> bool:
        """Whether the time is up: `result` has the figures then."""
        now_s = time.monotonic()
        if self._before is None:
            if now_s >= self._from_s:
                self._before = now_s, time.process_time(), threads()
            return False
        began_s, cpu_s, before = self._before
        if now_s - began_s < self._seconds:
            return False
        span_s = now_s - began_s
        counts = threads()
        counts.subtract(before)
        self.result = {
            "cpu_ms": (time.process_time() - cpu_s) * 1_000 / span_s,
            "wake_ups": sum(count for (_, what), count in counts.items() if what == "wake_ups") / span_s,
            "threads": {
                name: {
                    "cpu_ms": round(counts[name, "cpu_ns"] / 1e6 / span_s, 3),
                    "wake_ups": round(counts[name, "wake_ups"] / span_s, 1),
                }
                for name in sorted({name for name, _ in counts})
            },
        }
        return True


def _config(bootstrap_servers: str, group: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap_servers, "group.id": group}


def _until_assigned(consumer: Any, count: int) -> None:
    deadline_s = time.monotonic() + 60
    while len(consumer.assignment()) < count:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"not assigned in 60 s: {len(consumer.assignment())} of {count} partitions")
        consumer.poll(0.05)


def _polled(consumer: Any, count: int, window: Callable[[], Window], *, paused: bool) -> dict[str, Any]:
    _until_assigned(consumer, count)
    if paused:
        consumer.pause(consumer.assignment())
    measured = window()
    while not measured.over():
        consumer.poll(1.0)
    consumer.close()
    return measured.result


def _iterated(consumer: Any, count: int, window: Callable[[], Window]) -> dict[str, Any]:
    """An iteration that nothing returns from is ended by a timer of the process, which costs one wake-up a second."""
    import signal

    _until_assigned(consumer, count)
    measured = window()

    def look(*_: object) -> None:
        if measured.over():
            consumer.hand_over(0)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
    for _ in consumer:
        pass
    signal.setitimer(signal.ITIMER_REAL, 0)
    consumer.close()
    return measured.result


def _awaited(bootstrap_servers: str, topic: str, count: int, window: Callable[[], Window]) -> dict[str, Any]:
    import asyncio

    from kip848_client import AsyncConsumer

    async def main() -> dict[str, Any]:
        async with AsyncConsumer(_config(bootstrap_servers, "async")) as consumer:
            await consumer.subscribe([topic])
            while len(await consumer.assignment()) < count:
                await consumer.poll(0.05)
            measured = window()
            while not measured.over():
                await consumer.poll(1.0)
            return measured.result

    return asyncio.run(main())


def do_task(task: dict[str, Any]) -> dict[str, Any]:
    """One side, in this process."""
    side, servers, count = task["side"], task["bootstrap_servers"], task["partitions"]
    topic = f"idle-{count}"

    def window() -> Window:
        return Window(task["seconds"])

    if side == "async":
        return _awaited(servers, topic, count, window)
    config = _config(servers, side)
    consumer: Any
    if side.startswith("librdkafka"):
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({**config, "group.protocol": "consumer"})
        if side == "librdkafka, assigned":
            consumer.assign([TopicPartition(topic, number, 0) for number in range(count)])
        else:
            consumer.subscribe([topic])
    else:
        import kip848_client

        consumer = kip848_client.Consumer(config)
        consumer.subscribe([topic])
    if side == "iterate":
        return _iterated(consumer, count, window)
    return _polled(consumer, count, window, paused=side.endswith("paused"))


def measure(
    counts: Sequence[int], *, seconds: float, rounds: int, bootstrap_servers: str | None
) -> dict[int, dict[str, list[dict[str, Any]]]]:
    """All sides with each number of partitions, turn by turn."""
    runs: dict[int, dict[str, list[dict[str, Any]]]] = {count: {side: [] for side in SIDES} for count in counts}
    with ExitStack() as stack:
        if bootstrap_servers is None:
            topics = {f"idle-{count}": count for count in counts}
            bootstrap_servers = stack.enter_context(
                broker_process(topics, heartbeat_interval_ms=5_000)
            ).bootstrap_servers
        for number in range(rounds):
            for count in counts:
                for side in SIDES if number % 2 == 0 else SIDES[::-1]:
                    task = {"side": side, "bootstrap_servers": bootstrap_servers, "partitions": count}
                    runs[count][side].append(in_a_process(__file__, {**task, "seconds": seconds}))
            print(f"  round {number + 1}/{rounds} done", flush=True)
    return runs


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Side -> medians of its rounds, its CPU as a multiple of librdkafka's, and the threads of the last round."""
    found: dict[str, dict[str, Any]] = {}
    for side, results in runs.items():
        peers = runs[PEER.get(side, "librdkafka")]
        found[side] = {
            "cpu_ms": median([result["cpu_ms"] for result in results]),
            "wake_ups": median([result["wake_ups"] for result in results], 1),
            "ratio": median([a["cpu_ms"] / b["cpu_ms"] for a, b in zip(results, peers, strict=True)], 2),
            "threads": results[-1]["threads"],
        }
    return found


def main() -> int:
    """Measure and print; the status says whether it could be done, not how it came out."""
    parser = options(__doc__)
    parser.add_argument("--partitions", type=int, action="append", help="4 and 1500 if none is given")
    parser.add_argument("--bootstrap", metavar="HOST:PORT")
    arguments = parser.parse_args()
    if arguments.task:
        print(json.dumps(do_task(json.loads(arguments.task))))
        return 0
    runs = measure(
        arguments.partitions or PARTITIONS[: 1 if arguments.quick else 2],
        seconds=2.0 if arguments.quick else 20.0,
        rounds=1 if arguments.quick else 3,
        bootstrap_servers=arguments.bootstrap,
    )
    result: dict[str, Any] = {"benchmark": "idle", "machine": machine(), "versions": versions("confluent-kafka")}
    rows: list[list[object]] = [["partitions, side", "CPU ms a second", "wake-ups a second", "times librdkafka's CPU"]]
    for count, sides in runs.items():
        result[f"{count} partitions"] = summary(sides)
        for side, found in result[f"{count} partitions"].items():
            rows.append([f"{count}, {side}", found["cpu_ms"], found["wake_ups"], found["ratio"]])
    table(rows)
    print(f"goal: poll and iterate at most {RATIO_GOAL} times librdkafka's CPU")
    keep(result, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
