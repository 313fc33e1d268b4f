"""The embedded broker: how soon it serves, and records against librdkafka's mock cluster. Groups: `coordinator.py`.

::

    python benchmarks/broker.py                   # everything, about a minute
    python benchmarks/broker.py --json-file out.json

Clients run in processes of their own. `records` compares with the mock cluster that is built into librdkafka (C, no
durable state): the same producer and consumer properties, interleaved pairs, the ratio is ours over the mock's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from kip848_client.broker import EmbeddedBroker
from kip848_client.wire.codec import encode_request, frame
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

PARTITIONS = 4
RECORD = bytes(100)


def fresh_import_ms() -> float:
    """Importing what an EmbeddedBroker needs, in a new process, from compiled bytecode as an installed package has."""
    script = (
        "import time; t = time.perf_counter(); import kip848_client.broker.broker; "
        "print((time.perf_counter() - t) * 1000)"
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = folder
        runs = [
            subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
            for _ in range(6)
        ]
    return statistics.median(float(run.stdout) for run in runs[1:])


def life_ms(rounds: int, make: Callable[[], EmbeddedBroker]) -> dict[str, float]:
    """Start until the first request is answered, and stop."""
    starts, stops = [], []
    request = frame(encode_request(heartbeat(), api_version=1, correlation_id=1, client_id="b"))
    for _ in range(rounds):
        begun = time.perf_counter()
        broker = make().start()
        with socket.create_connection(("127.0.0.1", broker.port)) as connection:
            connection.sendall(request)
            connection.recv(4096)
            starts.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            broker.stop()
            stops.append(time.perf_counter() - begun)
    return {"start": round(statistics.median(starts) * 1000, 2), "stop": round(statistics.median(stops) * 1000, 2)}


def heartbeat() -> ConsumerGroupHeartbeatRequest:
    """The first heartbeat of a member."""
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("t",),
        topic_partitions=(),
    )


def in_a_process(*arguments: object) -> Any:
    """Run `write_and_read` in a process of its own, so that it does not share the broker's interpreter."""
    task = json.dumps(arguments)
    done = subprocess.run([sys.executable, __file__, "--task", task], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def write_and_read(bootstrap_servers: str, topic: str, records: int) -> dict[str, float]:
    """Records a second through librdkafka, written and then read."""
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "linger.ms": 5, "queue.buffering.max.messages": records + 1}
    )
    producer.list_topics(topic, timeout=10)
    begun = time.perf_counter()
    for number in range(records):
        producer.produce(topic, RECORD, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    written_s = time.perf_counter() - begun
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.list_topics(topic, timeout=10)
    begun = time.perf_counter()
    consumer.incremental_assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    read = 0
    while read < records:
        read += len(consumer.consume(1, 1.0)) + len(consumer.consume(5000, 0))
    read_s = time.perf_counter() - begun
    consumer.close()
    return {"write": records / written_s, "read": records / read_s}


@contextmanager
def mock_cluster() -> Iterator[str]:
    """librdkafka's mock cluster; it lives as long as its host client."""
    host = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored", "log_level": 0})
    nodes = host.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{node.host}:{node.port}" for node in nodes)


def compare_records(pairs: int, records: int) -> dict[str, Any]:
    """Interleaved pairs: ours, the mock's."""
    rates: dict[str, list[dict[str, float]]] = {"embedded": [], "folder": [], "mock": []}
    for number in range(pairs):
        topic = f"t{number}"
        with EmbeddedBroker({topic: PARTITIONS}) as broker:
            rates["embedded"].append(in_a_process(broker.bootstrap_servers, topic, records))
        with (
            tempfile.TemporaryDirectory() as folder,
            EmbeddedBroker({topic: PARTITIONS}, data_dir=folder) as broker,
        ):
            rates["folder"].append(in_a_process(broker.bootstrap_servers, topic, records))
        with mock_cluster() as address:
            rates["mock"].append(in_a_process(address, topic, min(records, 4 * 40_000)))
        print(f"  pair {number + 1}/{pairs} done", flush=True)
    result: dict[str, Any] = {}
    for direction in ("write", "read"):
        medians = {side: statistics.median(run[direction] for run in runs) for side, runs in rates.items()}
        result[direction] = {
            "records_per_s": {side: round(rate) for side, rate in medians.items()},
            "ratio_embedded_to_mock": round(medians["embedded"] / medians["mock"], 3),
            "ratio_folder_to_mock": round(medians["folder"] / medians["mock"], 3),
        }
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json-file", type=Path)
    parser.add_argument("--quick", action="store_true", help="one pair of few records: to see that it works")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--records", type=int, default=150_000)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.pairs, arguments.records = 1, 50_000
    if arguments.task:
        print(json.dumps(write_and_read(*json.loads(arguments.task))))
        return
    result: dict[str, Any] = {
        "benchmark": "broker",
        "machine": {"python": platform.python_version(), "system": platform.system(), "processor": platform.machine()},
    }
    result["import_ms"] = round(fresh_import_ms(), 1)
    result["memory_ms"] = life_ms(30, lambda: EmbeddedBroker({"t": PARTITIONS}))
    with tempfile.TemporaryDirectory() as folder:
        result["folder_ms"] = life_ms(30, lambda: EmbeddedBroker({"t": PARTITIONS}, data_dir=folder))
    result["three_nodes_ms"] = life_ms(30, lambda: EmbeddedBroker({"t": PARTITIONS}, nodes=3))
    print(json.dumps(result), flush=True)
    result["records"] = compare_records(arguments.pairs, arguments.records)
    print(json.dumps(result, indent=2))
    if arguments.json_file is not None:
        arguments.json_file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
