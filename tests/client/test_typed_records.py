"""The types of keys and values at run time; what type checkers make of them: `tests.typing.user_program`."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka

from kip848_client import Consumer, Message


def test_every_record_is_a_message_of_ours_and_annotations_may_say_its_types() -> None:
    """isinstance() is how a program tells a record from None or an error, and not each module defers annotations."""
    assert isinstance(confluent_kafka.Message("orders", 0, 1), Message)
    assert isinstance(Message("orders", 0, 1), confluent_kafka.Message)
    assert not isinstance(None, Message)
    assert Callable[[Message[str, int]], None] != Callable[[Message[str, str]], None]
    with Consumer[str, int]({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}) as consumer:
        assert repr(consumer).startswith("<Consumer ")
