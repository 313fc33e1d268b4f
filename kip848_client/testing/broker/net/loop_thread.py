"""Runs an event loop on a thread of its own, and calls functions on it from other threads. Knows nothing of Kafka."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from kip848_client.common.daemon_thread import daemon_thread, no_event_loop
from kip848_client.errors import IllegalStateError, OutOfResourcesError

ResultT = TypeVar("ResultT")


class LoopThread:
    """One thread that runs one event loop, from construction until `stop`.

    It is a selector loop on every platform, because `Server.stop` takes its listening socket out of the loop.

    Args:
        name: of the thread.

    Raises:
        OutOfResourcesError: the process has no files or threads left for it.
    """

    def __init__(self, name: str) -> None:
        try:
            self.loop: Final = asyncio.SelectorEventLoop()
        except OSError as error:
            raise no_event_loop(error) from error
        self._lock: Final = threading.Lock()
        self._over = False
        """No call is taken any more; those that were are all performed."""
        self._thread: Final = daemon_thread(self._run, name)
        try:
            self._thread.start()
        except OutOfResourcesError:
            self.loop.close()
            raise

    def run(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run *coroutine* on the loop; return its result, or raise its error. Not for the loop's own thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def call(self, function: Callable[[], ResultT], *, timeout_s: float | None = None) -> ResultT:
        """Call *function* on the loop's thread; return its result, or raise its error.

        Raises:
            TimeoutError: it did not end in time.
            IllegalStateError: the loop was stopped.
        """
        if threading.current_thread() is self._thread:
            return function()
        future: concurrent.futures.Future[ResultT] = concurrent.futures.Future()

        def call() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                future.set_exception(error)

        with self._lock:
            if self._over:
                raise IllegalStateError("the broker was stopped by another thread; call start() first")
            self.loop.call_soon_threadsafe(call)
        return future.result(timeout_s)

    def refuse_own_thread(self) -> None:
        """Check that this is not the loop's own thread, which must not wait for itself.

        Raises:
            IllegalStateError: this is the loop's own thread.
        """
        if threading.current_thread() is self._thread:
            raise IllegalStateError("a broker cannot be stopped from its own thread; let another thread do it")

    def stop(self) -> None:
        """Stop the loop, cancel the tasks that are left, and wait for the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            with self._lock:
                self._over = True
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            if left:
                self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()


def wait_s(timeout_s: float) -> float:
    """How long a thread waits that is told to wait for *timeout_s*: there are years that Python cannot count."""
    return min(timeout_s, threading.TIMEOUT_MAX)
