"""``transaction(producer, consumer)``: what a block produced and what it read are committed together, or neither is."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.aio import AIOProducer

from kip848_client import AsyncConsumer, Consumer, transaction
from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.consumer.records.origins import Origins
from kip848_client.consumer.transactions import producer_calls
from kip848_client.consumer.transactions.producer_calls import ProducerCalls
from kip848_client.errors import (
    ArgumentTypeError,
    ConfigError,
    ErrorCode,
    IllegalStateError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionFailedError,
)
from kip848_client.testing import EmbeddedBroker, NewRecord
from kip848_client.testing.faults import ALWAYS, error
from tests.interop.embedded.clients import read_committed
from tests.support.waiting import TIMEOUT_S, wait_until

P = NamedPartition("orders", 0)


def _conf(broker: EmbeddedBroker, **settings: Any) -> dict[str, Any]:
    base = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    return {**base, "enable.auto.commit": False, **settings}


def _producer(broker: EmbeddedBroker, name: str = "tx") -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "log_level": 0, "linger.ms": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def _filled(broker: EmbeddedBroker, *values: str, partitions: int = 1) -> None:
    broker.topics.create("orders", partitions)
    broker.topics.create("invoices", 1)
    broker.produce_many("orders", [NewRecord(value, partition=at % partitions) for at, value in enumerate(values)])


def _take(consumer: Consumer, count: int) -> list[bytes]:
    taken: list[bytes] = []
    while len(taken) < count:
        taken += [message.value() or b"" for message in consumer.consume(count - len(taken), TIMEOUT_S)]
    return taken


def _shared(*consumers: Consumer) -> bool:
    """Let them rebalance, and take no records."""
    for consumer in consumers:
        consumer.consume(0, 0.02)
    return all(len(consumer.assignment()) == 1 for consumer in consumers)


def _invoices(broker: EmbeddedBroker) -> list[bytes | None]:
    return [one.value() for one in read_committed(broker.bootstrap_servers, "invoices")]


def _bill(producer: Producer, orders: list[bytes]) -> None:
    for order in orders:
        producer.produce("invoices", order)


def test_a_failed_block_is_undone_and_its_records_come_again(kip848_broker: EmbeddedBroker) -> None:
    """A bug in the middle of a batch must neither book half of it nor lose the other half."""
    _filled(kip848_broker, "a", "b", "c")
    producer = _producer(kip848_broker)

    def failing() -> None:
        with transaction(producer, consumer):
            _bill(producer, _take(consumer, 2))
            raise ZeroDivisionError

    with Consumer(_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with transaction(producer, consumer):
            _bill(producer, _take(consumer, 1))
        with pytest.raises(ZeroDivisionError):
            failing()
        again = _take(consumer, 2)
        with transaction(producer, consumer):
            _bill(producer, again)
        assert again == [b"b", b"c"]
        with transaction(producer, consumer):
            pass  # nothing was read since
    assert _invoices(kip848_broker) == [b"a", b"b", b"c"]
    assert kip848_broker.groups.committed("g") == {P: 3}


@pytest.mark.parametrize("removed", [False, True])
def test_records_of_partitions_that_left_before_the_end_are_billed_by_their_owner_alone(
    kip848_broker: EmbeddedBroker, removed: bool
) -> None:
    """A program that gathers records over several polls must not book those that another member reads again."""
    _filled(kip848_broker, *"abcdef", partitions=2)
    first, second = _producer(kip848_broker, "first"), _producer(kip848_broker, "second")
    with Consumer(_conf(kip848_broker)) as one, Consumer(_conf(kip848_broker)) as other:
        one.subscribe(["orders"])
        gathered = _take(one, 6)
        if removed:
            kip848_broker.groups.remove_member("g", one.member_id)
        other.subscribe(["orders"])
        wait_until(lambda: _shared(one, other), what="a partition for each")
        with pytest.raises(TransactionAbortedError, match="were taken from this consumer"), transaction(first, one):
            _bill(first, gathered)
        for producer, consumer in ((first, one), (second, other)):
            orders = _take(consumer, 3)
            with transaction(producer, consumer):
                _bill(producer, orders)
    assert sorted(map(str, _invoices(kip848_broker))) == [str(value.encode()) for value in "abcdef"]


def test_a_member_that_was_removed_unknowingly_is_refused_and_begins_again(kip848_broker: EmbeddedBroker) -> None:
    """A process that hung must not book what another one books meanwhile."""
    _filled(kip848_broker, "a", "b")
    producer = _producer(kip848_broker)

    def removed_in_the_middle() -> None:
        with transaction(producer, consumer):
            _bill(producer, _take(consumer, 2))
            kip848_broker.groups.remove_member("g", consumer.member_id)

    with Consumer(_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(TransactionAbortedError, match="aborted"):
            removed_in_the_middle()
        orders = _take(consumer, 2)
        with transaction(producer, consumer):
            _bill(producer, orders)
    assert _invoices(kip848_broker) == [b"a", b"b"]


def test_a_record_that_no_repetition_writes_is_told_in_the_log(
    kip848_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """WRITE on the topic is missing: a program that suppresses the error repeats its batch, and looks well."""
    _filled(kip848_broker, "1")
    kip848_broker.faults.on("Produce", error(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=ALWAYS)
    producer = _producer(kip848_broker)
    with Consumer(_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        _take(consumer, 1)
        with pytest.raises(TransactionAbortedError, match="on_delivery"), transaction(producer, consumer):
            producer.produce("invoices", b"1")
    assert "processing.transaction_aborted group_id=g" in caplog.text
    assert "on_delivery" in caplog.text


def test_a_process_whose_name_was_taken_is_told_to_end(kip848_broker: EmbeddedBroker) -> None:
    """Two processes with one transactional.id: the older one must not go on, and says why."""
    _filled(kip848_broker, "a")
    zombie = _producer(kip848_broker)

    def overtaken() -> None:
        with transaction(zombie, consumer):
            _bill(zombie, _take(consumer, 1))
            _producer(kip848_broker)

    with Consumer(_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ProducerFencedError, match="end this process"):
            overtaken()
    assert _invoices(kip848_broker) == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_block_of_tasks_that_is_cancelled_is_undone(kip848_broker: EmbeddedBroker, backend: str) -> None:
    """A service that shuts down in the middle of a batch leaves no transaction open, and nothing half booked."""
    _filled(kip848_broker, "a", "b")
    producer = _producer(kip848_broker)

    async def main() -> None:
        async with AsyncConsumer(_conf(kip848_broker)) as consumer:
            await consumer.subscribe(["orders"])
            with anyio.CancelScope() as scope:
                async with transaction(producer, consumer):
                    _bill(producer, [(await consumer.poll(TIMEOUT_S)).value()])  # type: ignore[union-attr,list-item]
                    scope.cancel()
                    await anyio.sleep_forever()
            async with transaction(producer, consumer):
                messages = await consumer.consume(2, TIMEOUT_S)
                while len(messages) < 2:
                    messages += await consumer.consume(1, TIMEOUT_S)
                _bill(producer, [message.value() or b"" for message in messages])

    anyio.run(main, backend=backend)
    assert _invoices(kip848_broker) == [b"a", b"b"]
    assert kip848_broker.groups.committed("g") == {P: 2}


def test_what_cannot_work_is_refused_with_what_to_do(kip848_broker: EmbeddedBroker) -> None:
    """A program that only seems to be exactly once is worse than one that does not start."""
    _filled(kip848_broker)
    producer = _producer(kip848_broker)

    async def asynchronous() -> None:
        other = AIOProducer({"bootstrap.servers": kip848_broker.bootstrap_servers, "log_level": 0})
        async with AsyncConsumer(_conf(kip848_broker)) as tasks:
            with pytest.raises(ArgumentTypeError, match="AIOProducer"):
                transaction(other, tasks)  # type: ignore[call-overload]
        await other.close()

    anyio.run(asynchronous)
    with Consumer(_conf(kip848_broker, **{"enable.auto.commit": True})) as consumer:
        with pytest.raises(ConfigError, match=r"enable\.auto\.commit=false"):
            transaction(producer, consumer)
    plain = Producer({"bootstrap.servers": kip848_broker.bootstrap_servers, "log_level": 0})
    with Consumer(_conf(kip848_broker)) as consumer:
        with pytest.raises(ConfigError, match=r"transactional\.id"), transaction(plain, consumer):
            pass
        with transaction(producer, consumer):
            inner = transaction(producer, consumer)
            with pytest.raises(IllegalStateError, match="one transaction at a time"):
                inner.__enter__()


class _Stubborn:
    """A producer whose commit times out some times."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.produce = self.flush = self.init_transactions = self.begin_transaction = self.abort_transaction = print
        self.send_offsets_to_transaction = print

    def commit_transaction(self, timeout: float) -> None:
        self.left -= 1
        if self.left >= 0:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no broker", retriable=True))


