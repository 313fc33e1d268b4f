"""A member with its application around it: the production `Member`, a loop that polls, listeners that take their time.

Performs effects as the client's shell does: requests go into the network, listener calls wait for the application to be
inside poll(), records are handed out only by poll() and only of partitions that the member calls readable. What the
application does and when is drawn from its own randomness (`Behaviour`).

Does not own: what is right or wrong (`checkers`), when members come and go (`scenario`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kip848_client.member.events import (
    AppPolled,
    AssignPartitions,
    CommitDone,
    CommitKind,
    CommitRequested,
    ConnectCoordinator,
    CoordinatorConnected,
    CoordinatorDisconnected,
    Destination,
    Fail,
    FailureKind,
    LeaveDone,
    LeaveRequested,
    ListenerDone,
    ListOffsets,
    LosePartitions,
    MemberEffect,
    MemberEvent,
    MetadataUpdated,
    OffsetsFetched,
    OffsetsListed,
    PausePartitions,
    RequestFailed,
    RequestMetadata,
    ResponseReceived,
    RevokePartitions,
    SendRequest,
    StartFetching,
    StateChanged,
    StopFetching,
    SubscriptionChanged,
    SurfaceError,
    Tick,
)
from kip848_client.member.member import Member
from kip848_client.member.settings import MemberConfig
from kip848_client.model import OffsetAndMetadata, Subscription, TopicIdPartition, TopicPartition
from kip848_client.simulation.cluster import NODE, Cluster
from kip848_client.simulation.network import Connection, Network
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.world import Timer, World
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Request, Response

ListenerCall: TypeAlias = RevokePartitions | AssignPartitions | LosePartitions

VERSIONS: Final[dict[int, tuple[int, int]]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 6),
}
"""What the simulated broker offers."""

_CALL_NAMES: Final[dict[type[ListenerCall], str]] = {
    AssignPartitions: "assigned",
    RevokePartitions: "revoked",
    LosePartitions: "lost",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How an application acts. Times in ms of virtual time.

    Args:
        think_ms: (least, most) between two polls.
        listener_ms: (least, most) that a listener call takes.
        listener_raises: part of the listener calls that raise.
        hang: part of the listener calls that take longer than the rebalance timeout.
        stall: part of the polls after which the application does not poll for longer than max.poll.interval.ms.
        commit: part of the polls after which it commits by hand.
        rows_per_poll: most records that one poll() hands out.
    """

    think_ms: tuple[int, int] = (10, 200)
    listener_ms: tuple[int, int] = (0, 50)
    listener_raises: float = 0.0
    hang: float = 0.0
    stall: float = 0.0
    commit: float = 0.2
    rows_per_poll: int = 50


