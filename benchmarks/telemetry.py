"""What telemetry costs a program that configures no OpenTelemetry SDK, and one that does.

::

    python benchmarks/telemetry.py               # half a minute

One consumer reads records in blocks; block by block its metrics and spans are the real ones, or are taken out
altogether. The processor time of the reading thread in neighbouring blocks is compared, so that whatever the machine
does in between hits both. `no SDK` is what every program pays; `SDK` has an in-memory reader and exporter.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from consume_source import TOPIC, embedded_broker
from report_file import in_a_process, keep, machine, median, options, table, versions

GOAL = 1.01
BLOCK = {"poll": 20_000, "consume": 50_000, "poll, commit each": 2_000}
BLOCKS = {"poll": 60, "consume": 60, "poll, commit each": 40}


class Without:
    """In place of `ClientMetrics`: nothing."""

    tracing = measuring = False

    def look(self) -> None: ...

    def count(self, name: str, amount: int = 1, *, cause: str | None = None) -> None: ...

    def measure(self, name: str, ms: float) -> None: ...


def by_poll(consumer: Any, count: int) -> None:
    poll = consumer.poll
    for _ in range(count):
        while poll(1.0) is None:
            pass


def by_consume(consumer: Any, count: int) -> None:
    while count > 0:
        count -= len(consumer.consume(min(500, count), 1.0))


def by_poll_and_commit(consumer: Any, count: int) -> None:
    poll, commit = consumer.poll, consumer.commit
    for _ in range(count):
        message = None
        while message is None:
            message = poll(1.0)
        commit(message)


READERS: dict[str, Callable[[Any, int], None]] = {
    "poll": by_poll,
    "consume": by_consume,
    "poll, commit each": by_poll_and_commit,
}


def configure_sdk() -> None:
    """As a program would that has an exporter."""
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))
    trace.set_tracer_provider(provider)


def measure(task: dict[str, Any]) -> list[float]:
    """Ratios of processor time, with telemetry over without, of neighbouring blocks."""
    from kip848_client import Consumer

    if task["sdk"]:
        configure_sdk()
    call, blocks = task["call"], task["blocks"]
    conf = {
        "bootstrap.servers": task["bootstrap_servers"],
        "group.id": f"telemetry-{time.time_ns()}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    ratios = []
    with Consumer(conf) as consumer:
        consumer.subscribe([TOPIC])
        read, size = READERS[call], BLOCK[call]
        read(consumer, size)  # joined, assigned, warm
        observer = consumer._core.group.listeners.observer
        real: Any = observer._metrics
        meter: Any = consumer._core.meter
        sides = {"with": real, "without": Without()}
        for number in range(blocks):
            cost = {}
            for side in ("with", "without") if number % 2 == 0 else ("without", "with"):
                observer._metrics = meter.metrics = sides[side]
                began = time.thread_time()
                read(consumer, size)
                cost[side] = time.thread_time() - began
            ratios.append(cost["with"] / cost["without"])
        observer._metrics = meter.metrics = real
    return ratios


def main() -> int:
    """Compare; the status says whether it could be done."""
    arguments = options(__doc__).parse_args()
    if arguments.task:
        print(json.dumps(measure(json.loads(arguments.task))))
        return 0
    results = []
    with embedded_broker(records=6_500_000 if not arguments.quick else 700_000, value_bytes=20) as source:
        for sdk in (False, True):
            for call in READERS:
                blocks = BLOCKS[call] if not arguments.quick else 4
                task = {"bootstrap_servers": source.bootstrap_servers, "sdk": sdk, "call": call, "blocks": blocks}
                ratios = in_a_process(__file__, task)
                results.append({"call": call, "sdk": sdk, "ratio": median(ratios, 4), "blocks": len(ratios)})
    rows = [[call, *(f"{row['ratio']:.3f}" for row in results if row["call"] == call)] for call in READERS]
    table([["", "no SDK", "SDK"], *rows])
    print(f"processor time with telemetry over without; goal without an SDK: {GOAL}")
    keep(
        {
            "benchmark": "telemetry",
            "goal": GOAL,
            "results": results,
            "machine": machine(),
            "versions": versions("confluent-kafka", "opentelemetry-api", "opentelemetry-sdk"),
        },
        arguments,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
