"""What processes that stand by for a slot cost the coordinator::

    python benchmarks/standbys.py            # the embedded broker, in a process of its own; four minutes
    python benchmarks/standbys.py --kafka    # Apache Kafka as well; Java and Maven fetch and run it
    python benchmarks/standbys.py --quick    # ten of each, five seconds

A hundred consumers hold the slots of a pool and have nothing to read. A hundred more stand by. For each of three times
the CPU of the broker a second: the owners alone, the standbys in their first minute, and after it, when each of them
looks at the group a quarter as often. Of the embedded broker the requests a second of the standbys, too: heartbeats
(joins that are refused) and ConsumerGroupDescribe.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # the broker is started as the tests start it

from broker_process import broker_process, cpu_clock
from report_file import keep, machine, options, table, versions

from kip848_client import Consumer
from kip848_client.wire.api_keys import ApiKey
from tests.interop.kafka_broker import KafkaBroker

TOPIC = "t"
APIS = {"joins and heartbeats": ApiKey.CONSUMER_GROUP_HEARTBEAT, "descriptions": ApiKey.CONSUMER_GROUP_DESCRIBE}


class Broker(NamedTuple):
    """What is measured."""

    name: str
    bootstrap_servers: str
    pid: int
    requests: Callable[[float], dict[str, int]] | None
    """How many requests of each API came since then, if that can be known."""


@contextmanager
def embedded() -> Iterator[Broker]:
    """The embedded broker."""
    config = {"group.consumer.session.timeout.ms": "45000", "kip848.request.log.max.entries": "200000"}
    config["kip848.request.log.max.bytes"] = str(1 << 30)
    with broker_process({TOPIC: 100}, heartbeat_interval_ms=5_000, config=config) as broker:
        yield Broker("embedded", broker.bootstrap_servers, broker.pid, broker.requests_since)


@contextmanager
def kafka() -> Iterator[Broker]:
    """Apache Kafka."""
    with KafkaBroker() as broker:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 100, 1)])[TOPIC].result(30)
        yield Broker(f"Kafka {broker.version}", broker.bootstrap_servers, broker.pid, None)


def start(broker: Broker, number: int, *, slots: int, name: str) -> Iterator[Consumer[Any, Any]]:
    """Members of the pool."""
    for each in range(number):
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "client.id": f"{name}-{each}",
                "group.instance.id.pool": f"slot-{{0..{slots - 1}}}",
                "fetch.wait.max.ms": 5_000,
                "log_level": 0,
            }
        )
        consumer.subscribe([TOPIC])
        yield consumer


def until(done: Callable[[], bool], consumers: list[Consumer[Any, Any]], *, what: str) -> None:
    """Poll all of them until it is so."""
    deadline = time.monotonic() + 120
    while not done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within two minutes: {what}")
        for consumer in consumers:
            consumer.poll(0)


def look(broker: Broker, when: str, consumers: list[Consumer[Any, Any]], seconds: float) -> dict[str, Any]:
    """CPU and requests for a while."""
    clock = cpu_clock(broker.pid)
    began, began_at, cpu_s = time.monotonic(), time.time(), time.clock_gettime(clock)
    while time.monotonic() < began + seconds:
        for consumer in consumers:
            consumer.poll(0)
        time.sleep(0.5)
    took_s = time.monotonic() - began
    found: dict[str, Any] = {
        "broker": broker.name,
        "when": when,
        "cpu_ms_a_second": round((time.clock_gettime(clock) - cpu_s) / took_s * 1000, 1),
        "load_1_min": round(os.getloadavg()[0], 1),
    }
    if broker.requests is not None:
        counts = broker.requests(began_at)
        found["requests_a_second"] = {name: round(counts.get(str(api), 0) / took_s, 1) for name, api in APIS.items()}
    return found


def measure(broker: Broker, *, number: int, seconds: float, quick: bool) -> Iterator[dict[str, Any]]:
    """The three times."""
    owners = list(start(broker, number, slots=number, name="owner"))
    standbys: list[Consumer[Any, Any]] = []
    try:
        until(lambda: all(one.assignment() for one in owners), owners, what="all slots are held")
        yield look(broker, "the owners alone", owners, seconds)
        standbys = list(start(broker, number, slots=number, name="standby"))
        everybody = owners + standbys
        until(lambda: all(one.health().standing_by for one in standbys), everybody, what="all stand by")
        yield look(broker, "and as many standbys, in their first minute", everybody, seconds)
        if not quick:
            look(broker, "", everybody, 65)
            yield look(broker, "later", everybody, seconds)
    finally:
        for consumer in (*standbys, *owners):
            consumer.close(timeout_s=5)


def main() -> int:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka as well")
    parser.add_argument("--number", type=int, default=100, help="of owners, and of standbys (100)")
    arguments = parser.parse_args()
    number, seconds = (10, 5.0) if arguments.quick else (arguments.number, 20.0)
    results = []
    for place in (embedded, kafka) if arguments.kafka else (embedded,):
        with place() as broker:
            for found in measure(broker, number=number, seconds=seconds, quick=arguments.quick):
                results.append(found)
                print(f"  {found}", flush=True)
    rows: list[list[object]] = [["broker", "when", "CPU ms a second", *(f"{name} a second" for name in APIS), "load"]]
    for found in results:
        asked = found.get("requests_a_second", {})
        rows.append(
            [
                *(found["broker"], found["when"], found["cpu_ms_a_second"]),
                *(asked.get(name, "-") for name in APIS),
                found["load_1_min"],
            ]
        )
    table(rows)
    result = {
        "benchmark": "standbys",
        "machine": machine(),
        "versions": versions("confluent-kafka"),
        "owners": number,
        "standbys": number,
        "results": results,
    }
    keep(result, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
