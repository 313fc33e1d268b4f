"""Reports of the shell about one member: log events, metrics, spans and lines of the event log. Decides nothing.

Called from both threads; everything it writes to is safe for that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from kip848_client.common.clock import Clock
from kip848_client.common.logs import LOGGER, LogEvent, log_event
from kip848_client.common.model import (
    NamedPartition,
    OffsetAndMetadata,
    TopicIdPartition,
    describe_partitions,
    shorten_partitions,
)
from kip848_client.common.telemetry import ClientMetrics, Figures, OpenSpan, code_name
from kip848_client.errors import InvalidAssignmentError, Kip848Error, ProtocolError, TransactionAbortedError
from kip848_client.journal import Journal, JournalEvent, JsonValue, NullJournal
from kip848_client.member.core.events import (
    ConnectCoordinator,
    SlotTaken,
    StandbyBegan,
    StartCause,
    StartReason,
    StateChanged,
)
from kip848_client.member.core.states import MemberState, Trigger
from kip848_client.member.core.statistics import Statistics
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentResponse
from kip848_client.wire.messages.consumer_protocol import decode_assignment
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kip848_client.wire.messages.join_group import JoinGroupResponse
from kip848_client.wire.messages.offset_commit import OffsetCommitResponse
from kip848_client.wire.messages.sync_group import SyncGroupResponse

_SIGNS_OF_MEMBERSHIP = (ConsumerGroupHeartbeatResponse, HeartbeatResponse, JoinGroupResponse, SyncGroupResponse)
"""Answers by which the coordinator says that it knows the member."""

_JOINED: Final[frozenset[Trigger]] = frozenset({"joined", "assignment_received"})
"""Triggers by which a member that is UNJOINED comes into its group."""

_MOVES: Final = {
    "assigned": LogEvent.PARTITIONS_ASSIGNED,
    "revoked": LogEvent.PARTITIONS_REVOKED,
    "lost": LogEvent.PARTITIONS_LOST,
}

_AUTO_COMMIT_TOLD_EVERY_MS: Final = 60_000
"""How often the log repeats that automatic commits fail for the same reason."""

_ABORTS_ALIKE_MS: Final = 10_000
"""How often the log repeats that transactions are aborted for the same reason."""

_ALIKE_MS: Final = 1_000
"""For how long further requests that fail for the same reason are logged for debugging only."""

_SHOWN: Final = 10
"""Partitions whose offsets a line of the log has."""


class MemberName(msgspec.Struct, frozen=True):
    """The member of the reports. `member_id` is as of the last step."""

    group_id: str
    client_id: str
    member_id: str = ""
    member_epoch: int = -1


class MemberObserver:
    """Writes about one member.

    Args:
        group_id, client_id: of the consumer.
        clock: wall-clock time of the event log.
        journal: the event log.
        max_poll_interval_ms: what a late poll() is late by.
        own_assignors: names of client-side assignors that are the application's own.
        settings: what the log says of a member that has joined: ``protocol``, and what else is given.
    """

    def __init__(
        self,
        *,
        group_id: str,
        client_id: str,
        clock: Clock,
        journal: Journal,
        max_poll_interval_ms: int = 300_000,
        own_assignors: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings: Final = dict(settings or {})
        self._coordinator = ""
        self.departure: str | None = None
        """Why the member is outside its group; None while it is in it, or before it first joined."""
        self._own_assignors = own_assignors
        self._run_by_coordinator = False
        """On the classic protocol: the last join was to a group that its coordinator assigns."""
        self.max_poll_interval_ms: Final = max_poll_interval_ms
        self._name = MemberName(group_id, client_id)
        self._clock = clock
        self._journal = journal
        self._metrics = ClientMetrics(client_id=client_id, group_id=group_id)
        self._settle: Final = {
            "messaging.system": "kafka",
            "messaging.operation.name": "commit",
            "messaging.operation.type": "settle",
            "messaging.consumer.group.name": group_id,
        }
        self.want_lags: Callable[[], object] = lambda: None
        """Have the lags measured, because metrics are collected."""
        self.more_gauges: Mapping[str, Figures] = {}
        """Offered with those of the member."""
        self._rebalance: OpenSpan | None = None
        self._ended = (0, 0)
        """Completed and failed rebalances when the counters were last read."""
        self._commit_written_ns = 0
        self.lookup_failure: Exception | None = None
        """Why the coordinator could not be found; None while one is known, or the first lookup is still going on."""
        self.heartbeat_accepted_ms: int | None = None
        """When the coordinator answered a heartbeat, or a join on the classic protocol, without an error code."""
        self._told: dict[str, tuple[str, int]] = {}
        """The failure of an automatic commit that was logged last, and when."""
        self.standing_by_since_ms: int | None = None
        self.last_error: tuple[str, int] | None = None
        """The last error of any kind, and when it came."""
        self._heartbeats = 0
        """Heartbeats sent when the counter was last read."""

    def rename(self, *, member_id: str, member_epoch: int) -> None:
        """Use this member id and epoch in all later events."""
        name = self._name
        self._name = MemberName(name.group_id, name.client_id, member_id, member_epoch)

    def known_as(self, member_id: str) -> None:
        """Use this member id from now on; the epoch is that of the last `rename`."""
        if member_id and member_id != self._name.member_id:
            self._name = MemberName(self._name.group_id, self._name.client_id, member_id, self._name.member_epoch)

    @property
    def group_id(self) -> str:
        """The group of the member."""
        return self._name.group_id

    def log(self, level: int, event: LogEvent, *, exc_info: BaseException | None = None, **fields: object) -> None:
        """Write a log event of this member: the group and, once it is known, the member id are its first fields."""
        name = {"group_id": self._name.group_id}
        if self._name.member_id:
            name["member_id"] = self._name.member_id
        log_event(level, event, exc_info=exc_info, logger=LOGGER, **name, **fields)

    def _is_news(self, what: str, error: Exception, within_ms: int) -> bool:
        """Whether *what* has not failed with the same text lately: a broken connection ends hundreds of commits."""
        now_ms, text = self._clock.now_ms(), str(error)
        told, told_ms = self._told.get(what, ("", 0))
        if text == told and now_ms - told_ms < within_ms:
            return False
        self._told[what] = (text, now_ms)
        return True

    def state_changed(self, change: StateChanged) -> None:
        """The public state moved: one log event, one line."""
        self.log(
            logging.INFO,
            LogEvent.STATE_CHANGED,
            from_=change.old.name,
            to=change.new.name,
            trigger=change.trigger,
            member_epoch=change.member_epoch,
        )
        if change.old is MemberState.UNJOINED and change.trigger in _JOINED:
            self.departure = None
            self.log(
                logging.INFO,
                LogEvent.JOINED,
                coordinator=self._coordinator,
                member_epoch=change.member_epoch,
                **self._settings,
            )
        self._write("state_changed", old=change.old.name, new=change.new.name, trigger=change.trigger)

    def stepped(self, statistics: Statistics) -> None:
        """The member took an event (background thread): rebalances that began or ended with it."""
        self._metrics.look()
        if self._metrics.measuring:
            self.want_lags()
        if statistics.heartbeats != self._heartbeats:
            self._heartbeats = statistics.heartbeats
            self._heartbeat_sent(statistics)
        ended = (statistics.rebalances, statistics.failed_rebalances)
        if ended != self._ended:
            well, failed = ended[0] - self._ended[0], ended[1] - self._ended[1]
            self._ended = ended
            if well:
                self._metrics.count("kafka.consumer.rebalance.total", well, cause=statistics.rebalance_cause)
                self._metrics.measure("kafka.consumer.rebalance.latency", statistics.last_rebalance_latency_ms or 0)
            if failed:
                self._metrics.count("kafka.consumer.failed.rebalance.total", failed)
            self._end_rebalance("removed from the group, or failed" if failed else None)
        open_ = statistics.rebalance_started_ms is not None
        if open_ and self._rebalance is None and self._metrics.tracing:
            self._rebalance = self._metrics.begin(
                "kafka.consumer.rebalance", root=True, attributes={"cause": statistics.rebalance_cause}
            )
        elif not open_ and self._rebalance is not None:
            self._end_rebalance(None)  # the consumer leaves

    def _heartbeat_sent(self, statistics: Statistics) -> None:
        """The member's clock starts anywhere; the event log has the wall clock."""
        if isinstance(self._journal, NullJournal):
            return
        to_wall_ms = self._clock.wall_ms() - self._clock.now_ms()
        sent_ms, due_ms = statistics.last_heartbeat_ms, statistics.last_heartbeat_due_ms
        self._write(
            "heartbeat_sent",
            due_ms=None if due_ms is None else due_ms + to_wall_ms,
            sent_ms=None if sent_ms is None else sent_ms + to_wall_ms,
        )

    def _end_rebalance(self, failure: str | None) -> None:
        rebalance, self._rebalance = self._rebalance, None
        if rebalance is not None:
            rebalance.end(failure, {"member_epoch": self._name.member_epoch})

    @contextmanager
    def waiting(self, metric: str) -> Iterator[None]:
        """Cover a call that waits: its time goes into the counter *metric* of nanoseconds."""
        began_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self._metrics.count(metric, time.perf_counter_ns() - began_ns)

    def commit_began(self, offsets: Mapping[NamedPartition, OffsetAndMetadata], *, kind: str) -> OpenSpan | None:
        """The application commits (on its thread): the span, whose parent is what the application does now."""
        if not self._metrics.tracing:
            return None
        return self._metrics.begin("kafka.consumer.commit", attributes=self._commit_attributes(offsets, kind))

    def _commit_attributes(
        self, offsets: Mapping[NamedPartition, OffsetAndMetadata], kind: str
    ) -> Mapping[str, str | int]:
        attributes = {**self._settle, "partitions": describe_partitions(offsets), "kind": kind}
        topics = {partition.topic for partition in offsets}
        if len(topics) == 1:
            attributes["messaging.destination.name"] = topics.pop()
            if len(offsets) == 1:
                attributes["messaging.destination.partition.id"] = str(next(iter(offsets)).partition)
        return attributes

    @property
    def metrics(self) -> ClientMetrics:
        """Of the consumer."""
        return self._metrics

    def offer(self, gauges: Mapping[str, Figures]) -> None:
        """The member runs: its gauges can be read until `ended`."""
        self._metrics.offer({**gauges, **self.more_gauges})

    def ended(self) -> None:
        """The member runs no more."""
        self._metrics.withdraw()
        self._end_rebalance(None)

    def _note(self, error: BaseException) -> None:
        self.last_error = (f"{type(error).__name__}: {error}", self._clock.now_ms())

    def answered(self, response: object, *, ms: float) -> None:
        """A request was answered after *ms*, with any code."""
        if isinstance(response, _SIGNS_OF_MEMBERSHIP) and not response.error_code:
            self.heartbeat_accepted_ms = self._clock.now_ms()
        match response:
            case ConsumerGroupHeartbeatResponse(assignment=assignment):
                self._heartbeat_answered(ms)
                if not response.error_code:
                    self._settings["heartbeat_interval_ms"] = response.heartbeat_interval_ms
                if assignment is not None:
                    # By topic id: a name may not be known yet, and is not needed to see what moved.
                    listed = [f"{t.topic_id}-{p}" for t in assignment.topic_partitions for p in t.partitions]
                    self._write("assignment_received", partitions=list(listed))
            case HeartbeatResponse():
                self._heartbeat_answered(ms)
            case JoinGroupResponse():
                self._metrics.count("kafka.consumer.join.total")
                self._metrics.measure("kafka.consumer.join.time", ms)
                if not response.error_code:
                    self._joined(response, ms=ms)
            case SyncGroupResponse():
                self._metrics.count("kafka.consumer.sync.total")
                self._metrics.measure("kafka.consumer.sync.time", ms)
                if not response.error_code:
                    self._synced(response)
            case OffsetCommitResponse():
                self._metrics.count("kafka.consumer.commit.total")
                self._metrics.measure("kafka.consumer.commit.latency", ms)
                self._commit_answered(response, ms)
                self._commit_written_ns = time.time_ns() - int(ms * 1e6)

    def _commit_answered(self, response: OffsetCommitResponse, ms: float) -> None:
        if self._metrics.measuring:
            codes = [partition.error_code for topic in response.topics for partition in topic.partitions]
            refused = next((code for code in codes if code), None)
            attributes = self._settle if refused is None else {**self._settle, "error.type": code_name(refused)}
            self._metrics.record("messaging.client.operation.duration", ms / 1_000, attributes)

    def _heartbeat_answered(self, ms: float) -> None:
        self._metrics.count("kafka.consumer.heartbeat.total")
        self._metrics.measure("kafka.consumer.heartbeat.response.time", ms)

    def _joined(self, response: JoinGroupResponse, *, ms: float) -> None:
        by_coordinator = not response.leader
        self._settings["assignor"] = response.protocol_name
        if by_coordinator and not self._run_by_coordinator and self._own_assignors:
            names = ", ".join(self._own_assignors)
            self.log(logging.WARNING, LogEvent.ASSIGNORS_IDLE, assignors=names)
        self._run_by_coordinator = by_coordinator
        self._write(
            "group_joined",
            generation=response.generation_id,
            protocol=response.protocol_name,
            leader="coordinator" if by_coordinator else "self" if response.leader == response.member_id else "other",
            members=len(response.members),
            duration_ms=round(ms, 3),
        )

    def _synced(self, response: SyncGroupResponse) -> None:
        try:
            topics = decode_assignment(response.assignment).assigned_partitions if response.assignment else ()
        except ProtocolError:
            return  # the member tells of it
        self._write("assignment_received", partitions=[f"{t.topic}-{p}" for t in topics for p in t.partitions])

    def request_failed(self, what: object, *, kind: str, error: Exception) -> None:
        """A request ended without an answer."""
        self._note(error)
        api = type(what).__name__
        # Without a coordinator nothing else happens: the first of a row of failures must not be missed.
        lookup = isinstance(what, (FindCoordinatorRequest, ConnectCoordinator)) and self.lookup_failure is None
        if isinstance(what, (FindCoordinatorRequest, ConnectCoordinator)):
            self.lookup_failure = error
        news = self._is_news(api, error, _ALIKE_MS)
        level = logging.WARNING if lookup else logging.INFO if news else logging.DEBUG
        self.log(level, LogEvent.REQUEST_FAILED, api=api, kind=kind, error=error)
        if lookup:
            self._write("coordinator_not_found", api=api, error=str(error))
        if isinstance(what, (ConsumerGroupHeartbeatRequest, HeartbeatRequest)):
            self._write("heartbeat_failed", error=str(error))

    def coordinator_connected(self, *, node_id: int, host: str, port: int) -> None:
        """The coordinator's connection is up."""
        self.lookup_failure = None
        self._coordinator = f"{host}:{port} (node {node_id})"
        self.log(logging.INFO, LogEvent.COORDINATOR_CONNECTED, node=self._coordinator)
        self._write("coordinator_found", node_id=node_id, host=host, port=port)

    def coordinator_lost(self, reason: str) -> None:
        """The coordinator's connection broke."""
        self._write("coordinator_lost", reason=reason)

    @contextmanager
    def listener(self, name: str, partitions: Iterable[TopicIdPartition]) -> Iterator[None]:
        """Cover one listener call: *name* is ``assigned``, ``revoked`` or ``lost``."""
        text = describe_partitions(partitions)
        if LOGGER.isEnabledFor(logging.INFO):
            self.log(logging.INFO, _MOVES[name], **_named(tip.topic_partition for tip in partitions))
        began = time.perf_counter()
        try:
            parent = None if name == "lost" else self._rebalance
            with self._metrics.span(f"kafka.consumer.partitions_{name}", parent=parent, partitions=text):
                yield
        except BaseException as error:
            self._note(error)
            callback = f"on_partitions_{name}"
            named = _named(tip.topic_partition for tip in partitions)
            level = logging.WARNING if isinstance(error, Exception) else logging.INFO  # Ctrl-C is no failure
            self.log(level, LogEvent.LISTENER_FAILED, callback=callback, **named, error=repr(error))
            self._write("listener_failed", callback=callback, partitions=_listed(partitions), error=repr(error))
            raise
        ms = (time.perf_counter() - began) * 1_000
        self._metrics.measure(f"kafka.consumer.partition.{name}.latency", ms)
        self._write(f"partitions_{name}", partitions=_listed(partitions), duration_ms=round(ms, 3))

    def fetching_started(
        self,
        positions: Mapping[TopicIdPartition, OffsetAndMetadata],
        starts: Mapping[TopicIdPartition, StartCause],
    ) -> None:
        """Records of these partitions are read from these offsets on, for these reasons."""
        if LOGGER.isEnabledFor(logging.INFO):
            self._tell_starts(positions, starts)
        self._write(
            "fetching_started", positions={str(p): position.offset for p, position in sorted(positions.items())}
        )

    def _tell_starts(
        self,
        positions: Mapping[TopicIdPartition, OffsetAndMetadata],
        starts: Mapping[TopicIdPartition, StartCause],
    ) -> None:
        alike: dict[tuple[StartReason, str | None], list[TopicIdPartition]] = {}
        for partition, start in starts.items():
            alike.setdefault((start.reason, start.policy), []).append(partition)
        for (reason, policy), its in alike.items():
            if reason is StartReason.GOES_ON:
                continue  # where it goes on was never left
            offsets = {tip.topic_partition: positions[tip] for tip in its}
            lost = {tip.topic_partition: at for tip in its if (at := starts[tip].lost_offset) is not None}
            more: dict[str, Any] = {} if policy is None else {"reset": policy}
            if lost:
                more["lost_offsets"] = {str(partition): lost[partition] for partition in sorted(lost)[:_SHOWN]}
            self.log(logging.INFO, LogEvent.READING_FROM, reason=reason.value, **more, **_where(offsets))

    def sought(self, positions: Mapping[NamedPartition, OffsetAndMetadata]) -> None:
        """seek() moved partitions that were being read already."""
        if LOGGER.isEnabledFor(logging.INFO):
            self.log(logging.INFO, LogEvent.READING_FROM, reason=StartReason.SOUGHT.value, **_where(positions))

    def commit_ended(
        self, offsets: Mapping[NamedPartition, OffsetAndMetadata], error: Exception | None, *, automatic: bool
    ) -> None:
        """A commit was answered, or failed."""
        if error is not None:
            self._note(error)
        if automatic and self._metrics.tracing:
            self._trace_automatic_commit(offsets, error)
        if automatic and error is not None:
            # No call waits for this commit, so only the log shows it. It is made again at each interval.
            if self._is_news("auto_commit", error, _AUTO_COMMIT_TOLD_EVERY_MS):
                self.log(logging.WARNING, LogEvent.AUTO_COMMIT_FAILED, **_where(offsets), error=error)
        elif error is not None:
            level = logging.INFO if self._is_news("commit", error, _ALIKE_MS) else logging.DEBUG
            self.log(level, LogEvent.COMMIT_FAILED, **_where(offsets), error=error)
        elif automatic:
            self._told.pop("auto_commit", None)
        listed = _offsets(offsets)
        if error is None:
            self._write("commit_done", offsets=listed)
        else:
            self._write("commit_failed", offsets=listed, error=str(error))

    def transaction_aborted(self, error: TransactionAbortedError) -> None:
        """The block of a `transaction()` was not committed."""
        if self._is_news("transaction", error, _ABORTS_ALIKE_MS):
            self.log(logging.WARNING, LogEvent.TRANSACTION_ABORTED, error=error)

    def data_plane_renewed(self, topics: Sequence[str]) -> None:
        """Records are read with a new librdkafka consumer, because these topics were created again."""
        self.log(logging.INFO, LogEvent.DATA_PLANE_RENEWED, topics=list(topics))
        self._write("data_plane_renewed", topics=list(topics))

    def stalled(self, partitions: Collection[NamedPartition], seconds: float, reason: str | None, *, log: bool) -> None:
        """Positions do not move although records wait; without a reason they move again."""
        listed = describe_partitions(partitions)
        if reason is None:
            self.log(logging.INFO, LogEvent.PARTITIONS_MOVE, partitions=listed)
            return
        text = f"the position in {listed} has not moved for {seconds:.0f} s: {reason}"
        self.last_error = (text, self._clock.now_ms())
        if log:
            self.log(
                logging.WARNING, LogEvent.PARTITIONS_STALLED, partitions=listed, seconds=round(seconds), error=reason
            )

    def commit_gave_up(self, offsets: Mapping[NamedPartition, OffsetAndMetadata]) -> None:
        """A commit inside on_partitions_revoked went on without these: their topics do not exist any more."""
        reason = "the topic does not exist any more"
        self.log(logging.WARNING, LogEvent.COMMIT_GAVE_UP, **_where(offsets), error=reason)
        self._write("commit_failed", offsets=_offsets(offsets), error=reason)

    def _trace_automatic_commit(
        self, offsets: Mapping[NamedPartition, OffsetAndMetadata], error: Exception | None
    ) -> None:
        began_ns = self._commit_written_ns or time.time_ns()
        self._commit_written_ns = 0
        during = self._rebalance is not None and self._rebalance.began_ns <= began_ns
        span = self._metrics.begin(
            "kafka.consumer.commit",
            parent=self._rebalance if during else None,
            root=True,
            began_ns=began_ns,
            attributes=self._commit_attributes(offsets, "automatic"),
        )
        span.end(error)

    def poll_missed(self, *, silent_ms: int | None) -> None:
        """The application was not inside poll() for *silent_ms*, longer than max.poll.interval.ms."""
        late_ms = None if silent_ms is None else max(0, silent_ms - self.max_poll_interval_ms)
        self._write("poll_interval_exceeded", late_ms=late_ms)

    def surfaced(self, error: Exception) -> None:
        """An error will be raised to the application."""
        self._note(error)
        self._write("error_surfaced", error=f"{type(error).__name__}: {error}")

    def failed(self, error: Exception) -> None:
        """The member is FATAL."""
        self._note(error)
        self.log(logging.ERROR, LogEvent.FAILED, error=error)
        self._write("member_failed", error=f"{type(error).__name__}: {error}")

    def group_left(self, reason: str) -> None:
        """The member is outside its group now."""
        self.departure = reason
        self.log(logging.INFO, LogEvent.LEFT, reason=reason)

    def left(self) -> None:
        """The leave was answered, or will not be."""
        self._write("left_group")

    @contextmanager
    def assignor(self, snapshot: ConsumerGroupPrepareAssignmentResponse) -> Iterator[None]:
        """Cover the computation of an assignment by a client-side assignor; it raises nothing."""
        began = time.perf_counter()
        yield
        ms = (time.perf_counter() - began) * 1_000
        self._write(
            "local_assignor_ran",
            assignor=snapshot.assignor_name,
            group_epoch=snapshot.group_epoch,
            members=len(snapshot.members),
            duration_ms=round(ms, 3),
        )

    def assignor_failed(self, error: Kip848Error) -> None:
        """A client-side assignor failed, or its assignment was refused. No call waits, so only the log shows it."""
        cause = error.__cause__
        self.log(logging.ERROR, LogEvent.ASSIGNOR_FAILED, error=error, exc_info=cause)
        partitions, members = (
            (error.partitions, error.members) if isinstance(error, InvalidAssignmentError) else ((), ())
        )
        self._write("local_assignor_failed", error=str(error), partitions=list(partitions), members=list(members))

    def assignors_unsupported(self, missing: Iterable[str]) -> None:
        """The coordinator has no client-side assignment, and the configuration allows to go on without."""
        lacks = " and ".join(missing)
        self.log(logging.WARNING, LogEvent.ASSIGNORS_UNSUPPORTED, missing=lacks)
        self._write("assignors_unsupported", missing=lacks)

    def group_restless(self, text: str) -> None:
        """The group is assigned again and again, although its members and topics stay the same."""
        self.log(logging.WARNING, LogEvent.GROUP_RESTLESS, assignments=text)
        self._write("group_restless", assignments=text)

    def hand_over_failed(self, reason: str) -> None:
        """The member gives its partitions up without knowing that the others are ready."""
        self.log(logging.WARNING, LogEvent.HAND_OVER_FAILED, reason=reason)
        self._write("hand_over_failed", reason=reason)

    def standing_by(self, began: StandbyBegan) -> None:
        """Every slot is held: the member stands by, or still does."""
        seconds = began.waited_ms // 1_000
        if not began.waited_ms:
            self.standing_by_since_ms = self._clock.now_ms()
            self._metrics.count("kip848.consumer.standby.total")
            self._write("standby_began", slots=began.slots)
        self.log(logging.INFO, LogEvent.STANDBY_BEGAN, slots=began.slots, seconds=seconds)

    def slot_taken(self, taken: SlotTaken) -> None:
        """The member has joined with a slot."""
        self.standing_by_since_ms = None
        waited_ms = 0 if taken.waited_ms is None else taken.waited_ms
        if taken.waited_ms is not None:
            self._metrics.count("kip848.consumer.takeover.total")
            self._metrics.measure("kip848.consumer.standby.time", waited_ms)
        self.log(
            logging.INFO, LogEvent.STANDBY_TOOK_OVER, slot=taken.slot, from_member=taken.before or "", ms=waited_ms
        )
        self._write("standby_took_over", slot=taken.slot, from_member=taken.before or "", waited_ms=waited_ms)

    def slots_unseen(self, reason: str) -> None:
        """The group cannot be described: the member tries the slots in turn."""
        self.log(logging.WARNING, LogEvent.SLOTS_UNSEEN, reason=reason)

    def _write(self, event: str, **fields: JsonValue) -> None:
        if isinstance(self._journal, NullJournal):
            return
        self._journal.write(
            JournalEvent(
                ts_ms=self._clock.wall_ms(),
                source="client",
                event=event,
                group_id=self._name.group_id,
                member_id=self._name.member_id,
                client_id=self._name.client_id,
                member_epoch=self._name.member_epoch,
                fields=fields,
            )
        )


def _offsets(offsets: Mapping[NamedPartition, OffsetAndMetadata]) -> dict[str, JsonValue]:
    return {str(partition): at.offset for partition, at in sorted(offsets.items())}


def _listed(partitions: Iterable[TopicIdPartition]) -> list[JsonValue]:
    return [str(partition) for partition in sorted(partitions)]


def _named(partitions: Iterable[NamedPartition]) -> dict[str, Any]:
    """The fields of a log event about any number of partitions."""
    listed = list(partitions)
    return {"partitions": shorten_partitions(listed), "count": len(listed)}


def _where(offsets: Mapping[NamedPartition, OffsetAndMetadata]) -> dict[str, Any]:
    """The same, with the offsets of the first partitions."""
    shown = {str(partition): offsets[partition].offset for partition in sorted(offsets)[:_SHOWN]}
    return {**_named(offsets), "offsets": shown}
