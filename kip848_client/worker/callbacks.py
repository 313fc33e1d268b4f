"""The thread on which a worker's callbacks run, one at a time, beside the thread that keeps its membership."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.common.logs import LogEvent, log_event
from kip848_client.worker.events import CallbackDone, CallbackKind, OwnedUnit, RunCallback, StopNow


class UnitListener(Protocol):
    """Calls that start and stop units; each may raise."""

    def assigned(self, units: Sequence[OwnedUnit]) -> None:
        """Start these units."""
        ...

    def revoked(self, units: Sequence[OwnedUnit]) -> None:
        """Stop these units; returning means that they are stopped."""
        ...

    def lost(self, units: Sequence[OwnedUnit]) -> None:
        """Stop these units at once: they may run elsewhere soon."""
        ...

    def stop_now(self, units: Sequence[OwnedUnit]) -> None:
        """Tell these units to stop, on the worker's own thread; must not wait."""
        ...


class CallbackThread:
    """Runs a listener's methods in order.

    Args:
        refresh: called every *refresh_s* seconds while nothing else is to be done; None: never.
    """

    def __init__(
        self, listener: UnitListener, *, name: str, refresh: Callable[[], None] | None, refresh_s: float
    ) -> None:
        self._listener: Final = listener
        self._queue: Final[queue.SimpleQueue[Callable[[], object] | None]] = queue.SimpleQueue()
        self._refresh: Final = refresh
        self._refresh_s: Final = refresh_s
        self._thread: Final = daemon_thread(self._run, name)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller is inside a callback."""
        return threading.current_thread() is self._thread

    def run(self, call: RunCallback, done: Callable[[CallbackDone], None]) -> None:
        """Run a callback soon."""
        self._queue.put(lambda: done(perform(self._listener, call)))

    def read_units(self) -> None:
        """Call *refresh* soon."""
        if self._refresh is not None:
            self._queue.put(self._refresh)

    def stop_now(self, stop: StopNow) -> None:
        """Tell the units to stop, also while a callback is running."""
        self._listener.stop_now(stop.units)

    def ended(self) -> None:
        """End the thread after the queued callbacks."""
        self._queue.put(None)

    def _run(self) -> None:
        while True:
            try:
                task = self._queue.get(timeout=None if self._refresh is None else self._refresh_s)
            except queue.Empty:
                assert self._refresh is not None
                self._refresh()
                continue
            if task is None:
                return
            task()


def perform(listener: UnitListener, call: RunCallback) -> CallbackDone:
    """Run one callback; its exception is logged and becomes part of the result."""
    method = {
        CallbackKind.ASSIGNED: listener.assigned,
        CallbackKind.REVOKED: listener.revoked,
        CallbackKind.LOST: listener.lost,
    }[call.kind]
    try:
        method(call.units)
    except Exception as error:  # noqa: BLE001  the application's code; the worker lives on
        note_failure(call, error)
        return CallbackDone(call.call_id, frozenset(owned.unit for owned in call.units))
    return CallbackDone(call.call_id)


def note_failure(call: RunCallback, error: BaseException) -> None:
    """Log what a callback raised."""
    units = [str(owned.unit) for owned in call.units]
    log_event(logging.ERROR, LogEvent.LISTENER_FAILED, exc_info=error, callback=call.kind.value, partitions=units)
