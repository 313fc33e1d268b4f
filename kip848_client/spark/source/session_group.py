"""Streams of one Spark session that read one topic in one group: refused, unless they are to divide its partitions.

In Spark's own source every stream reads everything. Two streams of ours in one group each read a part, which is what
two programs want and what a self-join, or two queries from one DataFrame, do not. Each stream lives in a process that
the session's JVM has started; none is told of the others, nor of its query. So a stream locks a file for each topic, in
the folder that `stopping` uses, for as long as its process lives. The process of a query that was stopped lives some
seconds longer, but Spark asks it nothing more: the time of the file says when that happened last.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from kip848_client.errors import ConfigError
from kip848_client.spark.source.stopping import private_folder

if sys.platform != "win32":
    import fcntl

_log = logging.getLogger("kip848_client.spark")

WAIT_S: Final = 30.0
"""How long to wait for a stream whose query may have been stopped: its process ends some seconds later."""

_LOOK_EVERY_S: Final = 0.2


class SessionGroup:
    """The topics that one stream reads in its group.

    Args:
        session: process id of the session's JVM.
        cluster: as the options name it.
    """

    def __init__(self, session: int, *, cluster: str, group_id: str) -> None:
        self._about: Final = (session, cluster, group_id)
        self._group_id: Final = group_id
        self._held: list[tuple[Path, int]] = []

    def enter(self, topics: Iterable[str], *, wait_s: float = WAIT_S) -> None:
        """Claim *topics*: names, or a pattern.

        Raises:
            ConfigError: another stream of the session has one of them.
        """
        try:
            self._claim(sorted(topics), deadline_s=time.monotonic() + wait_s)
        except OSError as error:  # no place for files: better no check than no query
            _log.warning("whether two streams of this session read in one group is not checked: %s", error)

    def _claim(self, topics: Iterable[str], *, deadline_s: float) -> None:
        for topic in topics:
            told, first_ns = False, 0
            while (held := _lock(self._path(topic))) is None:
                asked_ns = _asked_ns(self._path(topic))
                first_ns = first_ns or asked_ns
                if time.monotonic() >= deadline_s or asked_ns not in {0, first_ns}:
                    self.close()
                    raise ConfigError(
                        f"two streams of this Spark session read {topic} in group {self._group_id!r}: they would "
                        "divide its partitions, and each would see a part of the records. To read all of them in each "
                        "query, and on each side of a join, call load() for each with a group of its own: "
                        f'.option("kafka.group.id", "{self._group_id}-2"). To divide the partitions: '
                        '.option("shareGroup", "true")'
                    )
                if not told:
                    _log.info("waiting until another stream of this session, in group %r, has ended", self._group_id)
                    told = True
                threading.Event().wait(_LOOK_EVERY_S)  # a lock does not tell when it becomes free
            self._held.append(held)

    def note_asked(self) -> None:
        """Spark asks the stream for something: its query runs, so that another stream need not wait for its end."""
        now_ns = time.time_ns()
        for _, lock in self._held:
            os.utime(lock, ns=(now_ns, now_ns))

    def close(self) -> None:
        """Let others have them."""
        while self._held:
            path, lock = self._held.pop()
            path.unlink(missing_ok=True)
            os.close(lock)

    def _path(self, topic: str) -> Path:
        name = hashlib.sha256(msgspec.json.encode((*self._about, topic))).hexdigest()[:32]
        return private_folder() / f"{name}.group"


def _asked_ns(path: Path) -> int:
    """When Spark last asked the stream that holds the file; 0 if there is none any more."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _lock(path: Path) -> tuple[Path, int] | None:
    """Lock the file, unless another process has it. The lock goes with the process."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if sys.platform != "win32":  # there `private_folder` has refused
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(lock).st_ino:
                return path, lock
        os.close(lock)  # its owner removed it before letting go
