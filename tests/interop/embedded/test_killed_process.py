"""The process ``kip848 broker --data-dir`` is killed under load: what was acknowledged is there afterwards."""

from __future__ import annotations

import itertools
import json
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.interop.embedded.clients import TIMEOUT_S, MemberThread, place_of, quiet
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

PARTITIONS: Final = 3
KILLS: Final = 3


class BrokerProcess:
    """``kip848 broker`` on a fixed port and folder, to be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: Final = probe.getsockname()[1]
        self.address: Final = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        self.process = process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kip848_client", "broker", "--listen", self.address),
                *("--topic", f"orders:{PARTITIONS}", "--data-dir", str(self.folder / "data")),
                *("--ready-file", str(ready), "--json"),
            ],
            stdout=subprocess.DEVNULL,
        )
        wait_until(lambda: ready.exists() or process.poll() is not None, TIMEOUT_S, "the broker process")
        assert json.loads(ready.read_text())["bootstrap_servers"] == self.address

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path)
    process.start()
    yield process
    process.kill()


class ProducerThread:
    """Writes numbers without end; `acknowledged` is what the broker has confirmed: value -> (partition, offset)."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.acknowledged: Final[dict[int, tuple[int, int]]] = {}
        self.failures: Final[list[KafkaError]] = []
        self._stop = threading.Event()
        self._producer = Producer(
            quiet(
                {
                    "bootstrap.servers": bootstrap_servers,
                    "enable.idempotence": True,
                    "linger.ms": 1,
                    "reconnect.backoff.ms": 20,
                    "reconnect.backoff.max.ms": 100,
                    "queue.buffering.max.messages": 500,
                }
            )
        )
        self._thread = threading.Thread(target=self._run, name="foreign-producer")
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                self._producer.produce(
                    "orders", str(number).encode(), partition=number % PARTITIONS, on_delivery=self._delivered
                )
                number += 1
            except BufferError:
                pass
            self._producer.poll(0.002)
        self._producer.flush(TIMEOUT_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged[value_of(message)] = place_of(message)


def value_of(message: Message) -> int:
    """The number in a record."""
    return int(message.value() or b"")


def has_read(member: MemberThread, count: int) -> bool:
    """Whether the member was given so many records."""
    return len(member.delivered) >= count


def everything_in(bootstrap_servers: str) -> dict[tuple[int, int], int]:
    """(partition, offset) -> value of all records of the topic, but those of open and aborted transactions."""
    conf = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "auditor",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(quiet(conf))
    consumer.incremental_assign([TopicPartition("orders", n, 0) for n in range(PARTITIONS)])
    found: dict[tuple[int, int], int] = {}
    ended: set[int | None] = set()

    def all_read() -> bool:
        for message in consumer.consume(1000, 0.05):
            if (error := message.error()) is None:
                found[place_of(message)] = value_of(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        return len(ended) == PARTITIONS

    wait_until(all_read, TIMEOUT_S, "the end of every partition")
    consumer.close()
    return found


def committed(bootstrap_servers: str, group_id: str = "g") -> dict[int, int]:
    """Committed offset of each partition of the group."""
    consumer = Consumer(quiet({"bootstrap.servers": bootstrap_servers, "group.id": group_id}))
    found = consumer.committed([TopicPartition("orders", n) for n in range(PARTITIONS)], timeout=TIMEOUT_S)
    consumer.close()
    return {item.partition: item.offset for item in found}


@pytest.mark.slow
def test_kill_9_loses_no_acknowledged_record_and_no_committed_offset_and_the_group_goes_on(
    broker: BrokerProcess,
) -> None:
    """The promise of --data-dir: a broker that dies and comes back looks to its clients like a short silence."""
    producer = ProducerThread(broker.address)
    try:
        with MemberThread(broker.address, ["orders"], client_id="member") as member:
            for _ in range(KILLS):
                goal = len(member.delivered) + 300
                wait_until(partial(has_read, member, goal), TIMEOUT_S, "records between two kills")
                before = committed(broker.address)
                broker.kill()
                broker.start()
                after = committed(broker.address)
                assert all(after[n] >= before[n] for n in before), (before, after)
            goal = len(member.delivered) + 300
            wait_until(partial(has_read, member, goal), TIMEOUT_S, "records after the last kill")
            assert not member.errors
            producer.stop()
            wait_until(
                lambda: (
                    {(partition, offset) for _, partition, offset in member.delivered}
                    >= set(producer.acknowledged.values())
                ),
                TIMEOUT_S,
                "every acknowledged record",
            )
    finally:
        producer.stop()
    assert not producer.failures
    stored = everything_in(broker.address)
    lost = {n: at for n, at in producer.acknowledged.items() if stored.get(at) != n}
    assert not lost
    # The idempotent producer sent again what it did not know to be written: no number is there twice.
    assert len(set(stored.values())) == len(stored)
    assert len(member.delivered) == len(set(member.delivered)), "a record was delivered twice to a member that lived on"
    assert sum(committed(broker.address).values()) == len(stored)


class TransactionThread:
    """Writes one number to every partition in each transaction, with the number as offset; takes each third one back.

    Attributes:
        committed: numbers of which librdkafka said so.
        steps: calls of transactions that have returned.
    """

    GROUP: Final = "results"

    def __init__(self, bootstrap_servers: str) -> None:
        self.committed: Final[list[int]] = []
        self.failures: Final[list[BaseException]] = []
        self.steps = 0
        conf = {
            "bootstrap.servers": bootstrap_servers,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            # Else it forgets all brokers when the last one dies, and may look for the group's coordinator for ever
            # (librdkafka's issue 5511).
            "metadata.recovery.strategy": "none",
        }
        # A transaction may be open for as long as a broker needs to start; on a busy machine that is minutes.
        patient = {"transactional.id": "tx", "transaction.timeout.ms": 900_000, "linger.ms": 0}
        self._producer: Final = Producer(quiet(conf | patient))
        self._consumer: Final = Consumer(quiet(conf | {"group.id": self.GROUP}))
        self._stop: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="transactions")
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def wait_for_steps(self, count: int) -> None:
        goal = self.steps + count
        wait_until(lambda: self.steps >= goal or self.failures, TIMEOUT_S, f"{count} more steps", every_s=0.0005)

    def _run(self) -> None:
        try:
            self._repeat(lambda: self._producer.init_transactions(TIMEOUT_S))
            for number in itertools.count():
                if self._stop.is_set():
                    break
                self._transact(number, commit=number % 3 != 2)
        except BaseException as failure:  # looked at by the test
            self.failures.append(failure)
        finally:
            self._consumer.close()

    def _transact(self, number: int, *, commit: bool) -> None:
        producer = self._producer
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("orders", str(number).encode(), partition=partition)
            producer.poll(0)
        offsets = [TopicPartition("orders", 0, number)]
        group = self._consumer.consumer_group_metadata()
        try:
            self._repeat(lambda: producer.send_offsets_to_transaction(offsets, group, TIMEOUT_S))
            if commit:
                self._repeat(lambda: producer.commit_transaction(TIMEOUT_S))
                self.committed.append(number)
                return
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        self._repeat(lambda: producer.abort_transaction(TIMEOUT_S))

    def _repeat(self, call: Callable[[], object]) -> None:
        """Call until it raises no error that passes."""
        while True:
            try:
                call()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                self.steps += 1
                return


@pytest.mark.slow
def test_kill_9_leaves_transactions_whole(broker: BrokerProcess) -> None:
    """A reader of committed records would see half of a transaction, or a consumer would read its input again."""
    writer = TransactionThread(broker.address)
    moments = random.Random()
    try:
        for _ in range(2 * KILLS):
            writer.wait_for_steps(moments.randint(5, 40))
            broker.kill()
            broker.start()
        writer.wait_for_steps(10)
    finally:
        writer.stop()
    assert not writer.failures
    stored = everything_in(broker.address)
    seen = [[value for (partition, _), value in sorted(stored.items()) if partition == n] for n in range(PARTITIONS)]
    assert seen == [writer.committed] * PARTITIONS
    assert committed(broker.address, TransactionThread.GROUP)[0] == writer.committed[-1]
