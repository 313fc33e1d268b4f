"""The events of groups in a file of SQLite: what changes, and few commits. Bounded by age and by size. No clock.

Any thread may write. Those that only read do so through connections of their own, which `reader` makes.

A group's events begin with a snapshot of it where older ones were deleted. Snapshots are made now and then, so that a
look at an hour of last week need not read all that was before.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kip848_client.common.file_lock import lock_file, unlock_file
from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.journal import JournalEvent, parse_line
from kip848_client.tools.report.findings import Finding

_LAYOUT: Final = "1"
_LONG_LINE: Final = 400
"""Longer lines are kept compressed."""
_LOCK_LENGTH: Final = 64
"""So much of a lock file is read. It has the id of a process."""
_DELETED_AT_ONCE: Final = 20_000
_EVENTS_MAX: Final = 200_000
"""So many of one group are drawn at most: the last ones."""
_TABLES: Final = """
create table if not exists about (name text primary key, value text not null) without rowid;
create table if not exists places (partition integer primary key, next_offset integer not null);
create table if not exists groups (number integer primary key, group_id text not null unique);
create table if not exists events (
    seq integer primary key, number integer not null, ts_ms integer not null, is_snapshot integer not null,
    line blob not null);
create index if not exists events_of_groups on events (number, ts_ms);
create table if not exists findings (
    number integer not null, kind text not null, start_ms integer not null, found_ms integer not null, ms real,
    line blob not null, primary key (number, kind, start_ms)) without rowid;
create index if not exists findings_by_time on findings (start_ms);
"""


class HistoryError(Kip848Error):
    """The file cannot be read or written."""


@contextlib.contextmanager
def held(path: Path) -> Iterator[Path]:
    """Keep the file from other pages, after a look whether it can be used.

    Raises:
        ConfigError: it cannot be opened or written, is no file of SQLite, or another page writes it.
    """
    with contextlib.ExitStack() as stack:
        try:
            if path.exists():
                _check_owner(path)
            lock_path = path.with_name(f"{path.name}.lock")
            lock = stack.enter_context(lock_path.open("a+", encoding="ascii", errors="replace"))
            lock.seek(0)
            process = lock.read(_LOCK_LENGTH).strip()
            if process and not process.isdecimal():
                raise ConfigError(f"--file {path}: {lock_path} is not of this program; choose another file")
            try:
                lock_file(lock.fileno())
            except OSError as error:
                raise ConfigError(
                    f"--file {path}: another page writes it (process {process}); stop that one, or choose another file"
                ) from error
            stack.callback(unlock_file, lock.fileno())
            lock.seek(0)
            lock.truncate()
            lock.write(str(os.getpid()))
            lock.flush()
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute("begin immediate")
                connection.execute("rollback")
        except (OSError, sqlite3.Error) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"--file {path} cannot be used: {why}") from error
        yield path


def _check_owner(path: Path) -> None:
    """Refuse a file of another program, before anything is written there or beside it."""
    # Not mode=ro: that leaves a log beside a file that keeps one.
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True)
    with contextlib.closing(connection):
        tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    if tables and not tables >= {"about", "places"}:
        raise ConfigError(f"--file {path} is not of this program: it has tables of another one; choose another file")


class Log(NamedTuple):
    """The events of one group around a period.

    Attributes:
        start_ms: from when on it is complete.
    """

    start_ms: int
    events: Sequence[JournalEvent]


class HistoryReader:
    """Reads on one thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def log(self, group_id: str, *, from_ms: int, to_ms: int) -> Log:
        """The events of a group from *from_ms*, or a little before, until *to_ms*; none if it is not known."""
        number = self._number(group_id)
        if number is None:
            return Log(from_ms, ())
        begin = self._connection.execute(
            "select seq, ts_ms, line from events where number = ? and is_snapshot and ts_ms <= ? "
            "order by seq desc limit 1",
            (number, from_ms),
        ).fetchone()
        rows = self._connection.execute(
            "select ts_ms, line from events where number = ? and seq > ? and ts_ms <= ? and not is_snapshot "
            "order by seq desc limit ?",
            (number, -1 if begin is None else begin[0], to_ms, _EVENTS_MAX + 1),
        ).fetchall()
        events = [event for _, line in reversed(rows[:_EVENTS_MAX]) for event in _read(line)]
        if len(rows) > _EVENTS_MAX:
            return Log(rows[_EVENTS_MAX - 1][0], events)
        if begin is not None:
            return Log(begin[1], [*_read(begin[2]), *events])
        return Log(min((event.ts_ms for event in events), default=from_ms), events)

    def findings(self, *, from_ms: int, to_ms: int, group_id: str | None = None, limit: int = 500) -> list[Finding]:
        """What went wrong in a period, in all groups or one: what ended last is first."""
        of_group, values = "", (from_ms, to_ms)
        if group_id is not None:
            of_group, values = "number = ? and ", (self._number(group_id) or -1, from_ms, to_ms)  # type: ignore[assignment]
        rows = self._connection.execute(
            f"select line from findings where {of_group} start_ms + coalesce(ms, 0) >= ? and start_ms <= ? "  # noqa: S608
            "order by start_ms + coalesce(ms, 0) desc, start_ms desc limit ?",
            (*values, limit),
        )
        return [msgspec.json.decode(zlib.decompress(line), type=Finding) for (line,) in rows]

    def first_ms(self) -> int | None:
        """The time of the oldest event."""
        found = self._one("select ts_ms from events order by seq limit 1", ())
        return None if found is None else int(found[0])

    # --- internals

    def _number(self, group_id: str) -> int | None:
        found = self._one("select number from groups where group_id = ?", (_stored(group_id),))
        return None if found is None else int(found[0])

    def _one(self, query: str, values: tuple[object, ...]) -> tuple[int, ...] | None:
        found: tuple[int, ...] | None = self._connection.execute(query, values).fetchone()
        return found


