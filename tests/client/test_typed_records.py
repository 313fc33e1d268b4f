"""The types of keys and values; mypy reads this file, too."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict, assert_type

import confluent_kafka

from kip848_client import AsyncConsumer, Consumer, ConsumerRebalanceListener, Message, TopicPartition


class Order(TypedDict):
    id: int


def order_of(data: bytes | None, context: object) -> Order:
    order: Order = json.loads(data or b"")
    return order


class Seeks(ConsumerRebalanceListener):
    """A listener may name the types of its consumer."""

    def on_partitions_assigned(self, consumer: Consumer[str, Order], partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            consumer.seek(partition)


def test_every_record_is_a_message_of_ours_and_annotations_may_say_its_types() -> None:
    """isinstance() is how a program tells a record from None or an error, and not each module defers annotations."""
    assert isinstance(confluent_kafka.Message("orders", 0, 1), Message)
    assert isinstance(Message("orders", 0, 1), confluent_kafka.Message)
    assert not isinstance(None, Message)
    assert Callable[[Message[str, int]], None] != Callable[[Message[str, str]], None]
    with Consumer[str, Order]({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}) as consumer:
        assert repr(consumer).startswith("<Consumer ")


if TYPE_CHECKING:

    def what_a_consumer_returns(consumer: Consumer[str, Order], plain: Consumer) -> None:
        consumer.subscribe(["orders"], Seeks())
        for record in plain:
            assert_type(record.value(), bytes | None)
        for record_of in consumer:
            assert_type(record_of.value()["id"], int)
            assert_type(record_of.key(), str)
            assert_type(record_of.offset() + 1, int)
            consumer.commit(record_of)
        for batch in consumer.batches():
            assert_type(batch, list[Message[str, Order]])

    def handle(record: Message[str, Order]) -> None: ...
    def handle_many(records: list[Message[str, Order]]) -> None: ...
    def handle_other(record: Message[str, int]) -> None: ...

    def what_a_handler_takes(consumer: Consumer[str, Order]) -> None:
        consumer.process(handle)
        consumer.process(handle_many, batch=(100, 50))
        consumer.process(handle_other)  # type: ignore[arg-type]

    async def what_an_async_consumer_returns(consumer: AsyncConsumer[str, Order]) -> None:
        async for record in consumer:
            assert_type(record, Message[str, Order])
