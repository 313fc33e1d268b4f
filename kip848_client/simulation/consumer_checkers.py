"""What must hold on the consumers' side after every step, one class each.

C for safety of the client, L for what must come true once faults have ended. See docs/simulation.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kip848_client.member.events import MemberEffect, MemberView, StateChanged
from kip848_client.member.states import FATAL, HEARTBEATING, TRANSITIONS, MemberState, Transition
from kip848_client.model import TopicIdPartition, TopicPartition
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.consumer import SimulatedConsumer
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.violation import require
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kip848_client.wire.schema import Request, Response

Consumers = Callable[[], Sequence[SimulatedConsumer]]


class ExclusiveReading(Observer):
    """C1: a consumer reads only what the coordinator counts as its own, unless the coordinator has removed it.

    Together with S1 no partition is read by two consumers that are both in the group. One that was cut off may go on
    reading until it hears of its removal; its commits are refused (S11).

    One hole belongs to the protocol: a heartbeat has no sequence number, so an old one of the same epoch that arrives
    late (its sender gave it up, and sent another on a new connection) is taken as what the member owns now, and may
    acknowledge a revocation that has not happened. The member is excused until both sides agree again.
    """

    def __init__(self, cluster: Cluster, consumers: Consumers) -> None:
        self._cluster = cluster
        self._consumers = consumers
        self._joins_served: defaultdict[str, int] = defaultdict(int)
        self._joins_answered: defaultdict[str, int] = defaultdict(int)
        self._excused: set[str] = set()
        self._looked: dict[str, tuple[int, int, int, bool]] = {}

    def stale(self, client_id: str, request: Request[Any]) -> None:
        """An old heartbeat that says what the member owned then."""
        if isinstance(request, ConsumerGroupHeartbeatRequest) and request.topic_partitions is not None:
            self._excused.add(request.member_id)

    def served(self, client_id: str, request: Request[Any], response: Response) -> None:
        """A join begins another life of a member."""
        if isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch == 0:
            assert isinstance(response, ConsumerGroupHeartbeatResponse)
            if not response.error_code:
                self._joins_served[request.member_id] += 1

    def answered(self, consumer: SimulatedConsumer, request: Request[Any], response: Response) -> None:
        """The consumer learns of its life."""
        if isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch == 0:
            self._joins_answered[request.member_id] = self._joins_served[request.member_id]

    def after_step(self) -> None:
        """Compare what is readable with what the coordinator counts."""
        version = self._cluster.version
        for consumer in self._consumers():
            if consumer.closed:
                continue
            view = consumer.member.view()
            looked = (view.version, version, self._joins_answered[view.member_id], view.member_id in self._excused)
            if self._looked.get(consumer.name) != looked:
                self._looked[consumer.name] = looked
                self._look(consumer, view)

    def _look(self, consumer: SimulatedConsumer, view: MemberView) -> None:
        member_id = view.member_id
        picture = self._cluster.picture(consumer.config.group_id)
        member = None if picture is None else picture.group.members.get(member_id)
        if picture is None or member is None:
            return
        if view.member_epoch not in {member.member_epoch, member.previous_member_epoch}:
            return
        if self._joins_served[member_id] != self._joins_answered[member_id]:
            return
        unheld = view.readable - picture.held_by_name[member_id]
        if not unheld:
            self._excused.discard(member_id)
        require(
            not unheld or member_id in self._excused,
            "C1",
            f"{consumer.name} reads {sorted(map(str, unheld))}, which are not its own",
        )


class ListenerPairs(Observer):
    """C3: per partition assigned and (revoked or lost) alternate; calls never overlap; there is none after close.

    A call that raised is repeated, so it counts only when it returned. C2: the coordinator is told that a partition is
    given up only after its listener call returned.
    """

    def __init__(self) -> None:
        self._has: defaultdict[str, set[TopicIdPartition]] = defaultdict(set)
        self._running: set[str] = set()

    def listener_begins(self, consumer: SimulatedConsumer, name: str, partitions: Iterable[TopicIdPartition]) -> None:
        """One at a time, and only what fits."""
        partitions = frozenset(partitions)
        require(consumer.name not in self._running, "C3", f"two listener calls of {consumer.name} overlap")
        require(not consumer.closed, "C3", f"{consumer.name} is closed and its listener is called")
        self._running.add(consumer.name)
        again = partitions & self._has[consumer.name]
        if name == "assigned":
            require(not again, "C3", f"{consumer.name}: {sorted(map(str, again))} assigned twice")
        else:
            require(bool(partitions), "C3", f"{consumer.name}: {name} without partitions")

    def listener_ended(
        self, consumer: SimulatedConsumer, name: str, partitions: Iterable[TopicIdPartition], *, raised: bool
    ) -> None:
        """Count what returned; a lost partition is gone even if the listener raised."""
        self._running.discard(consumer.name)
        if name == "assigned" and not raised:
            self._has[consumer.name] |= set(partitions)
        elif name == "lost" or not raised:
            self._has[consumer.name] -= set(partitions)

    def sent(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """C2: what a heartbeat says is owned leaves out nothing that the listener was given."""
        if isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch > 0:
            if request.topic_partitions is None:
                return
            named = {(topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions}
            kept = {tip for tip in self._has[consumer.name] if (tip.topic_id, tip.partition) not in named}
            require(not kept, "C2", f"{consumer.name} gave up {sorted(map(str, kept))} before on_partitions_revoked")

    def handed_out(self, consumer: SimulatedConsumer, partition: TopicPartition, *, start: int, stop: int) -> None:
        """C2: no record before on_partitions_assigned returned, none after revoked or lost began."""
        names = {tip.topic_partition for tip in self._has[consumer.name]}
        require(partition in names, "C2", f"{consumer.name} was handed {partition} {start}-{stop} without having it")
        require(consumer.name not in self._running, "C2", f"{consumer.name} was handed records inside a listener call")


class OneHeartbeat(Observer):
    """C4: one heartbeat under way, the leave excepted; a join brings everything, and owns nothing."""

    def __init__(self) -> None:
        self._waiting: dict[str, Request[Any]] = {}
        """Consumer -> the heartbeat whose answer it waits for; not one that it gave up."""
        self._full_next: set[str] = set()

    def sent(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """Look at a heartbeat that leaves."""
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return
        phase = consumer.member.snapshot().phase
        require(phase not in FATAL, "C4", f"{consumer.name} is FATAL and sends a heartbeat")
        if request.member_epoch < 0:
            return
        require(phase in HEARTBEATING, "C4", f"{consumer.name} is {phase.name} and sends {request}")
        require(consumer.name not in self._waiting, "C4", f"{consumer.name} has two heartbeats under way")
        self._waiting[consumer.name] = request
        full = request.rebalance_timeout_ms > 0 and None not in (
            request.subscribed_topic_names,
            request.topic_partitions,
        )
        if request.member_epoch == 0:
            require(full and request.topic_partitions == (), "C4", f"{consumer.name} joins with {request}")
        if consumer.name in self._full_next:
            require(full, "C4", f"{consumer.name} sends a partial heartbeat after a failure: {request}")
        self._full_next.discard(consumer.name)

    def answered(self, consumer: SimulatedConsumer, request: Request[Any], response: Response) -> None:
        """The next one may go."""
        if self._waiting.get(consumer.name) is request:
            assert isinstance(response, ConsumerGroupHeartbeatResponse)
            self._ended(consumer, failed=bool(response.error_code))

    def unanswered(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """The next one may go, and must be full."""
        if self._waiting.get(consumer.name) is request:
            self._ended(consumer, failed=True)

    def _ended(self, consumer: SimulatedConsumer, *, failed: bool) -> None:
        del self._waiting[consumer.name]
        if failed:
            self._full_next.add(consumer.name)

    def effect(self, consumer: SimulatedConsumer, effect: MemberEffect) -> None:
        """A member that left its group, or was removed, waits for no answer any more."""
        if isinstance(effect, StateChanged) and effect.new in {
            MemberState.RELEASING_ASSIGNMENT,
            MemberState.UNJOINED,
            MemberState.FATAL,
        }:
            self._waiting.pop(consumer.name, None)
            self._full_next.discard(consumer.name)


class LegalMoves(Observer):
    """C5: only declared moves between public states; no member fails for good, because no fault here is incurable."""

    def __init__(self) -> None:
        self._state: defaultdict[str, MemberState] = defaultdict(lambda: MemberState.UNJOINED)

    def effect(self, consumer: SimulatedConsumer, effect: MemberEffect) -> None:
        """Look at a move."""
        if isinstance(effect, StateChanged):
            move = Transition(effect.trigger, effect.old, effect.new)
            require(move in TRANSITIONS, "C5", f"{consumer.name}: {move} is not declared")
            require(self._state[consumer.name] is effect.old, "C5", f"{consumer.name} moved from {effect.old} unseen")
            self._state[consumer.name] = effect.new
            require(effect.new is not MemberState.FATAL, "C5", f"{consumer.name} became FATAL: {effect.trigger}")


class NoRecordLost(Observer):
    """C6: records are handed out without gaps; an owner starts at the committed offset; commits never run ahead."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._covered: defaultdict[TopicPartition, int] = defaultdict(int)
        self._fetched: dict[tuple[str, TopicPartition], int] = {}
        self._position: dict[tuple[str, TopicPartition], int] = {}
        self.duplicates = 0
        """Records that were handed out more than once; legitimate after crashes and removals."""

    def answered(self, consumer: SimulatedConsumer, request: Request[Any], response: Response) -> None:
        """Remember which committed offsets a consumer was told."""
        if not isinstance(response, OffsetFetchResponse):
            return
        assert isinstance(request, OffsetFetchRequest)
        names = {topic.topic_id: topic.name for topic in self._cluster.topics.topics}
        for group in response.groups:
            for topic in group.topics:
                for partition in topic.partitions:
                    if not partition.error_code:
                        key = TopicPartition(topic.name or names[topic.topic_id], partition.partition_index)
                        self._fetched[consumer.name, key] = max(0, partition.committed_offset)

    def fetching_started(self, consumer: SimulatedConsumer, partition: TopicPartition, offset: int) -> None:
        """It starts at the committed offset that it was told, or goes on where it was."""
        allowed = {self._fetched.get((consumer.name, partition)), self._position.get((consumer.name, partition))}
        require(offset in allowed, "C6", f"{consumer.name} starts {partition} at {offset}, was told {allowed}")
        self._position[consumer.name, partition] = offset

    def handed_out(self, consumer: SimulatedConsumer, partition: TopicPartition, *, start: int, stop: int) -> None:
        """No gap behind what anybody was handed."""
        covered = self._covered[partition]
        require(start <= covered, "C6", f"{partition}: {covered}-{start} were never handed to anybody")
        require(self._position[consumer.name, partition] == start, "C6", f"{consumer.name} skips in {partition}")
        self.duplicates += max(0, min(stop, covered) - start)
        self._covered[partition] = max(covered, stop)
        self._position[consumer.name, partition] = stop

    def coordinator_changed(self) -> None:
        """No commit is ahead of what was handed out."""
        for group_id in self._cluster.coordinator.groups():
            for partition, offset in self._cluster.committed(group_id).items():
                require(offset <= self._covered[partition], "C6", f"{partition} is committed at {offset}, unread")

    @property
    def complete(self) -> bool:
        """Whether everything that was produced was handed to somebody."""
        return all(self._covered[partition] == end for partition, end in self._cluster.end_offsets.items())

    def converged(self) -> None:
        """L7: everything that was produced was handed to somebody."""
        for partition, end in self._cluster.end_offsets.items():
            require(self._covered[partition] == end, "L7", f"{partition}: {self._covered[partition]} of {end} read")


class GoneOwnNothing(Observer):
    """C3: who closed owns nothing; L1: who stayed is stable at the group's epoch, and reads what it was given."""

    def __init__(self, cluster: Cluster, consumers: Consumers) -> None:
        self._cluster = cluster
        self._consumers = consumers

    def closed(self, consumer: SimulatedConsumer) -> None:
        """Nothing is left after close()."""
        require(not consumer.member.view().assigned, "C3", f"{consumer.name} closed and owns partitions")

    def converged(self) -> None:
        """Everybody agrees."""
        for picture in self._cluster.pictures():
            group = picture.group
            living = {c.member.view().member_id for c in self._consumers() if not c.closed}
            require(set(group.members) == living, "L1", f"members {sorted(group.members)}, living {sorted(living)}")
