"""Requests about two of everything, and answers as plain values: for tests that compare the rows of answers."""

from __future__ import annotations

import uuid
from typing import Any, Final

from msgspec.structs import replace

from kip848_client.wire.schema import ArrayOf, Request, WireStruct, fields_of

_OTHERS_OWN: Final = frozenset({"listeners", "host", "port", "cluster_id", "throttle_time_ms", "error_message"})
"""Fields that are each broker's own, and texts."""
_IDENTITY: Final = frozenset(
    {
        *("name", "topic", "topic_id", "topic_name", "group_id", "member_id", "transactional_id", "producer_id"),
        *("partition", "partition_index", "index", "resource_name", "feature", "entity_name"),
    }
)
_UNANSWERED: Final = frozenset({"users", "partition_indexes"})
"""Arrays that are doubled, too, although only some APIs answer each of their elements."""


def about_two(request: Request[Any]) -> Request[Any]:
    """The request with a second element in each array whose elements are answered one by one."""
    arrays = {step for array in request.WIRE.answered_by for step in array.split(".")} | _UNANSWERED
    doubled: Request[Any] = _doubled(request, arrays)
    return doubled


def _doubled(holder: WireStruct, arrays: set[str]) -> Any:
    changes: dict[str, Any] = {}
    for field in fields_of(type(holder)):
        value = getattr(holder, field.name)
        if field.name in arrays and isinstance(field.kind, ArrayOf) and value:
            elements = tuple(_doubled(each, arrays) if isinstance(each, WireStruct) else each for each in value)
            changes[field.name] = elements if field.name == "entity" else (*elements, *map(_another, elements))
    return replace(holder, **changes)


def _another(value: Any) -> Any:
    match value:
        case str():
            return f"{value}-2"
        case int():
            return value + 1
        case uuid.UUID():
            return uuid.UUID(int=2) if value.int else value
        case WireStruct():
            changes = {
                field.name: _another(getattr(value, field.name))
                for field in fields_of(type(value))
                if field.name in _IDENTITY
            }
            if hasattr(value, "entity"):
                changes["entity"] = tuple(map(_another, value.entity))
            return replace(value, **changes)
        case _:
            return value


def plain(message: object, *, version: int) -> Any:
    """An answer as lists and dicts in one order, without texts and what each broker has of its own."""
    if isinstance(message, tuple):
        return sorted((plain(each, version=version) for each in message), key=repr)
    if isinstance(message, WireStruct):
        return {
            field.name: plain(getattr(message, field.name), version=version)
            for field in fields_of(type(message))
            if field.versions.includes(version) and field.name not in _OTHERS_OWN
        }
    return message
