"""Rebuilds share groups and streams groups from their records as far as both are alike: members, epochs and the state.

Partitions and tasks are left out: those of a share group have several readers, and tasks are no partitions. The values
of both kinds begin alike, which is all that is read of them.

Source:
    Kafka's ``ShareGroup...Value.json`` and ``StreamsGroup...Value.json``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kip848_client.errors import ProtocolError
from kip848_client.testing.coordinator.core.group_events import FactValue, GroupEvent

_INT16: Final = struct.Struct(">h")
_EPOCH: Final = struct.Struct(">hi")
_CURRENT: Final = struct.Struct(">hiib")
_STABLE: Final = 0

SHARE: Final = "share"
STREAMS: Final = "streams"
KINDS: Final[Mapping[int, str]] = {**dict.fromkeys(range(9, 16), SHARE), **dict.fromkeys(range(17, 25), STREAMS)}
"""Record type -> the kind of its group."""
_GROUPS: Final = frozenset({11, 17})
_MEMBERS: Final[Mapping[int, int]] = {10: 1, 19: 2}
"""Type of a member's record -> how many texts stand before its client id."""
_CURRENTS: Final = frozenset({14, 22})


class OtherKey(NamedTuple):
    """The key of a record of a group of these kinds; `member_id` is empty for records of the whole group."""

    record_type: int
    group_id: str
    member_id: str


class _Member(NamedTuple):
    client_id: str = ""
    host: str = ""
    instance_id: str | None = None
    epoch: int = 0
    is_stable: bool = False


def read_key(key: bytes) -> OtherKey | None:
    """Read the key of a record; None if it is of another kind.

    Raises:
        ProtocolError: it is damaged.
    """
    try:
        (record_type,) = _INT16.unpack_from(key)
        if record_type not in KINDS:
            return None
        group_id, offset = _text(key, 2)
        has_member = offset < len(key) and record_type in {*_MEMBERS, *_CURRENTS}
        return OtherKey(record_type, group_id, _text(key, offset)[0] if has_member else "")
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"a damaged key of a group's record: {key[:64]!r}") from error


class RecordedOtherGroup:
    """One group; `written` applies its next record."""

    def __init__(self, kind: str, group_id: str) -> None:
        self.kind: Final = kind
        self.group_id: Final = group_id
        self._epoch: int | None = None
        self._members: dict[str, _Member] = {}
        self._state: str | None = None
        self._exists = True

    @property
    def exists(self) -> bool:
        """False once the group's own tombstone was read."""
        return self._exists

    def written(self, key: OtherKey, value: bytes | None) -> Iterator[GroupEvent]:
        """Apply a record, and yield an event for each change.

        Raises:
            ProtocolError: it is damaged.
        """
        try:
            events = list(self._replayed(key, value))
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise ProtocolError(f"a damaged record of the {self.kind} group {self.group_id!r}") from error
        yield from events
        yield from self._state_changed()

    def snapshot(self) -> Iterator[GroupEvent]:
        """Yield the events that describe the group as it is now, as if it were new."""
        for member_id, member in sorted(self._members.items()):
            yield self._joined(member_id, member)
        self._state = None
        yield from self._state_changed()

    def _replayed(self, key: OtherKey, value: bytes | None) -> Iterator[GroupEvent]:
        member_id = key.member_id
        if key.record_type in _GROUPS:
            self._exists = value is not None
            if value is not None:
                before, (_, self._epoch) = self._epoch, _EPOCH.unpack_from(value)
                # Of a share group each member takes a new epoch alone: nothing begins that ends.
                if self.kind == STREAMS and self._members and before not in {None, self._epoch}:
                    yield self._event("group_epoch_bumped", {"reason": "unknown"})
        elif key.record_type in _MEMBERS:
            known = self._members.get(member_id)
            if value is None:
                if self._members.pop(member_id, None) is not None:
                    yield self._event("member_left", {"reason": "removed"}, member_id, known)
                return
            texts = list(_compact_texts(value, _MEMBERS[key.record_type] + 2))
            instance_id = texts[0] if self.kind == STREAMS else None
            old = known or _Member()
            member = old._replace(client_id=texts[-2] or "", host=texts[-1] or "", instance_id=instance_id)
            self._members[member_id] = member
            if known is None:
                yield self._joined(member_id, member)
        elif key.record_type in _CURRENTS and member_id in self._members and value is not None:
            _, epoch, _, state = _CURRENT.unpack_from(value)
            self._members[member_id] = self._members[member_id]._replace(epoch=epoch, is_stable=state == _STABLE)

    def _state_changed(self) -> Iterator[GroupEvent]:
        settled = all(one.is_stable and one.epoch == self._epoch for one in self._members.values())
        if not self._exists:
            state = "Dead"
        elif not self._members:
            state = "Empty"
        else:
            state = "Stable" if self.kind == SHARE or settled else "Reconciling"  # share groups wait for no member
        if state != self._state:
            old, self._state = self._state, state
            yield self._event("group_state_changed", {"old": old, "new": state})

    def _joined(self, member_id: str, member: _Member) -> GroupEvent:
        fields: Mapping[str, FactValue] = {
            "topics": [],
            "instance_id": member.instance_id,
            "client_host": member.host,
        }
        return self._event("member_joined", fields, member_id, member)

    def _event(
        self, event: str, fields: Mapping[str, FactValue], member_id: str | None = None, member: _Member | None = None
    ) -> GroupEvent:
        return GroupEvent(
            event=event,
            group_id=self.group_id,
            member_id=member_id,
            client_id=None if member is None else member.client_id,
            member_epoch=None if member is None else member.epoch,
            group_epoch=self._epoch,
            fields=fields,
        )


def _text(data: bytes, offset: int) -> tuple[str, int]:
    """A text with a length of two bytes, and where it ends."""
    (length,) = _INT16.unpack_from(data, offset)
    end = offset + 2 + length
    if length < 0 or end > len(data):
        raise ProtocolError(f"a damaged key of a group's record: {data[:64]!r}")
    return data[offset + 2 : end].decode(), end


def _compact_texts(value: bytes, count: int) -> Iterator[str | None]:
    """The first texts of a value; their lengths are varints, one more than they are."""
    offset = 2
    for _ in range(count):
        length = shift = 0
        while True:
            byte = value[offset]
            offset += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if not length:
            yield None
            continue
        end = offset + length - 1
        if end > len(value):
            raise IndexError("the text is longer than the record")
        yield value[offset:end].decode()
        offset = end
