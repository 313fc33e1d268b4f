"""The thread of a share consumer: one event loop that steps the member and the reader, and sends their requests.

Both cores are used under one lock, by this thread and by the application's, which takes records and acknowledges them
without waiting for anything else. Whoever changes a core calls `wake`, and this thread does what is due.

Does not own: any rule of the protocol (`member.share`), what the application sees (`consumer`).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, assert_never

import anyio
import anyio.abc

from kip848_client.common.clock import Clock
from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.common.logs import LOGGER, LogEvent, log_event
from kip848_client.common.model import BrokerNode
from kip848_client.errors import ConnectionLostError, ErrorCode, Kip848Error, join_names
from kip848_client.member.core.assignment import IdPartition
from kip848_client.member.core.events import (
    ConnectCoordinator,
    CoordinatorConnected,
    CoordinatorDisconnected,
    Destination,
    Fail,
    LeaveDone,
    LeaveRequested,
    MemberEffect,
    RequestFailed,
    ResponseReceived,
    SendRequest,
    StateChanged,
    SubscriptionChanged,
    SurfaceError,
    Tick,
)
from kip848_client.member.core.settings import MemberConfig
from kip848_client.member.share.share_events import (
    AcknowledgementOutcome,
    CommitEnded,
    FindLeaders,
    Leader,
    LeaderRefuses,
    LocksLost,
    ReaderClosed,
    ReaderEffect,
    ReaderFailed,
    ReaderSurfaced,
    ShareSend,
)
from kip848_client.member.share.share_member import ShareEvent, ShareMember
from kip848_client.member.share.share_reader import ShareReader
from kip848_client.network.connection_opener import ConnectionOpener
from kip848_client.network.coordinator_manager import CoordinatorManager
from kip848_client.network.ownership import HomeProcess
from kip848_client.network.queues import Latch
from kip848_client.network.request_sender import BrokerConnection, RequestSender
from kip848_client.network.requests import failure_kind
from kip848_client.network.topic_metadata import TopicMetadataRequestManager
from kip848_client.share.config import ShareConfig
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kip848_client.wire.schema import Response

_FIND_TIMEOUT_MS: Final = 10_000
_LOOKS: Final = 2
_LOOK_EVERY_S: Final = 1.0
_LEAVE_MS: Final = 5_000


class ShareHost:
    """Runs the cores of one share consumer. Started by `start`.

    Args:
        on_change: called on this thread after each step, under no lock.
    """

    def __init__(self, config: ShareConfig, *, clock: Clock, on_change: Callable[[], None]) -> None:
        connections = config.connections
        self._config: Final = config
        self._clock: Final = clock
        self._on_change: Final = on_change
        member_id = str(uuid.uuid4())
        seed = random.SystemRandom().random()
        self.member: Final = ShareMember(
            MemberConfig(
                group_id=connections.group_id,
                member_id=member_id,
                rack_id=connections.client_rack,
                user=None if connections.security.sasl is None else connections.security.sasl.username or None,
                request_timeout_ms=connections.request_timeout_ms,
                retry_backoff_ms=connections.retry_backoff_ms,
                retry_backoff_max_ms=connections.retry_backoff_max_ms,
            ),
            rng=random.Random(seed),
        )
        self.reader: Final = ShareReader(
            config.reader, group_id=connections.group_id, member_id=member_id, rng=random.Random(seed)
        )
        self.lock: Final = threading.RLock()
        """Held while a core is used."""
        self.outcomes: Final[deque[AcknowledgementOutcome]] = deque()
        """Outcomes that the application has not been told of."""
        self.commits: Final[dict[int, CommitEnded]] = {}
        """Commits that have ended, until their callers take them."""
        self.error: Kip848Error | None = None
        """To be raised by the next poll()."""
        self.fatal: Kip848Error | None = None
        """Raised by every call but close()."""
        self.last_error: str | None = None
        """The last error of any kind, for `health`."""
        self.last_error_ms: int | None = None
        self.wants_outcomes: bool = False
        """Keep outcomes for a callback."""
        self.home: Final = HomeProcess()
        self.ended: Final = Latch()
        self._opener: Final = ConnectionOpener(connections)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: contextvars.Context | None = None
        self._early: list[ShareEvent] = []
        self._thread: threading.Thread | None = None
        self._woken = False
        self._tasks: anyio.abc.TaskGroup | None = None
        self._sender: RequestSender | None = None
        self._coordinator: CoordinatorManager | None = None
        self._links: Final[dict[int, BrokerConnection]] = {}
        """Leader -> the connection to it that was used last."""
        self._timer: asyncio.TimerHandle | None = None
        self._stopping: anyio.Event | None = None
        self._bug: Exception | None = None
        """What a callback of the event loop has raised."""
        self._closing_until_ms: int | None = None
        self._reader_closed = False
        self._leaving = False
        self.missing: frozenset[str] = frozenset()
        """Subscribed topics that did not exist when they were last looked for."""
        self._subscribed: frozenset[str] = frozenset()
        self._look = False
        """The subscribed topics are to be looked for."""
        self._assignment: frozenset[IdPartition] = frozenset()

    # --- from any thread

    def start(self) -> None:
        """Start the thread."""
        self.home.check()
        self._thread = daemon_thread(self._run, f"kip848-share-{self._config.connections.client_id}")
        self._thread.start()

    def post(self, event: ShareEvent) -> None:
        """Step the member with *event* soon."""
        self.home.check()
        with self.lock:
            self._early.append(event)
            if isinstance(event, SubscriptionChanged | LeaveRequested):
                topics = event.subscription.topics if isinstance(event, SubscriptionChanged) else frozenset()
                self._subscribed, self._look, self.missing = topics, bool(topics), self.missing & topics
        self.wake()

    def wake(self) -> None:
        """Do soon what is due: something was changed."""
        with self.lock:
            if self._loop is None or self._woken:
                return
            with suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._come_by, context=self._context)
            self._woken = True  # not before: Ctrl-C may come in between, and nothing would wake the thread again

    @property
    def closing(self) -> bool:
        """Whether `close` was called."""
        return self._closing_until_ms is not None

    def close(self, *, deadline_ms: int) -> None:
        """Say what is to be said, give back the rest, leave the group, and end the thread."""
        with self.lock:
            self._closing_until_ms = deadline_ms
            self.reader.close(deadline_ms=deadline_ms)
        self.wake()

    # --- on the thread

    def _run(self) -> None:
        try:
            anyio.run(self._main, backend="asyncio")
        except BaseException as bug:  # noqa: BLE001  the application must get any error
            with self.lock:
                self.fatal = bug if isinstance(bug, Kip848Error) else Kip848Error(f"a bug of the library: {bug!r}")
            log_event(
                logging.ERROR,
                LogEvent.SHARE_CRASHED,
                exc_info=bug,
                group_id=self._config.connections.group_id,
            )
        finally:
            with self.lock:
                self._loop = None
            self.ended.set()
            self._on_change()

    async def _main(self) -> None:
        connections = self._config.connections
        self._stopping = anyio.Event()
        try:
            async with anyio.create_task_group() as self._tasks:
                self._sender = RequestSender(
                    bootstrap=[(server.host, server.port) for server in connections.bootstrap_servers],
                    open_connection=self._opener,
                    tasks=self._tasks,
                    clock=self._clock,
                    rng=random.Random(random.SystemRandom().random()),
                    backoff_ms=connections.retry_backoff_ms,
                    backoff_max_ms=connections.retry_backoff_max_ms,
                    setup_timeout_ms=connections.connection_setup_timeout_ms,
                    rebootstraps=connections.rebootstraps,
                )
                self._coordinator = CoordinatorManager(self._sender, on_disconnected=self._coordinator_lost)
                self._context = contextvars.copy_context()
                with self.lock:
                    self._loop = asyncio.get_running_loop()
                self._advance()
                await self._stopping.wait()
                self._tasks.cancel_scope.cancel()
            if self._bug is not None:
                raise self._bug
        finally:
            if self._timer is not None:
                self._timer.cancel()
            with anyio.CancelScope(shield=True):  # after the tasks: one of them may have been about to open another
                if self._coordinator is not None:
                    await self._coordinator.aclose()
                if self._sender is not None:
                    await self._sender.aclose()

    def _coordinator_lost(self, node_id: int) -> None:
        self._step(CoordinatorDisconnected(node_id))

    def _step(self, event: ShareEvent) -> None:
        with self.lock:
            self._early.append(event)
        self._advance()

    def _come_by(self) -> None:
        """`_advance`, as a callback: an exception ends the thread, instead of a line in asyncio's log."""
        try:
            self._advance()
        except Exception as bug:  # noqa: BLE001  wherever it is
            assert self._stopping is not None
            self._bug = bug
            self._stopping.set()

    def _advance(self) -> None:
        """Step both cores until nothing is left to do now."""
        if self._stopping is None or self._stopping.is_set():
            return
        with self.lock:
            self._woken = False
            now_ms = self._clock.now_ms()
            events, self._early = self._early, []
            member_effects: list[MemberEffect] = []
            for event in [*events, Tick()]:
                member_effects += self.member.step(event, now_ms=now_ms)
            if self._closing_until_ms is None:
                self.reader.assign(self.member.assignment)
                self._note_topics(self.member.assignment)
            reader_effects = self.reader.advance(now_ms=now_ms)
            self._note(member_effects, reader_effects)
            if self._look and self.member.in_group:
                self._look = False
                self._start(self._look_for, self._subscribed)
        for effect in member_effects:
            if isinstance(effect, SendRequest | ConnectCoordinator):
                self._start(self._ask_coordinator, effect)
        for each in reader_effects:
            if isinstance(each, ShareSend):
                self._start(self._ask_leader, each)
            elif isinstance(each, FindLeaders):
                self._start(self._find_leaders, each)
        self._leave_if_closed()
        self._arm()
        self._on_change()

    def _start(self, function: Callable[..., object], *arguments: object) -> None:
        assert self._tasks is not None
        self._tasks.start_soon(function, *arguments)  # type: ignore[arg-type]

    def _note(self, member_effects: list[MemberEffect], reader_effects: list[ReaderEffect]) -> None:
        """Keep for the application what concerns it."""
        for effect in member_effects:
            match effect:
                case Fail(error):
                    self.fatal = error
                    self._failed(error)
                    self._log(logging.ERROR, LogEvent.FAILED, error=str(error))
                case SurfaceError(error):
                    self.error = error
                    self._failed(error)
                case StateChanged(old, new, trigger, epoch):
                    moved = {"from": old.name, "to": new.name, "trigger": trigger, "member_epoch": epoch}
                    self._log(logging.INFO, LogEvent.STATE_CHANGED, **moved)
                case LeaveDone() if self._leaving:
                    assert self._stopping is not None
                    self._stopping.set()
                case _:
                    pass
        for each in reader_effects:
            match each:
                case AcknowledgementOutcome():
                    if self.wants_outcomes:
                        self.outcomes.append(each)
                    if each.error is not None:
                        self._failed(each.error)
                        self._log(
                            logging.WARNING,
                            LogEvent.SHARE_NOT_ACKNOWLEDGED,
                            partition=f"{self.reader.topic_of(each.partition)}-{each.partition[1]}",
                            records=len(each.offsets),
                            error=str(each.error),
                        )
                case CommitEnded():
                    self.commits[each.commit_id] = each
                case ReaderFailed(error):
                    self._failed(error)
                    self.fatal = self.fatal or error
                case ReaderSurfaced(error):
                    self._failed(error)
                    self.error = error
                case ReaderClosed():
                    self._reader_closed = True
                case LeaderRefuses(node_id, error):
                    self._failed(error)
                    self._log(logging.WARNING, LogEvent.SHARE_LEADER_REFUSES, node_id=node_id, error=str(error))
                case LocksLost(partition, offsets):
                    self._log(
                        logging.WARNING,
                        LogEvent.SHARE_LOCKS_LOST,
                        partition=f"{self.reader.topic_of(partition)}-{partition[1]}",
                        records=len(offsets),
                    )
                case ShareSend() | FindLeaders():
                    pass
                case _:
                    assert_never(each)

    def _leave_if_closed(self) -> None:
        if self._reader_closed and not self._leaving:
            self._leaving = True
            deadline_ms = self._clock.now_ms() + _LEAVE_MS
            if self._closing_until_ms is not None:
                deadline_ms = min(deadline_ms, max(self._closing_until_ms, self._clock.now_ms() + 100))
            self._step(LeaveRequested(0, deadline_ms, closing=True))

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self.lock:
            due = [at for at in (self.member.deadline_ms(), self.reader.deadline_ms()) if at is not None]
        loop = self._loop
        if due and loop is not None and self._stopping is not None and not self._stopping.is_set():
            delay_ms = max(min(due) - self._clock.now_ms(), 1)
            self._timer = loop.call_later(delay_ms / 1000, self._come_by)

    # --- requests

    async def _ask_coordinator(self, effect: SendRequest | ConnectCoordinator) -> None:
        assert self._sender is not None
        assert self._coordinator is not None
        assert self._tasks is not None
        event: ShareEvent
        try:
            if isinstance(effect, ConnectCoordinator):
                versions = await self._coordinator.connect(effect.node, timeout_ms=effect.timeout_ms, tasks=self._tasks)
                event = CoordinatorConnected(effect.request_id, versions)
            else:
                event = ResponseReceived(effect.request_id, await self._send(effect))
        except Kip848Error as error:
            event = RequestFailed(effect.request_id, failure_kind(error), str(error))
        self._step(event)

    async def _send(self, effect: SendRequest) -> Response:
        assert self._sender is not None
        assert self._coordinator is not None
        if effect.destination is Destination.COORDINATOR:
            return await self._coordinator.send(
                effect.request, timeout_ms=effect.timeout_ms, max_version=effect.max_version, urgent=effect.urgent
            )
        return await self._sender.send_any(effect.request, timeout_ms=effect.timeout_ms)

    async def _ask_leader(self, send: ShareSend) -> None:
        assert self._sender is not None
        try:
            connection = await self._sender.node(send.node_id, timeout_ms=send.timeout_ms)
            if self._links.get(send.node_id) is not connection:
                self._links[send.node_id] = connection
                self._start(self._watch_leader, send.node_id, connection)
            response = await connection.send(send.request, timeout_ms=send.timeout_ms)
        except Kip848Error as error:
            with self.lock:
                self.reader.failed(send.request_id, error, now_ms=self._clock.now_ms())
        else:
            with self.lock:
                self.reader.answered(send.request_id, response, now_ms=self._clock.now_ms())
        self._advance()

    async def _watch_leader(self, node_id: int, connection: BrokerConnection) -> None:
        """Give up at once what the leader takes back when its connection ends, also if nothing is to be sent to it."""
        await connection.wait_closed()
        if self._links.get(node_id) is connection:
            with self.lock:
                self.reader.connection_lost(node_id, now_ms=self._clock.now_ms())
            self._advance()

    async def _find_leaders(self, find: FindLeaders) -> None:
        try:
            found = await self._leaders_of(find)
        except Kip848Error as error:
            with self.lock:
                self.reader.find_failed()
            self._failed(error)
            self._log(logging.INFO, LogEvent.SHARE_LEADERS_UNKNOWN, error=str(error))
        else:
            with self.lock:
                self.reader.leaders_found(found)
        self._advance()

    def _note_topics(self, assignment: frozenset[IdPartition]) -> None:
        """Look for the topics if one has gone from the assignment, or may be there again."""
        if assignment is self._assignment:
            return
        before, now = ({topic_id for topic_id, _ in each} for each in (self._assignment, assignment))
        self._assignment = assignment
        if before - now or (self.missing and now != before):
            self._look = bool(self._subscribed)

    async def _look_for(self, topics: frozenset[str]) -> None:
        """Say in the log which topics do not exist: a member that gets no partition does not know why.

        They are looked for twice: a broker may hear of a deletion later than the coordinator.
        """
        assert self._sender is not None
        manager = TopicMetadataRequestManager(self._sender, clock=self._clock, isolation_level=0)
        answers = 0
        while topics == self._subscribed and self.fatal is None:
            try:
                found = await manager.describe(topics, pattern=None, timeout_ms=_FIND_TIMEOUT_MS)
            except Kip848Error as error:
                self._failed(error)
            else:
                answers += 1
                self._tell_missing(topics, topics - found.topics.keys() - found.unauthorized - found.passing)
                if answers == _LOOKS:
                    return
            await anyio.sleep(_LOOK_EVERY_S)

    def _tell_missing(self, topics: frozenset[str], missing: frozenset[str]) -> None:
        """Name in the log those of *topics* that were not missing before, if these are still subscribed to."""
        with self.lock:
            if topics != self._subscribed:
                return
            new, self.missing = missing - self.missing, missing
        if new:
            names, hint = join_names(sorted(new)), "they are read once they exist"
            self._log(logging.WARNING, LogEvent.TOPICS_MISSING, topics=names, hint=hint)

    async def _leaders_of(self, find: FindLeaders) -> Mapping[IdPartition, Leader]:
        assert self._sender is not None
        topics = tuple(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in sorted(find.topic_ids))
        response = await self._sender.send_any(
            MetadataRequest(topics=topics, allow_auto_topic_creation=False), timeout_ms=_FIND_TIMEOUT_MS
        )
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._sender.rebootstrap()
            raise ConnectionLostError("the broker asks for a new start from the bootstrap servers")
        nodes = {each.node_id: BrokerNode(each.node_id, each.host, each.port) for each in response.brokers}
        if nodes:
            self._sender.learn_nodes(nodes.values(), cluster_id=response.cluster_id)
        return {
            (topic.topic_id, partition.partition_index): Leader(nodes[partition.leader_id], topic.name)
            for topic in response.topics
            if topic.error_code == ErrorCode.NONE and topic.name
            for partition in topic.partitions
            if partition.leader_id in nodes
        }

    def _failed(self, error: object) -> None:
        self.last_error, self.last_error_ms = str(error), self._clock.now_ms()

    def _log(self, level: int, event: LogEvent, **fields: object) -> None:
        connections = self._config.connections
        about: dict[str, object] = {"group_id": connections.group_id, "client_id": connections.client_id, **fields}
        log_event(level, event, exc_info=None, logger=LOGGER, **about)
