"""Messages written as their fields: structs are mappings, arrays are lists, and what is left out has its default.

build(OffsetDeleteRequest, group_id="g", topics=[{"name": "t", "partitions": [{"partition_index": 0}]}])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages import message_pair
from kip848_client.wire.schema import ArrayOf, Request, WireStruct, fields_of

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A message as plain values: ids are text, error codes numbers."""
Fields = Mapping[str, Any]
"""Fields of a message by name; structs are mappings, arrays are lists."""

StructT = TypeVar("StructT", bound=WireStruct)


def message(api_key: int, fields: Fields) -> Request[Any]:
    """The request of an API, with its defaults for what is not in *fields*."""
    return build(message_pair(ApiKey(api_key)).request, **fields)


def build(cls: type[StructT], **fields: Any) -> StructT:
    """A message or a struct in one; an element that is a struct already is taken as it is."""
    kinds = {field.name: field.kind for field in fields_of(cls)}
    return cls(**{name: _of_kind(kinds[name], value) for name, value in fields.items()})


def _of_kind(kind: object, value: Any) -> Any:
    if isinstance(kind, ArrayOf) and value is not None:
        return tuple(_of_kind(kind.element, item) for item in value)
    if isinstance(kind, type) and isinstance(value, Mapping):
        return build(kind, **value)
    return value
