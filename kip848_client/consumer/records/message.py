"""`Message`, a record that a consumer returns: confluent_kafka's class, and the types of its key and value.

librdkafka's binding makes the objects, so each is a ``confluent_kafka.Message``. This class has no behaviour: it tells
type checkers what ``Consumer[K, V]`` returns, and can be subscripted in annotations that Python evaluates.
"""

from __future__ import annotations

from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import confluent_kafka

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    K_co = TypeVarWithDefault("K_co", covariant=True, default=bytes | None)
    V_co = TypeVarWithDefault("V_co", covariant=True, default=bytes | None)

    class Message(confluent_kafka.Message[Any, Any], Generic[K_co, V_co]):
        """A record; ``Message[str, Order]`` if its deserialisers return that."""

        def topic(self) -> str:
            """The topic that it was read from."""

        def partition(self) -> int:
            """The index of the partition."""

        def offset(self) -> int:
            """Its offset. The position behind it is one more."""

        def key(self) -> K_co:  # type: ignore[override]
            """The key, as ``key.deserializer`` returned it; without one bytes or None."""

        def value(self) -> V_co:  # type: ignore[override]
            """The value, as ``value.deserializer`` returned it; without one bytes, or None in a tombstone."""

        def headers(self) -> list[tuple[str, Any]] | None:
            """Names and values (bytes or None) in their order; None without headers."""

else:
    K_co = TypeVar("K_co", covariant=True)
    V_co = TypeVar("V_co", covariant=True)

    class _EveryRecord(type):
        """librdkafka's binding makes the records, of its own class."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, confluent_kafka.Message)

    class Message(confluent_kafka.Message, metaclass=_EveryRecord):
        """A record that a consumer returned, with the methods of ``confluent_kafka.Message``."""

        __slots__ = ()
        __class_getitem__ = classmethod(GenericAlias)
