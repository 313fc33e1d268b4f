"""`process()`: records are done once at least, in order, and nothing is committed before it is done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kip848_client.common.model import TopicIdPartition
from kip848_client.member.core.events import MemberEffect, OffsetsFetched
from kip848_client.member.processing.marks import Ranges, decode_marks
from kip848_client.testing.simulation.observed_group import accepted
from kip848_client.testing.simulation.observer import Checker, RunState, about
from kip848_client.testing.simulation.virtual.client_process import ClientProcess
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse


def key_of(topics: Any, topic: str, topic_id: Any, index: int) -> TopicIdPartition | None:
    """The partition that a commit means; None if its topic is gone."""
    found = topics.resolved(topic_id, topic)
    return None if found is None else TopicIdPartition(topic or topics.names[found], index, found)


class Processed(Checker):
    """P1 to P6, of one run with process(). Slots and limits, P4 and P8, are counted by `actors.processing`."""

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._done: Final[defaultdict[TopicIdPartition, set[int]]] = defaultdict(set)
        self._low: Final[defaultdict[TopicIdPartition, int]] = defaultdict(int)
        """All records before this one are done."""
        self._last: Final[dict[tuple[TopicIdPartition, object], int]] = {}
        """Lane -> the record of it that was done last for the first time."""
        self._gone: Final[set[tuple[str, TopicIdPartition]]] = set()
        """Partitions whose revoked or lost listener of this consumer began, until they are assigned again."""
        self._told: Final[dict[tuple[str, TopicIdPartition], tuple[int, Ranges]]] = {}
        """What a consumer was told of its partitions before it began with them."""

    def record_done(self, consumer: ClientProcess, partition: TopicIdPartition, offset: int, lane: object) -> None:
        """P1: records of a lane are done in order; repeats do not count."""
        done, low = self._done[partition], self._low[partition]
        if offset < low or offset in done:
            return
        done.add(offset)
        while low in done:
            done.remove(low)
            low += 1
        self._low[partition] = low
        if lane is None:
            return
        last = self._last.get((partition, lane), -1)
        if offset < last:
            fail("P1", f"{consumer.name} has done {partition} at {offset} after {last} of the same key")
        self._last[partition, lane] = offset

    def handler_begins(self, consumer: ClientProcess, partition: TopicIdPartition, offset: int) -> None:
        """P3 and P6: no record of a partition that is gone, and none that its owner was told to be done."""
        key = (consumer.name, partition)
        if key in self._gone:
            fail("P3", f"{consumer.name} begins {partition} at {offset}; the partition was revoked or lost")
        low, ranges = self._told.get(key, (0, ()))
        if offset < low or _covers(ranges, offset):
            fail("P6", f"{consumer.name} repeats {partition} at {offset}, was told {low} and {ranges}")

    def listener_begins(self, consumer: ClientProcess, name: str, partitions: Any) -> None:
        keys = [(consumer.name, partition) for partition in partitions]
        if name != "assigned":
            self._gone.update(keys)
        for key in keys:
            self._told.pop(key, None)

    def fetching_started(self, consumer: ClientProcess, partition: TopicIdPartition, offset: int) -> None:
        self._gone.discard((consumer.name, partition))

    def decided(self, consumer: ClientProcess, effects: Sequence[MemberEffect]) -> None:
        for effect in effects:
            if isinstance(effect, OffsetsFetched):
                for name, at in effect.offsets.items():
                    topic_id = self._cluster.topics.id_of(name.topic)
                    if topic_id is not None:
                        done = decode_marks(at.offset, at.metadata or "") or ()
                        self._told[consumer.name, TopicIdPartition(*name, topic_id)] = (at.offset, done)

    @about(OffsetCommitRequest)
    def served(self, client_id: str, request: OffsetCommitRequest, response: OffsetCommitResponse) -> None:
        """P2: what a commit calls done is done."""
        for topic, partition in accepted(request, response):
            key = key_of(self._cluster.topics, topic.name, topic.topic_id, partition.partition_index)
            if key is None:
                continue
            offset, low, done = partition.committed_offset, self._low[key], self._done[key]
            marked = decode_marks(offset, partition.committed_metadata or "") or ()
            claimed = [*range(low, offset), *(at for first, end in marked for at in range(max(low, first), end))]
            early = [at for at in claimed if at not in done]
            if early:
                fail("P2", f"{client_id} commits {key} at {offset} with {marked}; {early} are not done")

    def converged(self) -> None:
        """P5: every record is done."""
        topics = self._cluster.topics
        for partition, end in topics.end_offsets.items():
            topic_id = topics.id_of(partition.topic)
            assert topic_id is not None
            low = self._low[TopicIdPartition(partition.topic, partition.partition, topic_id)]
            if low != end:
                fail("P5", f"{partition}: records from {low} to {end} are not all done")


class _Slice:
    """What one transaction holds."""

    def __init__(self, records: Iterable[tuple[TopicIdPartition, int]]) -> None:
        self.left: Final[defaultdict[TopicIdPartition, set[int]]] = defaultdict(set)
        """Records of partitions of which its commit was not seen yet."""
        for partition, offset in records:
            self.left[partition].add(offset)


class Transacted(Checker):
    """P7: a transaction holds what is made of the records that its commit newly calls done, and of no others."""

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._slices: Final[dict[str, _Slice]] = {}
        """The last one of each member."""
        self._unseen: Final[list[_Slice]] = []
        self._low: Final[defaultdict[TopicIdPartition, int]] = defaultdict(int)
        self._beyond: Final[defaultdict[TopicIdPartition, set[int]]] = defaultdict(set)

    def slice_begins(self, consumer: ClientProcess, records: Iterable[tuple[TopicIdPartition, int]]) -> None:
        self._slices[consumer.view.member_id] = slice_ = _Slice(records)
        self._unseen.append(slice_)

    @about(OffsetCommitRequest)
    def answered(self, consumer: ClientProcess, request: OffsetCommitRequest, response: OffsetCommitResponse) -> None:
        slice_ = self._slices.get(request.member_id, _NOTHING)
        for topic, partition in accepted(request, response):
            key = key_of(self._cluster.topics, topic.name, topic.topic_id, partition.partition_index)
            if key is None:
                continue
            offset, marked = partition.committed_offset, partition.committed_metadata or ""
            own = slice_.left.get(key, set())
            if not own <= self._claimed(key, offset, marked):
                own = set()  # the request of an earlier transaction, delivered once more
            else:
                slice_.left.pop(key, None)
            twice = sorted(at for at in own if at < self._low[key] or at in self._beyond[key])
            if twice:
                fail("P7", f"{consumer.name} writes the results of {key} at {twice} again")
            self._learn(consumer.name, key, offset, marked, own)

    def decided(self, consumer: ClientProcess, effects: Sequence[MemberEffect]) -> None:
        """A member is told of a committed offset: the commit was applied, even if its answer was lost."""
        for effect in effects:
            if isinstance(effect, OffsetsFetched):
                for name, at in effect.offsets.items():
                    topic_id = self._cluster.topics.id_of(name.topic)
                    if topic_id is not None:
                        key = TopicIdPartition(*name, topic_id)
                        self._learn(consumer.name, key, at.offset, at.metadata or "", set())

    def _claimed(self, key: TopicIdPartition, offset: int, metadata: str) -> set[int]:
        """What a commit calls done, from the low mark of the last one on."""
        marked = decode_marks(offset, metadata) or ()
        return {*range(self._low[key], offset), *(at for first, end in marked for at in range(first, end))}

    def _learn(self, client_id: str, key: TopicIdPartition, offset: int, metadata: str, written: set[int]) -> None:
        """A commit exists: what it newly calls done is in its transaction, or in one whose answer was lost."""
        if offset < self._low[key]:
            return  # an older one, told late
        claimed = self._claimed(key, offset, metadata)
        new = claimed - self._beyond[key] - written
        # One that was refused may hold part of what another one wrote, so all of them are asked.
        possible = [other for other in self._unseen if (held := other.left.get(key)) and held <= new]
        missing = new.difference(*(other.left.pop(key) for other in possible))
        if missing:
            fail("P7", f"{client_id} commits {key} at {offset}, {metadata!r}: no transaction holds {sorted(missing)}")
        self._beyond[key] = {at for at in self._beyond[key] | claimed if at >= offset}
        self._low[key] = offset


_NOTHING: Final = _Slice(())


def _covers(ranges: Ranges, offset: int) -> bool:
    return any(first <= offset < end for first, end in ranges)
