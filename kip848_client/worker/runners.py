"""One thread per unit: the style in which the application writes a function and not three callbacks."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.common.model import Unit
from kip848_client.errors import ListenerError, OutOfResourcesError, join_names
from kip848_client.worker.events import OwnedUnit
from kip848_client.worker.inside import enter
from kip848_client.worker.runner_ends import RunnerEnds

Runner: TypeAlias = Callable[[OwnedUnit, threading.Event], object]
"""Runs one unit until the event is set."""

_LOOK_S: Final = 0.5


class StopEvent(threading.Event):
    """A runner's event: it is set when the worker sets it, and while the worker's lease is over.

    A process that was suspended sees so at once that its lease is over, before the worker's thread has run again.

    Args:
        lease_left_s: how many seconds of the lease are left.
    """

    def __init__(self, lease_left_s: Callable[[], float]) -> None:
        super().__init__()
        self._lease_left_s: Final = lease_left_s
        self.saw_lease_end: bool = False
        """The runner was told that the lease is over."""

    @property
    def told(self) -> bool:
        """Whether the worker has set it."""
        return super().is_set()

    def is_set(self) -> bool:
        """Whether the unit has to stop."""
        if self.told:
            return True
        if self._lease_left_s() <= 0:
            self.saw_lease_end = True
            return True
        return False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most *timeout* seconds; whether it is."""
        ends_s = math.inf if timeout is None else time.monotonic() + timeout
        while not self.is_set():
            left_s = min(ends_s - time.monotonic(), self._lease_left_s())
            if ends_s <= time.monotonic():
                return False
            super().wait(max(0.0, left_s))
        return True

    def wait_for_lease(self) -> bool:
        """Wait until the worker sets it, or has a lease again; whether it has one."""
        while not self.told:
            if self._lease_left_s() > 0:
                self.saw_lease_end = False
                return True
            super().wait(_LOOK_S)
        return False


class _Running(msgspec.Struct, eq=False):
    owned: OwnedUnit
    stop: StopEvent
    thread: threading.Thread


class UnitThreads:
    """Runs a function for each unit, in a thread of its own.

    Args:
        runner: returns when its event is set.
        worker: which the function belongs to, for `inside`.
        stop_timeout_s: how long a stop waits for the threads.
        lease_left_s: how many seconds of the worker's lease are left.
        ends: what follows if the function returns or raises earlier.
        on_end: called then, on its thread.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        worker: object,
        stop_timeout_s: float,
        lease_left_s: Callable[[], float],
        ends: RunnerEnds,
        on_end: Callable[[OwnedUnit, BaseException | None], None],
    ) -> None:
        self._runner: Final = runner
        self._worker: Final = worker
        self._stop_timeout_s: Final = stop_timeout_s
        self._lease_left_s: Final = lease_left_s
        self._ends: Final = ends
        self._on_end: Final = on_end
        self._running: Final[dict[Unit, _Running]] = {}
        self._failed: Final[dict[Unit, tuple[BaseException, float]]] = {}
        """Why the function ended before it was told to, and when it started again: `math.inf` if it has not yet."""

    @property
    def errors(self) -> dict[Unit, BaseException]:
        """Why the function ended before it was told to, by unit; forgotten when it has run for a while since."""
        now_s = time.monotonic()
        return {
            unit: error
            for unit, (error, again_s) in self._failed.copy().items()
            if not self._ends.is_new((now_s - again_s) * 1000)
        }

    @property
    def alive(self) -> Mapping[Unit, OwnedUnit]:
        """Units whose thread runs."""
        return {unit: running.owned for unit, running in list(self._running.items()) if running.thread.is_alive()}

    def start(self, units: Iterable[OwnedUnit]) -> None:
        """Start the threads."""
        for owned in units:
            self._failed.pop(owned.unit, None)
            stop = StopEvent(self._lease_left_s)
            thread = daemon_thread(self._run, f"kip848-unit-{owned.unit}", owned, stop)
            self._running[owned.unit] = _Running(owned, stop, thread)
            try:
                thread.start()
            except OutOfResourcesError:
                del self._running[owned.unit]
                raise

    def signal(self, units: Iterable[OwnedUnit]) -> None:
        """Tell the threads to stop; waits for nothing."""
        for owned in units:
            running = self._running.get(owned.unit)
            if running is not None:
                running.stop.set()

    def stop(self, units: Iterable[OwnedUnit]) -> None:
        """Tell the threads to stop, and wait until they have.

        Raises:
            ListenerError: some have not; which ones is in the message.
        """
        units = list(units)
        self.signal(units)
        ends_s = time.monotonic() + self._stop_timeout_s
        late = []
        for owned in units:
            running = self._running.get(owned.unit)
            if running is None:
                continue
            running.thread.join(max(0.0, ends_s - time.monotonic()))
            if running.thread.is_alive():
                late.append(str(owned.unit))
            else:
                del self._running[owned.unit]
                self._failed.pop(owned.unit, None)
        if late:
            raise ListenerError(
                f"the runner of {join_names(late)} goes on {self._stop_timeout_s:g} s after its stop event was set; it "
                "must look at the event and return"
            )

    def _run(self, owned: OwnedUnit, stop: StopEvent) -> None:
        failures = 0
        while True:
            began_s, error = time.monotonic(), self._call(owned, stop)
            if stop.told or stop.saw_lease_end:
                if error is not None:
                    self._ends.note_late(owned, error)
            else:
                failures = 1 if self._ends.is_new((time.monotonic() - began_s) * 1000) else failures + 1
                self._failed[owned.unit] = self._ends.note(owned, error, failures=failures), math.inf
                self._on_end(owned, error)
                if self._ends.policy == "end":
                    return
                stop.wait(self._ends.pause_ms(failures) / 1000)
                self._failed[owned.unit] = self._failed[owned.unit][0], time.monotonic()
            if not stop.wait_for_lease():
                return

    def _call(self, owned: OwnedUnit, stop: StopEvent) -> BaseException | None:
        enter(self._worker, owned)
        try:
            self._runner(owned, stop)
        except BaseException as error:  # noqa: BLE001  a unit that fails must not take others along
            return error
        return None
