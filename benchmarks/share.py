"""Share consumers on the embedded broker, on franz-go's fake cluster and, with --kafka, on Apache Kafka.

::

    python -m benchmarks share                    # needs Go
    python -m benchmarks share --kafka --json-file out.json

One worker reads and accepts records of 100 bytes, with librdkafka and with franz-go, each in a process and a group of
its own; interleaved rounds. Records a second count from the first record to the last, or to the end of `LIMIT_S`.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from broker import PARTITIONS, RECORD, Side, embedded, kafka, kfake
from confluent_kafka import Producer, ShareConsumer
from report_file import as_text, keep

from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from tests.interop.kafka_broker import KafkaBroker

HERE = Path(__file__).parent
LIMIT_S = 20.0
GROUP_RESOURCE = 32


def fill(address: str, topic: str, records: int) -> None:
    """Write the records."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for number in range(records):
        producer.produce(topic, RECORD, partition=number % PARTITIONS)
    producer.flush(60)


def read_from_the_first(address: str, group: str) -> None:
    """Let a group begin at the first record."""
    configs = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": configs}
    with RawConnection(address) as connection:
        connection.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])


def read(address: str, group: str, topic: str, records: int) -> None:
    """Read with librdkafka; prints the records and the seconds."""
    worker = ShareConsumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    worker.subscribe([topic])
    count, begun, ends = 0, 0.0, time.perf_counter() + LIMIT_S
    while count < records and time.perf_counter() < ends:
        found = len(worker.poll(0.5))
        begun = begun or (time.perf_counter() if found else 0.0)
        count += found
    print(count, time.perf_counter() - begun)
    worker.close()


def rate(command: Sequence[str]) -> float:
    """Records a second of a reader."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, seconds = map(float, done.stdout.split())
    return count / seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json-file", type=Path)
    parser.add_argument("--quick", action="store_true", help="one round of few records: to see that it works")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--kafka", action="store_true", help="compare with Apache Kafka, too")
    parser.add_argument("--read", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        address, group, topic, records = arguments.read
        read(address, group, topic, int(records))
        return
    if arguments.quick:
        arguments.rounds, arguments.records = 1, 20_000
    rates: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for program in ("kfake", "share_reader"):
            subprocess.run(["go", "build", "-o", folder, "."], cwd=HERE / program, check=True)
        readers = {
            "librdkafka": [sys.executable, __file__, "--read"],
            "franz-go": [str(folder / "share_reader")],
        }
        sides: dict[str, Side] = {"embedded": embedded, "kfake": kfake(folder / "kfake_cluster")}
        if arguments.kafka:
            sides["kafka"] = kafka(stack.enter_context(KafkaBroker()))
        for number in range(arguments.rounds):
            topic = f"t{number}"
            for side, serve in sides.items():
                with serve(topic) as address:
                    fill(address, topic, arguments.records)
                    for name, command in readers.items():
                        group = f"{name}-{number}"
                        read_from_the_first(address, group)
                        found = rate([*command, address, group, topic, str(arguments.records)])
                        rates.setdefault(name, {}).setdefault(side, []).append(found)
            print(f"  round {number + 1}/{arguments.rounds} done", flush=True)
    medians = {name: {side: round(statistics.median(runs)) for side, runs in of.items()} for name, of in rates.items()}
    result: dict[str, Any] = {
        "benchmark": "share",
        "machine": {"python": platform.python_version(), "system": platform.system(), "processor": platform.machine()},
        "records_per_s": medians,
    }
    print(as_text(result))
    keep(result, arguments)


if __name__ == "__main__":
    main()
