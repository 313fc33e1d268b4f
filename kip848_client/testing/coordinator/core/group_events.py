"""Events of a group for the event log. Cheap to make: nothing is rendered until it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, cast
from uuid import UUID

import msgspec

from kip848_client.journal import JournalEvent, JsonValue, Source

_EventPartitions: TypeAlias = Mapping[UUID, Iterable[int]]
_EventUnits: TypeAlias = Mapping[str, Sequence[int]]
FactValue: TypeAlias = (
    str
    | int
    | Sequence[str]
    | Mapping[str, int]
    | _EventPartitions
    | Mapping[str, _EventPartitions]
    | _EventUnits
    | Mapping[str, _EventUnits]
    | None
)
"""A scalar, names, numbers by name, partitions by topic id or units by name, or those by member id. Topic ids become
names when the event is written."""


class EventMember(Protocol):
    """The fields of a member in an event."""

    @property
    def member_id(self) -> str:
        """Its id."""

    @property
    def client_id(self) -> str:
        """The ``client.id`` of its client."""

    @property
    def member_epoch(self) -> int:
        """The epoch that it is at."""


class GroupEvent(msgspec.Struct, frozen=True):
    """One fact. `event` and the keys of `fields` are those of ``journal.EVENTS``."""

    event: str
    group_id: str
    member_id: str | None = None
    client_id: str | None = None
    member_epoch: int | None = None
    group_epoch: int | None = None
    fields: Mapping[str, FactValue] = msgspec.field(default_factory=dict)


def to_journal(
    event: GroupEvent, *, ts_ms: int, topic_name: Callable[[UUID], str | None], source: Source = "coordinator"
) -> JournalEvent:
    """Render *event* as a line of the event log.

    Args:
        ts_ms: milliseconds since 1970.
        topic_name: name of a topic id; None if the topic is gone, then the id stands for it.
    """
    return JournalEvent(
        ts_ms=ts_ms,
        source=source,
        event=event.event,
        group_id=event.group_id,
        member_id=event.member_id,
        client_id=event.client_id,
        member_epoch=event.member_epoch,
        group_epoch=event.group_epoch,
        fields={name: _to_json(value, topic_name) for name, value in event.fields.items()},
    )


def _to_json(value: FactValue, topic_name: Callable[[UUID], str | None]) -> JsonValue:
    if value is None or isinstance(value, str | int):
        return value
    if not isinstance(value, Mapping):
        return list(value)
    rendered: dict[str, JsonValue] = {}
    for key, inner in value.items():
        if isinstance(key, UUID):
            rendered[topic_name(key) or str(key)] = [*sorted(cast("Iterable[int]", inner))]
        else:
            rendered[key] = _to_json(cast("FactValue", inner), topic_name)
    return dict(sorted(rendered.items()))
