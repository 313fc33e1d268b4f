"""The embedded broker: how soon it serves, records and transactions against other brokers. Groups: `coordinator.py`.

::

    python -m benchmarks broker                                   # about two minutes
    python -m benchmarks broker --kafka --kfake --json-file out.json

Clients run in processes of their own. `records` compares with the mock cluster that is built into librdkafka (C, no
durable state), with --kafka with Apache Kafka (needs Java and Maven), with --kfake with franz-go's fake cluster (needs
Go): the same producer and consumer properties, interleaved rounds, the ratio is ours over theirs. `transactions` is how
much longer ten records take in a transaction: by librdkafka, which speaks the older protocol, and by bare requests of
the newer one (KIP-890), ten Produce or one.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kip848_client import EmbeddedBroker
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.codec import encode_request, frame
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.end_txn import EndTxnRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest
from kip848_client.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kip848_client.wire.record_batch import Record, build_batch
from tests.interop.kafka_broker import KafkaBroker

Side = Callable[[str], AbstractContextManager[str]]
"""Serves a topic of that name; gives the addresses."""

PARTITIONS = 4
RECORD = bytes(100)


def fresh_import_ms() -> float:
    """Importing what an EmbeddedBroker needs, in a new process, from compiled bytecode as an installed package has."""
    script = (
        "import time; t = time.perf_counter(); import kip848_client.testing.broker.broker; "
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
    """Start until the first request is answered, and stop; and the CPU time of both, in the best of all rounds."""
    starts, stops, cpu_times = [], [], []
    request = frame(encode_request(heartbeat(), api_version=1, correlation_id=1, client_id="b"))
    for _ in range(rounds):
        cpu_before, begun = time.process_time(), time.perf_counter()
        broker = make().start()
        with socket.create_connection(("127.0.0.1", broker.port)) as connection:
            connection.sendall(request)
            connection.recv(4096)
            starts.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            broker.stop()
            stops.append(time.perf_counter() - begun)
        cpu_times.append(time.process_time() - cpu_before)
    found = {"start": statistics.median(starts), "stop": statistics.median(stops), "cpu": min(cpu_times)}
    return {name: round(taken_s * 1000, 2) for name, taken_s in found.items()}


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
    """Run one of `TASKS` in a process of its own, so that it does not share the broker's interpreter."""
    task = json.dumps(arguments)
    command = [sys.executable, "-m", "benchmarks.broker", "--task", task]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
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


