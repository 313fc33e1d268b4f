"""One logged request as a frozen value, and its JSON form. `request_log` collects them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from kip848_client.common.error_codes import error_name
from kip848_client.common.json_text import to_json
from kip848_client.common.model import ZERO_UUID, NamedPartition
from kip848_client.common.plain_text import printable
from kip848_client.journal import JsonValue
from kip848_client.testing.faults.subject import TopicNames
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Request, Response, WireStruct, fields_of

_PLACES: Final = (
    *("name", "topic", "topic_name", "topic_id", "group_id", "resource_name", "key", "member_id"),
    *("partition_index", "partition", "index"),
)
"""Fields that say what a part of an answer is about; the first that a part has counts."""
_PLACES_SHOWN: Final = 4

Outcome = Literal["waiting", "answered", "no_answer", "closed"]
"""``waiting``: not answered yet. ``no_answer``: it has none, or a fault took it. ``closed``: the connection went."""


class AnsweredError(NamedTuple):
    """One error in an answer: where (``orders-0``, a group, a topic; empty for the whole answer), and its code."""

    where: str
    code: int

    def __str__(self) -> str:
        name = error_name(self.code)
        return f"{name} for {self.where}" if self.where else name


class LoggedRequest(msgspec.Struct, frozen=True):
    """One request, as of the time it was read from the log.

    Attributes:
        number: counts the requests of one log, from 1.
        ts_ms: when it was read, milliseconds since 1970 on the broker's clock.
        api: which API; a plain int for one without a name.
        version: of the API.
        client_id: as the client calls itself.
        connection_id: of its connection, unique between two starts of the broker.
        node_id: the node that it came to; -1 if that is not known.
        request: the decoded request; record bytes are left out.
        response: the decoded answer once it was handed to the socket, else None; record bytes are left out.
        outcome: how it ended.
        fault: what a fault rule did to it, or None.
        duration_ms: from reading the request to writing its answer, in real time.
        groups, members, topics, partitions: what it is about, by name; topics are None if it asks for all.
        request_bytes, response_bytes: sizes on the wire, records included.
        errors: every error in the answer, also those of single partitions; empty if there is none, or no answer yet.
    """

    number: int
    ts_ms: int
    api: ApiKey | int
    version: int
    client_id: str | None
    connection_id: int
    request: Request[Response]
    response: Response | None
    outcome: Outcome
    fault: str | None
    duration_ms: float | None
    groups: frozenset[str]
    members: frozenset[str]
    topics: frozenset[str] | None
    partitions: frozenset[NamedPartition]
    request_bytes: int
    response_bytes: int
    errors: tuple[AnsweredError, ...] = ()
    node_id: int = -1

    @property
    def error_code(self) -> int:
        """The error code of the whole answer; 0 if there is none, or none yet."""
        code: int = getattr(self.response, "error_code", 0)
        return code

    def to_json(self) -> str:
        """One line: every attribute but the partitions; messages as `to_jsonable` writes them."""
        value: dict[str, JsonValue] = {
            "number": self.number,
            "ts_ms": self.ts_ms,
            "api": api_title(self.api),
            "version": self.version,
            "client_id": self.client_id,
            "connection_id": self.connection_id,
            "node_id": self.node_id,
            "groups": [*sorted(self.groups)],
            "members": [*sorted(self.members)],
            "topics": None if self.topics is None else [*sorted(self.topics)],
            "outcome": self.outcome,
            "fault": self.fault,
            "errors": {error.where: error_name(error.code) for error in self.errors},
            "duration_ms": self.duration_ms,
            "request_bytes": self.request_bytes,
            "response_bytes": self.response_bytes,
            "request": to_jsonable(self.request),
            "response": to_jsonable(self.response),
        }
        return to_json(value)

    def __str__(self) -> str:
        about = [
            f"{name}={','.join(sorted(values))}"
            for name, values in (("group", self.groups), ("member", self.members), ("topic", self.topics))
            if values
        ]
        epoch = getattr(self.request, "member_epoch", None)
        if epoch is not None:
            about.append(f"epoch={epoch}")
        end = error_name(self.error_code) if self.error_code else ", ".join([self.outcome, *_by_code(self.errors)])
        fault = f" [{self.fault}]" if self.fault else ""
        line = " ".join(
            [f"#{self.number}", f"{self.client_id}:", f"{api_title(self.api)} v{self.version}", *about, f"-> {end}"]
        )
        return printable(line) + fault


def errors_of(response: Response | None, topic_name: TopicNames) -> tuple[AnsweredError, ...]:
    """Every error code of an answer that is not 0, in order, with the place that it is about."""
    return () if response is None else tuple(_errors_in(response, (), topic_name))


def _errors_in(part: WireStruct, above: tuple[str, ...], topic_name: TopicNames) -> Iterator[AnsweredError]:
    here = (
        above
        + tuple(label for name in _PLACES if (label := _label(getattr(part, name, None), topic_name)) is not None)[:1]
    )
    code = getattr(part, "error_code", 0)
    if code:
        yield AnsweredError("-".join(here), code)
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if isinstance(value, tuple) and value and isinstance(value[0], WireStruct):
            for element in value:
                yield from _errors_in(element, here, topic_name)


def _label(value: object, topic_name: TopicNames) -> str | None:
    if isinstance(value, uuid.UUID):
        return None if value == ZERO_UUID else topic_name(value) or str(value)
    return str(value) if isinstance(value, int) or (isinstance(value, str) and value) else None


def _by_code(errors: Sequence[AnsweredError]) -> Iterator[str]:
    places: dict[int, list[str]] = {}
    for error in errors:
        places.setdefault(error.code, []).append(error.where)
    for code, where in places.items():
        more = f" and {len(where) - _PLACES_SHOWN} more" if len(where) > _PLACES_SHOWN else ""
        yield f"{error_name(code)} for {' '.join(where[:_PLACES_SHOWN])}{more}"


def api_title(api_key: int) -> str:
    """An API as Kafka's documentation writes it: ``ConsumerGroupHeartbeat``; ``API 9999`` for one without a name."""
    try:
        return "".join(part.capitalize() for part in ApiKey(api_key).name.split("_"))
    except ValueError:
        return f"API {api_key}"


def to_jsonable(value: object) -> JsonValue:
    """A message for people: fields that differ from their default, ids as text, bytes as ``"<12 bytes>"``."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return f"<{len(value)} bytes>"
        case uuid.UUID():
            return str(value)
        case tuple() | list():
            return [to_jsonable(element) for element in value]
        case _:
            if not isinstance(value, WireStruct):
                return type(value).__name__
            return {
                field.name: to_jsonable(getattr(value, field.name))
                for field in fields_of(type(value))
                if getattr(value, field.name) != field.default
            }
