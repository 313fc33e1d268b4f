"""One consumer by itself: what its application sees (C2, C3, C5), and what its member sends (C4, C8, L4)."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from typing import Any, Final

from kip848_client.common.model import NamedPartition, TopicIdPartition
from kip848_client.errors import ErrorCode, FatalGroupError, Kip848Error
from kip848_client.member.core.events import CommitDone, StateChanged
from kip848_client.member.core.states import HEARTBEATING
from kip848_client.testing.coordinator.modern.member_record import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from kip848_client.testing.simulation.observed_group import accepted, listed
from kip848_client.testing.simulation.observer import Checker, ListenerCall, RunState, about
from kip848_client.testing.simulation.virtual.client_process import OUTSIDE_GROUP, ClientProcess
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.consumer_protocol import decode_subscription
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest
from kip848_client.wire.messages.leave_group import LeaveGroupRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kip848_client.wire.messages.sync_group import SyncGroupRequest
from kip848_client.wire.schema import Request

_CALLS_MAX: Final = 4
"""Listener calls that wait for poll() at most."""


class ListenerPairs(Checker):
    """C3: per partition, assigned and (revoked or lost) alternate; calls never overlap; there is none after close().

    A call that raised is repeated, so only calls that returned count. C2: the coordinator learns of a revocation only
    after the listener call returned, and only records of assigned partitions are handed out.
    """

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._has: defaultdict[str, set[TopicIdPartition]] = defaultdict(set)
        self._offered: defaultdict[str, set[TopicIdPartition]] = defaultdict(set)
        """Partitions of "assigned" calls, also of those that raised, which were not revoked or lost yet."""
        self._waiting: Counter[str] = Counter()
        """Consumer -> listener calls that wait for poll()."""
        self._running: set[str] = set()

    def listener_due(self, consumer: ClientProcess, call: ListenerCall) -> None:
        self._waiting[consumer.name] += 1

    def listener_begins(self, consumer: ClientProcess, name: str, partitions: Iterable[TopicIdPartition]) -> None:
        partitions = frozenset(partitions)
        if consumer.name in self._running:
            fail("C3", f"two listener calls of {consumer.name} overlap")
        if consumer.closed:
            fail("C3", f"{consumer.name} is closed and its listener is called")
        self._waiting[consumer.name] -= 1
        if self._waiting[consumer.name] > _CALLS_MAX:
            fail("C8", f"{self._waiting[consumer.name]} listener calls of {consumer.name} wait for poll()")
        self._running.add(consumer.name)
        if name == "assigned":
            if again := partitions & self._has[consumer.name]:
                fail("C3", f"{consumer.name}: {sorted(map(str, again))} assigned twice")
            self._offered[consumer.name] |= partitions
        elif not partitions:
            fail("C3", f"{consumer.name}: {name} without partitions")
        elif name == "revoked" and not all(consumer.holds(tip.topic_partition) for tip in partitions):
            fail("C2", f"{consumer.name} revokes {sorted(map(str, partitions))}, and not all of them are paused")
        elif strange := partitions - self._offered[consumer.name]:
            fail("C3", f"{consumer.name}: {sorted(map(str, strange))} {name}, which were not assigned")

    def listener_ended(
        self, consumer: ClientProcess, name: str, partitions: Iterable[TopicIdPartition], error: object
    ) -> None:
        """Count a call that returned. A lost partition is gone even if the listener raised."""
        self._running.discard(consumer.name)
        if name == "assigned" and error is None:
            self._has[consumer.name] |= set(partitions)
        elif name == "lost" or error is None:
            self._has[consumer.name] -= set(partitions)
            self._offered[consumer.name] -= set(partitions)

    @about(ConsumerGroupHeartbeatRequest, JoinGroupRequest)
    def sent(self, consumer: ClientProcess, request: Any) -> None:
        """C2: a heartbeat or a join lists every partition that the listener was given."""
        if isinstance(request, JoinGroupRequest):
            topics = decode_subscription(bytes(request.protocols[0].metadata)).owned_partitions
            owned = {(topic.topic, index) for topic in topics for index in topic.partitions}
            if kept := [tip for tip in self._has[consumer.name] if (tip.topic, tip.partition) not in owned]:
                fail("C2", f"{consumer.name} gave up {sorted(map(str, kept))} before on_partitions_revoked")
            return
        if request.member_epoch <= 0 or request.topic_partitions is None:
            return
        named = listed(request.topic_partitions)
        kept = [tip for tip in self._has[consumer.name] if (tip.topic_id, tip.partition) not in named]
        if kept:
            fail("C2", f"{consumer.name} gave up {sorted(map(str, kept))} before on_partitions_revoked")

    def handed_out(self, consumer: ClientProcess, partition: TopicIdPartition, offsets: range) -> None:
        """C2: no record before on_partitions_assigned returned, none after revoked or lost began."""
        if partition not in self._has[consumer.name]:
            fail("C2", f"{consumer.name} was handed {partition} {offsets} without having it")
        if consumer.name in self._running:
            fail("C2", f"{consumer.name} was handed records inside a listener call")

    def closed(self, consumer: ClientProcess) -> None:
        """C3: nothing is left after close()."""
        if consumer.view.assigned:
            fail("C3", f"{consumer.name} closed and owns partitions")


_INCURABLE: Final = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    }
)
"""Codes after which a member may be FATAL; not UNRELEASED_INSTANCE_ID, since simulated members wait for theirs."""


class ShownStates(Checker):
    """C5: a member is FATAL only after an error that no retry cures, and outside the group it shows no epoch."""

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._last_code: dict[str, int] = {}

    @about(ConsumerGroupHeartbeatRequest, JoinGroupRequest, SyncGroupRequest, HeartbeatRequest)
    def answered(self, consumer: ClientProcess, request: Any, response: Any) -> None:
        if response.error_code:
            self._last_code[consumer.name] = response.error_code

    def stopped(self, consumer: ClientProcess, error: Kip848Error) -> None:
        code = self._last_code.get(consumer.name)
        if code not in _INCURABLE or not isinstance(error, FatalGroupError) or error.code != code:
            fail("C5", f"{consumer.name} stops after error {code}, and says {error!r}")

    def view_changed(self, consumer: ClientProcess) -> None:
        view = consumer.view
        if view.state in OUTSIDE_GROUP and view.member_epoch > 0:
            fail("C5", f"{consumer.name} is {view.state.name}, and shows epoch {view.member_epoch}")


_SECOND_MS: Final = 1_000
_REQUESTS_MAX: Final = 12
"""Limit of requests in flight, except commits: an application may commit after every poll()."""
_STORMS: Final[dict[type, int]] = {FindCoordinatorRequest: 20, JoinGroupRequest: 12}
"""Limit of requests of one kind within a virtual second. The first retries come after a tenth of a second."""


class OneHeartbeat(Checker):
    """C4: at most one heartbeat is in flight, and none outside the group or while partitions are lost.

    A member that leaves says so, if its coordinator is connected; a static member says that it will be back. One with a
    slot from a pool may give it up, and a standby has nothing to leave.
    """

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._in_flight: dict[str, Request[Any]] = {}
        self._said_goodbye: set[str] = set()

    @about(ConsumerGroupHeartbeatRequest)
    def sent(self, consumer: ClientProcess, request: ConsumerGroupHeartbeatRequest) -> None:
        if request.member_epoch < 0:
            self._said_goodbye.add(consumer.name)
            said = LEAVE_EPOCH if request.instance_id is None else STATIC_LEAVE_EPOCH
            if request.member_epoch != said and not consumer.config.slots:
                fail("C4", f"{consumer.name} leaves with {request}")
            return
        if consumer.member.phase not in HEARTBEATING:
            fail("C4", f"{consumer.name} is {consumer.member.phase.name} and sends {request}")
        if consumer.name in self._in_flight:
            fail("C4", f"{consumer.name} has two heartbeats in flight")
        self._in_flight[consumer.name] = request

    @about(ConsumerGroupHeartbeatRequest)
    def ended(self, consumer: ClientProcess, request: Any) -> None:
        if self._in_flight.get(consumer.name) is request:
            del self._in_flight[consumer.name]

    def state_changed(self, consumer: ClientProcess, effect: StateChanged) -> None:
        """A member outside the group waits for no answer."""
        if effect.new not in OUTSIDE_GROUP or consumer.is_classic:
            return
        is_connected = consumer.connected and consumer.member.coordinator is not None
        may_leave = is_connected and (effect.member_epoch > 0 or not consumer.config.slots)
        if effect.trigger == "left" and consumer.name not in self._said_goodbye and may_leave:
            fail("C4", f"{consumer.name} leaves and does not say so")
        self._said_goodbye.discard(consumer.name)
        self._in_flight.pop(consumer.name, None)


class BoundedWork(Checker):
    """C8: every commit is answered, few requests are in flight, and no member repeats lookups or joins in a loop."""

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._sent: defaultdict[tuple[str, type], deque[int]] = defaultdict(deque)

    def sent(self, consumer: ClientProcess, request: Any) -> None:
        in_flight = consumer.member.requests_under_way - len(consumer.commits_asked)
        if in_flight > _REQUESTS_MAX:
            fail("C8", f"{consumer.name} has {in_flight} requests in flight, and sends {request}")
        kind = type(request)
        if kind in _STORMS:
            times, now_ms = self._sent[consumer.name, kind], consumer.scheduler.now_ms
            times.append(now_ms)
            while times[0] <= now_ms - _SECOND_MS:
                times.popleft()
            if len(times) > _STORMS[kind]:
                fail("C8", f"{consumer.name} sent {len(times)} {kind.__name__} within a second")

    def converged(self) -> None:
        """Find commits without an answer. Without a coordinator, commits may wait for ever."""
        for consumer in self._consumers():
            sent_ms = max(consumer.thaws_ms, consumer.connected_ms)
            for commit_id, asked_ms in consumer.commits_asked.items():
                waits_ms = consumer.scheduler.now_ms - max(asked_ms, sent_ms)
                if not consumer.closed and waits_ms > consumer.config.request_timeout_ms + 2 * _SECOND_MS:
                    fail("C8", f"{consumer.name} asked for commit {commit_id} {waits_ms} ms ago and heard nothing")


class TrueCommits(Checker):
    """C8: a commit is reported as done only if the coordinator accepted each of its offsets."""

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._accepted: dict[str, tuple[int, set[NamedPartition]]] = {}
        """Consumer -> the step in which the last answer to a commit came, and the partitions that it accepted."""

    @about(OffsetCommitRequest)
    def answered(self, consumer: ClientProcess, request: OffsetCommitRequest, response: OffsetCommitResponse) -> None:
        names = self._cluster.topics.names
        done = {
            NamedPartition(topic.name or names.get(topic.topic_id, ""), partition.partition_index)
            for topic, partition in accepted(request, response)
        }
        self._accepted[consumer.name] = (consumer.scheduler.steps, done)

    def commit_ended(self, consumer: ClientProcess, effect: CommitDone) -> None:
        if effect.error is not None or not effect.offsets:
            return
        step, done = self._accepted.get(consumer.name, (-1, set()))
        if step != consumer.scheduler.steps or not effect.offsets.keys() <= done:
            fail("C8", f"{consumer.name} is told that {effect.offsets} are committed, and accepted are {done}")


class AwaitedLeave(Checker):
    """L4: close() waits for the answer to its leave, up to its deadline."""

    def __init__(self, run_state: RunState) -> None:
        super().__init__(run_state)
        self._waiting: dict[str, Request[Any]] = {}

    @about(ConsumerGroupHeartbeatRequest, LeaveGroupRequest)
    def sent(self, consumer: ClientProcess, request: ConsumerGroupHeartbeatRequest | LeaveGroupRequest) -> None:
        if consumer.leaving and (isinstance(request, LeaveGroupRequest) or request.member_epoch < 0):
            self._waiting[consumer.name] = request

    @about(ConsumerGroupHeartbeatRequest, LeaveGroupRequest)
    def ended(self, consumer: ClientProcess, request: Any) -> None:
        if self._waiting.get(consumer.name) is request:
            del self._waiting[consumer.name]

    def closed(self, consumer: ClientProcess) -> None:
        left_ms = consumer.close_by_ms - consumer.now_ms
        if self._waiting.pop(consumer.name, None) is not None and left_ms > 0:
            fail("L4", f"{consumer.name}: close() returns {left_ms} ms before its time, and without an answer")