class SimulatedConsumer:
    """One consumer, from its start to its close or crash.

    Args:
        name: client id; also who the history says it is.
    """

    def __init__(
        self,
        name: str,
        *,
        world: World,
        network: Network,
        cluster: Cluster,
        config: MemberConfig,
        behaviour: Behaviour,
        observer: Observer,
    ) -> None:
        self.name: Final = name
        self.config: Final = config
        self.behaviour = behaviour
        self._world = world
        self._network = network
        self._cluster = cluster
        self._observer = observer
        self._rng = world.random(f"application {name}")
        self.member: Final = Member(config, rng=world.random(f"member {name}"))
        self.closed = False
        """close() returned, or the process died."""
        self.failed = False
        """The member is FATAL."""
        self._positions: dict[TopicPartition, int] = {}
        """Fetched partitions -> next offset."""
        self._held: set[TopicPartition] = set()
        self._consumed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._calls: deque[ListenerCall] = deque()
        self._listener: ListenerCall | None = None
        self._polling = False
        self._poll_started_ms = 0
        self._last_polled_ms = 0
        self._call_id = 0
        self._leaving: int | None = None
        self._connection: Connection | None = None
        self._bootstrap: Connection | None = None
        self._tick: Timer | None = None
        self._thaws_ms = 0

    # ---------------------------------------------------------------------------------------------- what is done to it

    def start(self, subscription: Subscription) -> None:
        """Subscribe, and begin to poll."""
        self.step(SubscriptionChanged(subscription))
        self._later(self._draw(self.behaviour.think_ms), self._poll)

    def subscribe(self, subscription: Subscription) -> None:
        """Want something else."""
        self._awake(lambda: self._subscribe(subscription))

    def _subscribe(self, subscription: Subscription) -> None:
        if not self.closed and self._leaving is None:
            self.step(SubscriptionChanged(subscription))

    def close(self) -> None:
        """Leave in order: close() with its default time."""
        self._awake(self._close)

    def _close(self) -> None:
        if self.closed or self._leaving is not None:
            return
        self._note("closing")
        self._leaving = self._next_call()
        self._polling = True
        self.step(LeaveRequested(self._leaving, self._world.now_ms + 30_000, closing=True))
        self._world.call_in(30_000, self._closed)
        self._pump()

    def crash(self) -> None:
        """The process dies: nothing more is sent, said or done."""
        if not self.closed:
            self._note("crashed")
            self.closed = True
            self._observer.crashed(self)
            self._disconnect_all()

    @property
    def leaving(self) -> bool:
        """close() was called and has not returned."""
        return self._leaving is not None and not self.closed

    @property
    def readable(self) -> frozenset[TopicPartition]:
        """Partitions whose records poll() may hand out now."""
        return frozenset() if self.closed else self.member.view().readable

    def freeze(self, for_ms: int) -> None:
        """The process stands still; its clock does not."""
        self._note("frozen", ms=for_ms)
        self._thaws_ms = self._world.now_ms + for_ms

    def _awake(self, action: Callable[[], None]) -> None:
        """Run *action* now, or when the process thaws."""
        if self._world.now_ms < self._thaws_ms:
            self._world.call_in(self._thaws_ms - self._world.now_ms, lambda: self._awake(action))
        else:
            action()

    def _later(self, delay_ms: int, action: Callable[[], None]) -> Timer:
        return self._world.call_in(delay_ms, lambda: self._awake(action))

    # ------------------------------------------------------------------------------------------------------ the engine

    def step(self, event: MemberEvent) -> None:
        """Tell the member, and do what it says."""
        if self.closed:
            return
        effects = self.member.step(event, now_ms=self._world.now_ms)
        for effect in effects:
            self._observer.effect(self, effect)
            self._perform(effect)
        self._arm()
        if self._polling and self._listener is None:
            # poll() waits on the queue between the two threads: it goes on as soon as there is something.
            self._later(0, self._pump)

    def _arm(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        deadline_ms = self.member.deadline_ms()
        if deadline_ms is not None and not self.closed:
            self._tick = self._later(max(0, deadline_ms - self._world.now_ms), self._ticked)

    def _ticked(self) -> None:
        self._tick = None
        waiting = self._polling and self._listener is None
        self.step(Tick(app_polled_ms=self._world.now_ms if waiting else self._last_polled_ms))

    def _perform(self, effect: MemberEffect) -> None:
        match effect:
            case SendRequest():
                self._send(effect)
            case ConnectCoordinator():
                self._connect_coordinator(effect)
            case RequestMetadata(request_id, topic_ids, timeout_ms):
                self._ask_cluster(
                    request_id,
                    timeout_ms,
                    lambda: MetadataUpdated(
                        {
                            topic_id: topic.name
                            for topic_id, topic in self._cluster.topics.by_id.items()
                            if topic_id in topic_ids
                        },
                        request_id,
                    ),
                )
            case ListOffsets(request_id, timestamps, timeout_ms):
                ends = self._cluster.end_offsets
                self._ask_cluster(
                    request_id,
                    timeout_ms,
                    lambda: OffsetsListed(
                        request_id,
                        {
                            partition: OffsetAndMetadata(0 if timestamp == -2 else ends[partition], 0)
                            for partition, timestamp in timestamps.items()
                            if partition in ends
                        },
                        {partition: 3 for partition in timestamps if partition not in ends},
                    ),
                )
            case PausePartitions(partitions):
                self._held |= {partition.topic_partition for partition in partitions}
            case RevokePartitions() | AssignPartitions() | LosePartitions():
                self._calls.append(effect)
            case StartFetching(positions):
                self._start_fetching({tip.topic_partition: at.offset for tip, at in positions.items()})
            case StopFetching(partitions):
                self._let_go(partitions)
            case LeaveDone(leave_id):
                if leave_id == self._leaving:
                    self._closed()
            case StateChanged(old, new, trigger, epoch):
                self._note("state_changed", old=old.name, new=new.name, trigger=trigger, epoch=epoch)
            case SurfaceError(error):
                self._note("error_surfaced", error=type(error).__name__)
            case Fail(error):
                self.failed = True
                self._note("member_failed", error=str(error))
            case CommitDone(_, _, error):
                self._note("commit_failed" if error else "commit_done", error=type(error).__name__ if error else None)
            case OffsetsFetched():
                pass

    # -------------------------------------------------------------------------------------------------------- requests

    def _send(self, effect: SendRequest) -> None:
        if effect.destination is Destination.COORDINATOR:
            if self._connection is None or not self._connection.open:
                self._fail_later(effect.request_id, FailureKind.DISCONNECTED, "no connection to the coordinator")
                return
            self._write(self._connection, effect)
            return
        if self._bootstrap is not None and self._bootstrap.open:
            self._write(self._bootstrap, effect)
            return

        def opened(connection: Connection) -> None:
            self._bootstrap = connection
            if not self.closed:
                self._write(connection, effect)

        self._network.connect(
            self.name,
            on_open=lambda connection: self._awake(lambda: opened(connection)),
            on_failure=lambda kind, message: self._awake(
                lambda: self.step(RequestFailed(effect.request_id, kind, message))
            ),
        )

    def _write(self, connection: Connection, effect: SendRequest) -> None:
        request = effect.request
        highest = VERSIONS[ApiKey(request.WIRE.api_key)][1]
        request_id = effect.request_id
        self._observer.sent(self, request)
        self._network.send(
            connection,
            request,
            api_version=highest if effect.max_version is None else min(highest, effect.max_version),
            timeout_ms=effect.timeout_ms,
            on_answer=lambda response: self._awake(lambda: self._answered(request_id, request, response)),
            on_failure=lambda kind, message: self._awake(lambda: self._unanswered(request_id, request, kind, message)),
        )

    def _unanswered(self, request_id: int, request: Request[Any], kind: FailureKind, message: str) -> None:
        if not self.closed:
            self._observer.unanswered(self, request)
            self.step(RequestFailed(request_id, kind, message))

    def _answered(self, request_id: int, request: Request[Any], response: Response) -> None:
        if not self.closed:
            self._observer.answered(self, request, response)
            self.step(ResponseReceived(request_id, response))

    def _connect_coordinator(self, effect: ConnectCoordinator) -> None:
        assert effect.node == NODE

        def opened(connection: Connection) -> None:
            if self._connection is not None:
                self._network.close(self._connection, "replaced by a new one")
            self._connection = connection
            self.step(CoordinatorConnected(effect.request_id, VERSIONS))

        self._network.connect(
            self.name,
            on_open=lambda connection: self._awake(lambda: opened(connection)),
            on_failure=lambda kind, message: self._awake(
                lambda: self.step(RequestFailed(effect.request_id, kind, message))
            ),
        )

    def _ask_cluster(self, request_id: int, timeout_ms: int, answer: Any) -> None:
        """A question about topics, to whichever broker; it is as reachable as the coordinator."""
        if self._cluster.up and self.name not in self._network.cut_off:
            self._later(self._rng.randint(0, 10), lambda: self.step(answer()))
        else:
            self._later(
                min(timeout_ms, 500),
                lambda: self.step(RequestFailed(request_id, FailureKind.DISCONNECTED, "no broker answers")),
            )

    def _fail_later(self, request_id: int, kind: FailureKind, message: str) -> None:
        self._later(0, lambda: self.step(RequestFailed(request_id, kind, message)))

    def disconnected(self) -> None:
        """The coordinator's connection broke; those who wait on it were told already."""
        self._awake(self._disconnected)

    def _disconnected(self) -> None:
        if self._connection is not None and not self._connection.open:
            self._connection = None
            self.step(CoordinatorDisconnected(NODE.node_id))

    def _disconnect_all(self) -> None:
        for connection in (self._connection, self._bootstrap):
            if connection is not None:
                self._network.close(connection, "the client is gone")

    # ----------------------------------------------------------------------------------------------- the application

    def _poll(self) -> None:
        if self.closed or self._leaving is not None or self.failed:
            return
        self._polling = True
        self._poll_started_ms = self._world.now_ms
        self._pump()

    def _pump(self) -> None:
        """Inside poll(): listeners first, then what the group wants, then records."""
        if self.closed or not self._polling or self._listener is not None:
            return
        if self._calls:
            self._call_listener(self._calls.popleft())
            return
        if self._leaving is not None:
            return
        view = self.member.view()
        if view.poll_wanted:
            self.step(AppPolled(dict(self._consumed)))
            return  # step() asked to be called again
        if view.awaiting_app and self._world.now_ms - self._poll_started_ms < 100:
            return  # a commit is under way: poll() waits as long as its caller allows
        if not view.awaiting_app:
            self._hand_out()
        self._end_poll()

    def _end_poll(self) -> None:
        self._polling = False
        self._last_polled_ms = self._world.now_ms
        if self._rng.random() < self.behaviour.commit and self._consumed and not self.failed:
            self.step(CommitRequested(self._next_call(), dict(self._consumed), CommitKind.ASYNC, None))
        wait_ms = self._draw(self.behaviour.think_ms)
        if self._rng.random() < self.behaviour.stall:
            wait_ms += self.config.max_poll_interval_ms
            self._note("application_stalls", ms=wait_ms)
        self._later(wait_ms, self._poll)

    def _hand_out(self) -> None:
        readable = self.member.view().readable
        left = self.behaviour.rows_per_poll
        for partition in sorted(self._positions):
            if partition in self._held or partition not in readable or left <= 0:
                continue
            start = self._positions[partition]
            stop = min(self._cluster.end_offsets.get(partition, start), start + left)
            if stop > start:
                left -= stop - start
                self._positions[partition] = stop
                self._consumed[partition] = OffsetAndMetadata(stop)
                self._observer.handed_out(self, partition, start=start, stop=stop)

    def _call_listener(self, call: ListenerCall) -> None:
        self._listener = call
        self._last_polled_ms = self._world.now_ms
        if isinstance(call, LosePartitions):
            self._let_go(call.partitions)
        name = _CALL_NAMES[type(call)]
        self._note(f"{name}_begins", partitions=[str(partition) for partition in sorted(call.partitions)])
        self._observer.listener_begins(self, name, call.partitions)
        raises = self._rng.random() < self.behaviour.listener_raises
        takes_ms = self._draw(self.behaviour.listener_ms)
        if self.behaviour.hang and self._rng.random() < self.behaviour.hang:
            takes_ms += self._rng.randint(1, 2 * self.config.rebalance_timeout_ms)
            self._note("listener_hangs", ms=takes_ms)
        self._later(takes_ms, lambda: self._listener_ended(call, name, raises))

    def _listener_ended(self, call: ListenerCall, name: str, raises: bool) -> None:
        if self.closed:
            return
        self._listener = None
        self._observer.listener_ended(self, name, call.partitions, raised=raises)
        if isinstance(call, RevokePartitions) and not raises:
            self._let_go(call.partitions)
        self._note(f"{name}_{'raised' if raises else 'ended'}")
        self.step(ListenerDone(call.token, RuntimeError("simulated") if raises else None))
        self._later(0, self._pump)

    def _start_fetching(self, positions: dict[TopicPartition, int]) -> None:
        for partition, offset in positions.items():
            self._positions[partition] = offset
            self._held.discard(partition)
            self._observer.fetching_started(self, partition, offset)

    def _let_go(self, partitions: frozenset[TopicIdPartition]) -> None:
        for tip in partitions:
            self._positions.pop(tip.topic_partition, None)
            self._consumed.pop(tip.topic_partition, None)
            self._held.discard(tip.topic_partition)

    def _closed(self) -> None:
        if not self.closed:
            self._note("closed")
            self.closed = True
            self._observer.closed(self)
            # What was written before the close still arrives.
            self._world.call_in(1_000, self._disconnect_all)

    def _next_call(self) -> int:
        self._call_id += 1
        return self._call_id

    def _draw(self, bounds: tuple[int, int]) -> int:
        return self._rng.randint(*bounds)

    def _note(self, what: str, **details: Any) -> None:
        self._world.history.add(self._world.now_ms, self.name, what, **details)
