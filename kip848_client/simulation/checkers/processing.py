"""`process()`: records are done once at least, in order, and nothing is committed before it is done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from kip848_client.member.core.events import MemberEffect, OffsetsFetched
from kip848_client.model import TopicIdPartition
from kip848_client.processing.marks import Ranges, decode_marks
from kip848_client.simulation.observed_group import accepted
from kip848_client.simulation.observer import Checker, RunState, about
from kip848_client.simulation.virtual.client_process import ClientProcess
from kip848_client.simulation.virtual.violation import fail
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse


class Processed(Checker):
    """P1 to P6, of one run with process(). The slots, P4, are counted by `actors.processing`."""

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
            key = self._key(topic.name, topic.topic_id, partition.partition_index)
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

    def _key(self, topic: str, topic_id: Any, index: int) -> TopicIdPartition | None:
        topics = self._cluster.topics
        found = topics.resolved(topic_id, topic)
        return None if found is None else TopicIdPartition(topic or topics.names[found], index, found)


def _covers(ranges: Ranges, offset: int) -> bool:
    return any(first <= offset < end for first, end in ranges)
