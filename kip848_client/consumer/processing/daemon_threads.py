"""`DaemonThreads`: the pool of ``Consumer.process()``. Unlike a ThreadPoolExecutor's, its threads end with the program.

A handler that never returns would otherwise keep the interpreter from ending after process() has given up waiting.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from kip848_client.common.daemon_thread import daemon_thread

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(Executor):
    """Runs functions in threads, which are started when they are needed.

    Args:
        most: how many threads there are at most.
    """

    def __init__(self, most: int) -> None:
        self.most: int = most
        self._started = 0
        self._idle: Final = threading.Semaphore(0)
        self._todo: Final[queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]] = queue.SimpleQueue()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function soon; one thread at a time may call this.

        Raises:
            OutOfResourcesError: the process may have no more threads.
        """
        if not self._idle.acquire(blocking=False) and self._started < self.most:
            daemon_thread(self._work, f"kip848-process_{self._started}").start()
            self._started += 1
        future: Future[T] = Future()
        self._todo.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let idle threads end, and the others after their functions."""
        self._todo.put(None)

    def _work(self) -> None:
        while (job := self._todo.get()) is not None:
            future, call = job
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001  the future has it
                future.set_exception(error)
            else:
                future.set_result(result)
            del job, future, call
            self._idle.release()
        self._todo.put(None)  # for the next one
