"""`Member`, the entry point: gives each event to its part, lets every part act, offers the view and the next deadline.

The rules are in the parts:

- `commits`, `offset_fetches`, `positions`: offsets
- `discovery`: the coordinator
- a `GroupPart`: membership by the configured protocol, `kip848_protocol` or `classic_protocol`
"""

from __future__ import annotations

import random
from typing import Any, Final, assert_never

import msgspec

from kip848_client.common.model import NO_EPOCH, ZERO_UUID, BrokerNode, NamedPartition, TopicIdPartition
from kip848_client.errors import Kip848Error
from kip848_client.member.consumer.kip848_protocol import ConsumerProtocol
from kip848_client.member.core.assignment import IdPartition
from kip848_client.member.core.assignor_events import (
    AssignorDone,
    AssignorsDescribed,
    OnAssignmentDone,
    ReassignmentRequested,
)
from kip848_client.member.core.context import Context
from kip848_client.member.core.discovery import Discovery
from kip848_client.member.core.events import (
    AppPolled,
    AppProgressed,
    CallAbandoned,
    CommitRequested,
    CoordinatorConnected,
    CoordinatorDisconnected,
    FetchOffsetsRequested,
    HandOverRequested,
    LeaveDone,
    LeaveRequested,
    ListenerDone,
    ManuallyAssigned,
    MemberEffect,
    MemberEvent,
    MemberView,
    MetadataUpdated,
    OffsetsListed,
    PositionLost,
    PositionSet,
    ProcessResumed,
    RequestFailed,
    ResponseReceived,
    StartReason,
    StopFetching,
    SubscriptionChanged,
    Tick,
    TopicsDescribed,
)
from kip848_client.member.core.settings import GroupProtocol, MemberConfig
from kip848_client.member.core.states import FATAL, HEARTBEATING, IN_GROUP, MemberState, Phase
from kip848_client.member.group.group_part import GroupPart
from kip848_client.member.offsets.commits import Commits
from kip848_client.member.offsets.offset_fetches import OffsetFetches
from kip848_client.member.offsets.positions import Positions

_NONE: Final[frozenset[TopicIdPartition]] = frozenset()
_NOTHING_READABLE: Final[frozenset[NamedPartition]] = frozenset()


class MemberSummary(msgspec.Struct, frozen=True):
    """The state of a member at one moment, for logs, metrics and checkers.

    Args:
        member_epoch: -1 or -2 after leaving, 0 while joining.
        live_epoch: the epoch that commits carry; -1 without membership.
        target: last assignment received, by topic id.
        current: last assignment reconciled; heartbeats report it.
        owned: partitions that the application has.
        coordinator: node of the coordinator, while its connection is up.
        last_heartbeat_ms: time of the last send, or None.
        rebalance_latency_total_ms: sum over `rebalances`.
    """

    phase: Phase
    state: MemberState
    member_id: str
    member_epoch: int
    live_epoch: int
    incarnation: int
    target: frozenset[IdPartition]
    current: frozenset[IdPartition]
    owned: frozenset[TopicIdPartition]
    readable: frozenset[NamedPartition]
    ack_due: bool
    heartbeat_in_flight: bool
    heartbeat_interval_ms: int
    coordinator: BrokerNode | None
    fatal_error: Kip848Error | None
    heartbeats: int
    last_heartbeat_ms: int | None
    rebalances: int
    failed_rebalances: int
    last_rebalance_ended_ms: int | None
    last_rebalance_latency_ms: int | None
    rebalance_latency_total_ms: int
    rebalance_latency_max_ms: int


