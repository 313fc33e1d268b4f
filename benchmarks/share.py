"""Share consumers on the embedded broker, on franz-go's fake cluster and, with --kafka, on Apache Kafka.

::

    python -m benchmarks share                    # needs Go
    python benchmarks/share.py --kafka --json-file out.json
    python benchmarks/share.py --kafka --without-go
    python benchmarks/share.py --kafka --jobs

One worker reads and accepts records of 100 bytes, with our ShareConsumer, with librdkafka's, with franz-go and, on
Apache Kafka, with Java's, each in a process and a group of its own; interleaved rounds. Records a second count from the
first record to the last, or to the end of `LIMIT_S`. With --jobs each record is a job of 20 ms, and a worker does 100
at once: ours in process(), the others, which may have one thread, by hand: poll, a pool of threads, acknowledge.
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from broker import PARTITIONS, RECORD, Side, embedded, kafka, kfake
from confluent_kafka import Producer, ShareConsumer
from report_file import as_text, keep

from kip848_client import ShareConsumer as OurShareConsumer
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from tests.interop.kafka_broker import KafkaBroker
from tests.interop.kafka_libs import kafka_libs

HERE = Path(__file__).parent
LIMIT_S = 20.0
JOB_S = 0.02
WORKERS = 100
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


def read(client: str, address: str, group: str, topic: str, records: int) -> None:
    """Read with a client; prints the records, the seconds, and the seconds of CPU."""
    conf = {"bootstrap.servers": address, "group.id": group}
    worker = OurShareConsumer(conf) if client == "kip848_client" else ShareConsumer({**conf, "log_level": 0})
    worker.subscribe([topic])
    count, begun, ends, cpu = 0, 0.0, time.perf_counter() + LIMIT_S, time.process_time()
    while count < records and time.perf_counter() < ends:
        found = len(worker.poll(0.5))
        begun = begun or (time.perf_counter() if found else 0.0)
        count += found
    print(count, time.perf_counter() - begun, time.process_time() - cpu)
    worker.close()


def work(client: str, address: str, group: str, topic: str, records: int) -> None:
    """Do jobs with a client; prints as `read`."""
    conf = {"bootstrap.servers": address, "group.id": group}
    explicit = {**conf, "log_level": 0, "share.acknowledgement.mode": "explicit"}
    worker = OurShareConsumer(conf) if client == "kip848_client" else ShareConsumer(explicit)
    worker.subscribe([topic])
    times: list[float] = []
    ends, cpu = time.perf_counter() + LIMIT_S, time.process_time()

    def job(_message: object) -> None:
        times.append(time.perf_counter())
        time.sleep(JOB_S)
        if isinstance(worker, OurShareConsumer) and (len(times) >= records or times[-1] > ends):
            worker.hand_over()

    if isinstance(worker, OurShareConsumer):
        worker.process(job, concurrency=WORKERS)
    else:
        with ThreadPoolExecutor(WORKERS) as pool:
            while len(times) < records and time.perf_counter() < ends:
                found = worker.poll(0.5)
                list(pool.map(job, found))
                for message in found:
                    worker.acknowledge(message)
    print(len(times), time.perf_counter() - times[0], time.process_time() - cpu)
    worker.close()


def rate(command: Sequence[str]) -> tuple[float, float | None]:
    """Records a second of a reader, and its CPU in microseconds a record if it tells that."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    count, seconds, *cpu = map(float, done.stdout.split())
    return count / seconds, cpu[0] / count * 1e6 if cpu and count else None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json-file", type=Path)
    parser.add_argument("--quick", action="store_true", help="one round of few records: to see that it works")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--kafka", action="store_true", help="compare with Apache Kafka, too")
    parser.add_argument("--without-go", action="store_true", help="only the two Python clients, without kfake")
    parser.add_argument("--jobs", action="store_true", help="jobs of 20 ms, 100 at once; without franz-go")
    parser.add_argument("--read", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read or arguments.work:
        client, address, group, topic, records = arguments.read or arguments.work
        (read if arguments.read else work)(client, address, group, topic, int(records))
        return
    if arguments.jobs:
        arguments.without_go, arguments.records = True, min(arguments.records, 30_000)
    if arguments.quick:
        arguments.rounds, arguments.records = 1, 20_000
    rates: dict[str, dict[str, list[float]]] = {}
    cpus: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        does = "--work" if arguments.jobs else "--read"
        readers = {name: [sys.executable, __file__, does, name] for name in ("kip848_client", "librdkafka")}
        sides: dict[str, Side] = {"embedded": embedded}
        if not arguments.without_go:
            for program in ("kfake", "share_reader"):
                subprocess.run(["go", "build", "-o", folder, "."], cwd=HERE / program, check=True)
            readers["franz-go"] = [str(folder / "share_reader")]
            sides["kfake"] = kfake(folder / "kfake_cluster")
        if arguments.kafka:
            broker = stack.enter_context(KafkaBroker())
            sides["kafka"] = kafka(broker)
            libs = f"{kafka_libs(broker.version)}/*"
            subprocess.run(["javac", "-cp", libs, "-d", folder, HERE / "ShareReader.java"], check=True)
            readers["java"] = ["java", "-cp", f"{libs}:{folder}", "ShareReader"]
        for number in range(arguments.rounds):
            topic = f"t{number}"
            for side, serve in sides.items():
                with serve(topic) as address:
                    fill(address, topic, arguments.records)
                    for name, command in readers.items():
                        if name == "java" and side != "kafka":
                            continue
                        group = f"{name}-{number}"
                        read_from_the_first(address, group)
                        last = [str(LIMIT_S), str(WORKERS if arguments.jobs else 0)] if name == "java" else []
                        found, cpu = rate([*command, address, group, topic, str(arguments.records), *last])
                        rates.setdefault(name, {}).setdefault(side, []).append(found)
                        if cpu is not None:
                            cpus.setdefault(name, {}).setdefault(side, []).append(cpu)
            print(f"  round {number + 1}/{arguments.rounds} done", flush=True)
    medians = {name: {side: round(statistics.median(runs)) for side, runs in of.items()} for name, of in rates.items()}
    result: dict[str, Any] = {
        "benchmark": "share --jobs" if arguments.jobs else "share",
        "machine": {"python": platform.python_version(), "system": platform.system(), "processor": platform.machine()},
        "records_per_s": medians,
        "cpu_us_per_record": {
            name: {side: round(statistics.median(runs), 1) for side, runs in of.items()} for name, of in cpus.items()
        },
        "ours_beside_librdkafka": {
            side: round(rate / medians["librdkafka"][side], 3) for side, rate in medians["kip848_client"].items()
        },
    }
    print(as_text(result))
    keep(result, arguments)


if __name__ == "__main__":
    main()
