"""`GroupMember`: membership, commits and leaving of one consumer. No records.

Any thread may commit, read committed offsets and hand over: those calls give the member an event and wait for its
answer, and need nothing that the thread that polls is using. All other calls are for that thread.

`Consumer` is a GroupMember plus a `Fetcher`; the Spark source, which reads records by other means, uses it alone.
`app_thread` has the common part of these calls, performing and waiting; rules are in `member/`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from kip848_client.common.clock import Clock
from kip848_client.common.logs import LogEvent
from kip848_client.common.model import NamedPartition, OffsetAndMetadata, Subscription
from kip848_client.consumer.group.app_thread import SLICE_S, AppThread
from kip848_client.consumer.group.assignor_runner import FirstDescription
from kip848_client.consumer.group.commit_manager import CommitManager, Offsets, OnCommitted, PendingCall
from kip848_client.consumer.group.heartbeat_manager import HeartbeatRequestManager
from kip848_client.consumer.group.listener_invoker import (
    ListenerEffect,
    ListenerInvoker,
    NoCallbacks,
    RebalanceCallbacks,
)
from kip848_client.errors import ConfigError, IllegalStateError, Kip848Error
from kip848_client.member.core.assignor_events import ReassignmentRequested
from kip848_client.member.core.events import (
    CommitKind,
    CommitRequested,
    FetchOffsetsRequested,
    HandOverRequested,
    LeaveMode,
    LeaveRequested,
    ManuallyAssigned,
    MemberView,
    PositionLost,
    PositionSet,
    RevokePartitions,
    SubscriptionChanged,
)
from kip848_client.network.queues import Posted

_LOOKUP_S: Final = 10.0
"""How long close() looks for a coordinator for commits, while brokers answer that there is none yet."""

_STOP_TIMEOUT_S: Final = 0.5
"""For the heartbeat thread to end; it is a daemon, so nothing depends on it."""


class GroupMember:
    """One member.

    Args:
        thread: performs effects and waits, on the application's thread.
        manager: the heartbeat thread; takes the events.
        commits: the calls that the member has to answer.
        listeners: runs the listeners of the application.
        clock: the member's time.
        default_api_timeout_ms: for calls without a time-out of their own.
        auto_commit: whether close() commits what was consumed.
        assignors: the local assignors, or None if the coordinator assigns.
    """

    def __init__(
        self,
        thread: AppThread,
        *,
        manager: HeartbeatRequestManager,
        commits: CommitManager,
        listeners: ListenerInvoker,
        clock: Clock,
        default_api_timeout_ms: int,
        auto_commit: bool,
        assignors: FirstDescription | None = None,
    ) -> None:
        self.thread: Final = thread
        self.manager: Final = manager
        self.commits: Final = commits
        self.listeners: Final = listeners
        self.clock: Final = clock
        self._assignors = assignors
        self.default_api_timeout_ms: Final = default_api_timeout_ms
        self._auto_commit = auto_commit
        self._subscription = Subscription()
        self._manual: dict[NamedPartition, OffsetAndMetadata | None] | None = None
        self._closed = False
        self._hand_over: Posted[Any] | None = None
        self.leaves_by_s: float = math.inf
        """When `hand_over` should be over, by the monotonic clock; infinite without one."""
        self.run_callbacks: Callable[[], object] = thread.run_commit_callbacks
        """Runs the callbacks of commits that have ended, if this thread may; called by each commit."""

    # --- state

    @property
    def view(self) -> MemberView:
        """State, epoch and partitions as of the last step."""
        return self.manager.view

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    @property
    def subscription(self) -> Subscription:
        """The subscription; empty without one."""
        return self._subscription

    @property
    def manual(self) -> Mapping[NamedPartition, OffsetAndMetadata | None]:
        """The partitions of assign(); empty outside manual mode."""
        return self._manual or {}

    @property
    def assigned(self) -> frozenset[NamedPartition]:
        """The partitions of assign(), or the partitions that the member owned after its last step; none once closed."""
        if self._closed:
            return frozenset()
        manual = self._manual  # read once: metrics ask for it on a thread of their own
        if manual is not None:
            return frozenset(manual)
        return frozenset(tip.topic_partition for tip in self.view.assigned)

    @property
    def readable(self) -> frozenset[NamedPartition]:
        """The partitions whose records may be handed out."""
        return self.view.readable if self._manual is None else frozenset(self._manual)

    def lost(self, partitions: Collection[NamedPartition]) -> list[NamedPartition]:
        """Those of *partitions* that are not this consumer's any more: no transaction may hold their offsets."""
        return sorted(self.view.lost(partitions) if self._manual is None else set(partitions) - self._manual.keys())

    @property
    def why_gone(self) -> str:
        """Why the member is outside its group, in brackets after a blank; empty while it is in it."""
        departure = self.listeners.observer.departure
        return f" (it left its group: {departure})" if departure and not self._manual else ""

    @property
    def wants_records(self) -> bool:
        """Whether anything is subscribed to or assigned."""
        return bool(self._subscription) or bool(self._manual)

    @property
    def listener_effect(self) -> ListenerEffect | None:
        """The listener call from inside which we are called, or None."""
        return self.listeners.running

    def check_usable(self) -> None:
        """Raise what makes every call but close() useless.

        Raises:
            IllegalStateError: closed.
            Kip848Error: the fatal error of the member.
        """
        if self._closed:
            raise IllegalStateError("the consumer is closed; make a new one")
        if self.thread.fatal is not None:
            self.thread.fatal_raised = True
            raise self.thread.fatal

    # --- what is wanted

    def subscribe(self, subscription: Subscription, callbacks: RebalanceCallbacks | None) -> None:
        """Join the group for these topics, in the background. Listeners run in the next poll.

        Args:
            subscription: not empty; empty is `unsubscribe`.

        Raises:
            IllegalStateError: partitions are assigned by hand.
            ClientAssignorError: a local assignor cannot describe this member.
        """
        self.check_usable()
        assert subscription
        if self._manual:
            raise IllegalStateError("partitions are assigned by hand; call unassign() before subscribe()")
        if self._assignors is not None and (described := self._assignors.first_description()) is not None:
            self.thread.post(described)
        self.listeners.callbacks = callbacks or NoCallbacks()
        self._subscription = subscription
        self._manual = None
        self.thread.post(SubscriptionChanged(subscription))

    def request_reassignment(self, reason: object) -> None:
        """Ask the group for a new assignment.

        Raises:
            IllegalStateError: there are no local assignors.
            ConfigError: *reason* is 0, or does not fit into a byte.
        """
        self.check_usable()
        if self._assignors is None:
            raise IllegalStateError(
                "request_reassignment() needs a client-side assignor (group.local.assignors); the coordinator assigns "
                "this group, and decides by itself when"
            )
        if not isinstance(reason, int) or reason == 0 or not -128 <= reason <= 127:
            raise ConfigError(f"reason is {reason!r}; give a number from -128 to 127 that is not 0")
        self.manager.post(ReassignmentRequested(reason))

    def assign(
        self,
        positions: Mapping[NamedPartition, OffsetAndMetadata | None],
        *,
        in_hand: Mapping[NamedPartition, int] | None = None,
    ) -> None:
        """Read exactly these, without membership; none ends manual mode.

        Args:
            in_hand: the first offset of each partition that was handed out and is not processed. A partition that is
                read on is committed up to there; one that is given up, as in `unsubscribe`, with all that it returned.

        Raises:
            IllegalStateError: topics are subscribed to.
        """
        self.check_usable()
        if self._subscription:
            raise IllegalStateError("topics are subscribed to; call unsubscribe() before assign()")
        gone = self.manual.keys() - positions.keys()
        self._manual = dict(positions)
        consumed = self.thread.committable() if self._auto_commit else {}
        for partition, offset in (in_hand or {}).items():
            if partition in positions and partition in consumed:
                consumed[partition] = OffsetAndMetadata(offset)
        self.thread.post(ManuallyAssigned(dict(positions), consumed))
        if positions:
            self.thread.stop_fetching(gone)
        else:
            self.thread.stop_fetching_all()

    def unsubscribe(self, *, timeout_ms: int, waits: bool = True) -> None:
        """Leave the group. Waits until the leave is answered, at most *timeout_ms*; from inside a listener, not at all.

        With auto-commit, commits the consumed positions first; inside a listener, the listener must commit them.

        Args:
            waits: False to return at once; the revoked listener runs in the next poll() or close().

        Raises:
            ListenerError: the revoked listener raised; the member left all the same.
            TopicAuthorizationError, GroupAuthorizationError: the last automatic commit was refused; as above.
        """
        self.check_usable()
        self._subscription = Subscription()
        if self._manual:
            self.assign({})
            return
        if not waits:
            if self._auto_commit and self.view.member_epoch > 0:
                self.commit_async(None, lambda _error, _offsets: None)
            self.manager.post(
                LeaveRequested(self.commits.open().call_id, self.clock.now_ms() + timeout_ms, LeaveMode.DEFAULT)
            )
            return
        if self.listeners.running is None:
            began_s = time.monotonic()
            self._commit_before_leaving(began_s + timeout_ms / 2_000)
            timeout_ms -= int((time.monotonic() - began_s) * 1_000)
        self._leave(timeout_ms=timeout_ms, mode=LeaveMode.DEFAULT, closing=False)
        if self.listeners.running is None:
            self.thread.raise_due()
        for refusal in self.commits.take_refusals():
            raise refusal

    def seek(self, partition: NamedPartition, position: OffsetAndMetadata) -> None:
        """Set the position of an assigned partition whose fetching has not started."""
        self.thread.post(PositionSet(partition, position))

    def position_lost(self, partition: NamedPartition, position: OffsetAndMetadata) -> None:
        """Report that there is no record at a position. Fetching of the partition has stopped already."""
        self.thread.post(PositionLost(partition, position))

    # --- handing over

    def hand_over(self, *, timeout_ms: int) -> None:
        """Give all partitions to other members, once these are ready; poll() goes on meanwhile. See `handed_over`.

        May be called from a signal handler and any thread: it only posts an event.
        """
        if self.closed:
            return  # a signal may come after the end of the loop
        self.check_usable()
        if self._hand_over is not None:
            return
        self.leaves_by_s = time.monotonic() + timeout_ms / 1_000
        if not self._subscription:  # there is nothing to give; a signal that comes before subscribe() must not be lost
            self._hand_over = Posted(None, done=True)
            return
        self._hand_over = self.manager.post(HandOverRequested(self.clock.now_ms() + timeout_ms))

    @property
    def hand_over_wanted(self) -> bool:
        """Whether `hand_over` was called."""
        return self._hand_over is not None

    @property
    def handed_over(self) -> bool:
        """Whether `hand_over` was called and has ended: poll() returns no more records."""
        asked = self._hand_over
        return asked is not None and asked.done and not self.view.handing_over

    # --- polling

    def poll(self, timeout_s: float) -> bool:
        """Take part in rebalances for at most *timeout_s*; for a GroupMember alone, as often as a consumer polls.

        Returns:
            Whether the member is at rest.

        Raises:
            ListenerError, Kip848Error: as `settle`.
        """
        deadline_s = time.monotonic() + timeout_s
        self.check_usable()
        self.thread.begin_poll()
        try:
            rest = self.thread.settle(deadline_s)
            while (left_s := deadline_s - time.monotonic()) > 0:
                self.thread.wait(left_s)
                rest = self.thread.settle(deadline_s)
            return rest
        finally:
            self.thread.end_poll()

    # --- commits

    def commit_sync(self, offsets: Offsets | None, *, timeout_ms: int) -> Offsets:
        """Commit and wait (any thread); None commits all positions. Earlier asynchronous commits end first.

        Returns:
            The committed offsets. Inside on_partitions_revoked, partitions of a topic that was deleted are left out.

        Raises:
            CommitFailedError, BrokerError, RequestTimeoutError: it was not, or that is unknown.
        """
        self.check_usable()
        timeout_ms = self.thread.limit_ms(timeout_ms)
        deadline_s = time.monotonic() + timeout_ms / 1_000
        chosen = self.thread.committable() if offsets is None else dict(offsets)
        self._await_async_commits(deadline_s)
        self.run_callbacks()
        if not chosen:
            return {}
        call = self.commits.open()
        with self.listeners.observer.waiting("kafka.consumer.commit.sync.time.ns.total"):
            self._request_commit(call, chosen, CommitKind.SYNC, deadline_ms=self.clock.now_ms() + timeout_ms)
            self.thread.await_call(call, deadline_s, what="commit")
        return call.offsets

    def commit_async(self, offsets: Offsets | None, callback: OnCommitted | None) -> None:
        """Commit and go on (any thread). *callback*, or on_commit of the configuration, runs in a later call; without
        one a temporary failure is logged, and the offsets are sent again (R354); another is raised by a later call.
        """
        self.check_usable()
        self.run_callbacks()
        chosen = self.thread.committable() if offsets is None else dict(offsets)
        call = self.commits.open(callback=callback, asynchronous=True)
        if not chosen:
            self.commits.finish_without_request(call)
            return
        without_callback = callback is None and not self.commits.has_callback
        self._request_commit(call, chosen, CommitKind.ASYNC, deadline_ms=None, without_callback=without_callback)

    def committed(self, partitions: Iterable[NamedPartition], *, timeout_ms: int) -> Offsets:
        """Read committed offsets (any thread); partitions without one are absent.

        Raises:
            RequestTimeoutError, BrokerError: they could not be read.
        """
        self.check_usable()
        wanted = frozenset(partitions)
        if not wanted:
            return {}
        call = self.commits.open()
        timeout_ms = self.thread.limit_ms(timeout_ms)
        deadline_s = time.monotonic() + timeout_ms / 1_000
        with self.listeners.observer.waiting("kafka.consumer.committed.time.ns.total"):
            self.manager.post(FetchOffsetsRequested(call.call_id, wanted, self.clock.now_ms() + timeout_ms))
            self.thread.await_call(call, deadline_s, what="committed")
        return call.offsets

    # --- close

    def close(
        self,
        *,
        timeout_ms: int,
        mode: LeaveMode,
        release: Callable[[], None],
        before_commit: Callable[[], None] | None = None,
    ) -> list[BaseException]:
        """Commit (if automatic), leave, wait for commits, stop the thread: each within what is left of the time.

        Args:
            release: closes the record source; called when no listener can need it any more.
            before_commit: corrects the positions; if it raises, nothing is committed automatically.

        Returns:
            The exceptions of the steps, oldest first; every step ran all the same. What a poll() would have raised is
            logged instead.
        """
        if self._closed:
            return []
        if self.listeners.running is not None:
            raise IllegalStateError("close() was called from inside a rebalance listener; return from it first")
        deadline_s = time.monotonic() + timeout_ms / 1_000
        # A silent coordinator must not eat the time that the leave needs.
        self.thread.calls_end_s = deadline_s - min(1_000, timeout_ms / 4) / 1_000
        errors: list[BaseException] = []
        if self.thread.fatal is None and self.manager.alive:
            self._guard(errors, lambda: self._commit_before_leaving(self.thread.calls_end_s, before_commit))
            self._guard(errors, lambda: self._await_coordinator(self.thread.calls_end_s))
            self._guard(errors, lambda: self._leave_on_close(deadline_s, mode))
            self._guard(errors, lambda: self._await_async_commits(deadline_s))
        else:
            self._guard(errors, self.thread.perform_queued)  # the lost listener of a member that is FATAL
        self._closed = True
        self._guard(errors, self.thread.run_commit_callbacks)
        if not self.manager.stop(timeout_s=max(_STOP_TIMEOUT_S, deadline_s - time.monotonic())):
            self.listeners.observer.log(logging.WARNING, LogEvent.HEARTBEAT_THREAD_DIED, error="did not end in time")
        if self._assignors is not None:
            self._guard(errors, self._assignors.runner.stop)
        self._guard(errors, release)
        for error in self.thread.errors:
            if not any(error is one for one in self.thread.for_poll):
                errors.append(error)
            elif error is not self.thread.fatal or not self.thread.fatal_raised:
                # close() stands in a finally clause, or ends a with block: it must not hide what is raised there.
                self.listeners.observer.log(logging.WARNING, LogEvent.ERROR_DROPPED, error=error)
        self.thread.errors.clear()
        self.thread.for_poll.clear()
        if self.thread.fatal is None:
            errors.extend(self.commits.take_refusals())
        return errors

    def _commit_before_leaving(self, until_s: float, before: Callable[[], None] | None = None) -> None:
        if before is not None:
            before()
        positions = self.thread.committable() if self._auto_commit else {}
        if not positions or (self.view.member_epoch <= 0 and not self._manual):
            return
        left_ms = int((until_s - time.monotonic()) * 1_000)
        call = self.commits.open()
        self._request_commit(call, positions, CommitKind.AUTO_CLOSE, deadline_ms=self.clock.now_ms() + max(0, left_ms))
        lookups = self.manager.failed_lookups
        while not call.finished and self.manager.failed_lookups == lookups and time.monotonic() < until_s:
            self.thread.wait(until_s - time.monotonic())
        try:
            # Without a coordinator there is nothing to wait for (KAFKA-19357): one failed lookup is the end of it.
            self.thread.await_call(call, time.monotonic(), what="commit before leaving", member_late_s=SLICE_S)
        except Kip848Error as error:
            self.listeners.observer.log(logging.WARNING, LogEvent.AUTO_COMMIT_FAILED, error=error)
            self.commits.automatic_failed(positions, error)

    def _await_coordinator(self, until_s: float) -> None:
        """Asynchronous commits may wait for a coordinator: find it now. One that leaves looks for none (R116)."""
        if self.view.coordinator_known:
            return
        until_s = min(until_s, time.monotonic() + _LOOKUP_S)
        lookups = self.manager.failed_lookups
        for call in self.commits.asynchronous_pending:
            while not call.finished and self.manager.alive and self.manager.failed_lookups == lookups:
                if (left_s := until_s - time.monotonic()) <= 0:
                    return
                self.thread.wait_for(call, left_s)

    def _leave_on_close(self, deadline_s: float, mode: LeaveMode) -> None:
        left_ms = max(0, int((deadline_s - time.monotonic()) * 1_000))
        self._leave(timeout_ms=left_ms, mode=mode, closing=True)

    def _await_async_commits(self, deadline_s: float) -> None:
        """Wait for those that are open now; other threads may begin new ones for ever."""
        for call in self.commits.asynchronous_pending:
            while not call.finished and self.manager.alive and (left_s := deadline_s - time.monotonic()) > 0:
                self.thread.wait_for(call, left_s)

    def _guard(self, errors: list[BaseException], step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException as error:
            if self.manager.home.left:  # a listener called fork(): nothing may be closed in the child
                raise
            errors.append(error)  # kept, and raised when everything is closed

    # --- internals

    def _leave(self, *, timeout_ms: int, mode: LeaveMode, closing: bool) -> None:
        call = self.commits.open()
        deadline_s = time.monotonic() + timeout_ms / 1_000
        self.thread.post(LeaveRequested(call.call_id, self.clock.now_ms() + timeout_ms, mode, closing))
        if self.listeners.running is not None:
            return  # this listener must return first; the rest happens in the poll() around it
        if not self.thread.await_ticket(max(deadline_s, time.monotonic() + SLICE_S)):
            return
        while True:
            self.thread.perform_queued()
            if call.finished or not self.manager.alive:
                return
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 and self.thread.idle:
                self.thread.await_ticket(time.monotonic() + SLICE_S)
                if self.thread.idle:
                    self.listeners.observer.log(logging.WARNING, LogEvent.LEAVE_TIMED_OUT, timeout_ms=timeout_ms)
                    self.thread.abandon(call)
                    return
            self.thread.wait(left_s)

    def _request_commit(
        self,
        call: PendingCall,
        offsets: Offsets,
        kind: CommitKind,
        *,
        deadline_ms: int | None,
        without_callback: bool = False,
    ) -> None:
        call.span = self.listeners.observer.commit_began(offsets, kind=kind.value)
        # Also of a thread that the listener waits for.
        revoking = kind is CommitKind.SYNC and isinstance(self.listeners.called, RevokePartitions)
        self.manager.post(CommitRequested(call.call_id, offsets, kind, deadline_ms, revoking, without_callback))
        call.posted = True
