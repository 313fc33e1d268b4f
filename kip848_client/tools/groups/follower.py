"""Follows all groups of a cluster: their state from ``__consumer_offsets``, and the ends of the topics they read.

One thread calls `GroupsFollower.catch_up` and `GroupsFollower.turn`; others look at `metrics` and `ends` while they
hold `lock`. No output.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final, Self

from kip848_client.admin import Admin
from kip848_client.common.model import NamedPartition
from kip848_client.errors import BrokerError, ErrorCode, Kip848Error
from kip848_client.journal import JournalEvent
from kip848_client.tools.groups.lag_history import EndHistory
from kip848_client.tools.groups.metrics import GroupMetrics
from kip848_client.tools.groups.offsets_reader import (
    OffsetsReader,
    PartitionEnd,
    TopicIdLookup,
    exact_names,
    group_filter,
)
from kip848_client.tools.recorder import RawRecord, Recorder
from kip848_client.tools.shared.held_back import held_back, stable_offsets

_TURN_S: Final = 0.2


class GroupsFollower:
    """All groups as they are.

    Args:
        groups: patterns of group ids; all groups if there are none.
        groups_max: how many groups are kept one by one; more of them are only counted.
        lag_every_s: how often the ends of topics are asked for.
        timeout_s: for questions to the brokers.

    Attributes:
        listed: numbers of groups by type and state, as coordinators listed them at the start.
        failures: questions for the ends of topics that failed.

    Raises:
        ConfigError: a property is wrong.
        Kip848Error: no broker answers, or reading is not allowed.
    """

    def __init__(
        self,
        conf: Mapping[str, str],
        *,
        groups: Iterable[str] = (),
        groups_max: int = 10_000,
        lag_every_s: float = 15.0,
        timeout_s: float = 10.0,
    ) -> None:
        patterns = tuple(groups)
        self.metrics: Final = GroupMetrics(groups_max=groups_max)
        self.ends: Final = EndHistory()
        self.lock: Final = threading.Lock()
        self.failures: int = 0
        self.lag_every_s: Final = lag_every_s
        self._lag_due_s = 0.0
        self._timeout_s = timeout_s
        with contextlib.ExitStack() as stack:
            self._admin = stack.enter_context(Admin(conf))
            wants = group_filter(patterns)
            found = self._admin.list_groups(timeout_s=timeout_s).found
            self.listed: Final = Counter((one.type, one.state) for one in found if wants(one.group_id))
            topic_name = TopicIdLookup(self._admin, timeout_s=timeout_s)
            self.recorder: Final = Recorder(wants=wants, topic_name=topic_name)
            self.reader: Final = OffsetsReader(conf, timeout_s=timeout_s, groups=exact_names(patterns))
            stack.callback(self.reader.close)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        """Close connections."""
        self._stack.close()

    def catch_up(self) -> None:
        """Read the groups' history."""
        for item in self.reader.read_to_end(patience_s=max(10.0, self._timeout_s)):
            self._take(item)
        with self.lock:
            self.metrics.begin(now_ms=self.reader.began_ms)

    def turn(self) -> None:
        """Take the records that wait, and ask for the ends of topics if that is due."""
        for item in self.reader.read(wait_s=_TURN_S):
            self._take(item)
        if time.monotonic() >= self._lag_due_s:
            self._lag_due_s = time.monotonic() + self.lag_every_s
            self.ask_for_ends()

    def take(self, event: JournalEvent) -> None:
        """Add the next event; called with the lock held."""
        self.metrics.take(event, self.recorder.kind_of(event.group_id or ""))

    def _take(self, item: RawRecord | PartitionEnd) -> None:
        recorder = self.recorder
        with self.lock:
            for event in recorder.end_of_partition(item) if isinstance(item, int) else recorder.add(item):
                self.take(event)

    def ask_for_ends(self) -> bool:
        """Ask where topics end, and which groups a transaction holds back; whether the brokers answered."""
        with self.lock:
            partitions = {one for track in self.metrics.groups.values() for one in track.committed}
        try:
            found = self._admin.list_offsets(sorted(partitions), timeout_s=self._timeout_s) if partitions else None
        except Kip848Error:
            self.failures += 1  # the last known ends stay
            return False
        ends = {} if found is None else {one: end for one, end in found.values.items() if end is not None}
        errors: Mapping[NamedPartition, Kip848Error] = {} if found is None else found.errors
        gone = {one for one, error in errors.items() if _is_gone(error)}
        with self.lock:
            self.ends.add(ends, now_ms=now_ms(), unanswered=errors.keys() - gone)
            stuck = {}
            for track in self.metrics.groups.values():
                track.forget(gone)
                track.note_waiting(self.ends)
                stuck[track.view.group_id] = track.stuck(self.ends, now_ms=now_ms())
        stable = stable_offsets(self._admin, chain.from_iterable(stuck.values()), timeout_s=self._timeout_s)
        with self.lock:
            for track in self.metrics.groups.values():
                track.held = frozenset(held_back(stuck.get(track.view.group_id, ()), stable))
        return True


def _is_gone(error: Kip848Error) -> bool:
    return isinstance(error, BrokerError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def now_ms() -> int:
    """The time of this machine's clock."""
    return time.time_ns() // 1_000_000
