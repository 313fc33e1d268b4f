"""How a Kafka message is declared: wire types, versions of each field, and the base classes of messages.

Owns the vocabulary that `messages/` is written in (`wire`, `array`, `request`, `response`, the scalar types) and the
reading of it (`fields_of`). Does not encode or decode anything: that is `compiler`.

A message is one ordinary frozen dataclass that holds the union of all versions' fields; each field says on which
versions it travels, as Kafka's message definitions do. Every field has a default, so construction is by keyword and
names only what matters.
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey

__all__ = [
    "wire",
    "array",
    "request",
    "response",
    "record",
    "Message",
    "Request",
    "Response",
    "RecordPart",
    "MessageSpec",
    "FieldSpec",
    "Versions",
    "Scalar",
    "ArrayOf",
    "fields_of",
    "BOOL",
    "INT8",
    "INT16",
    "UINT16",
    "INT32",
    "INT64",
    "FLOAT64",
    "STRING",
    "UUID",
    "BYTES",
    "RECORDS",
    "ZERO_UUID",
]

ZERO_UUID: Final = uuid.UUID(int=0)
"""Kafka's "no id"."""

_NO_VERSION: Final = -1
_LAST_VERSION: Final = 32767


class Versions(NamedTuple):
    """A closed range of versions; empty if `last` is below `first`."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Read Kafka's notation: ``"0+"``, ``"2-4"``, ``"1"`` or ``"none"``."""
        if text == "none":
            return cls(0, _NO_VERSION)
        first, plus, _ = text.partition("+")
        if plus:
            return cls(int(first), _LAST_VERSION)
        first, dash, last = text.partition("-")
        return cls(int(first), int(last) if dash else int(first))

    def includes(self, version: int) -> bool:
        """Whether *version* lies in the range."""
        return self.first <= version <= self.last

    def __str__(self) -> str:
        if self.last < self.first:
            return "none"
        if self.last == _LAST_VERSION:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@value
class Scalar:
    """A type without parts. `code` is its `struct` format, or empty if its length varies."""

    name: str
    code: str
    size: int
    """Bytes on the wire; for a varying length the least a non-flexible version needs."""
    default: object
    bounds: tuple[int, int] | None = None
    """Least and greatest value, for integers."""


@value
class ArrayOf:
    """An array of scalars or of structs; in Python a tuple."""

    element: Scalar | type


BOOL: Final = Scalar("bool", "?", 1, False)
INT8: Final = Scalar("int8", "b", 1, 0, (-(2**7), 2**7 - 1))
INT16: Final = Scalar("int16", "h", 2, 0, (-(2**15), 2**15 - 1))
UINT16: Final = Scalar("uint16", "H", 2, 0, (0, 2**16 - 1))
INT32: Final = Scalar("int32", "i", 4, 0, (-(2**31), 2**31 - 1))
INT64: Final = Scalar("int64", "q", 8, 0, (-(2**63), 2**63 - 1))
FLOAT64: Final = Scalar("float64", "d", 8, 0.0)
UUID: Final = Scalar("uuid", "16s", 16, ZERO_UUID)
STRING: Final = Scalar("string", "", 2, "")
BYTES: Final = Scalar("bytes", "", 4, b"")
RECORDS: Final = Scalar("records", "", 4, None)

WireType = Scalar | ArrayOf | type


@value
class FieldSpec:
    """One field of a message or struct: its type and on which versions it travels."""

    name: str
    kind: WireType
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    default: object
    ignorable: bool
    """Whether a value that is not the default may silently be left out of a version that lacks the field."""

    def is_tagged(self, version: int) -> bool:
        """Whether the field travels as a tagged field of *version*."""
        return self.tag is not None and self.tagged.includes(version)


@value
class _Declared:
    kind: WireType
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    ignorable: bool


_FROM_TYPE: Final = object()


def wire(
    kind: WireType,
    versions: str,
    *,
    nullable: str = "none",
    default: object = _FROM_TYPE,
    tag: int | None = None,
    tagged: str = "none",
    ignorable: bool = False,
) -> Any:
    """Declare one field of a message dataclass.

    Args:
        kind: a scalar type, `array(...)`, or the class of a struct.
        versions: on which versions the field travels, in Kafka's notation (``"0+"``, ``"2-4"``, ``"1"``).
        nullable: on which of them it may be None.
        default: the value when it is not given or not on the wire; else the zero of the type.
        tag: number of the tagged field, if it is one.
        tagged: on which versions it is a tagged field; all of *versions* if only *tag* is given.
        ignorable: a value that the version cannot carry is left out instead of refused.

    Returns:
        A `dataclasses.Field`, typed so that the annotation of the class decides.
    """
    if default is _FROM_TYPE:
        if isinstance(kind, Scalar):
            default = kind.default
        elif isinstance(kind, ArrayOf):
            default = ()
        else:
            default = kind()
    declared = _Declared(
        kind=kind,
        versions=Versions.parse(versions),
        nullable=Versions.parse(nullable),
        tag=tag,
        tagged=Versions.parse(versions if tag is not None and tagged == "none" else tagged),
        ignorable=ignorable,
    )
    return dataclasses.field(default=default, metadata={"wire": declared})


def array(element: Scalar | type) -> ArrayOf:
    """The type of an array whose elements are *element*."""
    return ArrayOf(element)


@value
class MessageSpec:
    """What a whole message needs beside its fields."""

    api_key: int
    """Kafka's API key; for records of ``__consumer_offsets`` the record type."""
    versions: Versions
    """The versions that we speak."""
    flexible: Versions
    """The versions with compact lengths and tagged fields."""


def request(api_key: ApiKey, versions: str, *, flexible: str) -> MessageSpec:
    """Spec of a request; *versions* and *flexible* in Kafka's notation."""
    return MessageSpec(int(api_key), Versions.parse(versions), Versions.parse(flexible))


def response(api_key: ApiKey, versions: str, *, flexible: str) -> MessageSpec:
    """Spec of a response; *versions* and *flexible* in Kafka's notation."""
    return MessageSpec(int(api_key), Versions.parse(versions), Versions.parse(flexible))


def record(record_type: int, versions: str, *, flexible: str) -> MessageSpec:
    """Spec of the key or value of a record in ``__consumer_offsets``."""
    return MessageSpec(record_type, Versions.parse(versions), Versions.parse(flexible))


class Message:
    """Base of all that has an encoding of its own."""

    __slots__ = ()
    WIRE: ClassVar[MessageSpec]


class Response(Message):
    """Base of all responses."""

    __slots__ = ()


ResponseT_co = TypeVar("ResponseT_co", bound=Response, covariant=True)


class Request(Message, Generic[ResponseT_co]):
    """Base of all requests; the parameter is the class of the answer."""

    __slots__ = ()


class RecordPart(Message):
    """Base of the keys and values of records in ``__consumer_offsets``."""

    __slots__ = ()


@functools.cache
def fields_of(cls: type) -> tuple[FieldSpec, ...]:
    """The declared fields of a message or struct, in wire order."""
    specs = []
    for item in dataclasses.fields(cls):
        declared: _Declared = item.metadata["wire"]
        specs.append(
            FieldSpec(
                name=item.name,
                kind=declared.kind,
                versions=declared.versions,
                nullable=declared.nullable,
                tag=declared.tag,
                tagged=declared.tagged,
                default=item.default,
                ignorable=declared.ignorable,
            )
        )
    return tuple(specs)
