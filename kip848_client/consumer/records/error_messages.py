"""Errors as the messages in whose place confluent-kafka hands them out, with errors.as.messages=true."""

from __future__ import annotations

from typing import Any, Final

from kip848_client.common.model import NamedPartition
from kip848_client.consumer.records.data_plane import KafkaError, Message
from kip848_client.consumer.records.kafka_errors import describe_error
from kip848_client.errors import (
    ConfigError,
    DeserializationError,
    IllegalStateError,
    Kip848Error,
    ListenerError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    OutOfResourcesError,
)

_RAISED: Final = (ConfigError, IllegalStateError, DeserializationError, ListenerError, OutOfResourcesError)
"""What confluent-kafka raises from poll(), too: mistakes of the caller, and exceptions of the application's code."""


def error_messages(error: Kip848Error) -> list[Message]:
    """The messages that stand for *error*; none if it is raised.

    Each has ``error()``, with *error* as its ``exception``. If a partition has no position, it has that one's topic,
    partition and offset.
    """
    if isinstance(error, _RAISED):
        return []
    arguments: dict[str, Any] = {"error": describe_error(error)}
    places: list[tuple[NamedPartition, int | None]] = []
    if isinstance(error, OffsetOutOfRangeError):
        places = [(error.partition, error.offset)]
    elif isinstance(error, NoOffsetForPartitionError):
        places = [(partition, None) for partition in error.partitions]
    if not places:
        return [_message(**arguments)]
    return [
        _message(topic=partition.topic, partition=partition.partition, offset=offset, **arguments)
        for partition, offset in places
    ]


def is_error(message: Message) -> bool:
    """Whether *message* stands for an error, and not for a record or the end of a partition."""
    error = message.error()
    return error is not None and error.code() != KafkaError._PARTITION_EOF


def _message(**given: Any) -> Message:
    """A message made here: its text is in value(), as in confluent-kafka."""
    known = {name: value for name, value in given.items() if value is not None}
    return Message(value=str(given["error"].str()).encode(), **known)