def test_a_commit_without_an_answer_is_repeated_until_its_outcome_is_known() -> None:
    """A time-out says nothing about the transaction: to abort or to go on would book twice or lose."""
    patient, hurried = ProducerCalls(_Stubborn(2)), ProducerCalls(_Stubborn(2))
    patient.end([], b"")
    hurried.give_up_s = 0.0
    with pytest.raises(TransactionFailedError, match="is not known"):
        hurried.end([], b"")
    assert patient.producer.left == -1


def test_an_abort_waits_for_the_records_on_their_way(
    kip848_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the broker dies while librdkafka aborts with one on its way, a record of the next transaction is lost."""
    monkeypatch.setattr(producer_calls, "_FLUSH_S", TIMEOUT_S)
    _filled(kip848_broker, "tea")
    producer, refused = _producer(kip848_broker), list[object]()
    with Consumer(_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        _take(consumer, 1)
        with suppress(ZeroDivisionError), transaction(producer, consumer):
            producer.produce("invoices", b"tea", on_delivery=lambda error, _: refused.append(error))
            _ = 1 // 0
    assert refused == [None]


def test_an_aborted_transaction_goes_back_to_where_the_application_has_moved() -> None:
    """After a seek() to skip bad records an abort must not bring them back."""
    origins = Origins()
    at = {offset: OffsetAndMetadata(offset) for offset in (0, 5, 9, 20)}
    origins.began({P: at[0]})
    origins.sought(P, at[0], target=at[5])
    assert origins.go_back({P: at[9]}) == {P: at[5]}
    origins.sought(P, at[9], target=at[20])  # records before 9 are in hand
    assert origins.moved({P: at[20]}) == {P: at[20]}
    assert origins.go_back({P: at[20]}) == {P: at[5]}


def test_a_commit_inside_the_block_is_refused(kip848_broker: EmbeddedBroker) -> None:
    """It left the transaction: after an abort and a crash its records were never produced."""
    _filled(kip848_broker, "tea")
    producer = _producer(kip848_broker)
    with Consumer(_conf(kip848_broker)) as consumer:
        consumer.subscribe(["orders"])
        _take(consumer, 1)
        with pytest.raises(IllegalStateError, match=r"inside transaction\(\)"), transaction(producer, consumer):
            consumer.commit(asynchronous=False)
        assert kip848_broker.groups.committed("g") == {}
        assert _take(consumer, 1) == [b"tea"]  # the block was aborted
        consumer.commit(asynchronous=False)
        assert kip848_broker.groups.committed("g") == {("orders", 0): 1}
