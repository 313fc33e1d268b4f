"""How soon a member goes on after the node was killed that coordinates its group and leads its partition.

::

    python benchmarks/failover.py              # three minutes
    python benchmarks/failover.py --quick

One consumer in a process of its own, against an embedded cluster of three nodes in this process; ours and librdkafka's
consumer protocol, turn by turn, both with a reconnect backoff of 20 ms to 200 ms. The other nodes take over at once,
so what is measured is the client. The clock runs from ``nodes.kill``

* until a heartbeat of the member is answered by the next coordinator;
* until the consumer has a record that the next leader of its partition took right after the kill.

A kill comes between two heartbeats, at a random moment of the interval.
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from report_file import keep, machine, median, options, table, versions

from kip848_client import EmbeddedBroker
from kip848_client.wire.codec import encode_request, frame
from kip848_client.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kip848_client.wire.record_batch import Record, build_batch

SIDES: Final = ("ours", "librdkafka")
TOPIC: Final = "t"
GROUP: Final = "g"
TIMEOUT_S: Final = 120.0


def consume(bootstrap_servers: str, *, side: str) -> None:
    """Be a member until standard input ends, and print the value of each record."""
    conf: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }
    consumer: Any
    if side == "librdkafka":
        from confluent_kafka import Consumer as Theirs

        consumer = Theirs(conf | {"group.protocol": "consumer", "error_cb": lambda _error: None})
    else:
        from kip848_client import Consumer

        consumer = Consumer(conf)
    consumer.subscribe([TOPIC])
    while True:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            print(message.value().decode(), flush=True)


@contextmanager
def member(broker: EmbeddedBroker, *, side: str) -> Iterator[subprocess.Popen[str]]:
    """A process with one member that has its partition."""
    task = json.dumps({"bootstrap_servers": broker.bootstrap_servers, "side": side})
    process = subprocess.Popen(
        [sys.executable, __file__, "--task", task], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        broker.groups.wait_for(
            GROUP, lambda group: group.state == "Stable" and len(group.assigned) == 1, timeout_s=TIMEOUT_S
        )
        yield process
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


def produce(broker: EmbeddedBroker, value: str) -> None:
    """Write one record to the leader of the partition."""
    port = broker.nodes[broker.nodes.leader(TOPIC, 0)].port
    batch = build_batch([Record(value.encode(), timestamp=int(time.time() * 1000))])
    data = TopicProduceData(name=TOPIC, partition_data=(PartitionProduceData(index=0, records=batch),))
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=(data,))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(frame(encode_request(request, api_version=9, correlation_id=1, client_id="writer")))
        connection.recv(4096)


def fail_over(broker: EmbeddedBroker, process: subprocess.Popen[str], value: str, *, interval_ms: int) -> list[float]:
    """Kill the coordinator, which is the leader, too; ms until a heartbeat is answered and until a record is read."""
    assert process.stdout is not None
    dead = broker.nodes.coordinator(group=GROUP)
    broker.nodes.move_leader(TOPIC, 0, dead)
    produce(broker, f"before {value}")
    while process.stdout.readline().strip() != f"before {value}":
        pass
    broker.requests.wait_for("heartbeat", node_id=dead, since=broker.requests.mark(), answered=True)
    time.sleep(random.uniform(0.1, 0.9) * interval_ms / 1000)
    mark = broker.requests.mark()
    began = time.monotonic()
    broker.nodes.kill(dead)
    produce(broker, value)
    while process.stdout.readline().strip() != value:
        pass
    read_ms = (time.monotonic() - began) * 1000
    logged = broker.requests.wait_for(
        "heartbeat", since=mark, answered=True, when=lambda each: not each.errors, timeout_s=TIMEOUT_S
    )
    heartbeat_ms = logged.ts_ms - (time.time() - (time.monotonic() - began)) * 1000
    broker.nodes.start(dead)
    return [heartbeat_ms, read_ms]


def measure(side: str, *, interval_ms: int, rounds: int) -> list[list[float]]:
    """So many fail-overs of one member."""
    config = {
        "group.consumer.heartbeat.interval.ms": interval_ms,
        "group.consumer.min.heartbeat.interval.ms": 10,
        "group.consumer.session.timeout.ms": 45_000,
    }
    with EmbeddedBroker({TOPIC: 1}, nodes=3, config=config) as broker, member(broker, side=side) as process:
        return [fail_over(broker, process, str(number), interval_ms=interval_ms) for number in range(rounds)]


def main() -> None:
    """Measure and print."""
    arguments = options(__doc__).parse_args()
    if arguments.task:
        consume(**json.loads(arguments.task))
        return
    runs, rounds = (1, 2) if arguments.quick else (3, 4)
    results: dict[str, dict[str, Any]] = {}
    for interval_ms in (1000,) if arguments.quick else (1000, 5000):
        found: dict[str, list[list[float]]] = {side: [] for side in SIDES}
        for _ in range(runs):
            for side in SIDES:
                found[side] += measure(side, interval_ms=interval_ms, rounds=rounds)
        results[f"{interval_ms} ms"] = {
            side: {
                what: {"median_ms": median(values, 0), "max_ms": round(max(values))}
                for what, values in zip(("heartbeat", "record"), map(list, zip(*pairs, strict=True)), strict=True)
            }
            for side, pairs in found.items()
        }
    rows: list[list[object]] = [["interval, side", "heartbeat answered, ms (max)", "record read, ms (max)"]]
    for interval, sides in results.items():
        for side, figures in sides.items():
            cells = [f"{each['median_ms']:.0f} ({each['max_ms']})" for each in figures.values()]
            rows.append([f"{interval}, {side}", *cells])
    table(rows)
    result = {
        "benchmark": "failover",
        "machine": machine(),
        "versions": versions("confluent-kafka"),
        "fail_overs_of_each": runs * rounds,
        "results": results,
    }
    keep(result, arguments)


if __name__ == "__main__":
    main()
