"""A planned stop: the program that started a query asks the process that holds its membership to leave between batches.

Both run on the driver's machine, under one account, and share nothing but Spark, which passes no messages between them.
So the request is a file with the ends of complete batches, and the answer is another file. Both are in a folder that
only this account can read and write, and are named after the query, as its checkpoint names it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.errors import ConfigError, Kip848Error

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("kip848_client.spark")

LOOK_EVERY_S: Final = 0.1
if sys.platform == "win32":
    _ACCOUNT: Final = 0
else:
    _ACCOUNT: Final = os.getuid()
_FOLDER: Final = Path(tempfile.gettempdir()) / f"kip848-spark-{_ACCOUNT}"


def stop_gracefully(query: StreamingQuery, timeout_s: float = 300.0) -> bool:
    """Stop a query after the batch that runs: commit it to the group, hand the partitions over, leave.

    ``query.stop()`` alone interrupts the batch, and a restart repeats it, unless others have read it meanwhile. Call
    this from the program that started the query; not from inside a signal handler, which must only set a flag.

    Args:
        timeout_s: after that the query is stopped all the same.

    Returns:
        Whether it left in time.

    Raises:
        ConfigError: the session is a remote one (Spark Connect): the query's process is not on this machine.
    """
    if not hasattr(query, "_jsq"):
        raise ConfigError(
            "stop_gracefully() needs the driver's machine, and this session is remote (Spark Connect): call it in the "
            "driver, or stop the query with query.stop()"
        )
    wishes: dict[str, _Wish] = {}
    deadline_s = time.monotonic() + timeout_s
    left = False
    try:
        while query.isActive and not left and time.monotonic() < deadline_s:
            ends = list(_complete(query))
            for end in ends:
                wish = wishes.setdefault(end["query"], _Wish(end["query"]))
                wish.write(ends)
            left = all(wish.granted for wish in wishes.values()) if wishes else _idle(query)
            if not left:
                time.sleep(LOOK_EVERY_S)  # Spark tells a driver nothing about its query's triggers
        query.stop()
    finally:
        for wish in wishes.values():
            wish.remove()
    return left


class StopWatch:
    """In the query's process: looks for a request to stop, on a thread of its own.

    Args:
        query: as the checkpoint names it.
        complete: called with the ends of complete batches; returns whether the query has left its group.
    """

    def __init__(self, query: str, complete: Callable[[Iterable[Mapping[str, Any]]], bool]) -> None:
        self._wish: Final = _Wish(query)
        self._complete = complete
        self._closed = threading.Event()
        daemon_thread(self._watch, "kip848-spark-stop").start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _watch(self) -> None:
        try:
            while not self._closed.wait(LOOK_EVERY_S):
                ends = self._wish.read()
                if ends is not None and self._complete(ends):
                    self._wish.grant()
                    return
        except (OSError, Kip848Error) as error:
            _log.warning("the query cannot be stopped gracefully: %s", error)


class _Wish:
    """The two files of one query."""

    def __init__(self, query: str) -> None:
        self._wanted: Final = _FOLDER / f"{query}.stop"
        self._left: Final = _FOLDER / f"{query}.left"

    @property
    def granted(self) -> bool:
        """Whether the query has left."""
        return self._left.exists()

    def write(self, ends: Iterable[Mapping[str, Any]]) -> None:
        """Ask to stop, with the ends of complete batches."""
        private_folder()
        self._replace(self._wanted, msgspec.json.encode(list(ends)))

    def read(self) -> list[Mapping[str, Any]] | None:
        """The ends of complete batches, if the query is to stop."""
        try:
            if self._wanted.stat().st_uid != _ACCOUNT:
                return None
            return msgspec.json.decode(self._wanted.read_bytes(), type=list[Mapping[str, Any]])
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return None

    def grant(self) -> None:
        """Say that the query has left."""
        private_folder()
        self._replace(self._left, b"")

    def remove(self) -> None:
        """Remove the files of the request."""
        self._wanted.unlink(missing_ok=True)
        self._left.unlink(missing_ok=True)

    @staticmethod
    def _replace(path: Path, content: bytes) -> None:
        part = path.with_suffix(path.suffix + ".part")
        part.write_bytes(content)
        part.replace(path)


def private_folder() -> Path:
    """The folder for files that processes of one account on this machine share; it is made.

    Raises:
        ConfigError: others could write there, or this is Windows.
    """
    if sys.platform == "win32":
        raise ConfigError("streams of this source need Linux or macOS: they find each other by locks of files")
    _FOLDER.mkdir(mode=0o700, exist_ok=True)
    found = _FOLDER.lstat()
    if found.st_uid != _ACCOUNT or found.st_mode & 0o077:
        raise ConfigError(f"{_FOLDER} belongs to another account, or others may write there: remove it")
    return _FOLDER


def _complete(query: StreamingQuery) -> Iterator[dict[str, Any]]:
    """The ends of the last batch that is complete, of those sources of *query* that are ours."""
    progress = query._jsq.lastProgress()
    # Not query.lastProgress: there an offset is JSON in Spark 4.0 and from 4.2 on, and the text of a dict in 4.1.
    for source in json.loads(progress.json())["sources"] if progress is not None else ():
        end = source["endOffset"]
        if isinstance(end, dict) and end.get("query"):
            yield end


def _idle(query: StreamingQuery) -> bool:
    """Whether *query* waits between two triggers."""
    return query._jsq.lastProgress() is not None and not query.status["isTriggerActive"]