class HistoryFile:
    """The file.

    Args:
        path: it is made if it is not there.
        cluster_id: of the cluster that the events are of.
        size_max: bytes; the oldest events are deleted when the file is larger.

    Raises:
        ConfigError: the file is of another cluster, or of another kind.
        HistoryError: it cannot be read or written.
    """

    def __init__(self, path: Path, *, cluster_id: str, groups: Sequence[str] = (), size_max: int = 2**31) -> None:
        self._path = path
        self._size_max = size_max
        self._numbers: Final[dict[str, int]] = {}
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(path, timeout=30.0, check_same_thread=False, isolation_level=None)
            try:
                for pragma in ("auto_vacuum = incremental", "journal_mode = wal", "synchronous = normal"):
                    self._connection.execute(f"pragma {pragma}")
                self._connection.executescript(_TABLES)
                self._check({"layout": _LAYOUT, "cluster": cluster_id, "groups": " ".join(sorted(groups))})
                self._numbers.update(self._connection.execute("select group_id, number from groups").fetchall())
                self.places: Final[Mapping[int, int]] = dict(
                    self._connection.execute("select partition, next_offset from places").fetchall()
                )
            except BaseException:
                self._connection.close()
                raise
        except sqlite3.Error as error:
            raise HistoryError(f"--file {path}: {error}") from error

    def reader(self) -> HistoryReader:
        """Another connection, for one thread."""
        connection = sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True, timeout=30.0)
        return HistoryReader(connection)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def write(self, events: Iterable[JournalEvent], *, places: Mapping[int, int]) -> None:
        """Add events, all or none, and note how far the cluster's records are told by them.

        Args:
            places: partition of ``__consumer_offsets`` -> the first offset of which no event is in the file.
        """
        with self._transaction():
            self._insert(events)
            self._connection.executemany("insert or replace into places values (?, ?)", places.items())

    def write_snapshot(
        self, group_id: str, events: Iterable[JournalEvent], *, ts_ms: int, delete_before: bool = False
    ) -> None:
        """Add the state of a group, which all that is in the file of it leads to.

        Args:
            delete_before: delete that.
        """
        lines = b"\n".join(event.to_json().encode() for event in events)
        with self._transaction():
            number = self._number(group_id)
            if delete_before:
                self._connection.execute("delete from events where number = ?", (number,))
            self._connection.execute(
                "insert into events (number, ts_ms, is_snapshot, line) values (?, ?, 1, ?)",
                (number, ts_ms, zlib.compress(lines, 1)),
            )

    def forget(self, group_id: str) -> None:
        """Delete the events of a group that is gone."""
        with self._transaction():
            self._connection.execute("delete from events where number = ?", (self._number(group_id),))

    def write_findings(self, findings: Iterable[Finding], *, group_id: str, from_ms: int, found_ms: int) -> None:
        """Replace what is known to have begun in one group since *from_ms*.

        What began before stays, for this look may not see all of it; a finding with the same beginning replaces it.
        """
        with self._transaction():
            number = self._number(group_id)
            self._connection.execute(
                "delete from findings where number = ? and start_ms >= ? and kind != 'all groups'", (number, from_ms)
            )
            self._insert_findings(findings, found_ms)

    def add_findings(self, findings: Iterable[Finding], *, found_ms: int) -> None:
        """Add what went wrong in many groups at once, in place of what was known of it."""
        findings = list(findings)
        with self._transaction():
            self._connection.executemany(
                "delete from findings where kind = 'all groups' and start_ms <= ? and start_ms + coalesce(ms, 0) >= ?",
                [(each.start_ms + (each.ms or 0.0), each.start_ms) for each in findings],
            )
            self._insert_findings(findings, found_ms)

    def old_groups(self, before_ms: int) -> list[str]:
        """Groups with events from before that time, which nothing happened to since."""
        with self._lock:
            rows = self._connection.execute(
                "select group_id from groups join events using (number) group by number having max(ts_ms) < ? "
                "and min(is_snapshot) = 0",
                (before_ms,),
            ).fetchall()
        return [name for (name,) in rows]

    def prune(self, *, before_ms: int) -> int:
        """Delete events from before that time which a snapshot stands for, and findings; return how many events."""
        with self._transaction():
            self._connection.execute("delete from findings where start_ms < ?", (before_ms,))
            gone = self._connection.execute(
                "delete from events where seq in (select e.seq from events e join (select number, max(seq) as begin "
                "from events where is_snapshot and ts_ms <= ? group by number) s using (number) "
                "where e.seq < s.begin limit ?)",
                (before_ms, _DELETED_AT_ONCE),
            ).rowcount
            self._connection.execute(
                "delete from groups where not exists (select 1 from events where events.number = groups.number) "
                "and not exists (select 1 from findings where findings.number = groups.number)"
            )
            self._numbers.clear()
        self._give_back()
        return gone

    def prune_to_size(self) -> int:
        """Delete some of the oldest events if the file is too large; return how many."""
        if self.size <= self._size_max:
            return 0
        with self._lock:
            (last_ms,) = self._connection.execute(
                "select max(ts_ms) from (select ts_ms from events order by seq limit ?)", (_DELETED_AT_ONCE,)
            ).fetchone()
        gone = self.prune(before_ms=last_ms or 0)
        if not gone:  # no snapshot stands for them: what is left of these groups begins later
            with self._transaction():
                gone = self._connection.execute(
                    "delete from events where seq in (select seq from events order by seq limit ?)",
                    (_DELETED_AT_ONCE,),
                ).rowcount
        self._give_back()
        return gone

    @property
    def size(self) -> int:
        """Bytes that are in use."""
        with self._lock:
            (pages,) = self._connection.execute("pragma page_count").fetchone()
            (free,) = self._connection.execute("pragma freelist_count").fetchone()
            (page_size,) = self._connection.execute("pragma page_size").fetchone()
        return int((pages - free) * page_size)

    # --- internals

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            try:
                self._connection.execute("begin immediate")
                try:
                    yield
                except BaseException:
                    self._connection.execute("rollback")
                    raise
                self._connection.execute("commit")
            except sqlite3.Error as error:
                self._numbers.clear()  # some of them may have been rolled back
                raise HistoryError(f"--file {self._path} cannot be written: {error}") from error

    def _give_back(self) -> None:
        """Make the file smaller, a few megabytes at a time."""
        with self._lock:
            self._connection.execute("pragma incremental_vacuum(2000)").fetchall()

    def _check(self, expected: Mapping[str, str]) -> None:
        there = dict(self._connection.execute("select name, value from about").fetchall())
        for name, value in expected.items():
            known = there.get(name)
            if known is not None and known != value:
                raise ConfigError(
                    f"--file {self._path} is of another {name.removesuffix('s')}: it has {known or 'all'!r}, and this "
                    f"is {value or 'all'!r}; choose another file"
                )
        self._connection.executemany("insert or replace into about values (?, ?)", expected.items())

    def _insert(self, events: Iterable[JournalEvent]) -> None:
        rows = []
        for event in events:
            assert event.group_id is not None
            line = event.to_json().encode()
            if len(line) > _LONG_LINE:
                line = zlib.compress(line, 1)
            rows.append((self._number(event.group_id), event.ts_ms, line))
        self._connection.executemany("insert into events (number, ts_ms, is_snapshot, line) values (?, ?, 0, ?)", rows)

    def _insert_findings(self, findings: Iterable[Finding], found_ms: int) -> None:
        rows = {}
        for each in findings:
            number, start_ms = self._number(each.group_id), int(each.start_ms)
            while (number, each.kind, start_ms) in rows:  # two clients went at the same time
                start_ms += 1
            line = zlib.compress(msgspec.json.encode(each), 1)
            rows[number, each.kind, start_ms] = number, each.kind, start_ms, found_ms, each.ms, line
        self._connection.executemany("insert or replace into findings values (?, ?, ?, ?, ?, ?)", rows.values())

    def _number(self, group_id: str) -> int:
        group_id = _stored(group_id)
        number = self._numbers.get(group_id)
        if number is None:
            self._connection.execute("insert or ignore into groups (group_id) values (?)", (group_id,))
            (number,) = self._connection.execute("select number from groups where group_id = ?", (group_id,)).fetchone()
            self._numbers[group_id] = number
        return number


def _stored(group_id: str) -> str:
    """SQLite keeps no half of a surrogate pair."""
    return group_id.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _read(line: bytes) -> list[JournalEvent]:
    lines = line if line[:1] == b"{" else zlib.decompress(line)
    return [parse_line(each) for each in lines.splitlines()]
