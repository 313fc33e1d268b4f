"""A producer of librdkafka's that writes transactions without end, whatever happens to its brokers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.driving import quiet
from tests.support.waiting import TIMEOUT_S, wait_until


class TransactionThread:
    """Writes one number to every partition of ``orders`` in each transaction; takes each third one back.

    Args:
        sends_offsets: whether the number is also committed as the offset of the group `GROUP`.

    Attributes:
        committed: numbers of which librdkafka said so.
        steps: calls of transactions that have returned.
    """

    GROUP: Final = "results"

    def __init__(self, bootstrap_servers: str, *, partitions: int, sends_offsets: bool = True) -> None:
        self.committed: Final[list[int]] = []
        self.failures: Final[list[BaseException]] = []
        self.steps = 0
        self._partitions: Final = partitions
        self._sends_offsets: Final = sends_offsets
        conf: dict[str, object] = {
            "bootstrap.servers": bootstrap_servers,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
        }
        if sends_offsets:
            # Else it forgets all brokers when the last one dies, and may look for the group's coordinator for ever
            # (librdkafka's issue 5511).
            conf["metadata.recovery.strategy"] = "none"
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
        for partition in range(self._partitions):
            producer.produce("orders", str(number).encode(), partition=partition)
            producer.poll(0)
        offsets = [TopicPartition("orders", 0, number)]
        group = self._consumer.consumer_group_metadata()
        try:
            if self._sends_offsets:
                self._repeat(lambda: producer.send_offsets_to_transaction(offsets, group, TIMEOUT_S))
            if not commit:
                # librdkafka 2.16 gives the sequence number of a record that abort_transaction() meets on its way to a
                # broker that dies to the next record. If the first one was written, Kafka takes that for a repetition.
                producer.flush(TIMEOUT_S)
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
