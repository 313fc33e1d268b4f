"""What must hold of one consumer by itself: its listener calls, its heartbeats, its states. C2 to C5 and C8."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kip848_client.errors import ErrorCode, FatalGroupError, Kip848Error
from kip848_client.member.events import AssignPartitions, StateChanged
from kip848_client.member.states import FATAL, HEARTBEATING, TRANSITIONS, MemberState, Transition
from kip848_client.model import TopicIdPartition
from kip848_client.simulation.consumer import SimulatedConsumer
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.schema import Request, Response

if TYPE_CHECKING:
    from kip848_client.simulation.application import ListenerCall

Consumers = Callable[[], Sequence[SimulatedConsumer]]

_REQUESTS_MAX: Final = 12
"""Requests under way at most, but for commits, of which an application may ask for one after every poll()."""
_CALLS_MAX: Final = 4
"""Listener calls that wait for poll() at most."""


class ListenerPairs(Observer):
    """C3: per partition assigned and (revoked or lost) alternate; calls never overlap; there is none after close.

    A call that raised is repeated, so it counts only when it returned. C2: the coordinator is told that a partition is
    given up only after its listener call returned, and no record is handed out outside of what a listener was given.
    """

    def __init__(self) -> None:
        self._has: defaultdict[str, set[TopicIdPartition]] = defaultdict(set)
        self._offered: defaultdict[str, set[TopicIdPartition]] = defaultdict(set)
        """What a listener was called for with "assigned", though it may have raised, and was not yet given up."""
        self._running: set[str] = set()

    def listener_begins(self, consumer: SimulatedConsumer, name: str, partitions: Iterable[TopicIdPartition]) -> None:
        """One at a time, and only what fits."""
        partitions = frozenset(partitions)
        if consumer.name in self._running:
            fail("C3", f"two listener calls of {consumer.name} overlap")
        if consumer.closed:
            fail("C3", f"{consumer.name} is closed and its listener is called")
        if consumer.application.calls_waiting > _CALLS_MAX:
            fail("C8", f"{consumer.application.calls_waiting} listener calls of {consumer.name} wait for poll()")
        self._running.add(consumer.name)
        if name == "assigned":
            if again := partitions & self._has[consumer.name]:
                fail("C3", f"{consumer.name}: {sorted(map(str, again))} assigned twice")
            self._offered[consumer.name] |= partitions
        elif not partitions:
            fail("C3", f"{consumer.name}: {name} without partitions")
        elif name == "revoked" and not all(consumer.application.holds(tip.topic_partition) for tip in partitions):
            fail("C2", f"{consumer.name} revokes {sorted(map(str, partitions))}, and not all of them are paused")
        elif strange := partitions - self._offered[consumer.name]:
            fail("C3", f"{consumer.name}: {sorted(map(str, strange))} {name}, which were not assigned")

    def listener_ended(
        self, consumer: SimulatedConsumer, name: str, partitions: Iterable[TopicIdPartition], error: object
    ) -> None:
        """Count what returned; a lost partition is gone even if the listener raised."""
        self._running.discard(consumer.name)
        if name == "assigned" and error is None:
            self._has[consumer.name] |= set(partitions)
        elif name == "lost" or error is None:
            self._has[consumer.name] -= set(partitions)
            self._offered[consumer.name] -= set(partitions)

    @about(ConsumerGroupHeartbeatRequest)
    def sent(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """C2: what a heartbeat says is owned leaves out nothing that the listener was given."""
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        if request.member_epoch <= 0 or request.topic_partitions is None:
            return
        named = {(topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions}
        kept = [tip for tip in self._has[consumer.name] if (tip.topic_id, tip.partition) not in named]
        if kept:
            fail("C2", f"{consumer.name} gave up {sorted(map(str, kept))} before on_partitions_revoked")

    def handed_out(self, consumer: SimulatedConsumer, partition: TopicIdPartition, offsets: range) -> None:
        """C2: no record before on_partitions_assigned returned, none after revoked or lost began."""
        if partition not in self._has[consumer.name]:
            fail("C2", f"{consumer.name} was handed {partition} {offsets} without having it")
        if consumer.name in self._running:
            fail("C2", f"{consumer.name} was handed records inside a listener call")

    def closed(self, consumer: SimulatedConsumer) -> None:
        """C3: nothing is left after close()."""
        if consumer.view.assigned:
            fail("C3", f"{consumer.name} closed and owns partitions")


class ToldOwnership(Observer):
    """C1: a member does not read, nor begin to take, what it told the coordinator that it does not have.

    Until the coordinator has answered: it may give that away as soon as it hears it, and it may hear it late.
    """

    def __init__(self) -> None:
        self._told: dict[str, tuple[Request[Any], frozenset[tuple[UUID, int]]]] = {}
        """Consumer -> the last heartbeat, and what it or one before it, neither answered, says to be owned."""

    @about(ConsumerGroupHeartbeatRequest)
    def sent(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """Note what is told."""
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        if request.member_epoch < 0:
            return
        if request.topic_partitions is not None:
            owned = {(topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions}
            self._told[consumer.name] = (request, frozenset(owned))
        elif consumer.name in self._told:
            self._told[consumer.name] = (request, self._told[consumer.name][1])

    @about(ConsumerGroupHeartbeatRequest)
    def unsent(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """Told to nobody, which the member does not know yet."""
        self.sent(consumer, request)

    @about(ConsumerGroupHeartbeatRequest)
    def answered(self, consumer: SimulatedConsumer, request: Request[Any], response: Response) -> None:
        """Now it is known what became of it."""
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        told = self._told.get(consumer.name)
        if told is not None and told[0] is request and not response.error_code:
            del self._told[consumer.name]

    def state_changed(self, consumer: SimulatedConsumer, effect: StateChanged) -> None:
        """Whoever is out of the group has nothing, and reads nothing."""
        if effect.new in _OUT:
            self._told.pop(consumer.name, None)

    def listener_due(self, consumer: SimulatedConsumer, call: ListenerCall) -> None:
        """Look at what is about to be taken."""
        if isinstance(call, AssignPartitions) and consumer.name in self._told:
            self._compare(consumer, {(tip.topic_id, tip.partition) for tip in call.partitions}, "takes")

    def view_changed(self, consumer: SimulatedConsumer) -> None:
        """Look at what is read."""
        if consumer.name in self._told:
            view = consumer.view
            read = {(topic_id, index) for topic, index, topic_id in view.assigned if (topic, index) in view.readable}
            self._compare(consumer, read, "reads")

    def _compare(self, consumer: SimulatedConsumer, used: set[tuple[UUID, int]], how: str) -> None:
        if not used <= self._told[consumer.name][1]:
            fail("C1", f"{consumer.name} {how} what it has told the coordinator that it does not have")


class OneHeartbeat(Observer):
    """C4: one heartbeat under way, the leave excepted; a join brings everything, and owns nothing.

    Who leaves says so, if there is a coordinator to hear it; a static member says that it will be back.

    C8: requests under way stay few.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Request[Any]] = {}
        """Consumer -> the heartbeat whose answer it waits for; not one that it gave up."""
        self._full_next: set[str] = set()
        self._said_goodbye: set[str] = set()
        self._under_way: defaultdict[str, int] = defaultdict(int)

    def sent(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """Look at a request that leaves."""
        name = consumer.name
        if not isinstance(request, OffsetCommitRequest):
            self._under_way[name] += 1
            if self._under_way[name] > _REQUESTS_MAX:
                fail("C8", f"{name} has {self._under_way[name]} requests under way")
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return
        phase = consumer.member.phase
        if phase in FATAL:
            fail("C4", f"{name} is FATAL and sends a heartbeat")
        if request.member_epoch < 0:
            self._said_goodbye.add(name)
            if request.member_epoch != (_LEAVES if request.instance_id is None else _LEAVES_FOR_A_WHILE):
                fail("C4", f"{name} leaves with {request}")
            return
        if phase not in HEARTBEATING:
            fail("C4", f"{name} is {phase.name} and sends {request}")
        if name in self._waiting:
            fail("C4", f"{name} has two heartbeats under way")
        self._waiting[name] = request
        full = (
            request.rebalance_timeout_ms > 0
            and request.subscribed_topic_names is not None
            and request.topic_partitions is not None
        )
        if request.member_epoch == 0 and not (full and request.topic_partitions == ()):
            fail("C4", f"{name} joins with {request}")
        if name in self._full_next:
            if not full:
                fail("C4", f"{name} sends a partial heartbeat after a failure: {request}")
            self._full_next.discard(name)

    def answered(self, consumer: SimulatedConsumer, request: Request[Any], response: Response) -> None:
        """The next one may go."""
        self._under_way[consumer.name] -= not isinstance(request, OffsetCommitRequest)
        if self._waiting.get(consumer.name) is request:
            assert isinstance(response, ConsumerGroupHeartbeatResponse)
            self._ended(consumer, failed=bool(response.error_code))

    def unanswered(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """The next one may go, and must be full."""
        self._under_way[consumer.name] -= not isinstance(request, OffsetCommitRequest)
        if self._waiting.get(consumer.name) is request:
            self._ended(consumer, failed=True)

    def _ended(self, consumer: SimulatedConsumer, *, failed: bool) -> None:
        del self._waiting[consumer.name]
        if failed:
            self._full_next.add(consumer.name)

    def state_changed(self, consumer: SimulatedConsumer, effect: StateChanged) -> None:
        """A member that left its group, or was removed, waits for no answer any more."""
        if effect.new in _OUT:
            name = consumer.name
            self._waiting.pop(name, None)
            self._full_next.discard(name)
            silent = effect.trigger == "left" and name not in self._said_goodbye
            if silent and consumer.network.connected and consumer.member.coordinator is not None:
                fail("C4", f"{name} leaves and does not say so")
            self._said_goodbye.discard(name)


_LEAVES: Final = -1
_LEAVES_FOR_A_WHILE: Final = -2
_OUT: Final = frozenset({MemberState.RELEASING_ASSIGNMENT, MemberState.UNJOINED, MemberState.FATAL})

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
    }
)
"""Codes of a heartbeat's answer after which a member may be FATAL. A simulated one waits for its instance id."""


