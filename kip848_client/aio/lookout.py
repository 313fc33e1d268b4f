"""`Lookout`: while a task waits for another thread, its event loop wakes now and then, so that a signal is handled.

Python handles a signal between two steps of its main thread. One that comes in the moment in which the event loop goes
to sleep is noted and no more: it is handled when the loop wakes, which without a timer is when the next record comes,
and Ctrl-C seems lost. trio guards against that (`signal.set_wakeup_fd`), asyncio only for ``loop.add_signal_handler``
and not for the Ctrl-C of ``asyncio.run``. A timer does it here, and changes nothing that belongs to the whole process.

Does not own: what a signal does.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final

LOOK_S: Final = 0.2
"""A person who pressed Ctrl-C does not notice it; a process that waits for records does not either."""


class Lookout:
    """A context: while it is entered, by one task or several, the event loop wakes. In an event loop only."""

    def __init__(self) -> None:
        self._waiting = 0
        self._armed: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> None:
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # trio
            return
        if loop is not self._armed:
            self._arm(loop)

    def __exit__(self, *_: object) -> None:
        self._waiting -= 1

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if threading.current_thread() is threading.main_thread():  # no other one handles signals
            self._armed = loop
            loop.call_later(LOOK_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called by the loop: a signal that was noted has been handled by now."""
        if loop is self._armed:
            self._armed = None
            if self._waiting:
                self._arm(loop)
