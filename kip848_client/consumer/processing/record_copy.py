"""A record as a value that can be sent to another process."""

from __future__ import annotations

from typing import Any

import msgspec

from kip848_client.consumer.records.message import Message


class RecordCopy(msgspec.Struct, frozen=True):
    """What a handler in another process gets: the methods of a message, without the consumer's memory behind them."""

    _topic: str
    _partition: int
    _offset: int
    _key: Any
    _value: Any
    _headers: Any
    _timestamp: tuple[int, int]
    _leader_epoch: int | None

    @classmethod
    def of(cls, message: Message) -> RecordCopy:
        """Copy a message."""
        return cls(
            message.topic(),
            message.partition(),
            message.offset(),
            message.key(),
            message.value(),
            message.headers(),
            message.timestamp(),
            message.leader_epoch(),
        )

    def topic(self) -> str:
        """The topic."""
        return self._topic

    def partition(self) -> int:
        """The partition."""
        return self._partition

    def offset(self) -> int:
        """The offset."""
        return self._offset

    def key(self) -> Any:
        """The key."""
        return self._key

    def value(self) -> Any:
        """The value."""
        return self._value

    def headers(self) -> Any:
        """The headers, a list of (name, bytes); None without any."""
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        """(kind, milliseconds since 1970)."""
        return self._timestamp

    def leader_epoch(self) -> int | None:
        """The leader epoch."""
        return self._leader_epoch

    def error(self) -> None:
        """None: it is a record."""
        return
