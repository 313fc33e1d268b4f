"""What a user writes with types. Checked by mypy --strict and by pyright, never run.

It must pass as it is: a user who meets an error of a type checker in three plain lines turns the checker off.
"""

from __future__ import annotations

import logging
from typing import TypedDict, assert_type

from kip848_client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncConsumerRebalanceListener,
    BrokerError,
    CommitFailedError,
    Consumer,
    ConsumerRebalanceListener,
    ErrorDetails,
    KafkaError,
    KafkaException,
    LeaderElection,
    Message,
    TopicPartition,
)
from kip848_client.admin import GroupLag, Results


class Flush(ConsumerRebalanceListener):
    """The whole consumer is at hand in a listener: also calls that few listeners make."""

    def on_partitions_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in consumer.committed(partitions):
            consumer.seek(partition)

    def on_partitions_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.commit(offsets=consumer.position(partitions), asynchronous=False)

    def on_partitions_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        print(consumer.member_id, partitions)


class AsyncFlush(AsyncConsumerRebalanceListener):
    async def on_partitions_revoked(self, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        await consumer.commit(asynchronous=False)


def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
    if error is not None:
        print(error.code(), error.str(), partitions)


def with_exception(error: ErrorDetails | None, partitions: list[TopicPartition]) -> None:
    if error is not None and isinstance(error.exception, CommitFailedError):
        print(error.exception.__cause__, partitions)


def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    consumer.pause(partitions)


def read(bootstrap: str) -> None:
    conf = {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.offset.store": False}
    with Consumer(conf, logger=logging.getLogger("kafka"), on_commit=on_commit) as consumer:
        consumer.subscribe(["orders"], Flush())
        consumer.subscribe(["orders"], on_assign=on_assign)
        try:
            message = consumer.poll(1.0)
            assert_type(message, Message | None)
            if message is not None:
                consumer.store_offsets(message)
                consumer.commit(message, on_commit=with_exception)
            for record in consumer:
                print(record.value())
        except BrokerError as error:
            print(error.code, error.retriable)
        except KafkaException as error:
            print(error.args[0].code())


async def read_async(bootstrap: str) -> None:
    async with AsyncConsumer({"bootstrap.servers": bootstrap, "group.id": "g"}) as consumer:
        await consumer.subscribe(["orders"], AsyncFlush())
        async for record in consumer:
            await consumer.commit(record)


class Order(TypedDict):
    id: int


class Seeks(ConsumerRebalanceListener):
    """A listener may name the types of its consumer."""

    def on_partitions_assigned(self, consumer: Consumer[str, Order], partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            consumer.seek(partition)


def with_types(consumer: Consumer[str, Order], plain: Consumer) -> None:
    consumer.subscribe(["orders"], Seeks())
    for message in plain:
        assert_type(message.value(), bytes | None)
    for record in consumer:
        assert_type(record.value()["id"], int)
        assert_type(record.key(), str)
        assert_type(record.offset() + 1, int)
        consumer.commit(record)
    for batch in consumer.batches():
        assert_type(batch, list[Message[str, Order]])


def handle(record: Message[str, Order]) -> None:
    print(record.value()["id"])


def handle_many(records: list[Message[str, Order]]) -> None:
    print(len(records))


def handle_other(record: Message[str, int]) -> None:
    print(record.value() + 1)


def process(consumer: Consumer[str, Order]) -> None:
    consumer.process(handle)
    consumer.process(handle_many, batch=(100, 50))
    consumer.process(handle_other)  # type: ignore[arg-type]


async def read_async_with_types(consumer: AsyncConsumer[str, Order]) -> None:
    async for record in consumer:
        assert_type(record, Message[str, Order])


def administer(bootstrap: str) -> None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        lags = admin.lag(["g"], timeout_s=5.0)
        assert_type(lags, Results[str, GroupLag])
        assert_type(lags["g"].lag, int | None)
        plan = admin.plan_reset("g", "earliest", partitions=["orders", ("payments", 0), TopicPartition("refunds", 1)])
        admin.apply_reset(plan)


async def administer_async(bootstrap: str) -> None:
    async with AsyncAdmin({"bootstrap.servers": bootstrap}) as admin:
        assert_type(await admin.lag(["g"], timeout_s=5.0), Results[str, GroupLag])


def count_invoices(day: str) -> int:
    return len(day)


async def send_invoices(day: str) -> int:
    return len(day)


async def lead() -> None:
    election = LeaderElection({"bootstrap.servers": "k"}, on_lost=lambda reason, deadline: print(reason, deadline + 1))
    assert_type(election.leader_only(count_invoices)("today"), int | None)
    assert_type(await election.leader_only(send_invoices)("today"), int | None)
