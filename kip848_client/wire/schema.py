"""How a Kafka message is declared: wire types, versions of each field, and the base classes of messages.

Owns the vocabulary that `messages/` is written in (`wire`, `request`, `response`, the integer types) and the reading of
it (`fields_of`). Does not encode or decode anything: that is `compiler`.

A message is a frozen `msgspec.Struct` with the fields of all versions. The annotation of a field gives its wire type
and the versions that contain it, as in Kafka's message definitions::

    partitions: Annotated[tuple[Int32, ...] | None, wire("0+", nullable="2+")] = ()

Annotations are evaluated when a codec of the message is first compiled; importing a message evaluates none. Every field
has a default, so construction is by keyword and names only what matters.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
import uuid
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Generic, NamedTuple, TypeVar

import msgspec

from kip848_client.wire.api_keys import ApiKey

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


class Scalar(msgspec.Struct, frozen=True):
    """A type without parts. `code` is its `struct` format, or empty if its length varies."""

    name: str
    code: str
    size: int
    """Bytes on the wire; for a varying length the least a non-flexible version needs."""
    bounds: tuple[int, int] | None = None
    """Least and greatest value, for integers."""


class ArrayOf(msgspec.Struct, frozen=True):
    """An array of scalars or of structs; in Python a tuple."""

    element: Scalar | type[WireStruct]


BOOL: Final = Scalar("bool", "?", 1)
INT8: Final = Scalar("int8", "b", 1, (-(2**7), 2**7 - 1))
INT16: Final = Scalar("int16", "h", 2, (-(2**15), 2**15 - 1))
UINT16: Final = Scalar("uint16", "H", 2, (0, 2**16 - 1))
INT32: Final = Scalar("int32", "i", 4, (-(2**31), 2**31 - 1))
INT64: Final = Scalar("int64", "q", 8, (-(2**63), 2**63 - 1))
FLOAT64: Final = Scalar("float64", "d", 8)
UUID: Final = Scalar("uuid", "16s", 16)
STRING: Final = Scalar("string", "", 2)
BYTES: Final = Scalar("bytes", "", 4)
RECORDS: Final = Scalar("records", "", 4)


Int8 = Annotated[int, INT8]
Int16 = Annotated[int, INT16]
UInt16 = Annotated[int, UINT16]
Int32 = Annotated[int, INT32]
Int64 = Annotated[int, INT64]
Records = Annotated[bytes, RECORDS]
"""Record batches, whose null is spelled as that of bytes but allowed in every version."""

_SCALARS: Final[dict[object, Scalar]] = {bool: BOOL, float: FLOAT64, uuid.UUID: UUID, str: STRING, bytes: BYTES}
"""Python types that have one wire type; an int has to say its width."""


WireType = Scalar | ArrayOf | type["WireStruct"]


class FieldSpec(msgspec.Struct, frozen=True):
    """One field of a message or struct: its type, and the versions that contain it."""

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


class _Declared(msgspec.Struct, frozen=True):
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    ignorable: bool


def wire(
    versions: str, *, nullable: str = "none", tag: int | None = None, tagged: str = "none", ignorable: bool = False
) -> _Declared:
    """Declare which versions contain a field, inside the `Annotated` of the field.

    Args:
        versions: the versions that contain the field, in Kafka's notation (``"0+"``, ``"2-4"``, ``"1"``).
        nullable: those of them in which it may be None.
        tag: number of the tagged field, if it is one.
        tagged: the versions in which it is a tagged field; all of *versions* if only *tag* is given.
        ignorable: a value that the version cannot carry is left out instead of refused.
    """
    return _Declared(
        versions=Versions.parse(versions),
        nullable=Versions.parse(nullable),
        tag=tag,
        tagged=Versions.parse(versions if tag is not None and tagged == "none" else tagged),
        ignorable=ignorable,
    )


class MessageSpec(msgspec.Struct, frozen=True):
    """The properties of a whole message besides its fields."""

    api_key: int
    """Kafka's API key; for records of ``__consumer_offsets`` the record type."""
    versions: Versions
    """The versions that we speak."""
    flexible: Versions
    """The versions with compact lengths and tagged fields."""
    answered_by: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Arrays of a request -> the arrays of the answer with one element for each of their elements, at any depth.
    An array inside an array that the answer does not have is written with a dot: ``dirs.topics``."""


def request(
    api_key: ApiKey, versions: str, *, flexible: str, answered_by: Mapping[str, str] | None = None
) -> MessageSpec:
    """Spec of a request; *versions* and *flexible* in Kafka's notation.

    Args:
        answered_by: see `MessageSpec.answered_by`; the outermost array first. Without it the request is refused as a
            whole.
    """
    return MessageSpec(int(api_key), Versions.parse(versions), Versions.parse(flexible), answered_by or {})


def response(api_key: ApiKey, versions: str, *, flexible: str) -> MessageSpec:
    """Spec of a response; *versions* and *flexible* in Kafka's notation."""
    return MessageSpec(int(api_key), Versions.parse(versions), Versions.parse(flexible))


