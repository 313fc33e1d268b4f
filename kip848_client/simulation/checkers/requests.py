"""A member's requests, and the calls that wait for them: heartbeats (C4), commits and lookups (C8), close() (L4)."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any, Final

from kip848_client.coordinator.group_member import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from kip848_client.member.events import CommitDone, StateChanged
from kip848_client.member.states import HEARTBEATING
from kip848_client.model import TopicPartition
from kip848_client.simulation.observer import Checker, Scene, about
from kip848_client.simulation.process import OUTSIDE_GROUP, Process
from kip848_client.simulation.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest
from kip848_client.wire.messages.leave_group import LeaveGroupRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kip848_client.wire.schema import Request

_SECOND_MS: Final = 1_000
_REQUESTS_MAX: Final = 12
"""Limit of requests in flight, except commits: an application may commit after every poll()."""
_STORMS: Final[dict[type, int]] = {FindCoordinatorRequest: 20, JoinGroupRequest: 12}
"""Limit of requests of one kind within a virtual second. The first retries come after a tenth of a second."""


class OneHeartbeat(Checker):
    """C4: at most one heartbeat is in flight, and none outside the group or while partitions are lost.

    A member that leaves says so, if its coordinator is connected; a static member says that it will be back.
    """

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._in_flight: dict[str, Request[Any]] = {}
        self._said_goodbye: set[str] = set()

    @about(ConsumerGroupHeartbeatRequest)
    def sent(self, consumer: Process, request: ConsumerGroupHeartbeatRequest) -> None:
        if request.member_epoch < 0:
            self._said_goodbye.add(consumer.name)
            if request.member_epoch != (LEAVE_EPOCH if request.instance_id is None else STATIC_LEAVE_EPOCH):
                fail("C4", f"{consumer.name} leaves with {request}")
            return
        if consumer.member.phase not in HEARTBEATING:
            fail("C4", f"{consumer.name} is {consumer.member.phase.name} and sends {request}")
        if consumer.name in self._in_flight:
            fail("C4", f"{consumer.name} has two heartbeats in flight")
        self._in_flight[consumer.name] = request

    @about(ConsumerGroupHeartbeatRequest)
    def answered(self, consumer: Process, request: Any, response: Any) -> None:
        self.unanswered(consumer, request)

    @about(ConsumerGroupHeartbeatRequest)
    def unanswered(self, consumer: Process, request: Any) -> None:
        if self._in_flight.get(consumer.name) is request:
            del self._in_flight[consumer.name]

    def state_changed(self, consumer: Process, effect: StateChanged) -> None:
        """A member outside the group waits for no answer."""
        if effect.new not in OUTSIDE_GROUP or consumer.is_classic:
            return
        is_connected = consumer.network.connected and consumer.member.coordinator is not None
        if effect.trigger == "left" and consumer.name not in self._said_goodbye and is_connected:
            fail("C4", f"{consumer.name} leaves and does not say so")
        self._said_goodbye.discard(consumer.name)
        self._in_flight.pop(consumer.name, None)


class BoundedWork(Checker):
    """C8: every commit is answered, few requests are in flight, and no member repeats lookups or joins in a loop."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._sent: defaultdict[tuple[str, type], deque[int]] = defaultdict(deque)

    def sent(self, consumer: Process, request: Any) -> None:
        in_flight = consumer.member.requests_under_way - len(consumer.commits_asked)
        if in_flight > _REQUESTS_MAX:
            fail("C8", f"{consumer.name} has {in_flight} requests in flight, and sends {request}")
        kind = type(request)
        if kind in _STORMS:
            times, now_ms = self._sent[consumer.name, kind], consumer.world.now_ms
            times.append(now_ms)
            while times[0] <= now_ms - _SECOND_MS:
                times.popleft()
            if len(times) > _STORMS[kind]:
                fail("C8", f"{consumer.name} sent {len(times)} {kind.__name__} within a second")

    def converged(self) -> None:
        """Find commits without an answer. Without a coordinator, commits may wait for ever."""
        for consumer in self._consumers():
            sent_ms = max(consumer.thaws_ms, consumer.network.connected_ms)
            for commit_id, asked_ms in consumer.commits_asked.items():
                waits_ms = consumer.world.now_ms - max(asked_ms, sent_ms)
                if not consumer.closed and waits_ms > consumer.config.request_timeout_ms + 2 * _SECOND_MS:
                    fail("C8", f"{consumer.name} asked for commit {commit_id} {waits_ms} ms ago and heard nothing")


class TrueCommits(Checker):
    """C8: a commit is reported as done only if the coordinator accepted each of its offsets."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._accepted: dict[str, tuple[int, set[TopicPartition]]] = {}
        """Consumer -> the step in which the last answer to a commit came, and the partitions that it accepted."""

    @about(OffsetCommitRequest)
    def answered(self, consumer: Process, request: OffsetCommitRequest, response: OffsetCommitResponse) -> None:
        accepted = {
            TopicPartition(asked.name or self._cluster.topics.names.get(asked.topic_id, ""), item.partition_index)
            for asked, topic in zip(request.topics, response.topics, strict=True)
            for item in topic.partitions
            if not item.error_code
        }
        self._accepted[consumer.name] = (consumer.world.steps, accepted)

    def commit_ended(self, consumer: Process, effect: CommitDone) -> None:
        if effect.error is not None or not effect.offsets:
            return
        step, accepted = self._accepted.get(consumer.name, (-1, set()))
        if step != consumer.world.steps or not effect.offsets.keys() <= accepted:
            fail("C8", f"{consumer.name} is told that {effect.offsets} are committed, and accepted are {accepted}")


class AwaitedLeave(Checker):
    """L4: close() waits for the answer to its leave, up to its deadline."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._waiting: dict[str, Request[Any]] = {}

    @about(ConsumerGroupHeartbeatRequest, LeaveGroupRequest)
    def sent(self, consumer: Process, request: ConsumerGroupHeartbeatRequest | LeaveGroupRequest) -> None:
        if consumer.leaving and (isinstance(request, LeaveGroupRequest) or request.member_epoch < 0):
            self._waiting[consumer.name] = request

    @about(ConsumerGroupHeartbeatRequest, LeaveGroupRequest)
    def answered(self, consumer: Process, request: Any, response: Any) -> None:
        self.unanswered(consumer, request)

    @about(ConsumerGroupHeartbeatRequest, LeaveGroupRequest)
    def unanswered(self, consumer: Process, request: Any) -> None:
        if self._waiting.get(consumer.name) is request:
            del self._waiting[consumer.name]

    def closed(self, consumer: Process) -> None:
        left_ms = consumer.close_by_ms - consumer.now_ms
        if self._waiting.pop(consumer.name, None) is not None and left_ms > 0:
            fail("L4", f"{consumer.name}: close() returns {left_ms} ms before its time, and without an answer")
