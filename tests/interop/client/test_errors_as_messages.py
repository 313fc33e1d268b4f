"""`errors.as.messages`: what confluent-kafka hands out in place of a record comes as a message, too."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest

from kip848_client import AsyncConsumer, Consumer, EmbeddedBroker, KafkaError, Message, TopicPartition, confluent
from kip848_client.config import ConfigValue
from kip848_client.errors import FatalGroupError, IllegalStateError, MaxPollExceededError, NoOffsetForPartitionError
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce
from tests.support.driving import QUIET
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.interop

AS_MESSAGES: dict[str, ConfigValue] = {**QUIET, "group.id": "g", "errors.as.messages": True}


def error_of(message: Message | None) -> Any:
    """Its error, which it must have; an `ErrorDetails`."""
    assert message is not None
    assert message.error() is not None
    return message.error()


def first_error(consumer: Consumer) -> Message:
    """The first message with an error."""
    while (message := consumer.poll(TIMEOUT_S)) is None or message.error() is None:
        pass
    return message


def test_a_partition_without_an_offset_is_named_by_a_message(make_consumer: MakeConsumer, produce: Produce) -> None:
    """A ported loop asks msg.error() and seeks; an exception ends it."""
    produce("orders", 2)
    consumer = make_consumer(errors_as_messages=True, auto_offset_reset="error").subscribe("orders").raw

    found = [first_error(consumer) for _ in range(4)]
    for message in found:
        assert error_of(message).code() == KafkaError._AUTO_OFFSET_RESET
        assert isinstance(error_of(message).exception, NoOffsetForPartitionError)
        consumer.seek(TopicPartition("orders", message.partition(), 1))

    assert sorted(message.partition() for message in found) == [0, 1, 2, 3]
    assert [message.error() for message in consumer.consume(4, TIMEOUT_S)] == [None] * 4
    consumer.seek(TopicPartition("orders", 3, 500))
    beyond = consumer.consume(1, TIMEOUT_S)[0]
    assert (beyond.partition(), beyond.offset(), error_of(beyond).code()) == (3, 500, KafkaError._AUTO_OFFSET_RESET)


def test_a_topic_that_does_not_exist_is_told_once(make_consumer: MakeConsumer) -> None:
    """Ported programs end, or create it, when they see this code."""
    consumer = make_consumer(errors_as_messages=True).subscribe("ordres").raw
    message = first_error(consumer)
    assert error_of(message).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert "ordres" in str(message.error())
    assert consumer.poll(0.3) is None


def test_a_fatal_error_comes_again_without_a_busy_loop(broker: EmbeddedBroker, make_consumer: MakeConsumer) -> None:
    """A loop that prints errors and goes on must not fill the disk, nor believe that all is well."""
    first = make_consumer(group_instance_id="one").subscribe("orders").raw
    first.poll(0)
    broker.wait_for_group("g", members=1)
    second = make_consumer(group_instance_id="one", errors_as_messages=True).subscribe("orders").raw
    error = error_of(first_error(second))
    assert error.fatal()
    assert isinstance(error.exception, FatalGroupError)

    began_s = time.monotonic()
    again = second.consume(5, 0.2)
    assert [error_of(message).fatal() for message in again] == [True]
    assert time.monotonic() - began_s > 0.1
    with pytest.raises(FatalGroupError):
        second.commit(asynchronous=False)


def test_a_late_poll_is_told_by_a_message(make_consumer: MakeConsumer) -> None:
    """The most frequent error of consumers."""
    consumer = make_consumer(errors_as_messages=True, max_poll_interval_ms=100).subscribe("orders").raw
    wait_until(lambda: consumer.state.name == "UNJOINED" and consumer._core.group.thread.idle is False)
    error = error_of(first_error(consumer))
    assert error.code() == KafkaError._MAX_POLL_EXCEEDED
    assert isinstance(error.exception, MaxPollExceededError)


def test_what_a_callback_raises_comes_out_of_poll_as_it_is(make_consumer: MakeConsumer) -> None:
    """`except MyError` around poll() is how ported programs end from a callback."""

    class MyError(Exception):
        pass

    def fail(*_: object) -> None:
        raise MyError

    consumer = make_consumer(errors_as_messages=True).raw
    consumer.subscribe(["orders"], on_assign=fail)
    with pytest.raises(MyError):
        list(consumer)


def test_unsubscribe_returns_at_once_and_on_revoke_runs_in_the_next_poll(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """Ported programs look for their callback there, and commit in it."""
    produce("orders", 1)
    consumer = make_consumer(errors_as_messages=True)
    consumer.subscribe("orders")
    assert len(consumer.raw.consume(4, TIMEOUT_S)) == 4
    consumer.raw.unsubscribe()
    assert consumer.calls == [("assigned", [0, 1, 2, 3])]
    assert consumer.raw.poll(0.1) is None
    assert consumer.calls == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3])]
    broker.wait_for_group("g", members=0)
    assert set(broker.groups.committed("g").values()) == {1}


def test_the_class_for_ported_programs_sets_it(broker: EmbeddedBroker) -> None:
    """Such a program changes its import, and nothing else."""
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0}
    with confluent.Consumer(conf, **{"auto.offset.reset": "error"}) as consumer:
        consumer.subscribe(["orders"])
        assert error_of(first_error(consumer)).code() == KafkaError._AUTO_OFFSET_RESET
    with confluent.Consumer({**conf, "errors.as.messages": False, "auto.offset.reset": "error"}) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(NoOffsetForPartitionError):
            consumer.poll(TIMEOUT_S)


def test_mistakes_of_the_caller_are_raised_all_the_same(make_consumer: MakeConsumer) -> None:
    """A message would hide a loop that can never work."""
    consumer = make_consumer(errors_as_messages=True).raw
    consumer.close()
    with pytest.raises(IllegalStateError):
        consumer.poll(0)


def test_an_asynchronous_consumer_does_the_same(broker: EmbeddedBroker) -> None:
    """One configuration for both."""

    async def main() -> int:
        conf = {**AS_MESSAGES, "bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "error"}
        async with AsyncConsumer(conf) as consumer:
            await consumer.subscribe(["orders"])
            (message,) = await consumer.consume(1, TIMEOUT_S)
            code: int = error_of(message).code()
            return code

    assert anyio.run(main) == KafkaError._AUTO_OFFSET_RESET