def ten_records(bootstrap_servers: str, topic: str, rounds: int) -> dict[str, float]:
    """Milliseconds for ten records, alone and in a transaction, by each way to send them."""
    found: dict[str, float] = {}
    for name, one_batch in (("ten_requests", False), ("one_request", True)):
        alone, committing = (RawProducer(bootstrap_servers, f"{topic}-{name}-{n}", topic=topic) for n in (1, 2))
        for producer in (alone, committing):
            producer.begin()
        found |= side_by_side(
            name,
            rounds,
            partial(alone.send_ten, one_batch=one_batch, transactional=False),
            partial(committing.send_ten, one_batch=one_batch, transactional=True),
        )
        for producer in (alone, committing):
            producer.close()
    conf = {"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "acks": "all"}
    plain = Producer(conf | {"enable.idempotence": True})
    transactional = Producer(conf | {"transactional.id": topic})
    transactional.init_transactions(30)

    def send(producer: Producer) -> None:
        for _ in range(10):
            producer.produce(topic, RECORD, partition=0)

    def send_alone() -> None:
        send(plain)
        plain.flush(30)

    def send_and_commit() -> None:
        transactional.begin_transaction()
        send(transactional)
        transactional.commit_transaction(30)

    return found | side_by_side("librdkafka", rounds, send_alone, send_and_commit)


def side_by_side(
    name: str, rounds: int, alone: Callable[[], object], committed: Callable[[], object]
) -> dict[str, float]:
    """How long both take in turns, in ms: the fastest tenth of the rounds, in which nothing else had the machine."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for action, times in zip((alone, committed), taken, strict=True):
            begun = time.perf_counter()
            action()
            times.append(time.perf_counter() - begun)
    first, second = (round(statistics.quantiles(times, n=10)[0] * 1000, 3) for times in taken)
    return {name: first, f"{name}_in_a_transaction": second}


class RawProducer:
    """Bare requests, in the versions that clients of KIP-890 use; every answer is waited for."""

    def __init__(self, bootstrap_servers: str, transactional_id: str, *, topic: str) -> None:
        self._connection = RawConnection(bootstrap_servers)
        self._name = transactional_id
        self._topic = topic
        self._producer_id = self._epoch = self._sequence = -1

    def begin(self) -> None:
        """Take a new epoch, once the coordinator has found its place."""
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=(self._name,))
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=60_000)
        while True:
            self._connection.ask(find, version=4)
            answer = self._connection.ask(request, version=5)
            if not answer.error_code:
                break
            time.sleep(0.05)
        self._producer_id, self._epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0

    def send_ten(self, *, one_batch: bool, transactional: bool) -> None:
        """Ten records to partition 0."""
        for _ in range(1 if one_batch else 10):
            self._produce(10 if one_batch else 1, transactional=transactional)
        if transactional:
            request = EndTxnRequest(
                transactional_id=self._name,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                committed=True,
            )
            answer = self._connection.ask(request, version=5)
            assert not answer.error_code, answer
            self._producer_id, self._epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0

    def _produce(self, count: int, *, transactional: bool) -> None:
        batch = build_batch(
            [Record(RECORD, timestamp=int(time.time() * 1000))] * count,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
            attributes=0x10 if transactional else 0,
        )
        data = TopicProduceData(name=self._topic, partition_data=(PartitionProduceData(index=0, records=batch),))
        request = ProduceRequest(
            transactional_id=self._name if transactional else None, acks=-1, timeout_ms=10_000, topic_data=(data,)
        )
        (answer,) = self._connection.ask(request, version=12).responses[0].partition_responses
        assert not answer.error_code, answer
        self._sequence += count

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextmanager
def embedded(topic: str) -> Iterator[str]:
    """The embedded broker, in memory."""
    with EmbeddedBroker({topic: PARTITIONS}) as broker:
        yield broker.bootstrap_servers


@contextmanager
def embedded_with_folder(topic: str) -> Iterator[str]:
    """The embedded broker with a data folder."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker({topic: PARTITIONS}, data_dir=folder) as broker:
        yield broker.bootstrap_servers


@contextmanager
def mock_cluster(_topic: str) -> Iterator[str]:
    """librdkafka's mock cluster; it lives as long as its host client."""
    host = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored", "log_level": 0})
    nodes = host.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{node.host}:{node.port}" for node in nodes)


def kafka(broker: KafkaBroker) -> Side:
    """Apache Kafka, which runs all the time; each round has a topic of its own."""

    @contextmanager
    def with_topic(topic: str) -> Iterator[str]:
        administrator = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        administrator.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        yield broker.bootstrap_servers

    return with_topic


def kfake(binary: Path) -> Side:
    """Franz-go's fake cluster."""

    @contextmanager
    def with_topic(topic: str) -> Iterator[str]:
        command = [str(binary), topic, str(PARTITIONS)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            yield process.stdout.readline().strip()
            process.stdin.close()

    return with_topic


def compare_records(sides: Mapping[str, Side], rounds: int, records: int) -> dict[str, Any]:
    """Interleaved rounds on each side."""
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    cpu_times: list[float] = []
    for number in range(rounds):
        topic = f"t{number}"
        for name, serve in sides.items():
            count = min(records, 4 * 40_000) if name == "mock" else records  # it forgets more
            with serve(topic) as address:
                cpu_before = time.process_time()
                rates[name].append(in_a_process("records", address, topic, count))
                if name == "embedded":  # which runs in this process, as nothing else does
                    cpu_times.append(time.process_time() - cpu_before)
        print(f"  round {number + 1}/{rounds} done", flush=True)
    result: dict[str, Any] = {"cpu_us_per_record": round(min(cpu_times) / records * 1_000_000, 2)}
    for direction in ("write", "read"):
        medians = {side: statistics.median(run[direction] for run in runs) for side, runs in rates.items()}
        result[direction] = {"records_per_s": {side: round(rate) for side, rate in medians.items()}} | {
            f"ratio_{own}_to_{side}": round(medians[own] / medians[side], 3)
            for own in ("embedded", "folder")
            for side in medians
            if side not in ("embedded", "folder")
        }
    return result


def compare_transactions(sides: Mapping[str, Side], rounds: int) -> dict[str, Any]:
    """What a transaction adds to ten records, on each side."""
    result: dict[str, Any] = {}
    for side, serve in sides.items():
        with serve("transactions") as address:
            took = in_a_process("transactions", address, "transactions", rounds)
        result[side] = {"ms": took} | {
            f"ratio_{name}": round(took[f"{name}_in_a_transaction"] / took[name], 2)
            for name in ("ten_requests", "one_request", "librdkafka")
        }
    return result


TASKS: Mapping[str, Callable[..., dict[str, float]]] = {"records": write_and_read, "transactions": ten_records}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json-file", type=Path)
    parser.add_argument("--quick", action="store_true", help="one round of few records: to see that it works")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kafka", action="store_true", help="compare with Apache Kafka, too")
    parser.add_argument("--kfake", action="store_true", help="compare with franz-go's fake cluster, too")
    parser.add_argument("--records", type=int, default=150_000)
    parser.add_argument("--transactions", type=int, default=300)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.records, arguments.transactions = 1, 50_000, 50
    if arguments.task:
        name, *rest = json.loads(arguments.task)
        print(json.dumps(TASKS[name](*rest)))
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
    sides: dict[str, Side] = {"embedded": embedded, "folder": embedded_with_folder, "mock": mock_cluster}
    with ExitStack() as stack:
        if arguments.kfake:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            subprocess.run(["go", "build", "-o", folder, "."], cwd=Path(__file__).parent / "kfake", check=True)
            sides["kfake"] = kfake(Path(folder) / "kfake_cluster")
        if arguments.kafka:
            sides["kafka"] = kafka(stack.enter_context(KafkaBroker()))
        result["records"] = compare_records(sides, arguments.rounds, arguments.records)
        with_transactions = {name: side for name, side in sides.items() if name in ("embedded", "folder", "kafka")}
        result["transactions"] = compare_transactions(with_transactions, arguments.transactions)
    print(json.dumps(result, indent=2))
    if arguments.json_file is not None:
        arguments.json_file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
