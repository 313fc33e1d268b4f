"""One thread per unit: the style in which the application writes a function and not three callbacks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.common.logs import LogEvent, log_event
from kip848_client.common.model import Unit
from kip848_client.errors import ListenerError, OutOfResourcesError, join_names
from kip848_client.worker.events import OwnedUnit
from kip848_client.worker.inside import enter

Runner: TypeAlias = Callable[[OwnedUnit, threading.Event], object]
"""Runs one unit until the event is set."""


class _Running(msgspec.Struct, eq=False):
    owned: OwnedUnit
    stop: threading.Event
    thread: threading.Thread


class UnitThreads:
    """Runs a function for each unit, in a thread of its own.

    Args:
        runner: returns when its event is set; if it returns or raises earlier, the unit rests until it moves.
        worker: which the function belongs to, for `inside`.
        stop_timeout_s: how long a stop waits for the threads.
    """

    def __init__(self, runner: Runner, *, worker: object, stop_timeout_s: float) -> None:
        self._runner: Final = runner
        self._worker: Final = worker
        self._stop_timeout_s: Final = stop_timeout_s
        self._running: Final[dict[Unit, _Running]] = {}
        self.errors: Final[dict[Unit, BaseException]] = {}
        """Exceptions of the function, by unit; forgotten when the unit is started again."""

    @property
    def alive(self) -> Mapping[Unit, OwnedUnit]:
        """Units whose thread runs."""
        return {unit: running.owned for unit, running in list(self._running.items()) if running.thread.is_alive()}

    def start(self, units: Iterable[OwnedUnit]) -> None:
        """Start the threads."""
        for owned in units:
            self.errors.pop(owned.unit, None)
            stop = threading.Event()
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
        if late:
            raise ListenerError(
                f"the runner of {join_names(late)} goes on {self._stop_timeout_s:g} s after its stop event was set; it "
                "must look at the event and return"
            )

    def _run(self, owned: OwnedUnit, stop: threading.Event) -> None:
        enter(self._worker, owned)
        try:
            self._runner(owned, stop)
        except BaseException as error:  # noqa: BLE001  a unit that fails must not take others along
            self.errors[owned.unit] = error
            log_event(logging.ERROR, LogEvent.UNIT_FAILED, exc_info=error, unit=str(owned.unit), token=owned.token)
