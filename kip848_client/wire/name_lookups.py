"""Looks names of hosts up in threads that nothing waits for.

asyncio does it in a pool of threads, which the end of an event loop, and of the interpreter, waits for: seconds, while
a name server is silent. And from Python 3.12 on a loop with such a pool cannot be closed while the interpreter ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Final, ParamSpec, TypeVar

from kip848_client.common.daemon_thread import daemon_thread

ArgumentsT = ParamSpec("ArgumentsT")
ResultT = TypeVar("ResultT")


class _Daemons(Executor):
    """With a daemon thread for each call."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._running = 0
        self._last_failed = False

    @property
    def troubled(self) -> bool:
        """Whether a name server is silent, or knew no such host when it was asked last."""
        return self._running > 0 or self._last_failed

    def submit(
        self, fn: Callable[ArgumentsT, ResultT], /, *args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs
    ) -> Future[ResultT]:
        """Call *fn* in a thread of its own."""
        future: Future[ResultT] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            self._count(1)
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001  raised where the result is awaited
                self._count(-1, failed=True)
                future.set_exception(error)
            else:
                self._count(-1)
                future.set_result(result)

        daemon_thread(run, "kip848-lookup").start()
        return future

    def _count(self, change: int, *, failed: bool = False) -> None:
        with self._lock:
            self._running += change
            self._last_failed = failed


LOOKUPS: Final = _Daemons()
"""For every event loop that dials."""
