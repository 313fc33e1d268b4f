"""`AsyncWorker`: `Worker` for asyncio and trio. Callbacks and runners are tasks of the application's event loop.

The membership is kept by the worker's own thread, so a loop that is busy loses no heartbeat.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias

import anyio
import anyio.abc
import msgspec

from kip848_client.aio.lookout import Lookout
from kip848_client.aio.owner_thread import teller
from kip848_client.assignors.units.unit_interface import UnitAssignor
from kip848_client.common.callables import check_async, check_takes
from kip848_client.common.clock import Clock
from kip848_client.common.model import Unit
from kip848_client.config.reader import ConfigValue
from kip848_client.errors import IllegalStateError, ListenerError, join_names
from kip848_client.worker.base import WorkerBase
from kip848_client.worker.callbacks import note_failure
from kip848_client.worker.config import UnitLike, UnitSource
from kip848_client.worker.events import (
    CallbackDone,
    CallbackKind,
    CloseRequested,
    DrainRequested,
    OwnedUnit,
    RunCallback,
    StartRequested,
    StopNow,
)
from kip848_client.worker.host import check_started
from kip848_client.worker.inside import enter
from kip848_client.worker.runner_ends import RunnerEnd

AsyncCallback: TypeAlias = "Callable[[AsyncWorker, list[OwnedUnit]], Awaitable[object]]"
AsyncRunner: TypeAlias = Callable[[OwnedUnit, anyio.Event], Awaitable[object]]
"""Runs one unit until the event is set."""

_USE_WORKER: Final = "give an async function, or use Worker"


_LOOK_S: Final = 0.5


class AsyncStopEvent(anyio.Event):
    """As `StopEvent` of threads: also set while the lease is over, which a loop that was suspended sees at once."""

    __slots__ = ("_event", "_lease_left_s", "saw_lease_end")

    def __new__(cls, lease_left_s: Callable[[], float]) -> Self:
        """Not an event of the running loop, as anyio's makes."""
        return object.__new__(cls)

    def __init__(self, lease_left_s: Callable[[], float]) -> None:
        self._event = anyio.Event()
        self._lease_left_s = lease_left_s
        self.saw_lease_end: bool = False

    @property
    def told(self) -> bool:
        """Whether the worker has set it."""
        return self._event.is_set()

    def set(self) -> None:
        """Tell the runner to stop."""
        self._event.set()

    def is_set(self) -> bool:
        """Whether the unit has to stop."""
        if self.told:
            return True
        if self._lease_left_s() <= 0:
            self.saw_lease_end = True
            return True
        return False

    async def wait(self) -> None:
        """Wait until it is set."""
        while not self.is_set():
            with anyio.move_on_after(max(0.0, self._lease_left_s())):
                await self._event.wait()

    async def wait_for_lease(self) -> bool:
        """Wait until the worker sets it, or has a lease again; whether it has one."""
        while not self.told:
            if self._lease_left_s() > 0:
                self.saw_lease_end = False
                return True
            with anyio.move_on_after(_LOOK_S):
                await self._event.wait()
        return False

    def statistics(self) -> anyio.EventStatistics:
        """As of the event behind it."""
        return self._event.statistics()


class _Running(msgspec.Struct, eq=False):
    owned: OwnedUnit
    stop: AsyncStopEvent
    ended: anyio.Event


class _LoopCallbacks:
    """Hands the callbacks of the worker's thread to the event loop."""

    def __init__(
        self,
        run: Callable[[RunCallback, Callable[[CallbackDone], None]], None],
        stop_now: Callable[[StopNow], None],
        read_units: Callable[[], None],
    ) -> None:
        self.run: Final = run
        self.stop_now: Final = stop_now
        self.read_units: Final = read_units

    def ended(self) -> None:
        """The loop's tasks end with the ``async with`` block."""


