"""A consumer: the production `Member` in its process, with timers, network and application.

Performs the effects of the member as the client's shell does.

Does not own: clock and random generator (`client_process`), polling and listeners (`application`), requests
(`client_side`), when members come and go (`actions`), the invariants (`checkers`).
"""

from __future__ import annotations

from typing import Final, Protocol, assert_never

from msgspec.structs import replace

from kip848_client.common.model import NamedPartition, Subscription, TopicIdPartition
from kip848_client.member.core.assignor_events import (
    AssignorFailed,
    AssignorsUnsupported,
    CallOnAssignment,
    DescribeAssignors,
    GroupRestless,
    RunAssignor,
)
from kip848_client.member.core.events import (
    AssignPartitions,
    CommitDone,
    ConnectCoordinator,
    DescribeTopics,
    Fail,
    GroupLeft,
    HandOverFailed,
    HandOverRequested,
    LeaveDone,
    LeaveRequested,
    ListOffsets,
    LosePartitions,
    MemberEffect,
    MemberEvent,
    MemberView,
    OffsetsFetched,
    PausePartitions,
    RequestMetadata,
    RevokePartitions,
    SendRequest,
    SlotsUnseen,
    SlotTaken,
    StandbyBegan,
    StartFetching,
    StateChanged,
    StopFetching,
    SubscriptionChanged,
    SurfaceError,
    Tick,
)
from kip848_client.member.core.settings import MemberConfig
from kip848_client.testing.simulation.actors.application import ApplicationLoop
from kip848_client.testing.simulation.actors.client_side import ClientSide
from kip848_client.testing.simulation.actors.processing import ProcessingLoop
from kip848_client.testing.simulation.actors.user_assignor import UserAssignor
from kip848_client.testing.simulation.observer import Surroundings
from kip848_client.testing.simulation.virtual.client_process import ClientProcess
from kip848_client.testing.simulation.virtual.scenario import Behaviour
from kip848_client.testing.simulation.virtual.scheduler import Timer
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest

HAND_OVER_MS: Final = 8_000
"""The time-out of a hand-over, as by default."""
_SLACK_MS: Final = 5
"""Tolerance for the rounding of two clocks to milliseconds."""


class UserCode(Protocol):
    """Callbacks of your own application in a simulation."""

    def on_partitions_assigned(self, consumer: SimulatedConsumer, partitions: list[NamedPartition]) -> None:
        """As in `ConsumerRebalanceListener`."""
        ...

    def on_partitions_revoked(self, consumer: SimulatedConsumer, partitions: list[NamedPartition]) -> None:
        """As in `ConsumerRebalanceListener`."""
        ...

    def on_partitions_lost(self, consumer: SimulatedConsumer, partitions: list[NamedPartition]) -> None:
        """As in `ConsumerRebalanceListener`."""
        ...

    def on_records(self, consumer: SimulatedConsumer, partition: NamedPartition, offsets: range) -> None:
        """poll() returned the records with these offsets."""
        ...


