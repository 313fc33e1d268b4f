"""Starts the demo's worker processes, passes their reports on, asks them to leave, and kills them."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from types import TracebackType
from typing import IO, Final, Self, TypeAlias

import msgspec

from demo.reports import Report, Troubled, parse_line
from kip848_client.errors import ProtocolError

LEAVE_TIMEOUT_S: Final = 15.0
STDERR_LINES_KEPT: Final = 20


class Said(msgspec.Struct, frozen=True):
    """A worker reported something."""

    worker: str
    report: Report


class Ended(msgspec.Struct, frozen=True):
    """A worker's process is gone, and everything it had written was passed on before.

    Args:
        exit_code: as `subprocess` returns it: negative for a signal.
        stderr: its last lines.
    """

    worker: str
    exit_code: int
    stderr: tuple[str, ...]


News: TypeAlias = Said | Ended


class WorkerProcess:
    """One worker.

    Args:
        news: where its reports and its end are put, from threads of its own.
    """

    def __init__(self, name: str, command: list[str], news: queue.SimpleQueue[News]) -> None:
        self.name: Final = name
        self._news: Final = news
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES_KEPT)
        self._process: Final = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},  # what this process can import
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the demo alone, which then tells its workers
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._errors: Final = self._thread("stderr", self._read_errors, self._process.stderr)
        self._reader: Final = self._thread("stdout", self._read_reports, self._process.stdout)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def leave(self) -> None:
        """Ask it to commit, leave its group and end. A worker that is gone already is not an error."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def kill(self) -> None:
        """Kill it without a leave, as ``kill -9`` does."""
        self._process.send_signal(signal.SIGKILL)

    def end(self) -> None:
        """Ask it to leave; kill it if it does not in time; wait until nothing of it is left."""
        self.leave()
        try:
            self._process.wait(LEAVE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join()

    def _thread(self, what: str, target: object, stream: IO[bytes]) -> threading.Thread:
        assert callable(target)
        thread = threading.Thread(target=target, args=(stream,), name=f"demo-{self.name}-{what}", daemon=True)
        thread.start()
        return thread

    def _read_reports(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    break  # killed while it wrote: an unfinished line did not happen
                try:
                    self._news.put(Said(self.name, parse_line(line)))
                except ProtocolError as error:
                    self._news.put(Said(self.name, Troubled(str(error))))
        exit_code = self._process.wait()
        self._errors.join()
        self._news.put(Ended(self.name, exit_code, tuple(self._stderr)))

    def _read_errors(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._stderr.append(line.decode(errors="replace").rstrip())


class Workers:
    """All workers of one demo. Leaving the ``with`` block ends every one of them, even after an error.

    Args:
        arguments: command-line arguments before the worker's name.
    """

    def __init__(self, *arguments: str, module: str = "demo.worker") -> None:
        self._command: Final = [sys.executable, "-m", module, *arguments]
        self._workers: Final[dict[str, WorkerProcess]] = {}
        self.news: Final[queue.SimpleQueue[News]] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self._workers.values():
            worker.leave()  # all at once, then wait for each
        for worker in self._workers.values():
            worker.end()

    def __getitem__(self, name: str) -> WorkerProcess:
        return self._workers[name]

    def start(self, name: str) -> WorkerProcess:
        """Start a worker under a name that was not used before."""
        assert name not in self._workers
        worker = WorkerProcess(name, [*self._command, name], self.news)
        self._workers[name] = worker
        return worker
