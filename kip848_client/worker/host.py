"""The thread of a worker: one event loop that steps the core, sends its requests, and hands callbacks on.

Does not own: any protocol rule (`core`), what the application runs (`callbacks`).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol, assert_never

import anyio
import anyio.abc
import anyio.to_thread
from msgspec.structs import replace

from kip848_client.assignors.units.unit_interface import UnitAssignor, WorkerGroup, WorkerPlan
from kip848_client.common.clock import Clock
from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.common.logs import LOGGER, LogEvent, log_event
from kip848_client.common.model import BrokerNode, Unit
from kip848_client.errors import (
    ConnectionLostError,
    IllegalStateError,
    Kip848Error,
    ProtocolError,
    RequestTimeoutError,
    UnsupportedByBrokerError,
    error_for_code,
)
from kip848_client.network.connection_opener import ConnectionOpener
from kip848_client.network.ownership import HomeProcess
from kip848_client.network.queues import Latch
from kip848_client.network.request_sender import BrokerConnection, RequestSender
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.connect_group_heartbeat import (
    ConnectGroupHeartbeatRequest,
    ConnectGroupHeartbeatResponse,
)
from kip848_client.worker.classic.classic_round import ClassicRound
from kip848_client.worker.classic.classic_talk import ClassicTalk, find_coordinator
from kip848_client.worker.config import WorkerConfig
from kip848_client.worker.core import WorkerCore
from kip848_client.worker.events import (
    Answered,
    CallbackDone,
    CallbackKind,
    Confirmed,
    DrainRequested,
    GiveUpRequested,
    Left,
    Loss,
    NotAnswered,
    Noted,
    Plan,
    Planned,
    ReadUnits,
    RunCallback,
    Send,
    StopNow,
    WorkerEvent,
    WorkerFailed,
    WorkerTick,
    WorkerView,
)
from kip848_client.worker.observer import WorkerObserver
from kip848_client.worker.refusals import may_pass


class CallbackRunner(Protocol):
    """Runs the callbacks of the application, one at a time."""

    def run(self, call: RunCallback, done: Callable[[CallbackDone], None]) -> None:
        """Start a callback; *done* may be called on any thread."""
        ...

    def stop_now(self, stop: StopNow) -> None:
        """Tell the runners of these units to stop. Called on the worker's thread; must not block."""
        ...

    def read_units(self) -> None:
        """Ask the application's function for the units soon."""
        ...

    def ended(self) -> None:
        """The worker has stopped; no callback comes any more."""
        ...


