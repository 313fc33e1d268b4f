"""`Worker`: named units of work, each of them on one live process at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias

from kip848_client.assignors.units.unit_interface import UnitAssignor
from kip848_client.common.callables import check_not_async, check_result_not_async, check_takes
from kip848_client.common.clock import Clock
from kip848_client.common.model import Unit
from kip848_client.config.reader import ConfigValue
from kip848_client.errors import IllegalStateError, OutOfResourcesError
from kip848_client.network.queues import Bells
from kip848_client.worker.base import WorkerBase
from kip848_client.worker.callbacks import CallbackThread
from kip848_client.worker.config import UnitLike, UnitSource
from kip848_client.worker.events import (
    CloseRequested,
    DrainRequested,
    OwnedUnit,
    StartRequested,
)
from kip848_client.worker.host import check_started
from kip848_client.worker.runner_ends import RunnerEnd
from kip848_client.worker.runners import Runner, UnitThreads

_USE_ASYNC_WORKER: Final = "give a plain function, or use AsyncWorker"

Callback: TypeAlias = "Callable[[Worker, list[OwnedUnit]], object]"


class Worker(WorkerBase):
    """One of N processes that share named units of work.

    Each unit runs on one live worker of the group. A move is graceful: the old owner stops the unit and says so, and
    only then the new owner starts it. A worker that is cut off stops its units before the coordinator gives them away.

    Callbacks run one after the other on a thread of the worker's own, with ``(worker, units)``; the heartbeats go on
    meanwhile. Instead of callbacks, `runner` takes a function that runs one unit.

    Args:
        config: keys of Kafka (``bootstrap.servers``, ``group.id``, security) and of workers, see docs/workers.md;
            keyword arguments are added to it.
        units: all units that the group should run, as names or `Unit`; every worker must be given the same list, and a
            new list needs a higher ``units.version``. Or a function that returns ``(version, units)``: it is called
            again every ``units.refresh.interval.ms``.
        on_assigned: start these units. If it raises, they count as failed, and stay.
        on_revoked: stop these units. Returning means that they are stopped: another worker may start them now.
        on_lost: stop these units at once, since they may run elsewhere soon; *on_revoked* if None.
        on_runner_end: what follows if a runner returns or raises before it was told to stop, or *on_assigned* raises:
            ``restart`` it here after a pause, which doubles each time; ``give_up`` the unit, so that another worker
            runs it; or ``end`` this worker, so that `wait` raises `RunnerEndedError`.
        assignors: client-side assignors such as `CooperativeAssignor`, the most preferred first; all workers of a group
            must have one in common. Without them the coordinator computes the plans.

    Raises:
        ConfigError: a key or a unit is wrong.

    Example::

        worker = Worker({"bootstrap.servers": "127.0.0.1:9092", "group.id": "feeds"}, units=["eurusd", "gbpusd"])

        @worker.runner
        def poll(owned, stop):
            while not stop.wait(1.0):
                fetch(owned.name, fencing_token=owned.token)

        with worker:
            worker.wait()
    """

    def __init__(
        self,
        config: Mapping[str, ConfigValue] | None = None,
        *,
        units: Iterable[UnitLike] | UnitSource,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        assignors: Sequence[UnitAssignor] = (),
        on_runner_end: RunnerEnd = "restart",
        clock: Clock | None = None,
        **settings: ConfigValue,
    ) -> None:
        for name, callback in (("on_assigned", on_assigned), ("on_revoked", on_revoked), ("on_lost", on_lost)):
            check_not_async(callback, name=name, instead=_USE_ASYNC_WORKER)
            check_takes(callback, "worker", "units", name=name)
        super().__init__(config, settings, units=units, assignors=assignors, on_runner_end=on_runner_end, clock=clock)
        self._on_assigned: Final = on_assigned
        self._on_revoked: Final = on_revoked
        self._on_lost: Final = on_lost
        self._runner: Runner | None = None
        self._threads: UnitThreads | None = None
        self._callbacks: CallbackThread | None = None
        self._changed: Final = Bells()

    # --- life

    def start(self) -> Self:
        """Join the group, and start the units that it gives; returns at once.

        Raises:
            IllegalStateError: it was started before, or there is neither a runner nor a callback.
            ConfigError: the function that gives the units returned something else.
            OutOfResourcesError: the process may have no more threads.
        """
        if self._host is not None:
            raise IllegalStateError("the worker was started before; make a new one")
        if self._runner is None and self._on_assigned is None:
            raise IllegalStateError(
                "nothing would run: give on_assigned and on_revoked, or decorate a function with runner"
            )
        if self._runner is not None:
            self._threads = UnitThreads(
                self._runner,
                worker=self,
                stop_timeout_s=self._stop_timeout_s,
                lease_left_s=lambda: self.lease_remaining_s,
                ends=self._ends,
                on_end=self._runner_ended,
            )
        listener = _Callbacks(
            self,
            threads=self._threads,
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
            on_lost=self._on_lost,
        )
        self._callbacks = CallbackThread(
            listener,
            name=f"kip848-units-{self._config.settings.worker_id}",
            refresh=None if self._source is None else self._refresh,
            refresh_s=self._config.units_refresh_ms / 1000,
        )
        self._host = self._make_host(self._callbacks, on_view=self._tell_waiters)
        try:
            self._host.start(first=StartRequested())
        except OutOfResourcesError:
            self._callbacks.ended()
            self._host = self._callbacks = None
            raise
        return self

    def close(self, timeout_s: float = 30.0, *, keep_units: bool = False) -> None:
        """Stop all units, and leave the group: other workers get them at once.

        Args:
            timeout_s: how long to wait for callbacks and for the coordinator.
            keep_units: a worker with a ``group.instance.id`` is restarted soon: its units wait for it.
        """
        host = self._host
        if host is None or host.ended.is_set():
            return
        host.home.check()
        deadline_ms = self._clock.now_ms() + int(timeout_s * 1000)
        host.post(CloseRequested(deadline_ms, for_a_while=keep_units))
        if self._callbacks is not None and self._callbacks.is_current:
            return  # inside a callback: it ends after this one
        host.join(timeout_s + 1.0)

    def hand_over(self, timeout_s: float = 30.0) -> None:
        """Leave without a gap: each unit runs here until another worker is ready for it. Then as `close`.

        Other workers start the units about a tenth of a second after they have stopped here; after `close` alone they
        notice only with their next heartbeat.

        Args:
            timeout_s: in seconds, for all of it. A third is kept for `close`, if the others are not ready by then.
        """
        host = self._host
        if host is None or host.ended.is_set():
            return
        host.post(DrainRequested(then_close=True))
        if self._callbacks is not None and self._callbacks.is_current:
            return  # inside a callback: it goes on after this one
        if not host.join(timeout_s * 2 / 3):
            self.close(timeout_s / 3)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the worker has ended.

        Returns:
            Whether it has; False when *timeout_s* passed.

        Raises:
            Kip848Error: the error that stopped the worker; `RunnerEndedError` if that was the end of a runner.
        """
        host = check_started(self._host)
        ended = self._wait_for(lambda _: host.ended.is_set(), timeout_s)
        self._raise_end(host)
        return ended

    def wait_for(self, condition: Callable[[Worker], bool], timeout_s: float | None = None) -> bool:
        """Wait until *condition* holds, or the time is over, or the worker has ended; whether it holds."""
        host = check_started(self._host)
        self._wait_for(lambda worker: condition(worker) or host.ended.is_set(), timeout_s)
        return condition(self)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- runners and callbacks

    def runner(self, function: Runner) -> Runner:
        """Decorate the function that runs one unit: ``function(owned, stop)``, in a thread per unit.

        It must return soon after the event *stop* is set, also because the lease is over; the unit counts as stopped
        only then. If it returns or raises earlier, its exception is in `errors`, and *on_runner_end* says what follows.

        Raises:
            IllegalStateError: the worker was started, or has callbacks.
        """
        if self._on_assigned is not None or self._on_revoked is not None:
            raise IllegalStateError("the worker has callbacks; it can have a runner or callbacks, not both")
        check_not_async(function, name="the runner", instead=_USE_ASYNC_WORKER)
        check_takes(function, "owned", "stop", name="the runner")
        self._set_runner(function)
        return function

    @property
    def errors(self) -> Mapping[Unit, BaseException]:
        """Why runners ended before they were told to stop, by unit; kept until they have run for a while again."""
        return {} if self._threads is None else self._threads.errors

    # --- internals

    def _set_runner(self, runner: Runner) -> None:
        if self._host is not None:
            raise IllegalStateError("decorate the runner before start()")
        self._runner = runner

    def _tell_waiters(self) -> None:
        self._changed.ring()

    def _wait_for(self, condition: Callable[[Worker], bool], timeout_s: float | None) -> bool:
        ends_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        # In short waits: a signal is handled between them.
        while not self._changed.wait_for(lambda: condition(self), min(0.5, ends_s - time.monotonic())):
            if time.monotonic() >= ends_s:
                return False
        return True


