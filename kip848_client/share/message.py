"""`ShareMessage`, a record of a share group: the methods of ``confluent_kafka.Message``, and its delivery count."""

from __future__ import annotations

from typing import Any, Final, Generic

from kip848_client.consumer.records.message import K_co, V_co
from kip848_client.member.share.held_records import AcquiredRecord


class ShareMessage(Generic[K_co, V_co]):
    """A record that this member has for a while; made by a share consumer."""

    __slots__ = ("_key", "_value", "held")

    def __init__(self, held: AcquiredRecord) -> None:
        self.held: Final = held
        self._key: Any = held.record.key
        self._value: Any = held.record.value

    def topic(self) -> str:
        """The topic that it was read from."""
        return self.held.topic

    def partition(self) -> int:
        """The index of the partition."""
        return self.held.partition[1]

    def offset(self) -> int:
        """Its offset."""
        return self.held.record.offset

    def key(self) -> K_co:
        """The key: bytes or None, or what ``key.deserializer`` returned."""
        key: K_co = self._key
        return key

    def value(self) -> V_co:
        """The value: bytes or None, or what ``value.deserializer`` returned."""
        value: V_co = self._value
        return value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Names and values in their order; None without headers."""
        return list(self.held.record.headers) or None

    def timestamp(self) -> tuple[int, int]:
        """(kind, milliseconds since 1970): kind 1 is the time of creation, 2 that of the append."""
        return self.held.timestamp_type, self.held.record.timestamp

    def delivery_count(self) -> int:
        """Which delivery this is: 1 for the first."""
        return self.held.delivery_count

    def error(self) -> None:
        """None: it is a record. Errors are raised."""
        return

    def set_key(self, key: object) -> None:
        """Replace the key; for deserialisers."""
        self._key = key

    def set_value(self, value: object) -> None:
        """Replace the value; for deserialisers."""
        self._value = value

    def __repr__(self) -> str:
        return (
            f"<ShareMessage {self.topic()}-{self.partition()} offset {self.offset()} delivery {self.delivery_count()}>"
        )
