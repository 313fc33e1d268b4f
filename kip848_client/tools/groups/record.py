"""``kip848 groups record``: write the event log of a cluster's groups, from the records of its coordinators."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from msgspec.structs import replace

from kip848_client.admin import Admin
from kip848_client.cli.shared.properties import reach, read_properties
from kip848_client.common.plain_text import counted, printable
from kip848_client.errors import Kip848Error
from kip848_client.journal import JournalEvent
from kip848_client.tools.groups.offsets_reader import OffsetsReader, TopicIdLookup, exact_names, group_filter
from kip848_client.tools.recorder import Recorder

_TURN_S = 0.2
_FLUSH_EVERY_S = 0.5
_LONG_HISTORY = 10_000
"""Records that take noticeable time to read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that only this action has."""
    parser.add_argument(
        "--group", metavar="PATTERN", action="append", default=[], help="these only: orders-*; may be repeated (all)"
    )
    parser.add_argument(
        "--from",
        dest="since",
        choices=("beginning", "now"),
        default="beginning",
        help="beginning: all that the topic still has; now: the groups as they are, and what follows (beginning)",
    )
    parser.add_argument("--no-follow", action="store_true", help="end at the end of the topic")
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help="write there, replacing the file; with --from now append to it (stdout)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Read and write until the end, or until Ctrl-C.

    Raises:
        Kip848Error: no broker answers, reading is not allowed, or the file cannot be written.
    """
    conf = read_properties(arguments)
    reach(conf, timeout_s=arguments.timeout)
    admin = Admin(conf)
    topic_name = TopicIdLookup(admin, timeout_s=arguments.timeout)
    recorder = Recorder(wants=group_filter(arguments.group), topic_name=topic_name)
    reader = OffsetsReader(conf, timeout_s=arguments.timeout, groups=exact_names(arguments.group))
    interrupted = False
    try:
        with _sink(arguments.out, append=arguments.since == "now") as write:
            try:
                _record(reader, recorder, write, arguments)
            except KeyboardInterrupt:
                interrupted = True  # the way to end it
            write(recorder.finish())
    except OSError as error:
        if arguments.out is None:
            raise  # stdout: a closed pipe ends silently
        raise Kip848Error(f"{arguments.out} cannot be written: {error.strerror or error}") from error
    finally:
        reader.close()
        admin.close()
    print(_sentence(recorder), file=sys.stderr)
    return 130 if interrupted and arguments.no_follow else 0


class _Sink:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._least_ms = 0

    def not_before(self, least_ms: int) -> None:
        """Give events from now on no earlier time, even if a broker's clock is behind this one's."""
        self._least_ms = least_ms

    def __call__(self, events: Iterable[JournalEvent]) -> None:
        lines = [
            (event if event.ts_ms >= self._least_ms else replace(event, ts_ms=self._least_ms)).to_json()
            for event in events
        ]
        if lines:
            self._stream.write("\n".join(lines) + "\n")

    def flush(self) -> None:
        self._stream.flush()


@contextlib.contextmanager
def _sink(out: Path | None, *, append: bool) -> Iterator[_Sink]:
    if out is None:
        yield _Sink(sys.stdout)
        sys.stdout.flush()
        return
    with out.open("a" if append else "w", encoding="utf-8") as stream:
        yield _Sink(stream)


def _record(reader: OffsetsReader, recorder: Recorder, write: _Sink, arguments: argparse.Namespace) -> None:
    silent = arguments.since == "now"
    if reader.history > _LONG_HISTORY:
        print(
            f"kip848 groups: reading up to {counted(reader.history, 'record')} of the groups' history", file=sys.stderr
        )
    flush_at_s = 0.0
    for item in reader.read_to_end(patience_s=max(10.0, arguments.timeout)):
        events = recorder.end_of_partition(item) if isinstance(item, int) else recorder.add(item)
        if silent:
            for _ in events:
                pass  # only the state that they lead to matters
        else:
            write(events)
            if time.monotonic() >= flush_at_s:
                write.flush()
                flush_at_s = time.monotonic() + _FLUSH_EVERY_S
    if silent:
        # As the groups were where the history ended, and not where it had been read: what came meanwhile follows.
        write(recorder.snapshot(ts_ms=reader.began_ms))
        write.not_before(reader.began_ms)
    write.flush()
    while not arguments.no_follow:
        for item in reader.read(wait_s=_TURN_S):
            write(recorder.end_of_partition(item) if isinstance(item, int) else recorder.add(item))
        write.flush()


def _sentence(recorder: Recorder) -> str:
    counts = recorder.counts
    parts = [f"{counted(counts.records, 'record')} read, {counted(counts.tombstones, 'tombstone')} among them"]
    for kind, groups in sorted(counts.other_groups.items()):
        shown = ", ".join(map(printable, sorted(groups)[:5])) + (", ..." if len(groups) > 5 else "")
        parts.append(f"{counted(len(groups), f'{kind} group')} left out ({shown})")
    parts += [f"{counted(count, 'record')} skipped: {reason}" for reason, count in sorted(counts.skipped.items())]
    return "; ".join(parts)
