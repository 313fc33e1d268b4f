"""A member with its process around it: the production `Member`, its timers, its network and its application.

Performs effects as the client's shell does. Each process has a clock of its own, which starts anywhere and runs a
little fast or slow; and it may stand still, as a paused virtual machine does, while its clock goes on.

Does not own: polling and listeners (`application`), requests (`clientside`), when members come and go (`actions`), what
is right or wrong (the checkers).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, assert_never

from kip848_client.member.assignor_events import (
    AssignorFailed,
    AssignorsUnsupported,
    CallOnAssignment,
    DescribeAssignors,
    RunAssignor,
)
from kip848_client.member.events import (
    AssignPartitions,
    CommitDone,
    ConnectCoordinator,
    Fail,
    LeaveDone,
    LeaveRequested,
    ListOffsets,
    LosePartitions,
    MemberEffect,
    MemberEvent,
    OffsetsFetched,
    PausePartitions,
    RequestMetadata,
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
from kip848_client.model import Subscription, TopicPartition
from kip848_client.simulation.application import ApplicationLoop, UserCode
from kip848_client.simulation.clientside import ClientSide
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.coverage import Coverage
from kip848_client.simulation.network import Network
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.scenario import Behaviour
from kip848_client.simulation.user_assignor import UserAssignor
from kip848_client.simulation.violation import fail
from kip848_client.simulation.wakeups import Wakeups
from kip848_client.simulation.world import Timer, World
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_SLACK_MS: Final = 5
"""What whole milliseconds of two clocks make of a wait."""


class SimulatedConsumer:
    """One consumer, from its start to its close or crash.

    Args:
        name: client id; also who the history says it is.
        clock_ms: what its monotonic clock shows at virtual time 0.
        clock_rate: ms of its clock in one ms of virtual time.
        close_ms: how long close() may take.
        probing: the member is asked at times at which it should have nothing to do (`wakeups`).
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
        coverage: Coverage,
        readers: dict[TopicPartition, dict[ApplicationLoop, None]],
        clock_ms: int = 0,
        clock_rate: float = 1.0,
        close_ms: int = 30_000,
        metadata_lag_ms: int = 0,
        user_code: UserCode | None = None,
        probing: bool = False,
    ) -> None:
        self.name: Final = name
        self.config: Final = config
        self.world: Final = world
        self._rng = world.random(f"application {name}")
        self._random = self._rng.random
        self._observer: Final = observer
        self._coverage: Final = coverage
        self._clock_ms: Final = clock_ms
        self._clock_rate: Final = clock_rate
        self._close_ms: Final = close_ms
        self.member: Final = Member(config, rng=self._rng)
        self.view = self.member.view()
        """What its application sees of the member, as of the last step."""
        self.subscription = Subscription()
        """What the application wants."""
        self.closed = False
        """close() returned, or the process died."""
        self.failed = False
        """The member is FATAL."""
        self._call_id = 0
        self.commits_asked: Final[dict[int, int]] = {}
        """Commits that were not answered yet -> when the application asked for them, in virtual time."""
        self._leave_id: int | None = None
        self.close_by_ms = 0
        """When close() must return at the latest, on its own clock."""
        self._deadline_ms: int | None = None
        self._tick: Timer | None = None
        self._tick_ms = 0
        self.thaws_ms = 0
        """Until when the process stands still, or stood last, in virtual time."""
        self.network: Final = ClientSide(
            self, network=network, cluster=cluster, observer=observer, metadata_lag_ms=metadata_lag_ms
        )
        offers = world.random(f"offers {name}") if probing and config.client_assignors else None
        self.assignor: Final = UserAssignor(self, observer=observer, offers=offers)
        self._wakeups: Final = Wakeups(self, world.random(f"wakeups {name}")) if probing else None
        self.application: Final = ApplicationLoop(
            self,
            topics=cluster.topics,
            readers=readers,
            observer=observer,
            behaviour=behaviour,
            user_code=user_code,
        )

    # ---------------------------------------------------------------------------------------------- what is done to it

    def start(self, subscription: Subscription) -> None:
        """Subscribe, and begin to poll."""
        self.subscription = subscription
        self.step(SubscriptionChanged(subscription))
        self.application.start()

    def subscribe(self, subscription: Subscription) -> None:
        """Want something else; a process that stands still does when it thaws, the last wish of several."""
        self.subscription = subscription
        self.awake(self._subscribe)

    def _subscribe(self) -> None:
        if not self.closed and self._leave_id is None:
            self.step(SubscriptionChanged(self.subscription))

    def close(self) -> None:
        """Leave in order."""
        self.awake(self._close)

    def _close(self) -> None:
        if self.closed or self._leave_id is not None:
            return
        self.note("closing")
        self._leave_id = self.next_call()
        self.application.close()
        close_ms = self._close_ms if self._wakeups is None else self._wakeups.close_ms(self._close_ms)
        self.close_by_ms = deadline_ms = self.now_ms + close_ms
        self.step(LeaveRequested(self._leave_id, deadline_ms, closing=True))
        if self._wakeups is not None:  # somebody else closes it too, and has more time
            self.step(LeaveRequested(self.next_call(), deadline_ms + self._close_ms, closing=True))
        self.later(int(close_ms / self._clock_rate) + _SLACK_MS, lambda: self._close_is_late(close_ms))
        self.application.pump()

    def _close_is_late(self, close_ms: int) -> None:
        """L4: close() returns by its deadline; listeners that hang are not its fault."""
        if self.closed:
            return
        if not self.member.view().awaiting_app:
            fail("L4", f"{self.name}: close() did not return in {close_ms} ms")
        self.crash()

    def crash(self) -> None:
        """The process dies: nothing more is sent, said or done."""
        if not self.closed:
            self.note("crashed")
            self.closed = True
            self._observer.crashed(self)
            self.network.disconnect()
            self._is_gone()

    def freeze(self, for_ms: int) -> None:
        """The process stands still; its clock does not."""
        self.note("frozen", ms=for_ms)
        self.thaws_ms = max(self.thaws_ms, self.world.now_ms + for_ms)  # a second one does not end the first

    # --------------------------------------------------------------------------------------------- what it is, to users

    @property
    def frozen(self) -> bool:
        """Whether the process stands still."""
        return self.world.now_ms < self.thaws_ms

    @property
    def leaving(self) -> bool:
        """close() was called and has not returned."""
        return self._leave_id is not None and not self.closed

    @property
    def readable(self) -> frozenset[TopicPartition]:
        """Partitions whose records poll() may hand out now."""
        return frozenset() if self.closed else self.view.readable

    def assignment(self) -> frozenset[TopicPartition]:
        """Partitions that the application has."""
        return frozenset(tip.topic_partition for tip in self.member.view().assigned)

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset that poll() returns of a partition, if it is fetched."""
        return self.application.position(partition)

    def commit(self) -> None:
        """Commit asynchronously what poll() returned; allowed inside a listener."""
        self.world.call_in(0, lambda: None if self.closed else self.application.commit())

    @property
    def now_ms(self) -> int:
        """Its own monotonic clock."""
        return self._clock_ms + int(self.world.now_ms * self._clock_rate)

    # ------------------------------------------------------------------------------------------------ time, randomness

    def awake(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run *action* now, or when the process thaws."""
        if self.world.now_ms < self.thaws_ms:
            self.world.call_in(self.thaws_ms - self.world.now_ms, lambda: self.awake(action, *arguments))
        else:
            action(*arguments)

    def later(self, delay_ms: int, action: Callable[[], None]) -> Timer:
        """Run *action* in *delay_ms*, or when the process thaws after that."""
        return self.world.call_in(delay_ms, lambda: self.awake(action))

    def draw(self, low: int, high: int) -> int:
        """A number from *low* to *high*."""
        return low + int(self._random() * (high - low + 1))

    def chance(self, part: float) -> bool:
        """True in *part* of the cases."""
        return self._random() < part

    def next_call(self) -> int:
        """A number for a commit or leave."""
        self._call_id += 1
        return self._call_id

    def note(self, what: str, **details: Any) -> None:
        """Write to the history."""
        history = self.world.history
        if history.keeps:
            history.add(self.world.now_ms, self.name, what, **details)
        else:
            history.count(what)

    # ------------------------------------------------------------------------------------------------------ the engine

    def step(self, event: MemberEvent) -> None:
        """Tell the member, and do what it says."""
        if self.closed:
            return
        member = self.member
        self._coverage.member_event(member.phase, event)
        now_ms = self._clock_ms + int(self.world.now_ms * self._clock_rate)
        if self._wakeups is not None:
            self._wakeups.told(event)
        effects = member.step(event, now_ms=now_ms)
        if self._wakeups is not None:
            self._wakeups.asked(effects)
        view, before = member.view(), self.view
        self.view = view
        for effect in effects:
            self._perform(effect)
        if not self.closed:
            self._deadline_ms = deadline_ms = member.deadline_ms()
            if deadline_ms is not None:
                self._arm(deadline_ms - now_ms)
        if view is not before:
            self.world.dirty = True
            self._observer.view_changed(self)
        if self._wakeups is not None:
            self._wakeups.stepped()
        # poll() waits on the queue between the two threads: it goes on as soon as there is something.
        if self.application.polling:
            self.application.pump()

    def _arm(self, wait_ms: int) -> None:
        """Keep one timer, at the member's deadline (in *wait_ms* of its clock) or before it."""
        if wait_ms > 0:
            if self._clock_rate != 1.0:
                wait_ms = int(wait_ms / self._clock_rate) + 1
        else:
            wait_ms = 0
        at_ms = self.world.now_ms + wait_ms
        if self._tick is not None:
            if self._tick_ms <= at_ms:
                return
            self._tick.cancel()
        self._tick_ms = at_ms
        self._tick = self.world.call_in(wait_ms, self._ticked)

    def _ticked(self) -> None:
        if self.world.now_ms < self.thaws_ms:
            self._tick_ms = self.thaws_ms
            self._tick = self.world.call_in(self.thaws_ms - self.world.now_ms, self._ticked)
            return
        self._tick = None
        if self.closed:
            return
        deadline_ms = self._deadline_ms
        if deadline_ms is not None and deadline_ms <= self.now_ms:
            self.world.events += 1
            self.step(Tick(self.app_polled_ms))
            if self._deadline_ms is not None and self._deadline_ms <= deadline_ms and not self.closed:
                fail("C9", f"{self.name} was woken at {self.now_ms}, and wants to be at {self._deadline_ms} again")
        elif deadline_ms is not None:
            self._arm(deadline_ms - self.now_ms)

    @property
    def app_polled_ms(self) -> int:
        """When its application last was inside poll(), on its own clock."""
        return self._clock_ms + int(self.application.last_polled_ms * self._clock_rate)

    def _perform(self, effect: MemberEffect) -> None:
        match effect:
            case SendRequest():
                if isinstance(effect.request, ConsumerGroupHeartbeatRequest):
                    self._note_heartbeat()
                self.network.send(effect)
            case RevokePartitions() | AssignPartitions() | LosePartitions():
                self._observer.listener_due(self, effect)
                self.application.call(effect)
            case StateChanged(old, new, trigger, epoch):
                self.note("state_changed", old=old.name, new=new.name, trigger=trigger, epoch=epoch)
                self._observer.state_changed(self, effect)
            case StartFetching(positions):
                self.application.start_fetching(positions)
            case PausePartitions(partitions):
                self.application.hold(partitions)
            case StopFetching(partitions):
                self.application.let_go(partitions)
            case CommitDone(commit_id, _, error):
                self._observer.commit_ended(self, effect)
                self.commits_asked.pop(commit_id, None)
                if error is None:
                    self.note("commit_done")
                else:
                    self.note("commit_failed", error=error)
            case ConnectCoordinator():
                self.network.connect_coordinator(effect)
            case RequestMetadata():
                self.network.ask_names(effect)
            case ListOffsets():
                self.network.list_offsets(effect)
            case LeaveDone(leave_id):
                if leave_id == self._leave_id:
                    self._end()
            case SurfaceError(error):
                self._observer.error_surfaced(self, error)
                self.note("error_surfaced", error=error)
                self.application.raised(error)
            case Fail(error):
                self._observer.stopped(self, error)
                self.failed = True
                self.note("member_failed", error=str(error))
            case DescribeAssignors() | RunAssignor() | CallOnAssignment():
                self.assignor.call(effect)
            case AssignorFailed(error):
                self.note("assignor_failed", error=error)
            case OffsetsFetched():
                self._observer.offsets_told(self, effect)
                self.application.told_offsets(effect)
            case AssignorsUnsupported():
                pass
            case _:
                assert_never(effect)

    def _note_heartbeat(self) -> None:
        sent_ms, due_ms = self.member.statistics.last_heartbeat_ms, self.member.statistics.last_heartbeat_due_ms
        assert sent_ms is not None
        now_ms = self.world.now_ms
        self.note("heartbeat_sent", due_ms=None if due_ms is None else now_ms - (sent_ms - due_ms), sent_ms=now_ms)

    def _end(self) -> None:
        if not self.closed:
            self.note("closed")
            self.closed = True
            self._observer.closed(self)
            # What was written before the close still arrives.
            self.world.call_in(1_000, self.network.disconnect)
            self._is_gone()

    def _is_gone(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
        self.application.gone()
