"""Keys and values opened by deserialisers, as confluent-kafka's schema registry has them."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.serialization import IntegerDeserializer, SerializationContext, StringDeserializer

from kip848_client import ConfigError, KafkaException, Message, TopicPartition
from kip848_client.errors import KeyDeserializationError, ValueDeserializationError
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce


def only_even(data: bytes, context: SerializationContext) -> int:
    """Fails for odd numbers."""
    if int(data) % 2:
        raise ValueError(f"{data!r} of {context.topic} is odd")
    return int(data)


def settings(**more: Any) -> dict[str, Any]:
    return {"enable_auto_commit": False, **more}


def test_confluents_deserialisers_work_unchanged(make_consumer: MakeConsumer, produce: Produce) -> None:
    """The context has the topic, the field and the headers; keys are opened before values."""
    produce("orders", 2, partitions=[0])
    seen: list[tuple[str, str]] = []

    def value(data: bytes, context: SerializationContext) -> object:
        seen.append((context.topic, str(context.field)))
        return StringDeserializer()(data, context)

    consumer = make_consumer(value_deserializer=value, key_deserializer=IntegerDeserializer()).raw
    consumer.assign([TopicPartition("orders", 0)])
    first, second = consumer.poll(10), consumer.consume(1, 10)

    assert first is not None
    assert [str(message.value()) for message in (first, *second)] == ["0", "1"]
    assert first.key() is None
    assert seen == [("orders", "value")] * 2


def test_a_failing_deserialiser_raises_and_keeps_the_position(make_consumer: MakeConsumer, produce: Produce) -> None:
    """Nothing is skipped unless the program says so; what came before is handed out first."""
    produce("orders", 4, partitions=[0])
    consumer = make_consumer(**settings(value_deserializer=only_even)).raw
    consumer.assign([TopicPartition("orders", 0)])
    values: list[object] = []
    codes: list[str] = []
    skipped: list[tuple[int | None, int]] = []
    while len(values) + len(skipped) < 4:
        try:
            values.extend(message.value() for message in next(consumer.batches(10)))
        except ValueDeserializationError as error:
            with pytest.raises(KafkaException, match="is odd") as again:
                consumer.poll(10)
            codes.append(again.value.args[0].name())
            position = consumer.position([TopicPartition("orders", 0)])[0].offset
            skipped.append((error.kafka_message.offset(), position))
            consumer.seek(TopicPartition("orders", 0, (error.kafka_message.offset() or 0) + 1))

    assert values == [0, 2]
    assert skipped == [(1, 1), (3, 3)], "the position stays at the record"
    assert codes == ["_VALUE_DESERIALIZATION"] * 2


def test_a_callable_gets_what_cannot_be_opened(make_consumer: MakeConsumer, produce: Produce) -> None:
    """The dead-letter hook: the loop goes on, and the position passes the record."""
    produce("orders", 5, partitions=[0])
    dead: list[tuple[bytes | None, str]] = []

    def on_error(message: Message, error: Exception) -> None:
        dead.append((message.value(), str(error)))

    consumer = make_consumer(**settings(value_deserializer=only_even, on_deserialization_error=on_error)).raw
    consumer.assign([TopicPartition("orders", 0)])
    values: list[object] = []
    while len(values) < 3:
        values.extend(message.value() for message in next(consumer.batches(10)))

    assert values == [0, 2, 4]
    assert [value for value, _ in dead] == [b"1", b"3"]
    assert dead[0][1] == "value.deserializer raised ValueError at orders-0 offset 1: b'1' of orders is odd"
    assert consumer.position([TopicPartition("orders", 0)])[0].offset == 5


@pytest.mark.filterwarnings("error")
def test_a_coroutine_of_a_deserialiser_or_of_its_hook_skips_no_record(
    make_consumer: MakeConsumer, produce: Produce
) -> None:
    """``lambda record, error: bury(record)`` of an async function buried nothing, and the record was skipped."""
    produce("orders", 2, partitions=[0])

    async def bury(*_: object) -> None:
        """Never runs."""

    consumer = make_consumer(**settings(value_deserializer=lambda data, context: bury(data))).raw
    consumer.assign([TopicPartition("orders", 0)])
    with pytest.raises(ValueDeserializationError, match="returned a coroutine"):
        consumer.poll(10)
    conf = settings(value_deserializer=only_even, on_deserialization_error=lambda *record: bury(record))
    consumer = make_consumer(**conf).raw
    consumer.assign([TopicPartition("orders", 0, 1)])
    with pytest.raises(ConfigError, match="on_deserialization_error returned a coroutine"):
        consumer.poll(10)
    assert consumer.position([TopicPartition("orders", 0)])[0].offset == 1


def test_a_failing_key_is_told_apart(make_consumer: MakeConsumer, produce: Produce) -> None:
    """A user who reads the log must know which of the two to mend."""
    produce("orders", 1, partitions=[0])

    def key(data: object, context: object) -> object:
        raise LookupError("no schema")

    consumer = make_consumer(**settings(key_deserializer=key)).raw
    consumer.assign([TopicPartition("orders", 0)])
    with pytest.raises(KeyDeserializationError, match=r"key\.deserializer raised LookupError at orders-0 offset 0"):
        consumer.poll(10)
    with pytest.raises(ConfigError, match=r"key\.deserializer must be callable"):
        make_consumer(key_deserializer="string")
