"""Why a message could not be encoded. Runs only after a failure; finds the first field whose value does not fit."""

from __future__ import annotations

import uuid

from kip848_client.errors import MessageValueError
from kip848_client.wire.compiler.primitives import STRING_LENGTH_MAX
from kip848_client.wire.schema import (
    BOOL,
    FLOAT64,
    RECORDS,
    STRING,
    UUID,
    ArrayOf,
    Scalar,
    WireStruct,
    WireType,
    fields_of,
)


def explain_value(message: WireStruct, version: int) -> MessageValueError:
    """The error that names the first field of *message* whose value *version* cannot carry."""
    name = type(message).__name__
    for path, problem in _problems(message.__class__, message, version, name):
        return MessageValueError(f"{name} version {version}: {path} {problem}")
    return MessageValueError(f"{name} version {version}: a value does not fit its field")


def _problems(cls: type[WireStruct], value: object, version: int, path: str) -> list[tuple[str, str]]:
    if not isinstance(value, cls):
        return [(path, f"is {value!r}, not a {cls.__name__}")]
    found: list[tuple[str, str]] = []
    for field in fields_of(cls):
        if field.versions.includes(version):
            nullable = field.nullable.includes(version) or field.kind is RECORDS
            inner = getattr(value, field.name)
            found += _check(field.kind, inner, version, f"{path}.{field.name}", nullable=nullable)
    return found


def _check(kind: WireType, value: object, version: int, path: str, *, nullable: bool) -> list[tuple[str, str]]:
    if value is None:
        return [] if nullable else [(path, "is None, which this version does not allow")]
    if isinstance(kind, ArrayOf):
        if not isinstance(value, tuple | list):
            return [(path, f"is {value!r}, not a tuple")]
        return [
            problem
            for index, item in enumerate(value)
            for problem in _check(kind.element, item, version, f"{path}[{index}]", nullable=False)
        ]
    if isinstance(kind, Scalar):
        problem = _scalar_problem(kind, value)
        return [(path, problem)] if problem else []
    return _problems(kind, value, version, path)


def _scalar_problem(kind: Scalar, value: object) -> str | None:
    if kind.bounds is not None:
        if not isinstance(value, int):
            return f"is {value!r}, not an int"
        least, greatest = kind.bounds
        return None if least <= value <= greatest else f"is {value}; {kind.name} holds {least} to {greatest}"
    expected: dict[Scalar, type] = {BOOL: bool, FLOAT64: float, STRING: str, UUID: uuid.UUID}
    wanted = expected.get(kind, bytes)
    if not isinstance(value, wanted):
        return f"is {value!r}, not {wanted.__name__}"
    if kind is STRING and isinstance(value, str):
        try:
            size = len(value.encode())
        except UnicodeEncodeError as failure:
            return f"cannot be written as UTF-8: {failure}"
        return f"has {size} bytes; a string holds at most {STRING_LENGTH_MAX}" if size > STRING_LENGTH_MAX else None
    return None
