"""The signals that end a command in good order, and waiting for one."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

if sys.platform == "win32":  # Ctrl-Break is what another process can send
    STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK)
else:
    STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM, by which service managers and containers end a command, end it as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():  # handlers of signals are its own
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


@contextmanager
def stop_on_signal(*, second_interrupts: bool = False) -> Iterator[threading.Event]:
    """Turn the first of `STOP_SIGNALS` into an event.

    Wait for it in turns: on Python without the GIL a signal that comes as a wait begins is noticed only when it ends.

    Args:
        second_interrupts: the same signal does what it did before if it comes again; otherwise it does nothing.
    """
    stopped = threading.Event()

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.set()
        if second_interrupts:
            signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
