"""Transactional producers of librdkafka and aiokafka on the embedded broker."""

from __future__ import annotations

import asyncio
import gc

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import KafkaError, KafkaException, Producer

from kip848_client import Consumer, EmbeddedBroker
from kip848_client import TopicPartition as OurPartition
from kip848_client.common.model import NamedPartition as ModelPartition
from tests.interop.embedded.clients import read_committed
from tests.support.waiting import TIMEOUT_S

pytestmark = [pytest.mark.interop, pytest.mark.kip848_broker(topics={"orders": 2, "invoices": 1})]


def transactional(broker: EmbeddedBroker, name: str = "tx") -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: Producer, *values: bytes, commit: bool = True, topic: str = "orders") -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    if commit:
        producer.commit_transaction(TIMEOUT_S)
    else:
        producer.abort_transaction(TIMEOUT_S)


def read_by_librdkafka(broker: EmbeddedBroker, isolation: str = "read_committed") -> list[bytes | None]:
    records = read_committed(broker.bootstrap_servers, "orders", isolation=isolation)
    return [one.value() for one in records]


def read_by_us(broker: EmbeddedBroker, isolation: str | None = None) -> list[bytes | None]:
    """Of our consumer the isolation level is read_committed unless told otherwise."""
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    values = []
    with Consumer(conf if isolation is None else conf | {"isolation.level": isolation}) as consumer:
        consumer.assign([OurPartition("orders", 0, 0)])
        while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
            values.append(message.value())
    return values


@pytest.mark.parametrize("read", [read_by_librdkafka, read_by_us])
def test_readers_see_committed_transactions_only(broker: EmbeddedBroker, read: object) -> None:
    """A service must not act on records of a transaction that was aborted or is still open."""
    producer = transactional(broker)
    write(producer, b"a", b"b")
    write(producer, b"x", b"y", commit=False)
    write(producer, b"c")
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    assert callable(read)
    assert read(broker) == [b"a", b"b", b"c"]
    assert read(broker, "read_uncommitted") == [b"a", b"b", b"x", b"y", b"c", b"open"]


def test_a_zombie_is_fenced_and_its_records_are_not_seen(broker: EmbeddedBroker) -> None:
    """A process that was frozen goes on where its successor has been working for long."""
    zombie = transactional(broker)
    zombie.begin_transaction()
    zombie.produce("orders", b"of the zombie", partition=0)
    assert zombie.flush(TIMEOUT_S) == 0
    successor = transactional(broker)
    write(successor, b"of the successor")
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(TIMEOUT_S)
    assert fenced.value.args[0].fatal()
    assert fenced.value.args[0].code() == KafkaError._FENCED
    assert read_by_librdkafka(broker) == [b"of the successor"]


def test_markers_that_come_late_do_not_stop_a_producer() -> None:
    """On a real cluster a transaction that begins at once meets the end of the last one."""
    with EmbeddedBroker({"orders": 1}, config={"kip848.transaction.marker.delay.ms": 50}) as broker:
        producer = transactional(broker)
        for number in range(5):
            write(producer, b"%d" % number)
        broker.transactions.wait_for("tx", "CompleteCommit")
        assert read_by_librdkafka(broker) == [b"0", b"1", b"2", b"3", b"4"]


def test_transactions_of_aiokafka(broker: EmbeddedBroker) -> None:
    """Another implementation of the whole protocol, with offsets; the one that asyncio programs use."""

    async def run() -> list[bytes | None]:
        conf = {"bootstrap_servers": broker.bootstrap_servers}
        producer = AIOKafkaProducer(**conf, transactional_id="aio")
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait("orders", b"kept", partition=0)
            await producer.send_offsets_to_transaction({AioPartition("orders", 0): 1}, "aio-group")
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"taken back", partition=0)
        await producer.abort_transaction()
        second = AIOKafkaProducer(**conf, transactional_id="aio")
        await second.start()
        with pytest.raises(AioError):
            async with producer.transaction():
                await producer.send_and_wait("orders", b"zombie", partition=0)
        async with second.transaction():
            await second.send_and_wait("orders", b"last", partition=0)
        await producer.stop()
        await second.stop()
        consumer = AIOKafkaConsumer(**conf, isolation_level="read_committed", auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([AioPartition("orders", 0)])
        values = [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in range(2)]
        await consumer.stop()
        return values

    assert asyncio.run(run()) == [b"kept", b"last"]
    # asyncio reports the exception that the fenced producer never retrieved when it is collected, and parses source for
    # the traceback; inside another ast.parse() that is an error of the interpreter (3.11).
    gc.collect()
    assert broker.groups.committed("aio-group") == {ModelPartition("orders", 0): 1}