class LegalMoves(Observer):
    """C5: only declared moves between public states; FATAL only after an error that no retry cures, and for good."""

    def __init__(self) -> None:
        self._state: defaultdict[str, MemberState] = defaultdict(lambda: MemberState.UNJOINED)
        self._last_code: dict[str, int] = {}

    @about(ConsumerGroupHeartbeatRequest)
    def answered(self, consumer: SimulatedConsumer, request: Request[Any], response: Response) -> None:
        """Remember the error that a heartbeat brought."""
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code:
            self._last_code[consumer.name] = response.error_code

    def state_changed(self, consumer: SimulatedConsumer, effect: StateChanged) -> None:
        """Look at a move."""
        name = consumer.name
        if Transition(effect.trigger, effect.old, effect.new) not in _MOVES:
            fail("C5", f"{name}: {effect.old.name} to {effect.new.name} by {effect.trigger} is not declared")
        if self._state[name] is not effect.old:
            fail("C5", f"{name} moved from {effect.old} unseen")
        self._state[name] = effect.new
        if effect.new is MemberState.FATAL and self._last_code.get(name) not in _INCURABLE:
            fail("C5", f"{name} became FATAL by {effect.trigger}; its last error was {self._last_code.get(name)}")

    def stopped(self, consumer: SimulatedConsumer, error: Kip848Error) -> None:
        """The error that is raised says which code it was, and which pattern if that was refused."""
        code = self._last_code.get(consumer.name)
        if not isinstance(error, FatalGroupError) or error.code != code:
            fail("C5", f"{consumer.name} stops after error {code}, and says {error!r}")
        pattern = consumer.subscription.pattern if code == ErrorCode.INVALID_REGULAR_EXPRESSION else None
        if (_PATTERN in str(error)) != (pattern is not None):
            fail("C5", f"{consumer.name} wants {pattern!r}, and stops with {error!r}")


