"""``kip848 groups watch``: one group, live: owners, waits and their length, epochs and lag.

Follows the group's records in ``__consumer_offsets``; while a long history of them is read, it shows the group as its
coordinator describes it. If it may not read that topic, it asks for a description every second. Lag is asked
for every two seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping

from kip848_client.admin import Admin, GroupDescription, OtherGroupDescription
from kip848_client.admin.groups import shown_elsewhere
from kip848_client.cli.shared.properties import read_properties
from kip848_client.common.plain_text import printable
from kip848_client.errors import BrokerError, ConfigError, ErrorCode, Kip848Error
from kip848_client.journal import JournalEvent
from kip848_client.tools.groups.offsets_reader import OffsetsReader, TopicIdLookup
from kip848_client.tools.groups.watch_screen import Screen, open_screen
from kip848_client.tools.groups.watch_view import GroupView
from kip848_client.tools.recorder import Recorder
from kip848_client.tools.shared.held_back import held_back, stable_offsets

_LAG_EVERY_MS = 2_000
_DESCRIBE_EVERY_MS = 1_000
_TURN_S = 0.1
_LONG_HISTORY = 10_000
"""Records that take noticeable time to read."""
_NOT_ALLOWED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that only this action has."""
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("--for", dest="seconds", metavar="SECONDS", type=float, help="end after that long (Ctrl-C)")
    parser.add_argument("--json", action="store_true", help="print one JSON object whenever something changed")


def run(arguments: argparse.Namespace) -> int:
    """Watch until Ctrl-C.

    Raises:
        ConfigError: an option is out of range.
        Kip848Error: no broker answers, there is no such group, or describing it is not allowed.
    """
    if arguments.seconds is not None and not arguments.seconds > 0:
        raise ConfigError(f"--for {arguments.seconds}: seconds above 0")
    conf = read_properties(arguments)
    with Admin(conf) as admin:
        watch = _Watch(arguments.group, conf, admin, timeout_s=arguments.timeout)
        described = watch.describe()
        screen = open_screen(sys.stdout, json=arguments.json)
        try:
            with contextlib.suppress(KeyboardInterrupt), watch.source(described, screen) as turn:
                watch.run(screen, turn, seconds=arguments.seconds)
        finally:
            screen.close()
    return 0


class _Watch:
    def __init__(self, group_id: str, conf: Mapping[str, str], admin: Admin, *, timeout_s: float) -> None:
        self._group_id = group_id
        self._conf = conf
        self._admin = admin
        self._timeout_s = timeout_s
        self._view = GroupView(group_id)
        self._lag_due_ms = 0
        self._describe_due_ms = 0

    def describe(self) -> GroupDescription:
        """Ask for the group; fails if there is none, or nothing is handed over in it."""
        described = self._admin.describe_groups([self._group_id], with_progress=True, timeout_s=self._timeout_s)
        group = described[self._group_id]
        if isinstance(group, OtherGroupDescription):
            raise shown_elsewhere(group)
        if isinstance(group, GroupDescription) and group.type == "share":
            raise ConfigError(f"{self._group_id!r} is a share group, in which no partition is handed over; describe it")
        if not isinstance(group, GroupDescription):
            raise ConfigError(
                f"group {self._group_id!r} is one of workers, which share units and no partitions; describe it"
            )
        return group

    def run(self, screen: Screen, turn: Callable[[], None], *, seconds: float | None) -> None:
        """Show the group, turn by turn."""
        end_s = None if seconds is None else time.monotonic() + seconds
        while end_s is None or time.monotonic() < end_s:
            turn()
            self._ask_for_lag()
            self._view.note_silence(now_ms=_now_ms())
            screen.show(self._view, now_ms=_now_ms())

    @contextlib.contextmanager
    def source(self, described: GroupDescription, screen: Screen) -> Iterator[Callable[[], None]]:
        """Bring the view up to date; yields the source of further changes."""
        recorder = Recorder(
            wants=lambda group_id: group_id == self._group_id,
            topic_name=TopicIdLookup(self._admin, timeout_s=self._timeout_s),
        )
        with contextlib.ExitStack() as stack:
            try:
                reader = OffsetsReader(self._conf, timeout_s=self._timeout_s, groups=(self._group_id,))
                stack.callback(reader.close)
                if reader.history > _LONG_HISTORY:
                    self._show_description(described, screen)
                for item in reader.read_to_end(patience_s=max(10.0, self._timeout_s)):
                    self._take(recorder.end_of_partition(item) if isinstance(item, int) else recorder.add(item))
            except BrokerError as error:
                if error.code not in _NOT_ALLOWED:
                    raise
                print(
                    f"kip848 groups: {printable(str(error))}; the group is described every second instead",
                    file=sys.stderr,
                )
                self._view.describe(described, now_ms=_now_ms())
                yield self._describe_now_and_then
                return

            def follow() -> None:
                for item in reader.read(wait_s=_TURN_S):
                    self._take(recorder.end_of_partition(item) if isinstance(item, int) else recorder.add(item))

            yield follow

    def _show_description(self, described: GroupDescription, screen: Screen) -> None:
        print(
            "kip848 groups: reading the group's history; until then, as its coordinator describes it", file=sys.stderr
        )
        view, now_ms = GroupView(self._group_id), _now_ms()
        view.describe(described, now_ms=now_ms)
        view.measured(described.progress, now_ms=now_ms)
        screen.show(view, now_ms=now_ms)

    def _take(self, events: Iterator[JournalEvent]) -> None:
        for event in events:
            self._view.take(event)

    def _describe_now_and_then(self) -> None:
        time.sleep(_TURN_S)  # brokers do not tell when a group changes: they are asked again
        now_ms = _now_ms()
        if now_ms >= self._describe_due_ms:
            self._describe_due_ms = now_ms + _DESCRIBE_EVERY_MS
            with contextlib.suppress(Kip848Error):  # the coordinator moves, or the group is gone: asked again
                self._view.describe(self.describe(), now_ms=now_ms)

    def _ask_for_lag(self) -> None:
        now_ms = _now_ms()
        if now_ms < self._lag_due_ms:
            return
        self._lag_due_ms = now_ms + _LAG_EVERY_MS
        try:
            lag = self._admin.lag([self._group_id], timeout_s=self._timeout_s)[self._group_id]
        except Kip848Error:
            return  # shown again when it is known again
        self._view.measured(lag.progress, now_ms=now_ms)
        stuck = self._view.stuck(now_ms=now_ms)
        stable = stable_offsets(self._admin, stuck, timeout_s=self._timeout_s)
        self._view.note_held(held_back(stuck, stable), now_ms=now_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
