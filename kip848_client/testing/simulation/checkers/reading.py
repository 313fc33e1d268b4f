"""Reading: only the consumer's partitions (C1), from the right offset, without gaps (C6, C7), to the end (L7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from kip848_client.common.model import TopicIdPartition, describe_partitions
from kip848_client.errors import ErrorCode, Kip848Error, NoOffsetForPartitionError
from kip848_client.member.core.events import AssignPartitions, StateChanged
from kip848_client.testing.simulation.observed_group import (
    IdPartition,
    MemberChange,
    Partitions,
    accepted,
    fetched,
    listed,
)
from kip848_client.testing.simulation.observer import Checker, ListenerCall, RunState, about
from kip848_client.testing.simulation.virtual.client_process import OUTSIDE_GROUP, ClientProcess
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kip848_client.wire.schema import Request


class ExclusiveReading(Checker):
    """C1: a consumer reads only partitions that the coordinator counts as its own, unless the coordinator removed it.

    Together with S1, no two members of the group read the same partition. A member that was cut off may go on reading
    until it learns of its removal, and no longer; its commits are refused (S11).

    The protocol has one gap: the coordinator takes the list of a heartbeat that arrives late for the present one
    (docs/simulation.md). The checker excuses exactly the partitions that the coordinator took in the step in which it
    served such a heartbeat, or a classic member's JoinGroup. The excuse ends when the member gets an assignment in the
    answer to a later heartbeat, joins again, or is given the partitions again. The member then revokes them within its
    rebalance timeout, and does not read them again.

    Such a heartbeat may also bring the coordinator to ask for partitions back, in an answer that nobody hears. If the
    member's next list was made before it took them up, it reads as "given up", and the coordinator does not ask again.
    These are excused as well, unless an assignment was answered in between.
    """

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._excused: dict[str, Partitions] = {}
        """Member -> partitions that it may still read although it no longer owns them."""
        self._given_up: dict[str, dict[IdPartition, _GivingUp]] = {}
        """Member -> the same, from when it knows that they were taken."""
        self._asked_back: dict[str, Partitions] = {}
        """Member -> partitions to be given up, of which only the answer to an old heartbeat told."""
        self._stale: tuple[str, int] = ("", -1)
        """The member of which an old heartbeat was served last, and in which step."""
        self._served: defaultdict[str, int] = defaultdict(int)
        self._sent_since: dict[str, tuple[Request[Any], int]] = {}
        """Member -> the heartbeat that it sent since it is excused, and how many of it were served before."""
        self._last_sent: dict[str, Request[Any]] = {}
        self._told: set[str] = set()
        """Consumers that heard of their removal, and have not joined since."""
        self._topics_version = -1

    @about(ConsumerGroupHeartbeatRequest, JoinGroupRequest)
    def stale(self, client_id: str, request: ConsumerGroupHeartbeatRequest | JoinGroupRequest) -> None:
        """An old heartbeat or join with an outdated list of partitions is about to be served."""
        self._stale = (request.member_id, self._scheduler.steps)

    @about(ConsumerGroupHeartbeatRequest, JoinGroupRequest)
    def sent(self, consumer: ClientProcess, request: ConsumerGroupHeartbeatRequest | JoinGroupRequest) -> None:
        """The answer to this heartbeat or join will tell its sender which partitions it still owns."""
        member_id = request.member_id
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            self._last_sent[consumer.name] = request
            if request.member_epoch == 0:
                self._told.discard(consumer.name)
                self._excused.pop(member_id, None)
                self._given_up.pop(member_id, None)
        if member_id in self._excused:
            self._sent_since[member_id] = (request, self._served[member_id])

    @about(ConsumerGroupHeartbeatRequest, JoinGroupRequest)
    def served(self, client_id: str, request: ConsumerGroupHeartbeatRequest | JoinGroupRequest, response: Any) -> None:
        """Count answers of the present coordinator, not of a deposed one."""
        if self._stale != (request.member_id, self._scheduler.steps):
            self._served[request.member_id] += 1
            if _assigns(response):
                self._asked_back.pop(request.member_id, None)

    @about(ConsumerGroupHeartbeatRequest, JoinGroupRequest)
    def answered(
        self,
        consumer: ClientProcess,
        request: ConsumerGroupHeartbeatRequest | JoinGroupRequest,
        response: ConsumerGroupHeartbeatResponse | JoinGroupResponse,
    ) -> None:
        """The consumer learns that it was removed, or which partitions it owns."""
        member_id = request.member_id
        if response.error_code in _REMOVED and self._last_sent.get(consumer.name) is request:
            self._told.add(consumer.name)
        if member_id in self._sent_since:
            awaited, served = self._sent_since[member_id]
            if awaited is request:
                del self._sent_since[member_id]
                if _assigns(response) and self._served[member_id] > served:
                    self._give_up(member_id, self._excused.pop(member_id, _NOTHING))

    def handed_out(self, consumer: ClientProcess, partition: TopicIdPartition, offsets: range) -> None:
        """A member that knows of its removal reads nothing; it soon stops reading a partition that was taken."""
        if self._told and consumer.name in self._told:
            fail("C1", f"{consumer.name} was told that it was removed, and reads {partition} {offsets}")
        if self._given_up and consumer.view.member_id in self._given_up:
            self._look(consumer)

    def view_changed(self, consumer: ClientProcess) -> None:
        self._look(consumer)

    def group_changed(self, changes: Sequence[MemberChange]) -> None:
        """Compare the members that changed; all members if topics changed."""
        stale = self._stale[0] if self._stale[1] == self._scheduler.steps else None
        for member_id, before, after in changes:
            if before is None:
                continue
            taken = before.held - after.held if after is not None else before.held
            asked_back = self._asked_back.pop(member_id, _NOTHING)
            if after is not None and member_id != stale:
                taken &= asked_back
            if taken:
                self._excused[member_id] = self._excused.get(member_id, _NOTHING) | taken
                self._sent_since.pop(member_id, None)
            if after is not None and member_id == stale:
                asked_back |= after.pending - before.pending
            if after is not None and (left := asked_back & after.pending):
                self._asked_back[member_id] = left
        if self._observed_group.converted is not None and self._observed_group.converted.classic is not None:
            self._after_upgrade()
        version = self._cluster.topics.image.version
        if version != self._topics_version:
            self._topics_version = version
            changed = None
        elif not changes:
            return
        else:
            changed = {change.member_id for change in changes}
        for consumer in self._consumers():
            if changed is None or consumer.view.member_id in changed:
                self._look(consumer)

    def _after_upgrade(self) -> None:
        """Until it is answered again, a classic member keeps partitions that its leader assigned to no member."""
        for consumer in self._consumers():
            seen = self._observed_group.members.get(consumer.view.member_id)
            if seen is not None and consumer.is_classic:
                member_id = consumer.view.member_id
                has = frozenset((tip.topic_id, tip.partition) for tip in consumer.view.assigned)
                self._excused[member_id] = self._excused.get(member_id, _NOTHING) | (has - seen.held)
                self._sent_since.pop(member_id, None)

    def _give_up(self, member_id: str, partitions: Partitions) -> None:
        known = self._given_up.setdefault(member_id, {})
        for partition in partitions:
            known.setdefault(partition, _GivingUp(self._scheduler.now_ms))

    def _look(self, consumer: ClientProcess) -> None:
        view = consumer.view
        member_id = view.member_id
        seen = self._observed_group.members.get(member_id)
        if consumer.closed or seen is None:
            return
        held, living = seen.held, self._cluster.topics.image.by_id
        excused = self._excused.get(member_id, _NOTHING)
        if excused:
            self._excused[member_id] = excused = excused - held
        if member_id in self._given_up:
            excused |= self._being_given_up(consumer, held)
        read = [
            f"{topic}-{index}"
            for topic, index, topic_id in view.assigned
            if (topic_id, index) not in held
            and (topic, index) in view.readable
            and topic_id in living
            and (topic_id, index) not in excused
        ]
        if read:
            fail("C1", f"{consumer.name} reads {sorted(read)}; the coordinator does not count them as its own")

    def _being_given_up(self, consumer: ClientProcess, held: Partitions) -> Partitions:
        """Excuse partitions that the member knows to be taken, until it must have stopped reading them."""
        view = consumer.view
        known = self._given_up[view.member_id]
        has = {(topic_id, index): (topic, index) for topic, index, topic_id in view.assigned}
        # A frozen process gets its answers when it thaws; its clock may be slow.
        allowed_ms = int(consumer.config.rebalance_timeout_ms * _SLOW_CLOCK) + _SECOND_MS
        for partition, giving_up in list(known.items()):
            reads = has.get(partition) in view.readable
            late = self._scheduler.now_ms > max(giving_up.since_ms, consumer.thaws_ms) + allowed_ms
            if partition in held or partition not in has or late or (giving_up.was_read and not reads):
                del known[partition]
            giving_up.was_read = reads
        if not known:
            del self._given_up[view.member_id]
        return frozenset(known)


def _assigns(response: ConsumerGroupHeartbeatResponse | JoinGroupResponse) -> bool:
    """Whether it tells its receiver what it owns from now on, at once or with the SyncGroup that follows."""
    if isinstance(response, JoinGroupResponse):
        return not response.error_code
    return response.assignment is not None


class _GivingUp(msgspec.Struct):
    """A partition that was taken, from when its member knows that."""

    since_ms: int
    was_read: bool = False


_NOTHING: Final[Partitions] = frozenset()
_SLOW_CLOCK: Final = 1.1
_SECOND_MS: Final = 1_000
_REMOVED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class ToldOwnership(Checker):
    """C1: a member does not read or take partitions that a heartbeat in flight left out.

    The coordinator may give these away when the heartbeat arrives, so the member waits for the answer.
    """

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._told: dict[str, tuple[Request[Any], frozenset[tuple[UUID, int]]]] = {}
        """Consumer -> its last heartbeat, and the last list of owned partitions that it sent; until an answer."""

    @about(ConsumerGroupHeartbeatRequest)
    def sent(self, consumer: ClientProcess, request: ConsumerGroupHeartbeatRequest) -> None:
        if request.member_epoch < 0:
            return
        if request.topic_partitions is not None:
            self._told[consumer.name] = (request, listed(request.topic_partitions))
        elif consumer.name in self._told:
            self._told[consumer.name] = (request, self._told[consumer.name][1])

    @about(ConsumerGroupHeartbeatRequest)
    def unsent(self, consumer: ClientProcess, request: Any) -> None:
        """The heartbeat reached no broker, but the member does not know that yet."""
        self.sent(consumer, request)

    @about(ConsumerGroupHeartbeatRequest)
    def answered(self, consumer: ClientProcess, request: Any, response: ConsumerGroupHeartbeatResponse) -> None:
        told = self._told.get(consumer.name)
        if told is not None and told[0] is request and not response.error_code:
            del self._told[consumer.name]

    def state_changed(self, consumer: ClientProcess, effect: StateChanged) -> None:
        """A member outside the group owns nothing, and reads nothing."""
        if effect.new in OUTSIDE_GROUP:
            self._told.pop(consumer.name, None)

    def listener_due(self, consumer: ClientProcess, call: ListenerCall) -> None:
        if isinstance(call, AssignPartitions) and consumer.name in self._told:
            self._compare(consumer, {(tip.topic_id, tip.partition) for tip in call.partitions}, "takes")

    def view_changed(self, consumer: ClientProcess) -> None:
        if consumer.name in self._told:
            view = consumer.view
            read = {(topic_id, index) for topic, index, topic_id in view.assigned if (topic, index) in view.readable}
            self._compare(consumer, read, "reads")

    def _compare(self, consumer: ClientProcess, used: set[tuple[UUID, int]], how: str) -> None:
        if not used <= self._told[consumer.name][1]:
            fail("C1", f"{consumer.name} {how} what it has told the coordinator that it does not have")


class NoRecordLost(Checker):
    """C6: records are handed out without gaps; an owner starts at the committed offset; commits never run ahead.

    C7: no position is past the end, and a topic that was created again is read from its beginning. Records are counted
    per incarnation of a topic.
    """

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._handed_out = run_state.handed_out
        self._fetched: dict[tuple[str, TopicIdPartition], int] = {}
        self._position: dict[tuple[str, TopicIdPartition], int] = {}

    def _key(self, topic: str, topic_id: Any, index: int) -> TopicIdPartition | None:
        topics = self._cluster.topics
        found = topics.resolved(topic_id, topic)
        return None if found is None else TopicIdPartition(topic or topics.names[found], index, found)

    @about(OffsetFetchRequest)
    def answered(self, consumer: ClientProcess, request: Any, response: OffsetFetchResponse) -> None:
        for topic, partition in fetched(response):
            offset = max(0, partition.committed_offset)
            key = self._key(topic.name, topic.topic_id, partition.partition_index)
            if key is not None:
                self._fetched[consumer.name, key] = offset
            if not topic.topic_id.int:  # by name, which the member takes for the topic that it knows by that name
                for tip in consumer.view.assigned:
                    if tip.topic == topic.name and tip.partition == partition.partition_index:
                        self._fetched[consumer.name, tip] = offset

    def fetching_started(self, consumer: ClientProcess, partition: TopicIdPartition, offset: int) -> None:
        """Fetching starts at the committed offset that the consumer got, or goes on where it was."""
        key = (consumer.name, partition)
        allowed = (self._fetched.pop(key, None), self._position.get(key))  # a fetched offset counts once
        if self._cluster.topics.id_of(partition.topic) == partition.topic_id:
            end = self._cluster.topics.end_offsets[partition.topic_partition]
            if offset > end:
                fail("C7", f"{consumer.name} starts {partition} at {offset}, behind its end {end}")
        if offset not in allowed:
            fail("C6", f"{consumer.name} starts {partition} at {offset}, was told {allowed}")
        self._position[consumer.name, partition] = offset

    def error_surfaced(self, consumer: ClientProcess, error: Kip848Error) -> None:
        """The application hears of a missing offset only if the coordinator said so, and of its own partition."""
        if isinstance(error, NoOffsetForPartitionError):
            owned = consumer.view.assigned
            unset = {one.topic_partition for one in owned if self._fetched.get((consumer.name, one)) == 0}
            if not error.partitions or not unset.issuperset(error.partitions):
                fail("C6", f"{consumer.name} is told {error!r}; uncommitted are {describe_partitions(unset)}")

    def handed_out(self, consumer: ClientProcess, partition: TopicIdPartition, offsets: range) -> None:
        start, covered = offsets.start, self._handed_out.read[partition]
        if start > covered:
            fail("C6", f"{partition}: {covered}-{start} were never handed out")
        if self._position[consumer.name, partition] != start:
            fail("C6", f"{consumer.name} skips in {partition}")
        self._position[consumer.name, partition] = offsets.stop

    @about(OffsetCommitRequest)
    def served(self, client_id: str, request: OffsetCommitRequest, response: OffsetCommitResponse) -> None:
        """No accepted commit is ahead of the records that were handed out, or of a topic that was recreated since."""
        for topic, partition in accepted(request, response):
            key, offset = self._key(topic.name, topic.topic_id, partition.partition_index), partition.committed_offset
            if key is not None and offset > self._handed_out.read[key]:
                fail("C6", f"{key} is committed at {offset}, read to {self._handed_out.read[key]}")

    def converged(self) -> None:
        """L7: each record was handed to an application."""
        if (unread := self._handed_out.unread()) is not None:
            fail("L7", unread)