class _Callbacks:
    """The target of the callback thread: the application's callbacks, and then the runners' threads."""

    def __init__(
        self,
        worker: Worker,
        *,
        threads: UnitThreads | None,
        on_assigned: Callback | None,
        on_revoked: Callback | None,
        on_lost: Callback | None,
    ) -> None:
        self._worker: Final = worker
        self._threads: Final = threads
        self._on_assigned: Final = on_assigned
        self._on_revoked: Final = on_revoked
        self._on_lost: Final = on_lost or on_revoked

    def assigned(self, units: Sequence[OwnedUnit]) -> None:
        """Start units."""
        self._call("on_assigned", self._on_assigned, units)
        if self._threads is not None:
            self._threads.start(units)

    def revoked(self, units: Sequence[OwnedUnit]) -> None:
        """Stop units."""
        self.stop_now(units)
        self._call("on_revoked", self._on_revoked, units)
        if self._threads is not None:
            self._threads.stop(units)

    def lost(self, units: Sequence[OwnedUnit]) -> None:
        """Stop units that are lost."""
        self.stop_now(units)
        self._call("on_lost", self._on_lost, units)
        if self._threads is not None:
            self._threads.stop(units)

    def stop_now(self, units: Sequence[OwnedUnit]) -> None:
        """Tell runners to stop."""
        if self._threads is not None:
            self._threads.signal(units)

    def _call(self, name: str, callback: Callback | None, units: Sequence[OwnedUnit]) -> None:
        if callback is not None:
            check_result_not_async(callback(self._worker, list(units)), name=name, instead=_USE_ASYNC_WORKER)
