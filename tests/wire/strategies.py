"""Random messages of any declared class and version, made from the declaration itself."""

from __future__ import annotations

import uuid
from typing import Any, Final, NamedTuple

import hypothesis.strategies as st

from kip848_client.wire.messages import message_pair, supported_api_keys
from kip848_client.wire.schema import (
    BOOL,
    FLOAT64,
    STRING,
    UUID,
    ZERO_UUID,
    ApiMessage,
    ArrayOf,
    FieldSpec,
    Scalar,
    WireType,
    fields_of,
)

PRIVATE_TAG_FIRST: Final = 10000
"""Tags from here on are this library's own; no other implementation knows them."""


class Case(NamedTuple):
    """One message class in one version."""

    cls: type[ApiMessage]
    version: int

    def __str__(self) -> str:
        return f"{self.cls.__name__}-v{self.version}"


def all_cases() -> list[Case]:
    """Every request and response in every version that is spoken here."""
    classes = [cls for key in sorted(supported_api_keys()) for cls in message_pair(key)]
    return [
        Case(cls, version) for cls in classes for version in range(cls.WIRE.versions.first, cls.WIRE.versions.last + 1)
    ]


def fields_on_wire(cls: type, version: int, *, private: bool = True) -> list[FieldSpec]:
    """The fields of *cls* that travel in *version*; *private* says whether our own tags count."""
    return [
        field
        for field in fields_of(cls)
        if field.versions.includes(version) and (private or field.tag is None or field.tag < PRIVATE_TAG_FIRST)
    ]


_TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["orders", "ü" * 63, "a" * 126, "b" * 127, "c" * 300]  # around where a length needs a second byte
)
_BLOBS = st.binary(max_size=20) | st.sampled_from([b"x" * 126, b"y" * 127, b"z" * 300])
_UUIDS = st.sampled_from([ZERO_UUID, uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)]) | st.uuids()


class Limits(NamedTuple):
    """What the other side of a comparison can hold, by name of the field."""

    integers: dict[str, st.SearchStrategy[int]] = {}  # noqa: RUF012  never written to
    private_tags: bool = True


def messages(case: Case, limits: Limits | None = None) -> st.SearchStrategy[Any]:
    """Instances of the class of *case* that its version can carry."""
    return _structs(case.cls, case.version, limits or Limits())


def _structs(cls: type, version: int, limits: Limits) -> st.SearchStrategy[Any]:
    return st.builds(
        cls,
        **{
            field.name: _values(field.kind, field, version, limits)
            for field in fields_on_wire(cls, version, private=limits.private_tags)
        },
    )


def _values(kind: WireType, field: FieldSpec, version: int, limits: Limits) -> st.SearchStrategy[Any]:
    values = _present(kind, field, version, limits)
    if field.nullable.includes(version):
        return st.none() | values
    return values


def _present(kind: WireType, field: FieldSpec, version: int, limits: Limits) -> st.SearchStrategy[Any]:
    if isinstance(kind, ArrayOf):
        size = 40 if isinstance(kind.element, Scalar) and kind.element.code else 3
        return st.lists(_present(kind.element, field, version, limits), max_size=size).map(tuple)
    if not isinstance(kind, Scalar):
        return _structs(kind, version, limits)
    if kind.bounds is not None:
        limited = limits.integers.get(field.name)
        if limited is not None:
            return limited
        least, greatest = kind.bounds
        return st.integers(least, greatest) | st.sampled_from([least, -1 if least else 0, 0, greatest])
    if kind is BOOL:
        return st.booleans()
    if kind is STRING:
        return _TEXTS
    if kind is UUID:
        return _UUIDS
    if kind is FLOAT64:
        return st.floats(allow_nan=False)
    return _BLOBS
