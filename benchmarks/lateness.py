"""How late heartbeats leave while the application burns the CPU in pure Python, inside a listener.

::

    python benchmarks/lateness.py              # half a minute
    python benchmarks/lateness.py --seconds 20

One process holds the consumer; its ``on_partitions_assigned`` computes in pure Python for some seconds and never lets
go of the interpreter by itself, while the background thread has to send a heartbeat every 100 ms. The broker, in
another process, notes when each heartbeat arrives. A gap longer than the interval is lateness: it holds the thread's
waits for the interpreter (one for each return from the kernel), the network and the broker.

``idle`` is the same without the work; ``librdkafka`` is a `confluent_kafka.Consumer` whose callback does the same work:
its heartbeats come from C threads, which need no interpreter.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from typing import Any

from broker_process import broker_process
from report_file import in_a_process, keep, machine, median, options, table, versions

INTERVAL_MS = 100
GOAL_P99_MS = 50.0


def burn(seconds: float) -> int:
    """Work without a pause."""
    until = time.perf_counter() + seconds
    number = count = 1
    while time.perf_counter() < until:
        for _ in range(1_000):
            number = (number * 1_103_515_245 + 12_345) % 2_147_483_648
            count += number & 1
    return count


def consume(bootstrap_servers: str, *, side: str, seconds: float) -> dict[str, float]:
    """Join, and spend *seconds* in the listener, at work or asleep. Returns when that began and ended."""
    conf: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "group.id": side, "client.id": side}
    span: list[float] = []

    def listener(*_: object) -> None:
        span.append(time.time())
        if side == "idle":
            time.sleep(seconds)
        else:
            burn(seconds)
        span.append(time.time())

    consumer: Any
    if side == "librdkafka":
        from confluent_kafka import Consumer as Theirs

        consumer = Theirs(conf | {"group.protocol": "consumer"})
    else:
        from kip848_client import Consumer

        consumer = Consumer(conf)
    consumer.subscribe(["t"], on_assign=listener)
    deadline_s = time.monotonic() + seconds + 15
    while len(span) < 2:
        if time.monotonic() > deadline_s:
            raise RuntimeError("the listener did not run")
        consumer.poll(0.1)
    consumer.close()
    return {"began_s": span[0], "ended_s": span[1], "switch_interval_s": sys.getswitchinterval()}


def lateness_ms(times_s: list[float], *, began_s: float, ended_s: float) -> list[float]:
    """What each gap between two heartbeats, while the listener ran, has over the interval; early counts as 0."""
    inside = [moment for moment in times_s if began_s <= moment <= ended_s]
    return [max(0.0, (b - a) * 1000 - INTERVAL_MS) for a, b in itertools.pairwise(inside)]


def percentile(values: list[float], share: float) -> float:
    """The value that *share* of all do not exceed."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 2)


def main() -> int:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--seconds", type=float, default=None, help="in the listener, each run")
    arguments = parser.parse_args()
    if arguments.task:
        print(json.dumps(consume(**json.loads(arguments.task))))
        return 0
    seconds = arguments.seconds or (3.0 if arguments.quick else 8.0)
    rounds = 1 if arguments.quick else 2
    late: dict[str, list[float]] = {"idle": [], "ours": [], "librdkafka": []}
    with broker_process({"t": 4}, heartbeat_interval_ms=INTERVAL_MS) as broker:
        for _ in range(rounds):
            for side in late:
                task = {"bootstrap_servers": broker.bootstrap_servers, "side": side, "seconds": seconds}
                span = in_a_process(__file__, task)
                times = broker.heartbeat_times_s(side)
                late[side] += lateness_ms(times, began_s=span["began_s"], ended_s=span["ended_s"])
    sides = {
        side: {
            "heartbeats": len(values) + rounds,
            "late_ms_median": median(values, 2),
            "late_ms_p99": percentile(values, 0.99),
            "late_ms_max": round(max(values), 2),
        }
        for side, values in late.items()
    }
    result = {
        "benchmark": "lateness",
        "machine": machine(),
        "versions": versions("confluent-kafka"),
        "interval_ms": INTERVAL_MS,
        "seconds": seconds * rounds,
        "sides": sides,
        "goals": {"late_ms_p99": GOAL_P99_MS},
    }
    rows: list[list[object]] = [["while a listener works", "heartbeats", "median ms late", "p99", "max"]]
    rows += [[side, *values.values()] for side, values in sides.items()]
    table(rows)
    print(f"goal: p99 below {GOAL_P99_MS} ms late")
    keep(result, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