class SimulatedConsumer(ClientProcess):
    """A process with one consumer.

    Args:
        user_code: a user's own listener; the others are those of `ClientProcess`.
    """

    def __init__(
        self,
        name: str,
        surroundings: Surroundings,
        *,
        config: MemberConfig,
        behaviour: Behaviour,
        clock_ms: int,
        clock_rate: float,
        user_code: UserCode | None,
    ) -> None:
        super().__init__(
            name,
            scheduler=surroundings.scheduler,
            config=config,
            behaviour=behaviour,
            clock_ms=clock_ms,
            clock_rate=clock_rate,
        )
        self._observer: Final = surroundings.observer
        self._close_ms: Final = 2 * surroundings.scenario.session_timeout_ms
        """How long close() may take."""
        self._deadline_ms: int | None = None
        self._tick: Timer | None = None
        self._tick_ms = 0
        self._topics: Final = surroundings.cluster.topics
        self._seen = self.view
        """The last view of the member; `view` is the same with the ids of topics."""
        self.assignor: UserAssignor = UserAssignor(self)
        self.network: ClientSide = ClientSide(self, surroundings, self.assignor)
        loop = ProcessingLoop if surroundings.scenario.handlers else ApplicationLoop
        self.application: ApplicationLoop = loop(self, surroundings, user_code)
        self.handing_over_since_ms: int | None = None

    # --- commands

    def start(self, subscription: Subscription) -> None:
        """Subscribe, and begin to poll."""
        self.subscription: Subscription = subscription
        self.step(SubscriptionChanged(subscription))
        self.application.start()

    def subscribe(self, subscription: Subscription) -> None:
        """Change the subscription; a frozen process does so when it thaws, and then only the last change counts."""
        self.subscription = subscription
        self.awake(self._subscribe)

    def _subscribe(self) -> None:
        if not self.closed and self.leave_id is None:
            self.step(SubscriptionChanged(self.subscription))

    def hand_over(self) -> None:
        """Hand over, go on polling, and close when that has ended."""
        self.awake(self._hand_over)

    def _hand_over(self) -> None:
        if self.closed or self.leave_id is not None or self.handing_over_since_ms is not None:
            return
        self.note("handing_over")
        self.handing_over_since_ms = self.scheduler.now_ms
        self.step(HandOverRequested(self.now_ms + HAND_OVER_MS))
        self.later(int(HAND_OVER_MS / self._clock_rate) + _SLACK_MS, self._hand_over_is_late)

    def _hand_over_is_late(self) -> None:
        """L11: a hand-over ends by its deadline, whatever the others do, or the process is killed."""
        if not self.closed and self.member.view().handing_over:
            fail("L11", f"{self.name}: hand_over() did not end in {HAND_OVER_MS} ms")

    def close(self) -> None:
        """Close: leave the group, then end."""
        self.awake(self._close)

    def _close(self) -> None:
        if self.closed or self.leave_id is not None:
            return
        self.note("closing")
        self.leave_id: int | None = self.next_call()
        self.application.close()
        close_ms = self._close_ms
        deadline_ms = self.now_ms + close_ms
        self.close_by_ms: int = deadline_ms
        self.step(LeaveRequested(self.leave_id, deadline_ms, closing=True))
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
            self.closed: bool = True
            self.network.disconnect()
            self._is_gone()

    def freeze(self, for_ms: int) -> None:
        """Freeze the process; its clock goes on."""
        self.note("frozen", ms=for_ms)
        self.thaws_ms: int = max(self.thaws_ms, self.scheduler.now_ms + for_ms)  # a second one does not end the first

    # --- for a user's code

    def holds(self, partition: NamedPartition) -> bool:
        """Whether a partition is paused, or not fetched at all."""
        return self.application.holds(partition)

    def position(self, partition: NamedPartition) -> int | None:
        """The next offset that poll() returns of a partition, if it is fetched."""
        return self.application.position(partition)

    def commit(self) -> None:
        """Commit asynchronously what poll() returned; allowed inside a listener."""
        self.scheduler.call_in(0, lambda: None if self.closed else self.application.commit())

    # --- the engine

    def step(self, event: MemberEvent) -> None:
        """Give *event* to the member, and perform its effects."""
        if self.closed:
            return
        member = self.member
        now_ms = self._clock_ms + int(self.scheduler.now_ms * self._clock_rate)
        self._observer.told(self, event)
        effects = member.step(event, now_ms=now_ms)
        self._observer.decided(self, effects)
        view, before = member.view(), self._seen
        if view is not before:
            self._seen = view
            self.view: MemberView = self._with_ids(view)
        for effect in effects:
            self._perform(effect)
        if not self.closed:
            self._deadline_ms = deadline_ms = member.deadline_ms()
            if deadline_ms is not None:
                self._arm(deadline_ms - now_ms)
        if view is not before:
            self.scheduler.dirty = True
            self._observer.view_changed(self)
        self._observer.stepped(self)
        # poll() waits on the queue between the two threads: it goes on as soon as there is something.
        if self.application.polling:
            self.application.pump()
        if self.handing_over_since_ms is not None and not member.view().handing_over:
            self._close()  # its loop has ended

    def _arm(self, wait_ms: int) -> None:
        """Keep one timer, at the member's deadline (in *wait_ms* of its clock) or before it."""
        if wait_ms > 0:
            if self._clock_rate != 1.0:
                wait_ms = int(wait_ms / self._clock_rate) + 1
        else:
            wait_ms = 0
        at_ms = self.scheduler.now_ms + wait_ms
        if self._tick is not None:
            if self._tick_ms <= at_ms:
                return
            self._tick.cancel()
        self._tick_ms = at_ms
        self._tick = self.scheduler.call_in(wait_ms, self._ticked)

    def _ticked(self) -> None:
        if self.scheduler.now_ms < self.thaws_ms:
            self._tick_ms = self.thaws_ms
            self._tick = self.scheduler.call_in(self.thaws_ms - self.scheduler.now_ms, self._ticked)
            return
        self._tick = None
        if self.closed:
            return
        deadline_ms = self._deadline_ms
        if deadline_ms is not None and deadline_ms <= self.now_ms:
            self.scheduler.events += 1
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
                if isinstance(effect.request, ConsumerGroupHeartbeatRequest | HeartbeatRequest):
                    self._note_heartbeat()
                self.network.send(effect)
            case RevokePartitions() | AssignPartitions() | LosePartitions():
                call = replace(effect, partitions=self._named(effect.partitions))
                self._observer.listener_due(self, call)
                self.application.call(call)
            case StateChanged(old, new, trigger, epoch):
                self.note("state_changed", old=old.name, new=new.name, trigger=trigger, epoch=epoch)
                self._observer.state_changed(self, effect)
            case StartFetching(positions):
                self.application.start_fetching({self._known(tip): positions[tip] for tip in positions})
            case PausePartitions(partitions):
                self.application.hold(self._named(partitions))
            case StopFetching(partitions):
                self.application.let_go(self._named(partitions))
            case CommitDone(commit_id, _, error):
                self._observer.commit_ended(self, effect)
                self.commits_asked.pop(commit_id, None)
                if error is None:
                    self.note("commit_done")
                else:
                    self.note("commit_failed", error=error)
                self.application.commit_ended(effect)
            case ConnectCoordinator():
                self.network.connect_coordinator(effect)
            case RequestMetadata():
                self.network.ask_names(effect)
            case ListOffsets():
                self.network.list_offsets(effect)
            case LeaveDone(leave_id):
                if leave_id == self.leave_id:
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
                self.note("local_assignor_failed", error=error)
            case GroupRestless(text):
                self.note("group_restless", assignments=text)
            case DescribeTopics():
                self.network.describe_topics(effect)
            case OffsetsFetched():
                self.application.offsets_fetched(effect)
            case StandbyBegan():
                self.note("standby_began")
            case SlotTaken(slot):
                self.note("standby_took_over", slot=slot)
            case AssignorsUnsupported() | SlotsUnseen() | HandOverFailed() | GroupLeft():
                pass
            case _:
                assert_never(effect)

    def _known(self, partition: TopicIdPartition) -> TopicIdPartition:
        """*partition* with the id of its topic: in the classic protocol it has a name only."""
        if partition.topic_id.int:
            return partition
        return TopicIdPartition(
            partition.topic, partition.partition, self._topics.id_of(partition.topic) or partition.topic_id
        )

    def _named(self, partitions: frozenset[TopicIdPartition]) -> frozenset[TopicIdPartition]:
        return frozenset(map(self._known, partitions)) if self.is_classic else partitions

    def _with_ids(self, view: MemberView) -> MemberView:
        return replace(view, assigned=self._named(view.assigned)) if self.is_classic else view

    def _note_heartbeat(self) -> None:
        sent_ms, due_ms = self.member.statistics.last_heartbeat_ms, self.member.statistics.last_heartbeat_due_ms
        assert sent_ms is not None
        now_ms = self.scheduler.now_ms
        self.note("heartbeat_sent", due_ms=None if due_ms is None else now_ms - (sent_ms - due_ms), sent_ms=now_ms)

    def _end(self) -> None:
        if not self.closed:
            self.note("closed")
            self.closed = True
            self._observer.closed(self)
            # Requests written before the close still arrive.
            self.scheduler.call_in(1_000, self.network.disconnect)
            self._is_gone()

    def _is_gone(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
        self.application.gone()