class Member:
    """One group member, pure.

    Args:
        config: its settings.
        rng: source of jitter; nothing else is drawn from it.

    `step` raises for no order of events. It ignores an event that does not fit the phase, such as a late answer.
    """

    def __init__(self, config: MemberConfig, *, rng: random.Random) -> None:
        self._context: Final = Context(config, rng)
        self.statistics: Final = self._context.statistics
        """Counts and times for metrics; the member goes on writing them."""
        self._commits: Final = Commits(self._context)
        self._fetches: Final = OffsetFetches(self._context)
        self._positions: Final = Positions(self._context, fetches=self._fetches)
        self._discovery: Final = Discovery(
            self._context,
            on_refused=self._coordinator_refused,
            on_connection_refused=self._connection_refused,
        )
        self._group: Final = self._speak(config.protocol)
        self._last_readable = (_NONE, _NONE, _NOTHING_READABLE)
        self._seen: tuple[Any, ...] = (
            MemberState.UNJOINED,
            _NOTHING_READABLE,
            _NONE,
            False,
            False,
            self._context.member_id,
            NO_EPOCH,
            False,
            False,
            False,
            False,
            None,
            False,
        )
        """The fields of the view but its version, in order."""
        self._view = MemberView(0, *self._seen)

    def _speak(self, protocol: GroupProtocol) -> GroupPart:
        if protocol is GroupProtocol.CLASSIC:
            # here: it is a tenth of what importing a consumer takes, and most members do not need it
            from kip848_client.member.classic.classic_protocol import ClassicProtocol

            return ClassicProtocol(
                self._context, discovery=self._discovery, commits=self._commits, positions=self._positions
            )
        return ConsumerProtocol(
            self._context, discovery=self._discovery, commits=self._commits, positions=self._positions
        )

    # --- step

    def step(self, event: MemberEvent, *, now_ms: int) -> list[MemberEffect]:
        """Take one event and return what to do, in order.

        Args:
            now_ms: monotonic milliseconds; a value below an earlier one counts as that.
        """
        context = self._context
        context.begin_step(now_ms)
        self._dispatch(event)
        self._group.resume()
        self._positions.advance()
        self._group.advance()
        self._commits.advance()
        self._fetches.advance()
        if context.link is None:
            self._discovery.advance(wanted=self._coordinator_wanted)
        self._positions.flush()
        if context.closing:  # commits that end with the leave are answered before close() goes on
            context.effects.sort(key=lambda effect: isinstance(effect, LeaveDone))
        self._view = self._next_view()
        return context.effects

    def _dispatch(self, event: MemberEvent) -> None:
        context = self._context
        match event:
            case ResponseReceived():
                on_answer = context.take_answer(event.request_id)
                if on_answer is not None:
                    on_answer(event.response)
            case Tick():
                if event.app_polled_ms is not None:
                    self._group.exit.seen_polling(event.app_polled_ms)
                self._group.exit.check_poll_timer()
            case AppPolled():
                self._consumed(event)
                self._group.polled()
                self._commits.polled()
            case AppProgressed():
                # Not after a revocation began: what it gives away is committed then, and never again.
                if self._group.run is None and not context.listener_calls:
                    self._consumed(event)
                    self._commits.progressed()
            case ProcessResumed():
                context.expedite = True
            case ListenerDone():
                context.listener_done(event.token, event.error)
            case SubscriptionChanged():
                self._end_manual_assignment()
                self._group.subscribe(event.subscription)
                self._positions.subscribed(event.subscription)
            case ManuallyAssigned():
                self._assign_manually(event)
            case RequestFailed():
                on_failure, link = context.take_failure(event.request_id)
                context.lose_link(link)
                if on_failure is not None:
                    on_failure(event)
            case CoordinatorConnected():
                self._discovery.connected(event)
                self._group.coordinator_found()
            case CoordinatorDisconnected():
                self._discovery.disconnected(event)
            case MetadataUpdated():
                if event.request_id is not None:
                    context.finish(event.request_id)
                self._group.metadata_updated(event)
            case TopicsDescribed():
                if not self._positions.topics_described(event):
                    self._group.topics_described(event)
            case OffsetsListed():
                self._positions.listed(event)
            case PositionSet():
                self._positions.seek(event.partition, event.position)
            case PositionLost():
                self._positions.lost(event)
            case CommitRequested():
                self._commits.request(event)
            case FetchOffsetsRequested():
                self._fetches.request(event)
            case AssignorsDescribed() | AssignorDone() | OnAssignmentDone() | ReassignmentRequested():
                self._group.handle(event)
            case CallAbandoned():
                self._commits.abandon(event.call_id)
                self._fetches.abandon(event.call_id)
                self._group.exit.abandon(event.call_id)
            case LeaveRequested():
                self._end_manual_assignment()
                self._group.exit.leave(event)
                self._positions.unsubscribed()
            case HandOverRequested():
                self._group.hand_over(event)
            case _:
                assert_never(event)

    def _consumed(self, event: AppPolled | AppProgressed) -> None:
        owned = self._context.owned_by_name
        self._context.consumed.update({key: value for key, value in event.positions.items() if key in owned})
        if event.stored is not None:
            self._context.stored = {key: value for key, value in event.stored.items() if key in owned}

    @property
    def _coordinator_wanted(self) -> bool:
        phase = self._context.phase
        if phase in FATAL:
            return False
        return phase in HEARTBEATING or self._commits.coordinator_wanted or self._fetches.coordinator_wanted

    def _coordinator_refused(self, error: Kip848Error) -> None:
        self._commits.refuse_waiting(error)
        self._fetches.refuse_waiting(error)

    def _connection_refused(self, failure: RequestFailed) -> None:
        self._group.connection_refused(failure)

    # --- manual assignment

    def _assign_manually(self, event: ManuallyAssigned) -> None:
        """Replace a manual assignment. Ignored while subscribed: the shell refuses assign() then."""
        context = self._context
        if context.phase is not Phase.IDLE or context.closing:
            return
        self._commits.commit_consumed(event.consumed)
        wanted = {
            TopicIdPartition(partition.topic, partition.partition, ZERO_UUID): position
            for partition, position in event.positions.items()
        }
        moved = {partition for partition in context.owned if wanted.get(partition) is not None}
        gone = (context.owned - wanted.keys()) | moved
        if gone:
            self._positions.drop(gone)
            context.emit(StopFetching(gone))
            context.set_owned(context.owned - gone, by_hand=True)
        added = wanted.keys() - context.owned
        context.set_owned(context.owned | added, by_hand=True)
        self._positions.prepare(added)
        for partition in added:
            position = wanted[partition]
            if position is not None:
                self._positions.seek(partition.topic_partition, position, reason=StartReason.ASSIGNED)
        self._positions.release(added)
        self._commits.restart_interval()

    def _end_manual_assignment(self) -> None:
        context = self._context
        if context.phase is Phase.IDLE and context.owned:
            context.emit(StopFetching(context.owned))
            context.set_owned((), by_hand=True)
            self._positions.clear()

    # --- for the shell

    def deadline_ms(self) -> int | None:
        """When the next `Tick` is due, or None if only an event can matter. After a `Tick`, later than that one."""
        return self._context.wake_ms

    @property
    def phase(self) -> Phase:
        """The phase; `snapshot` has it too."""
        return self._context.phase

    def view(self) -> MemberView:
        """The state that the application's thread reads; the same object as long as nothing in it changes."""
        return self._view

    def _next_view(self) -> MemberView:
        context = self._context
        phase = context.phase
        group_wants = self._group.poll_wanted
        commits_want, positions_only = self._commits.poll_wanted()
        live_epoch = context.live_epoch
        run, readable = self._group.run, self._readable()
        reads_on = (
            run is not None
            and phase is Phase.COMMITTING
            and bool(readable)
            and not context.listener_calls
            and context.due(run.reads_on_ms)
        )
        seen = (
            phase.state,
            readable,
            context.owned,
            group_wants or commits_want,
            (run is not None and not reads_on) or bool(context.listener_calls),
            context.member_id,
            live_epoch,
            self._group.handing_over,
            reads_on or self._group.expects_partitions or bool(self._positions.under_way),
            not group_wants and positions_only,
            context.link is not None,
            context.instance_id if live_epoch != NO_EPOCH else None,
            self._group.standing_by,
        )
        if seen == self._seen:
            return self._view
        self._seen = seen
        return MemberView(self._view.version + 1, *seen)

    def _readable(self) -> frozenset[NamedPartition]:
        context = self._context
        if context.phase is Phase.IDLE:
            blocked = _NONE
        elif context.phase in IN_GROUP:
            blocked = self._group.blocked
        else:
            return _NOTHING_READABLE
        # Most steps change nothing here: a member of ten thousand partitions must not rebuild the view each time.
        owned, last_blocked, readable = self._last_readable
        if owned is not context.owned or last_blocked != blocked:
            readable = frozenset(partition.topic_partition for partition in context.owned - blocked)
            self._last_readable = (context.owned, blocked, readable)
        return readable

    @property
    def coordinator(self) -> BrokerNode | None:
        """The group's coordinator, while its connection is up."""
        return self._discovery.node

    @property
    def requests_under_way(self) -> int:
        """How many requests it asked the shell for that have not ended."""
        return self._context.requests_under_way

    def snapshot(self) -> MemberSummary:
        """A copy of what the member is now."""
        context = self._context
        statistics = context.statistics
        facts = self._group.facts()
        return MemberSummary(
            phase=context.phase,
            state=context.phase.state,
            member_id=context.member_id,
            member_epoch=context.epoch,
            live_epoch=context.live_epoch,
            incarnation=context.incarnation,
            target=facts.target,
            current=facts.current,
            owned=context.owned,
            readable=self._view.readable,
            ack_due=facts.ack_due,
            heartbeat_in_flight=facts.heartbeat_in_flight,
            heartbeat_interval_ms=facts.heartbeat_interval_ms,
            coordinator=self._discovery.node,
            fatal_error=context.fatal_error,
            heartbeats=statistics.heartbeats,
            last_heartbeat_ms=statistics.last_heartbeat_ms,
            rebalances=statistics.rebalances,
            failed_rebalances=statistics.failed_rebalances,
            last_rebalance_ended_ms=statistics.last_rebalance_ended_ms,
            last_rebalance_latency_ms=statistics.last_rebalance_latency_ms,
            rebalance_latency_total_ms=statistics.rebalance_latency_total_ms,
            rebalance_latency_max_ms=statistics.rebalance_latency_max_ms,
        )
