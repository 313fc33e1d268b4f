"""Looks names of hosts up in threads that nothing waits for.

asyncio does it in a pool of threads, which the end of an event loop, and of the interpreter, waits for: seconds, while
a name server is silent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from kip848_client.daemon_thread import daemon_thread

__all__ = ["LOOKUPS"]

ArgumentsT = ParamSpec("ArgumentsT")
ResultT = TypeVar("ResultT")


class _Daemons(ThreadPoolExecutor):
    """An executor, as `asyncio.loop.set_default_executor` takes it, with a daemon thread for each call."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
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

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing to do: there are no threads to end."""

    def _count(self, change: int, *, failed: bool = False) -> None:
        with self._lock:
            self._running += change
            self._last_failed = failed


LOOKUPS: Final = _Daemons()
"""For every event loop that dials."""
