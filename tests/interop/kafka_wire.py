"""Kafka requests as raw bytes over one socket, written and read by kio: the second opinion on our own codec.

Owns one blocking connection and the way between kio's message classes and plain JSON values. Knows no rule of any
protocol: tests and record_golden.py say what to send.

In the JSON values names are Kafka's in snake case (`rebalance_timeout_ms`), durations are milliseconds, ids are
strings, bytes are hexadecimal, error codes are numbers, and an all-zero topic id is null.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import socket
import struct
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Final, Self, TypeAlias, TypeVar

import msgspec
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.static.protocol import Entity, RequestPayload, ResponsePayload

from tests.support.waiting import TIMEOUT_S

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

CLIENT_ID: Final = "wire"
API_KEYS: Final = {name: int(key) for key, name in api_key_map.items()}

AnyEntity = TypeVar("AnyEntity", bound=Entity)


class Exchange(msgspec.Struct, frozen=True):
    """One request and its response, as bytes (header and body, without the length in front) and decoded."""

    api: str
    api_key: int
    version: int
    correlation_id: int
    request_header_version: int
    response_header_version: int
    request_bytes: bytes
    response_bytes: bytes
    request: dict[str, Json]
    response: dict[str, Json]

    @property
    def error_code(self) -> int:
        """The top-level error code of the response."""
        code = self.response["error_code"]
        assert isinstance(code, int)
        return code


class WireConnection:
    """A blocking connection to one broker.

    Args:
        address: `host:port`.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket: Final = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._correlation_id = 0

    def exchange(self, api: str, version: int, fields: Mapping[str, Json]) -> Exchange:
        """Send one request, such as `("list_groups", 5, {"states_filter": []})`, and wait for its response."""
        key = API_KEYS[api]
        request_schema, response_schema = load_request_schema(key, version), load_response_schema(key, version)
        body = build(request_schema, fields)
        header_schema = request_schema.__header_schema__
        self._correlation_id += 1
        header = build(
            header_schema,
            {
                "request_api_key": key,
                "request_api_version": version,
                "correlation_id": self._correlation_id,
                "client_id": CLIENT_ID,
            },
        )
        request_bytes = _written(header) + _written(body)
        response_bytes = self.exchange_raw(request_bytes)
        response = read_payload(response_schema, response_bytes)
        return Exchange(
            api=api,
            api_key=key,
            version=version,
            correlation_id=self._correlation_id,
            request_header_version=int(header_schema.__version__),
            response_header_version=int(response_schema.__header_schema__.__version__),
            request_bytes=request_bytes,
            response_bytes=response_bytes,
            request=as_fields(body),
            response=response,
        )

    def exchange_raw(self, request_bytes: bytes) -> bytes:
        """Send a frame as it is and wait for one frame; sizes are added and taken away here."""
        self._socket.sendall(struct.pack(">i", len(request_bytes)) + request_bytes)
        return self._received()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _received(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            part = self._socket.recv(size - len(received))
            if not part:
                raise ConnectionError("the broker closed the connection")
            received += part
        return received


def read_payload(schema: type[RequestPayload | ResponsePayload], frame: bytes) -> dict[str, Json]:
    """The body of a request or response frame as JSON values; *schema* is kio's class of the body."""
    _, offset = entity_reader(schema.__header_schema__)(frame, 0)
    read_body: Callable[[bytes, int], tuple[Entity, int]] = entity_reader(schema)
    body, size = read_body(frame, offset)
    assert offset + size == len(frame), f"{len(frame) - offset - size} bytes are left over"
    return as_fields(body)


def as_fields(entity: object) -> dict[str, Json]:
    """A kio message as JSON values."""
    assert dataclasses.is_dataclass(entity)
    return {
        _json_name(field): _field_as_json(field, getattr(entity, field.name)) for field in dataclasses.fields(entity)
    }


def build(schema: type[AnyEntity], fields: Mapping[str, Json]) -> AnyEntity:
    """The kio message of class *schema* with these JSON values; what is missing gets kio's default.

    Raises:
        ValueError: a name that the message does not have in this version.
    """
    hints = typing.get_type_hints(schema)
    known = {_json_name(field): field for field in dataclasses.fields(schema)}
    if unknown := fields.keys() - known.keys():
        raise ValueError(f"{schema.__name__} has no {sorted(unknown)}; it has {sorted(known)}")
    values = {known[name].name: _from_json(hints[known[name].name], known[name], fields[name]) for name in fields}
    return schema(**values)


def _json_name(field: dataclasses.Field[object]) -> str:
    kind = field.metadata.get("kafka_type", "")
    return f"{field.name}_ms" if "timedelta" in kind or "datetime" in kind else field.name


def _field_as_json(field: dataclasses.Field[object], value: object) -> Json:
    is_time = "datetime" in field.metadata.get("kafka_type", "")
    return -1 if is_time and value is None else _as_json(value)  # kio reads a time of -1 as None


def _as_json(value: object) -> Json:
    match value:
        case None | bool() | float() | str():
            return value
        case ErrorCode():
            return int(value.value)
        case int():
            return int(value)
        case uuid.UUID():
            return str(value)
        case bytes():
            return value.hex()
        case dt.timedelta():
            return round(value.total_seconds() * 1000)
        case dt.datetime():
            return round(value.timestamp() * 1000)
        case tuple():
            return [_as_json(item) for item in value]
        case _:
            return dict(as_fields(value))


def _from_json(hint: object, field: dataclasses.Field[object], value: Json) -> object:
    kind = field.metadata.get("kafka_type", "")
    match value:
        case None:
            return None
        case list():
            (item_hint,) = (arm for arm in _arms(hint) if typing.get_origin(arm) is tuple)
            return tuple(_from_json(typing.get_args(item_hint)[0], field, item) for item in value)
        case dict():
            (nested,) = (arm for arm in _arms(hint) if isinstance(arm, type) and arm is not types.NoneType)
            return build(typing.cast("type[Entity]", nested), value)
        case int() if "timedelta" in kind:
            return dt.timedelta(milliseconds=value)
        case int() if "datetime" in kind:
            return dt.datetime.fromtimestamp(value / 1000, tz=dt.UTC) if value >= 0 else None
        case int() if kind == "error_code":
            return ErrorCode(value)
        case str() if kind == "uuid":
            return uuid.UUID(value)
        case str() if kind in ("bytes", "records"):
            return bytes.fromhex(value)
        case _:
            return value


def _arms(hint: object) -> tuple[object, ...]:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def _written(entity: Entity) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()
