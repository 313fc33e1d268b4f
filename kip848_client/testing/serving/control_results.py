"""What the calls of the control port answer: values that JSON can hold, and their types for the description.

`result_type` and `jsonable` go together: the first says of a type what the second makes of its values. A partition is
an object with topic and partition, a set is a list, an enumeration is its name.
"""

from __future__ import annotations

import base64
import enum
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import GenericAlias
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from kip848_client.common.model import NamedPartition
from kip848_client.errors import ConfigError
from kip848_client.testing.broker.client_telemetry import MetricsPush
from kip848_client.testing.broker.net.faults import FaultRule
from kip848_client.testing.broker.net.logged_request import LoggedRequest
from kip848_client.testing.broker.topics.records import BrokerRecord

Encoding: TypeAlias = Literal["utf-8", "base64"]
"""How keys, values and headers are written in JSON."""


class Partition(msgspec.Struct, frozen=True):
    """A partition of a topic."""

    topic: str
    partition: int


class PartitionOffsets(msgspec.Struct, frozen=True):
    """The first offset of a partition and the next one that is written."""

    partition: int
    start_offset: int
    end_offset: int


class CommittedOffset(msgspec.Struct, frozen=True):
    """The offset from which a group reads on."""

    topic: str
    partition: int
    offset: int


class PartitionOffset(msgspec.Struct, frozen=True):
    """A partition that lost records, and its first offset now."""

    topic: str
    partition: int
    start_offset: int


class PartitionRecords(msgspec.Struct, frozen=True):
    """A partition that lost records, and how many."""

    topic: str
    partition: int
    records: int


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A header of a record."""

    name: str
    value: str | None


class StoredRecord(msgspec.Struct, frozen=True):
    """A record as it is in a partition; a value of null is a tombstone."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None
    headers: list[Header]
    timestamp_ms: int


class Push(msgspec.Struct, frozen=True):
    """A push of a client: who sent it to which node, and OpenTelemetry's ``MetricsData``, as base64."""

    client_instance_id: str
    client_id: str | None
    principal: str
    node_id: int
    terminating: bool
    metric_names: list[str]
    otlp: str


class FaultRuleState(msgspec.Struct, frozen=True):
    """A fault rule: to how many requests it did something, how many it holds now, and whether it is used up."""

    rule: int
    hits: int
    held: int
    spent: bool
    text: str


class RequestLogEntry(msgspec.Struct, frozen=True):
    """A request with its answer; fields that have their default are left out of the two.

    Attributes:
        fault: what a fault rule did to it.
        errors: place -> error.
    """

    number: int
    ts_ms: int
    api: str
    version: int
    client_id: str | None
    connection_id: int
    node_id: int
    groups: list[str]
    members: list[str]
    topics: list[str] | None
    outcome: str
    fault: str | None
    errors: dict[str, str]
    duration_ms: float | None
    request_bytes: int
    response_bytes: int
    request: dict[str, Any]
    response: dict[str, Any] | None


def push_of(push: MetricsPush) -> Push:
    """A push with its bytes as text."""
    return Push(
        client_instance_id=str(push.client_instance_id),
        client_id=push.client_id,
        principal=push.principal,
        node_id=push.node_id,
        terminating=push.terminating,
        metric_names=list(push.metric_names),
        otlp=base64.b64encode(push.otlp).decode(),
    )


def rule_of(number: int, rule: FaultRule) -> FaultRuleState:
    """A rule with its number on this port."""
    return FaultRuleState(number, rule.hits, rule.held, rule.spent, str(rule))


def record_of(record: BrokerRecord, encoding: Encoding) -> StoredRecord:
    """A record with its bytes as text; as ``utf-8``, bytes that are not get replacement characters."""
    headers = [Header(name, _text(value, encoding)) for name, value in record.headers]
    key, value = _text(record.key, encoding), _text(record.value, encoding)
    return StoredRecord(record.topic, record.partition, record.offset, key, value, headers, record.timestamp_ms)


def _text(content: bytes | None, encoding: Encoding) -> str | None:
    if content is None:
        return None
    return base64.b64encode(content).decode() if encoding == "base64" else content.decode("utf-8", "replace")


def content(text: str | None, encoding: Encoding, what: str) -> bytes | None:
    """The bytes that *text* stands for.

    Raises:
        ConfigError: it is not base64; says *what* it was.
    """
    if text is None or encoding == "utf-8":
        return None if text is None else text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ConfigError(f"{what}: {text[:40]!r} is not base64: {error}") from None


def jsonable(value: object) -> object:
    """*value* as JSON can hold it."""
    if isinstance(value, LoggedRequest):
        return msgspec.json.decode(value.to_json())
    if isinstance(value, NamedPartition):
        return {"topic": value.topic, "partition": value.partition}
    if isinstance(value, enum.IntEnum):
        return value.name
    if isinstance(value, Mapping):
        return {key: jsonable(each) for key, each in value.items()}
    if isinstance(value, msgspec.Struct):
        hints = get_type_hints(type(value))
        return {name: _field(getattr(value, name), hints[name]) for name in value.__struct_fields__}
    if isinstance(value, (AbstractSet, list, tuple)):
        return [jsonable(each) for each in value]
    return msgspec.to_builtins(value)


def _field(value: Any, hint: Any) -> object:
    """A field of a struct: partitions, which are pairs in some, become objects, and those in a set are sorted."""
    arguments = get_args(hint)
    if arguments and _is_partition(arguments[0]):
        partitions = [NamedPartition(*each) for each in value]
        return jsonable(sorted(partitions) if isinstance(value, AbstractSet) else partitions)
    if isinstance(value, AbstractSet) and arguments == (str,):
        return sorted(value)
    return jsonable(value)


def _is_partition(hint: object) -> bool:
    return hint is NamedPartition or (get_origin(hint) is tuple and get_args(hint) == (str, int))


def result_type(hint: Any) -> Any:
    """The type of what `jsonable` makes of values of a type."""
    if hint is LoggedRequest:
        return RequestLogEntry
    if _is_partition(hint):
        return Partition
    if isinstance(hint, type) and issubclass(hint, enum.IntEnum):
        return Literal[tuple(hint.__members__)]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct_type(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(lambda one, other: one | other, map(result_type, arguments))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return GenericAlias(dict, (arguments[0], result_type(arguments[1])))
    if isinstance(origin, type) and issubclass(origin, (AbstractSet, Sequence)):
        return GenericAlias(list, (result_type(arguments[0]),))
    return hint


@functools.cache
def _struct_type(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    hints = get_type_hints(kind)
    fields = [(name, result_type(hints[name])) for name in kind.__struct_fields__]
    if all(hint == hints[name] for name, hint in fields):
        return kind
    made = msgspec.defstruct(kind.__name__.removesuffix("Snapshot"), fields, frozen=True)
    made.__doc__ = (kind.__doc__ or "").partition("\n")[0]
    return made
