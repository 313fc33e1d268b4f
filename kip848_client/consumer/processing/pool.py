"""`Pool`: the executor of one ``process()``. Makes a new one when its processes have died, if it knows how."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any, Final

from kip848_client.consumer.processing.daemon_threads import DaemonThreads
from kip848_client.errors import ArgumentTypeError

_GIVE: Final = "give an executor, or a function that makes one, such as lambda: ProcessPoolExecutor(4)"
_REAP_S: Final = 1.0
"""How long a process that has ended may take until it can be asked how."""


class Pool:
    """Where handlers run.

    Args:
        given: the application's executor; or what makes one, which `close` ends; None for threads.
        threads: how many there are then.

    Raises:
        ArgumentTypeError: *given* is neither.
    """

    def __init__(self, given: Executor | Callable[[], Executor] | None, threads: int) -> None:
        if not (given is None or isinstance(given, Executor) or callable(given)):
            raise ArgumentTypeError(f"executor={given!r}: {_GIVE}")
        self._make: Final = None if isinstance(given, Executor) else given
        if given is None:
            self.executor: Executor = DaemonThreads(threads)
        elif isinstance(given, Executor):
            self.executor = given
        else:
            self.executor = self._made()
        self._owned: Final = not isinstance(given, Executor)
        self.has_processes: Final = isinstance(self.executor, ProcessPoolExecutor)
        """Its workers are processes: they get copies, and may die."""

    @property
    def renewable(self) -> bool:
        """Whether another one can be made when it is broken."""
        return self.has_processes and self._make is not None

    @property
    def workers(self) -> int | None:
        """How many there are; None if that is not known."""
        workers = getattr(self.executor, "_max_workers", None)  # of both pools of the standard library
        return workers if isinstance(workers, int) else None

    def grow(self, threads: int) -> None:
        """Allow so many threads, if they are its own."""
        if isinstance(self.executor, DaemonThreads):
            self.executor.most = max(self.executor.most, threads)

    def renew(self) -> Future[int]:
        """Make a new executor in place of one whose processes die or hang.

        Returns:
            The end of an empty call: whether the new one works.
        """
        self._end(kill=True)
        self.executor = self._made()
        return self.executor.submit(int)

    def close(self, *, kill: bool) -> None:
        """End it, if it is not the application's.

        Args:
            kill: end processes in the middle of a call.
        """
        if self._owned:
            self._end(kill=kill)

    def _end(self, *, kill: bool) -> None:
        processes = _processes(self.executor) if kill else []
        self.executor.shutdown(wait=False, cancel_futures=kill)
        for process in processes:
            # terminate() does not end one that inherited a handler of SIGTERM
            with contextlib.suppress(ValueError, OSError):
                process.kill()

    def _made(self) -> Executor:
        assert self._make is not None
        made: object = self._make()
        if not isinstance(made, Executor):
            raise ArgumentTypeError(f"executor= made {made!r}: {_GIVE}")
        return made


def how_ended(executor: Executor) -> str:
    """How the processes of a broken executor have ended, in words."""
    processes = _processes(executor)
    with contextlib.suppress(ValueError, OSError):
        ended = multiprocessing.connection.wait([process.sentinel for process in processes], 0)
        for process in processes:
            if process.sentinel in ended:
                process.join(_REAP_S)
    codes = sorted({process.exitcode for process in processes if process.exitcode is not None})
    return " and ".join(map(_how, codes)) or "in a way that is not known"


def _processes(executor: Executor) -> Sequence[Any]:
    # Its attribute is private; without it, less is told, and a process that hangs is not ended.
    processes = getattr(executor, "_processes", None)
    return list(processes.values()) if isinstance(processes, dict) else []


def _how(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        name = signal.Signals(-code).name
        return f"by {name}, as when memory runs out" if name == "SIGKILL" else f"by {name}"
    except ValueError:
        return f"by signal {-code}"