class AsyncWorker(WorkerBase):
    """As `Worker`, with coroutine functions; used in an ``async with`` block.

    Args:
        config, units: as of `Worker`.
        on_assigned, on_revoked, on_lost: coroutine functions that are awaited with ``(worker, units)``, one at a time.
        on_runner_end, assignors: as of `Worker`.

    Raises:
        ConfigError: a key or a unit is wrong.

    Example::

        worker = AsyncWorker({"bootstrap.servers": "127.0.0.1:9092", "group.id": "feeds"}, units=["eurusd", "gbpusd"])

        @worker.runner
        async def poll(owned, stop):
            while not stop.is_set():
                await fetch(owned.name, fencing_token=owned.token)

        async with worker:
            await worker.wait()
    """

    def __init__(
        self,
        config: Mapping[str, ConfigValue] | None = None,
        *,
        units: Iterable[UnitLike] | UnitSource,
        on_assigned: AsyncCallback | None = None,
        on_revoked: AsyncCallback | None = None,
        on_lost: AsyncCallback | None = None,
        assignors: Sequence[UnitAssignor] = (),
        on_runner_end: RunnerEnd = "restart",
        clock: Clock | None = None,
        **settings: ConfigValue,
    ) -> None:
        for name, callback in (("on_assigned", on_assigned), ("on_revoked", on_revoked), ("on_lost", on_lost)):
            if callback is not None:
                check_async(callback, name=name, instead=_USE_WORKER)
                check_takes(callback, "worker", "units", name=name)
        super().__init__(config, settings, units=units, assignors=assignors, on_runner_end=on_runner_end, clock=clock)
        self._on_assigned: Final = on_assigned
        self._on_revoked: Final = on_revoked
        self._on_lost: Final = on_lost
        self._runner: AsyncRunner | None = None
        self._running: Final[dict[Unit, _Running]] = {}
        self._failed_runners: Final[dict[Unit, tuple[BaseException, float]]] = {}
        """Why a runner ended before it was told to, and when it started again: `math.inf` if it has not yet."""
        self._calls: Final[deque[tuple[RunCallback, Callable[[CallbackDone], None]]]] = deque()
        self._tell: Callable[[Callable[[], object]], object] | None = None
        self._called: anyio.Event | None = None
        self._asked: anyio.Event | None = None
        self._moved: anyio.Event | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._lookout: Final = Lookout()

    def runner(self, function: AsyncRunner) -> AsyncRunner:
        """Decorate the coroutine function that runs one unit, as `Worker.runner`.

        Raises:
            IllegalStateError: the worker was started, or has callbacks.
        """
        if self._on_assigned is not None or self._on_revoked is not None:
            raise IllegalStateError("the worker has callbacks; it can have a runner or callbacks, not both")
        check_async(function, name="the runner", instead=_USE_WORKER)
        check_takes(function, "owned", "stop", name="the runner")
        self._set_runner(function)
        return function

    @property
    def errors(self) -> Mapping[Unit, BaseException]:
        """Why runners ended before they were told to stop, by unit; kept until they have run for a while again."""
        now_s = time.monotonic()
        return {
            unit: error
            for unit, (error, again_s) in self._failed_runners.items()
            if not self._ends.is_new((now_s - again_s) * 1000)
        }

    async def close(self, timeout_s: float = 30.0, *, keep_units: bool = False) -> None:
        """Stop all units, and leave the group; arguments as of `Worker.close`."""
        host = self._host
        if host is None or host.ended.is_set():
            return
        host.post(CloseRequested(self._clock.now_ms() + int(timeout_s * 1000), for_a_while=keep_units))
        with anyio.move_on_after(timeout_s + 1.0):
            await self._wait_for(host.ended.is_set)

    async def hand_over(self, timeout_s: float = 30.0) -> None:
        """Leave without a gap, as `Worker.hand_over`.

        Args:
            timeout_s: in seconds, for all of it.
        """
        host = self._host
        if host is None or host.ended.is_set():
            return
        host.post(DrainRequested(then_close=True))
        with anyio.move_on_after(timeout_s * 2 / 3):
            await self._wait_for(host.ended.is_set)
        await self.close(timeout_s / 3)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the worker has ended; False when *timeout_s* seconds passed before.

        Raises:
            Kip848Error: the error that stopped the worker; `RunnerEndedError` if that was the end of a runner.
        """
        host = check_started(self._host)
        with anyio.move_on_after(math.inf if timeout_s is None else timeout_s):
            await self._wait_for(host.ended.is_set)
        self._raise_end(host)
        return host.ended.is_set()

    async def wait_for(self, condition: Callable[[AsyncWorker], bool], timeout_s: float | None = None) -> bool:
        """Wait until *condition* holds, or the time is over, or the worker has ended; whether it holds."""
        host = check_started(self._host)
        with anyio.move_on_after(math.inf if timeout_s is None else timeout_s):
            await self._wait_for(lambda: condition(self) or host.ended.is_set())
        return condition(self)

    async def __aenter__(self) -> Self:
        if self._host is not None:
            raise IllegalStateError("the worker was started before; make a new one")
        if self._runner is None and self._on_assigned is None:
            raise IllegalStateError("nothing would run: give on_assigned and on_revoked, or decorate a runner")
        self._tell = teller()
        self._called, self._moved, self._asked = anyio.Event(), anyio.Event(), anyio.Event()
        tasks = anyio.create_task_group()
        self._tasks = await tasks.__aenter__()
        self._tasks.start_soon(self._perform_calls)
        if self._source is not None:
            self._tasks.start_soon(self._refresh_regularly)
        self._host = self._make_host(
            _LoopCallbacks(self._call_soon, self._signal_soon, lambda: self._soon(self._ask_for_units)),
            on_view=lambda: self._soon(self._set_moved),
        )
        self._host.start(first=StartRequested())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        with anyio.CancelScope(shield=True):
            await self.close()
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, error, trace)

    def _set_runner(self, runner: AsyncRunner) -> None:
        if self._host is not None:
            raise IllegalStateError("decorate the runner before the async with block")
        self._runner = runner

    # --- called on the worker's thread

    def _call_soon(self, call: RunCallback, done: Callable[[CallbackDone], None]) -> None:
        def take() -> None:
            assert self._called is not None
            self._calls.append((call, done))
            self._called.set()

        self._soon(take)

    def _signal_soon(self, stop: StopNow) -> None:
        self._soon(lambda: self._signal(stop.units))

    def _soon(self, function: Callable[[], object]) -> None:
        assert self._tell is not None
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the application with it
            self._tell(function)

    # --- in the event loop

    async def _wait_for(self, condition: Callable[[], bool]) -> None:
        with self._lookout:
            while not condition():
                assert self._moved is not None
                moved = self._moved
                with anyio.move_on_after(0.5):
                    await moved.wait()

    def _set_moved(self) -> None:
        assert self._moved is not None
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    async def _perform_calls(self) -> None:
        while True:
            assert self._called is not None
            await self._called.wait()
            self._called = anyio.Event()
            while self._calls:
                call, done = self._calls.popleft()
                try:
                    await self._perform(call)
                except Exception as error:  # noqa: BLE001  the application's code; the worker lives on
                    note_failure(call, error)
                    done(CallbackDone(call.call_id, frozenset(owned.unit for owned in call.units)))
                else:
                    done(CallbackDone(call.call_id))

    async def _perform(self, call: RunCallback) -> None:
        callback = {
            CallbackKind.ASSIGNED: self._on_assigned,
            CallbackKind.REVOKED: self._on_revoked,
            CallbackKind.LOST: self._on_lost or self._on_revoked,
        }[call.kind]
        if call.kind is not CallbackKind.ASSIGNED:
            self._signal(call.units)
        if callback is not None:
            await callback(self, list(call.units))
        if self._runner is None:
            return
        if call.kind is CallbackKind.ASSIGNED:
            for owned in call.units:
                self._start_runner(owned)
        else:
            await self._stop_runners(call.units)

    def _start_runner(self, owned: OwnedUnit) -> None:
        assert self._tasks is not None
        self._failed_runners.pop(owned.unit, None)
        stop = AsyncStopEvent(lambda: self.lease_remaining_s)
        running = self._running[owned.unit] = _Running(owned, stop, anyio.Event())
        self._tasks.start_soon(self._run_unit, running)

    async def _run_unit(self, running: _Running) -> None:
        enter(self, running.owned)
        try:
            await self._run_until_told(running.owned, running.stop)
        finally:
            running.ended.set()

    async def _run_until_told(self, owned: OwnedUnit, stop: AsyncStopEvent) -> None:
        failures = 0
        while True:
            began_s, error = time.monotonic(), await self._call_runner(owned, stop)
            if stop.told or stop.saw_lease_end:
                if error is not None:
                    self._ends.note_late(owned, error)
            else:
                failures = 1 if self._ends.is_new((time.monotonic() - began_s) * 1000) else failures + 1
                shown = self._ends.note(owned, error, failures=failures)
                self._failed_runners[owned.unit] = shown, math.inf
                self._runner_ended(owned, error)
                if self._ends.policy == "end":
                    return
                with anyio.move_on_after(self._ends.pause_ms(failures) / 1000):
                    await stop.wait()
                self._failed_runners[owned.unit] = shown, time.monotonic()
            if not await stop.wait_for_lease():
                return

    async def _call_runner(self, owned: OwnedUnit, stop: AsyncStopEvent) -> Exception | None:
        assert self._runner is not None
        try:
            await self._runner(owned, stop)
        except Exception as error:  # noqa: BLE001  a unit that fails must not take others along
            return error
        return None

    def _signal(self, units: Iterable[OwnedUnit]) -> None:
        for owned in units:
            running = self._running.get(owned.unit)
            if running is not None:
                running.stop.set()

    async def _stop_runners(self, units: Iterable[OwnedUnit]) -> None:
        units = list(units)
        self._signal(units)
        with anyio.move_on_after(self._stop_timeout_s):
            for owned in units:
                running = self._running.get(owned.unit)
                if running is not None:
                    await running.ended.wait()
        late = [str(owned.unit) for owned in units if not self._has_ended(owned.unit)]
        for owned in units:
            if self._has_ended(owned.unit):
                self._running.pop(owned.unit, None)
                self._failed_runners.pop(owned.unit, None)
        if late:
            raise ListenerError(
                f"the runner of {join_names(late)} goes on {self._stop_timeout_s:g} s after its stop event was set; it "
                "must look at the event and return"
            )

    def _has_ended(self, unit: Unit) -> bool:
        running = self._running.get(unit)
        return running is None or running.ended.is_set()

    def _ask_for_units(self) -> None:
        assert self._asked is not None
        self._asked.set()

    async def _refresh_regularly(self) -> None:
        while True:
            assert self._asked is not None
            with anyio.move_on_after(self._config.units_refresh_ms / 1000):
                await self._asked.wait()
            self._asked = anyio.Event()
            await anyio.to_thread.run_sync(self._refresh)