def record(record_type: int, versions: str, *, flexible: str) -> MessageSpec:
    """Spec of the key or value of a record in ``__consumer_offsets``."""
    return MessageSpec(record_type, Versions.parse(versions), Versions.parse(flexible))


class WireStruct(msgspec.Struct, frozen=True, gc=False):
    """Base of messages and of the structs inside them. They hold no cycles, so the garbage collector skips them."""


class ApiMessage(WireStruct, frozen=True):
    """Base of requests, responses, and keys and values of records."""

    WIRE: ClassVar[MessageSpec]


class Response(ApiMessage, frozen=True):
    """Base of all responses."""


ResponseT_co = TypeVar("ResponseT_co", bound=Response, covariant=True)


class Request(ApiMessage, Generic[ResponseT_co], frozen=True):
    """Base of all requests; the parameter is the class of the answer."""


class RecordPart(ApiMessage, frozen=True):
    """Base of the keys and values of records in ``__consumer_offsets``."""


@functools.cache
def fields_of(cls: type[WireStruct]) -> tuple[FieldSpec, ...]:
    """The declared fields of a message or struct, in wire order.

    Raises:
        TypeError: a field has no default, no `wire`, or a type that has no wire type.
    """
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    if len(names) != len(defaults):
        raise TypeError(f"{cls.__name__}.{names[-len(defaults) - 1]} has no default")
    hints: dict[str, object] = {}
    for base in reversed(cls.__mro__):  # typing.get_type_hints takes half as long again, before each first request
        if issubclass(base, WireStruct):
            hints |= inspect.get_annotations(base, eval_str=True)
    return tuple(
        _field_spec(f"{cls.__name__}.{name}", hints[name], name=name, default=default)
        for name, default in zip(names, defaults, strict=True)
    )


def _field_spec(where: str, hint: object, *, name: str, default: object) -> FieldSpec:
    metadata: tuple[object, ...] = getattr(hint, "__metadata__", ())
    declared = metadata[-1] if metadata else None
    if not isinstance(declared, _Declared):
        raise TypeError(f"{where} does not say on which versions it travels: Annotated[..., wire(...)]")
    return FieldSpec(
        name=name,
        kind=_wire_type(where, hint),
        versions=declared.versions,
        nullable=declared.nullable,
        tag=declared.tag,
        tagged=declared.tagged,
        default=default,
        ignorable=declared.ignorable,
    )


def _wire_type(where: str, hint: object) -> WireType:
    """The wire type behind an annotation: ``tuple[Int32, ...] | None`` is an array of int32."""
    for item in getattr(hint, "__metadata__", ()):
        if isinstance(item, Scalar):
            return item
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _wire_type(where, arguments[0])
    if origin is typing.Union or origin is types.UnionType:
        (present,) = (argument for argument in arguments if argument is not types.NoneType)
        return _wire_type(where, present)
    if origin is tuple:
        element = _wire_type(where, arguments[0])
        if not isinstance(element, ArrayOf):
            return ArrayOf(element)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, type) and issubclass(hint, WireStruct):
        return hint
    raise TypeError(f"{where}: {hint} has no wire type")
