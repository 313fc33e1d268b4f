"""Sorts the records of all groups of a cluster into decisions, and leaves out groups that are not recorded.

The records of one decision stand together in one partition and have one timestamp, so a decision ends where the group
or the timestamp changes, where an offset is committed again, and at the end of the partition. Two decisions about a
group in one millisecond count as one, except that commits are told apart by the owners of their partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from kip848_client.common.model import ZERO_UUID
from kip848_client.errors import ProtocolError, UnsupportedVersionError
from kip848_client.journal import JournalEvent
from kip848_client.testing.coordinator.core.group_events import GroupEvent, to_journal
from kip848_client.tools.recorder.classic_groups import RecordedClassicGroup
from kip848_client.tools.recorder.commits import commit_events
from kip848_client.tools.recorder.consumer_groups import RecordedGroup
from kip848_client.tools.recorder.other_groups import KINDS, RecordedOtherGroup, read_key
from kip848_client.wire.messages import group_records as wire
from kip848_client.wire.messages.connect_group_records import ConnectGroupRecordKey
from kip848_client.wire.messages.group_records import GroupRecord, UnknownRecord, decode_record, group_of
from kip848_client.wire.messages.share_group_records import ShareGroupRecordKey


class RawRecord(NamedTuple):
    """One record of ``__consumer_offsets``.

    Args:
        timestamp_ms: milliseconds since 1970.
        value: None for a tombstone.
        leader_epoch: grows when the partition, and with it the coordinator, moves to another broker; None: not known.
        offset: in its partition; 0 where the reader does not need it.
    """

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    leader_epoch: int | None = None
    offset: int = 0


class RecordCounts(msgspec.Struct):
    """Numbers of records read.

    Attributes:
        records: all of them.
        tombstones: how many of them delete something.
        other_groups: ids of groups of another type (``connect``), by type.
        skipped: records that were left out, by reason.
    """

    records: int = 0
    tombstones: int = 0
    other_groups: dict[str, set[str]] = msgspec.field(default_factory=dict)
    skipped: Counter[str] = msgspec.field(default_factory=Counter)


class _Decision:
    """Records of one group that were written together."""

    __slots__ = ("group_id", "has_classic_record", "offset", "offset_keys", "records", "timestamp_ms")

    def __init__(self, group_id: str, timestamp_ms: int, offset: int) -> None:
        self.offset = offset
        self.group_id = group_id
        self.timestamp_ms = timestamp_ms
        self.records: list[GroupRecord] = []
        self.offset_keys: set[bytes] = set()
        self.has_classic_record = False


class Recorder:
    """Turns records into events.

    Args:
        wants: whether a group, by its id, is recorded; all are by default.
        topic_name: name of a topic id. If it returns None, events show the id.
    """

    def __init__(
        self,
        *,
        wants: Callable[[str], bool] = lambda group_id: True,
        topic_name: Callable[[UUID], str | None] = lambda topic_id: None,
    ) -> None:
        self._wants = wants
        self._topic_name = topic_name
        self._names: dict[UUID, str] = {}
        self._wanted: dict[str, bool] = {}
        self._open: dict[int, _Decision] = {}
        self._consumer: dict[str, RecordedGroup] = {}
        self._classic: dict[str, RecordedClassicGroup] = {}
        self._others: dict[str, RecordedOtherGroup] = {}
        self._leader_epochs: dict[str, int] = {}
        self.counts: Final = RecordCounts()

    def add(self, record: RawRecord) -> Iterator[JournalEvent]:
        """Add the next record of its partition. If it ends a decision, yield that decision's events."""
        decoded = self._decode(record)
        group_id = None if decoded is None else group_of(decoded.key)
        open_ = self._open.get(record.partition)
        key = record.key or b""
        # A record that is left out ends it, too: where other groups commit all the time, there may be no other end.
        if open_ is not None and (
            open_.timestamp_ms != record.timestamp_ms
            or (group_id is not None and group_id != open_.group_id)
            or key in open_.offset_keys
        ):
            yield from self.end_of_partition(record.partition)
            open_ = None
        if decoded is None:
            yield from self._other_group_written(record)
        if decoded is None or group_id is None or not self._is_wanted(group_id):
            return
        if record.leader_epoch is not None:
            yield from self._moved(group_id, record.leader_epoch, record.timestamp_ms)
        if open_ is None:
            open_ = self._open[record.partition] = _Decision(group_id, record.timestamp_ms, record.offset)
        if isinstance(decoded.key, wire.OffsetCommitKey):
            open_.offset_keys.add(key)
        elif isinstance(decoded.key, wire.GroupMetadataKey):
            open_.has_classic_record = True
        open_.records.append(decoded)

    def _moved(self, group_id: str, leader_epoch: int, ts_ms: int) -> Iterator[JournalEvent]:
        """The first record of a group that another coordinator wrote tells that it has moved, or began again."""
        before = self._leader_epochs.get(group_id)
        if before == leader_epoch:
            return
        self._leader_epochs[group_id] = leader_epoch
        if before is not None and self.members_of(group_id):
            fields = {"leader_epoch": leader_epoch}
            yield from self._render(
                iter((GroupEvent(event="coordinator_moved", group_id=group_id, fields=fields),)), ts_ms
            )

    def end_of_partition(self, partition: int) -> Iterator[JournalEvent]:
        """Yield the events of the last decision in *partition*, after all of its records were added."""
        open_ = self._open.pop(partition, None)
        if open_ is not None:
            yield from self._decide(open_)

    def finish(self) -> Iterator[JournalEvent]:
        """Yield the events of the last decisions, after all records of all partitions were added."""
        for partition in sorted(self._open):
            yield from self.end_of_partition(partition)

    def undecided(self, partition: int) -> int | None:
        """The offset of the first record whose decision has not ended; None if there is none in *partition*."""
        open_ = self._open.get(partition)
        return None if open_ is None else open_.offset

    def snapshot(self, *, ts_ms: int, group_id: str | None = None) -> Iterator[JournalEvent]:
        """Yield the events that describe all groups, or one, as they are now.

        A log that begins now begins with them.
        """
        known = {*self._consumer, *self._classic, *self._others}
        for each in sorted(known if group_id is None else known & {group_id}):
            for state in (self._consumer.get(each), self._classic.get(each), self._others.get(each)):
                if state is not None:
                    yield from self._render(state.snapshot(), ts_ms)

    def kind_of(self, group_id: str) -> str:
        """``consumer``, ``classic``, ``share`` or ``streams``; a group that has only committed is ``classic``."""
        other = self._others.get(group_id)
        return self._protocol_of(group_id) or (other.kind if other else "classic")

    def members_of(self, group_id: str) -> frozenset[str]:
        """The members of a consumer or classic group now."""
        group = self._consumer.get(group_id) or self._classic.get(group_id)
        return frozenset() if group is None else group.member_ids

    def name_of(self, topic_id: UUID) -> str | None:
        """Name of a topic id, from the cluster or from committed offsets."""
        return self._topic_name(topic_id) or self._names.get(topic_id)

    # --- internals

    def _is_wanted(self, group_id: str) -> bool:
        wanted = self._wanted.get(group_id)
        if wanted is None:
            wanted = self._wanted[group_id] = self._wants(group_id)
        return wanted

    def _decode(self, record: RawRecord) -> GroupRecord | None:
        counts = self.counts
        counts.records += 1
        counts.tombstones += record.value is None
        if record.key is None:
            counts.skipped["no key"] += 1
            return None
        try:
            decoded = decode_record(record.key, record.value)
        except UnsupportedVersionError:
            counts.skipped["unknown value version"] += 1
            return None
        except ProtocolError:
            counts.skipped["damaged"] += 1
            return None
        if isinstance(decoded, UnknownRecord):
            if decoded.record_type not in KINDS:
                counts.skipped[f"unknown record type {decoded.record_type}"] += 1
            return None
        if isinstance(decoded.key, ConnectGroupRecordKey):
            counts.skipped["connect groups"] += 1
            if self._is_wanted(decoded.key.group_id):
                counts.other_groups.setdefault("connect", set()).add(decoded.key.group_id)
            return None
        if isinstance(decoded.key, ShareGroupRecordKey):
            return None
        return decoded

    def _other_group_written(self, record: RawRecord) -> Iterator[JournalEvent]:
        """A record of a share group or a streams group; there are no events about others."""
        try:
            key = None if record.key is None else read_key(record.key)
            if key is None or not self._is_wanted(key.group_id):
                return
            group = self._others.get(key.group_id)
            if group is None:
                if record.value is None:
                    return
                group = self._others[key.group_id] = RecordedOtherGroup(KINDS[key.record_type], key.group_id)
            yield from self._render(group.written(key, record.value), record.timestamp_ms)
            if not group.exists:
                del self._others[key.group_id]
        except ProtocolError:
            self.counts.skipped["damaged"] += 1

    def _decide(self, decision: _Decision) -> Iterator[JournalEvent]:
        if not decision.has_classic_record:
            yield from self._replay(decision)
            return
        group_id = decision.group_id
        before = self._protocol_of(group_id), self.members_of(group_id)
        events = list(self._replay(decision))
        after = self._protocol_of(group_id), self.members_of(group_id)
        if before[0] is None or after[0] is None or before[0] == after[0]:
            yield from events
            return
        # The group changes its protocol and takes its members along: none of them leaves or joins.
        fields = {"type": after[0], "members": sorted(before[1] & after[1])}
        converted = GroupEvent(event="group_converted", group_id=group_id, fields=fields)
        yield from self._render(iter((converted,)), decision.timestamp_ms)
        for event in events:
            moved = event.event in {"member_left", "member_joined"} and event.member_id in before[1] & after[1]
            if not moved and event.fields.get("new") != "Dead":
                yield event

    def _protocol_of(self, group_id: str) -> str | None:
        if group_id in self._consumer:
            return "consumer"
        return "classic" if group_id in self._classic else None

    def _replay(self, decision: _Decision) -> Iterator[JournalEvent]:
        group_id, ts_ms = decision.group_id, decision.timestamp_ms
        offsets: dict[tuple[str, int], int] = {}
        consumer: list[GroupRecord] = []
        for record in decision.records:
            match record.key, record.value:
                case wire.OffsetCommitKey() as key, wire.OffsetCommitValue() as value:
                    offsets[key.topic, key.partition] = value.offset
                    if value.topic_id != ZERO_UUID:
                        self._names[value.topic_id] = key.topic
                case ((wire.OffsetCommitKey() | wire.PendingOffsetKey()), _):
                    pass  # an offset expired, was deleted, or waits for the end of its transaction
                case wire.GroupMetadataKey(), (wire.GroupMetadataValue() | None) as value:
                    yield from self._classic_group_written(group_id, value, ts_ms)
                case _:
                    consumer.append(record)
        if consumer:
            yield from self._consumer_group_written(group_id, consumer, ts_ms)
        if offsets:
            group = self._consumer.get(group_id) or self._classic.get(group_id)
            yield from self._render(commit_events(group_id, offsets, group, self.name_of), ts_ms)

    def _consumer_group_written(self, group_id: str, records: list[GroupRecord], ts_ms: int) -> Iterator[JournalEvent]:
        group = self._consumer.get(group_id)
        if group is None:
            group = self._consumer[group_id] = RecordedGroup(group_id)
        yield from self._render(group.decide(records), ts_ms)
        if not group.exists:
            del self._consumer[group_id]

    def _classic_group_written(
        self, group_id: str, value: wire.GroupMetadataValue | None, ts_ms: int
    ) -> Iterator[JournalEvent]:
        group = self._classic.get(group_id)
        if value is None:
            # Also the first record of a group that becomes a consumer group.
            if self._classic.pop(group_id, None) is not None and group is not None:
                yield from self._render(group.removed(), ts_ms)
            return
        if group is None:
            group = self._classic[group_id] = RecordedClassicGroup(group_id)
        completed_ms = value.current_state_timestamp
        began, ended = group.written(value)
        began_ms = completed_ms if 0 < completed_ms <= ts_ms else ts_ms
        yield from self._render(began, began_ms)
        yield from self._render(ended, ts_ms)

    def _render(self, events: Iterator[GroupEvent], ts_ms: int) -> Iterator[JournalEvent]:
        for event in events:
            yield to_journal(event, ts_ms=ts_ms, topic_name=self.name_of)