_MOVES: Final = frozenset(TRANSITIONS)
_PATTERN: Final = "(pattern "


class BoundedWork(Observer):
    """C8: every commit that the application asks for is answered, and nobody asks for the coordinator in a loop."""

    def __init__(self, consumers: Consumers) -> None:
        self._consumers = consumers
        self._lookups: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=_LOOKUPS_MAX))

    @about(FindCoordinatorRequest)
    def sent(self, consumer: SimulatedConsumer, request: Request[Any]) -> None:
        """Count lookups."""
        lookups, now_ms = self._lookups[consumer.name], consumer.world.now_ms
        if len(lookups) == _LOOKUPS_MAX and now_ms - lookups[0] < _SECOND_MS:
            fail("C8", f"{consumer.name} looked for the coordinator {_LOOKUPS_MAX} times within a second")
        lookups.append(now_ms)

    def converged(self) -> None:
        """Look for commits that nobody heard of again. Without a coordinator they wait for one, however long."""
        for consumer in self._consumers():
            sent_ms = max(consumer.thaws_ms, consumer.network.connected_ms)
            for commit_id, asked_ms in consumer.commits_asked.items():
                waits_ms = consumer.world.now_ms - max(asked_ms, sent_ms)
                if not consumer.closed and waits_ms > consumer.config.request_timeout_ms + 2 * _SECOND_MS:
                    fail("C8", f"{consumer.name} asked for commit {commit_id} {waits_ms} ms ago and heard nothing")


_SECOND_MS: Final = 1_000
_LOOKUPS_MAX: Final = 20
"""Lookups of the coordinator within a second of virtual time at most: the first retries come after a tenth of one."""