class WorkerHost:
    """Runs one core. Started by `start`.

    Args:
        on_view: called on the worker's thread after each step.
        on_start_failed: called there with units whose `on_assigned` raised.
        assignors: client-side assignors by name.
    """

    def __init__(
        self,
        core: WorkerCore,
        config: WorkerConfig,
        *,
        callbacks: CallbackRunner,
        clock: Clock,
        on_view: Callable[[], None],
        on_start_failed: Callable[[Iterable[Unit]], None],
        assignors: Mapping[str, UnitAssignor],
    ) -> None:
        self._assignors: Final = assignors
        self._core: Final = core
        self._config: Final = config
        self._callbacks: Final = callbacks
        self._clock: Final = clock
        self._on_view: Final = on_view
        self._on_start_failed: Final = on_start_failed
        self._opener: Final = ConnectionOpener(config.connections)
        self.home: Final = HomeProcess()
        self.view: WorkerView = core.view()
        self.observer: Final = WorkerObserver(config, clock=clock)
        self.ended: Final = Latch()
        """The worker has left or failed, and its thread is done."""
        self.crashed: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: contextvars.Context | None = None
        self._thread: threading.Thread | None = None
        self._early: list[WorkerEvent] = []
        self._lock: Final = threading.Lock()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._sender: RequestSender | None = None
        self._connection: BrokerConnection | None = None
        self._node: BrokerNode | None = None
        self._protocol = config.protocol
        """By name, or as the first coordinator offered it."""
        self._classic: ClassicTalk | None = None
        self.loss: Loss | None = None
        """Why units stop, while the callback runs that stops them."""
        self.drains: bool = False
        """This worker gives its units to others, for good."""
        self._drain_waits: DrainRequested | None = None
        """A request from before the protocol is known."""
        self._opening: anyio.Lock | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopping: anyio.Event | None = None
        self._bug: Exception | None = None
        """What a callback of the event loop has raised."""

    # --- from any thread

    def start(self, *, first: WorkerEvent) -> None:
        """Start the thread, with *first* as its first event."""
        self.home.check()
        self._early.append(first)
        name = f"kip848-worker-{self._config.settings.worker_id}"
        self._thread = daemon_thread(self._run, name)
        self._thread.start()

    def post(self, event: WorkerEvent) -> None:
        """Step *event* soon.

        Raises:
            ForkedProcessError: this is a child of the process that made the worker.
        """
        self.home.check()
        with self._lock:
            loop = self._loop
            if loop is None:
                self._early.append(event)
                return
        try:
            loop.call_soon_threadsafe(self._come_by, event, context=self._context)
        except RuntimeError:  # the loop was closed meanwhile: the worker has ended
            return

    def join(self, timeout_s: float | None) -> bool:
        """Wait for the end of the thread; whether it came."""
        return self.ended.wait(timeout_s)

    # --- on the worker's thread

    def _run(self) -> None:
        try:
            anyio.run(self._main, backend="asyncio")
        except BaseException as bug:  # noqa: BLE001  the application must get any error
            self.crashed = bug
            log_event(logging.ERROR, LogEvent.WORKER_CRASHED, exc_info=bug, group_id=self._config.settings.group_id)
        finally:
            with self._lock:
                self._loop = None
            self._callbacks.ended()
            self.observer.ended()
            self.ended.set()
            self._on_view()

    async def _main(self) -> None:
        config = self._config.connections
        self._stopping, self._opening = anyio.Event(), anyio.Lock()
        try:
            async with anyio.create_task_group() as self._tasks:
                self._sender = RequestSender(
                    bootstrap=[(server.host, server.port) for server in config.bootstrap_servers],
                    open_connection=self._opener,
                    tasks=self._tasks,
                    clock=self._clock,
                    rng=random.Random(random.SystemRandom().random()),
                    backoff_ms=config.retry_backoff_ms,
                    backoff_max_ms=config.retry_backoff_max_ms,
                    setup_timeout_ms=config.connection_setup_timeout_ms,
                    rebootstraps=config.rebootstraps,
                    asks_cluster=True,
                )
                self._context = contextvars.copy_context()
                with self._lock:
                    self._loop = asyncio.get_running_loop()
                    early, self._early = self._early, []
                for event in early:
                    self._step(event)
                await self._stopping.wait()
                self._tasks.cancel_scope.cancel()
            if self._bug is not None:
                raise self._bug
        finally:
            if self._timer is not None:
                self._timer.cancel()
            with anyio.CancelScope(shield=True):  # after the tasks: one of them may have been about to open another
                await self._close_connection()
                if self._classic is not None:
                    await self._classic.aclose()
                if self._sender is not None:
                    await self._sender.aclose()

    def _come_by(self, event: WorkerEvent) -> None:
        """`_step`, as a callback: an exception ends the thread, instead of a line in asyncio's log."""
        try:
            self._step(event)
        except Exception as bug:  # noqa: BLE001  wherever it is
            assert self._stopping is not None
            self._bug = bug
            self._stopping.set()

    def _step(self, event: WorkerEvent) -> None:
        if self._stopping is None or self._stopping.is_set():
            return
        if isinstance(event, DrainRequested):
            self.drains = True
            if self._protocol is None:
                self._drain_waits = event
                return
            if self._classic is not None:
                self._classic.drain()
            event = DrainRequested(in_group=self._protocol == "classic", then_close=event.then_close)
        if isinstance(event, GiveUpRequested) and self._classic is not None:
            self._classic.give_up(event.units)
            event = GiveUpRequested(event.units, in_group=True)
        effects = self._core.step(event, now_ms=self._clock.now_ms())
        self.view = self._view()
        late = self.observer.stepped(self.view)
        if late:
            reason = None if self.observer.last_error is None else self.observer.last_error[0]
            units_late = {"what": "units_late", "units": [str(unit) for unit in late], "error": reason}
            self._log(logging.WARNING, LogEvent.WORKER_NOTED, units_late)
        assert self._tasks is not None
        for effect in effects:
            match effect:
                case Send():
                    self._tasks.start_soon(self._send, effect)
                case RunCallback():
                    self.observer.callback_began()
                    self.loss = None if effect.reason is None else Loss(effect.reason, self._deadline_s(effect))
                    self._callbacks.run(effect, partial(self._called, effect))
                case Plan():
                    self._tasks.start_soon(self._plan, effect)
                case ReadUnits():
                    self._callbacks.read_units()
                case StopNow():
                    self._callbacks.stop_now(effect)
                case WorkerFailed(error):
                    self.observer.failed(error)
                    self._log(logging.ERROR, LogEvent.WORKER_FAILED, {"error": error})
                    self._stopping.set()
                case Left():
                    self._stopping.set()
                case Noted(what, fields):
                    self.observer.noted(what)
                    level = logging.WARNING if self.observer.is_loud(what) else logging.INFO
                    self._log(level, LogEvent.WORKER_NOTED, {"what": what, **fields})
                case _:
                    assert_never(effect)
        self._arm()
        self._on_view()

    def _deadline_s(self, call: RunCallback) -> float:
        """When no unit of *call* may act any more, on Python's monotonic clock."""
        return time.monotonic() + (call.act_until_ms - self._clock.now_ms()) / 1000

    def _view(self) -> WorkerView:
        view = self._core.view()
        if self._classic is None or not self._classic.without_token:
            return view
        return replace(view, waiting=tuple(sorted({*view.waiting, *self._classic.without_token})))

    def _called(self, call: RunCallback, done: CallbackDone) -> None:
        self.loss = None
        self.observer.callback_ended(call, done)
        self.post(done)
        if call.kind is CallbackKind.ASSIGNED and done.failed:
            self._on_start_failed(done.failed)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._core.deadline_ms()
        loop = self._loop
        if deadline_ms is not None and loop is not None and self._stopping is not None and not self._stopping.is_set():
            delay_ms = max(deadline_ms - self._clock.now_ms(), 1)
            self._timer = loop.call_later(delay_ms / 1000, self._come_by, WorkerTick())

    async def _send(self, send: Send) -> None:
        sent_ms = self._clock.now_ms()
        try:
            with anyio.fail_after(send.timeout_ms / 1000):
                connection = await self._coordinator(anew=send.anew, timeout_ms=send.timeout_ms)
                response: Any = None
                if self._classic is None:
                    response = await connection.send(send.request, timeout_ms=send.timeout_ms)
            if self._classic is not None:  # a round may take as long as the slowest worker
                assert isinstance(send.request, ConnectGroupHeartbeatRequest)
                assert self._node is not None
                response = await self._classic.converse(
                    send.request, connection, self._node, timeout_ms=send.timeout_ms
                )
                if self._classic.drains and not self.drains:
                    self._log(logging.WARNING, LogEvent.WORKER_NOTED, {"what": "drained_by_administrator"})
                    self._step(DrainRequested())
        except TimeoutError:
            await self._close_connection()
            late = RequestTimeoutError(f"no answer from the coordinator in {send.timeout_ms} ms")
            self._not_answered(send, late)
        except Kip848Error as error:
            passes = may_pass(error)
            if passes and isinstance(error, ConnectionLostError | ProtocolError):
                await self._close_connection()
            self._not_answered(send, error, final=not passes)
        else:
            if isinstance(response, ConnectGroupHeartbeatResponse):
                self.observer.heartbeat_answered(sent_ms=sent_ms, accepted=not response.error_code)
                if response.error_code:
                    self.observer.failed(error_for_code(response.error_code, response.error_message or "a heartbeat"))
            token_error = None if self._classic is None else self._classic.token_error
            if token_error is not None:
                self.observer.failed(token_error)
            self._step(Answered(send.request_id, response))

    def _not_answered(self, send: Send, error: Kip848Error, *, final: bool = False) -> None:
        self.observer.failed(error)
        self._step(NotAnswered(send.request_id, error, final=final))

    async def _plan(self, plan: Plan) -> None:
        """Run the user's assignor beside the heartbeats."""
        self._step(Planned(plan.plan_id, await self._compute(plan.assignor_name, plan.group)))

    async def _compute(self, assignor_name: str, group: WorkerGroup) -> WorkerPlan | None:
        """The plan of the user's assignor; None if it raised."""
        assignor = self._assignors[assignor_name]
        try:
            return await anyio.to_thread.run_sync(assignor.assign, group)
        except Exception as error:  # noqa: BLE001  the application's code; the coordinator asks another worker
            group_id = self._config.settings.group_id
            log_event(logging.ERROR, LogEvent.PLAN_FAILED, exc_info=error, group_id=group_id, assignor=assignor_name)
            return None

    async def _coordinator(self, *, anew: bool, timeout_ms: int) -> BrokerConnection:
        """The coordinator's connection; opened if there is none.

        Raises:
            UnsupportedByBrokerError: the broker does not have what the configuration asks for.
        """
        assert self._opening is not None
        async with self._opening:  # a heartbeat and a request of a plan may come together
            if anew:
                await self._close_connection()
            if self._connection is None or self._connection.closed:
                self._connection = await self._find_coordinator(timeout_ms=timeout_ms)
            return self._connection

    async def _find_coordinator(self, *, timeout_ms: int) -> BrokerConnection:
        assert self._sender is not None
        group_id = self._config.settings.group_id
        found = await find_coordinator(self._sender, group_id, key_type=0, timeout_ms=timeout_ms)
        node = BrokerNode(found.node_id, found.host, found.port)
        connection = await self._sender.open(node, timeout_ms=timeout_ms)
        offers_connect = ApiKey.CONNECT_GROUP_HEARTBEAT in connection.api_versions
        self._protocol = self._protocol or ("connect" if offers_connect else "classic")
        problem = None
        if self._protocol == "connect" and not offers_connect:
            problem = (
                f"the broker at {node.host}:{node.port} does not serve connect groups "
                f"(API {ApiKey.CONNECT_GROUP_HEARTBEAT}). Apache Kafka does not have them: use group.protocol=classic, "
                "or EmbeddedBroker(connect_groups=True); on a broker of this library, list `connect` in "
                "group.coordinator.rebalance.protocols"
            )
        elif self._protocol == "classic" and self._config.settings.instance_id is not None:
            problem = (
                "group.instance.id needs connect groups: a classic coordinator gives the units of a static member to "
                "its successor while the member may still run them; leave it out"
            )
        if problem is not None:
            await connection.aclose()
            raise UnsupportedByBrokerError(problem)
        if self._protocol == "classic" and self._classic is None:
            session_ms, interval_ms = self._config.session_timeout_ms, self._config.heartbeat_interval_ms
            self._classic = ClassicTalk(
                ClassicRound(self._config.settings, session_timeout_ms=session_ms, heartbeat_interval_ms=interval_ms),
                self._sender,
                group_id=group_id,
                clock=self._clock,
                interval_ms=interval_ms,
                confirmed=lambda sent_ms, settled: self._step(Confirmed(sent_ms, settled)),
                compute=self._compute,
            )
            if self.drains:
                self._classic.drain()
        self._node = node
        drain, self._drain_waits = self._drain_waits, None
        if drain is not None:
            self._step(drain)
        return connection

    async def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with anyio.CancelScope(shield=True):
                await connection.aclose()

    def _log(self, level: int, event: LogEvent, fields: Mapping[str, object]) -> None:
        settings = self._config.settings
        log_event(
            level,
            event,
            exc_info=None,
            logger=LOGGER,
            **{"group_id": settings.group_id, "worker_id": settings.worker_id, **fields},
        )


def check_started(host: WorkerHost | None) -> WorkerHost:
    """The host of a worker that was started.

    Raises:
        IllegalStateError: it was not.
    """
    if host is None:
        raise IllegalStateError("the worker was not started; call start(), or use it in a with block")
    return host
