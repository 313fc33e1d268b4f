"""Requests written as their fields: structs are mappings, arrays are lists, and what is left out has its default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages import message_pair
from kip848_client.wire.schema import ArrayOf, Request, WireStruct, fields_of

Fields = Mapping[str, Any]
"""Fields of a message by name; structs are mappings, arrays are lists."""


def message(api_key: int, fields: Fields) -> Request[Any]:
    """The request of an API, with its defaults for what is not in *fields*."""
    made = _struct(message_pair(ApiKey(api_key)).request, fields)
    assert isinstance(made, Request)
    return made


def _struct(cls: type[WireStruct], fields: Fields) -> WireStruct:
    kinds = {field.name: field.kind for field in fields_of(cls)}
    return cls(**{name: _of_kind(kinds[name], value) for name, value in fields.items()})


def _of_kind(kind: object, value: Any) -> Any:
    if isinstance(kind, ArrayOf) and value is not None:
        return tuple(_of_kind(kind.element, item) for item in value)
    if isinstance(kind, type) and value is not None:
        return _struct(kind, value)
    return value
