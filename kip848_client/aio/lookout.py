"""`Lookout`: wakes the event loop regularly while a task waits for another thread, so that signals are handled.

Python handles a signal between two steps of its main thread. If one arrives just as the event loop
goes to sleep, it is handled when the loop wakes; without a timer that is with the next record, and Ctrl-C seems lost.
trio guards against that (`signal.set_wakeup_fd`), asyncio only for ``loop.add_signal_handler``
and not for the Ctrl-C of ``asyncio.run``. The timer here changes no state of the process.

Does not own: what a signal does.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final

LOOK_S: Final = 0.5
"""Short enough for a person who pressed Ctrl-C, and rare enough for a waiting process."""


class Lookout:
    """A context: while it is entered, by one task or several, the event loop wakes. In an event loop only."""

    def __init__(self) -> None:
        self.waiting: int = 0
        """How many tasks are inside."""
        self._armed: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> None:
        self.waiting += 1
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # trio
            return
        if loop is not self._armed:
            self._arm(loop)

    def __exit__(self, *_: object) -> None:
        self.waiting -= 1

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if threading.current_thread() is threading.main_thread():  # no other one handles signals
            self._armed = loop
            loop.call_later(LOOK_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called by the loop: a signal that was noted has been handled by now."""
        if loop is self._armed:
            self._armed = None
            if self.waiting:
                self._arm(loop)
