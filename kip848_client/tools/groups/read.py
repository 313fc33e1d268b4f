"""``kip848 report --bootstrap``: the events of a cluster's groups, up to now, without a file in between.

What is not in the events is asked for: where an open transaction holds a group back.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from kip848_client.admin import Admin
from kip848_client.cli.shared.properties import reach, read_properties
from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.journal import JournalEvent
from kip848_client.tools.groups.offsets_reader import OffsetsReader, TopicIdLookup, exact_names, group_filter
from kip848_client.tools.groups.watch_view import STUCK_MS
from kip848_client.tools.recorder import Recorder
from kip848_client.tools.report import Timeline
from kip848_client.tools.shared.held_back import held_back, stable_offsets

_TIMEOUT_S: Final = 10.0
_RECORDS_MAX: Final = 2_000_000
"""So many commits of one group would need some two gigabytes."""


def read_cluster(arguments: argparse.Namespace) -> Iterator[JournalEvent]:
    """Yield what ``__consumer_offsets`` says of the groups that ``--group`` names, or of all.

    Raises:
        ConfigError: there are more records than one machine should hold.
        Kip848Error: no broker answers, or reading is not allowed.
    """
    conf = read_properties(arguments)
    reach(conf, timeout_s=_TIMEOUT_S)
    patterns = () if arguments.group is None else (arguments.group,)
    with Admin(conf) as admin:
        recorder = Recorder(wants=group_filter(patterns), topic_name=TopicIdLookup(admin, timeout_s=_TIMEOUT_S))
        reader = OffsetsReader(conf, timeout_s=_TIMEOUT_S, groups=exact_names(patterns))
        try:
            if reader.history > _RECORDS_MAX:
                raise ConfigError(
                    f"__consumer_offsets has up to {reader.history:,} records: add --spark and --out FOLDER, or name "
                    "one group with --group"
                )
            for item in reader.read_to_end(patience_s=_TIMEOUT_S):
                yield from recorder.end_of_partition(item) if isinstance(item, int) else recorder.add(item)
            yield from recorder.finish()
        finally:
            reader.close()


class LastMoves:
    """When each group's offset moved last, by partition."""

    def __init__(self) -> None:
        self._places: Final[defaultdict[str, dict[str, tuple[int, int]]]] = defaultdict(dict)
        """Offset, and time of its first commit."""

    def watch(self, events: Iterable[JournalEvent]) -> Iterator[JournalEvent]:
        """Yield the events."""
        for event in events:
            offsets = event.fields.get("offsets") if event.event == "offsets_committed" else None
            if event.group_id is not None and isinstance(offsets, dict):
                places = self._places[event.group_id]
                for name, offset in offsets.items():
                    if isinstance(offset, int) and places.get(name, (-1, 0))[0] != offset:
                        places[name] = offset, event.ts_ms
            yield event

    def with_held(self, timelines: Sequence[Timeline], arguments: argparse.Namespace) -> list[Timeline]:
        """The timelines with the partitions in which an open transaction holds their members back.

        As they are if the brokers do not say.
        """
        stuck_ms = _now_ms() - STUCK_MS
        stuck = {
            each.group_id: {name: at for name, (_, at) in self._places[each.group_id].items() if at <= stuck_ms}
            for each in timelines
            if each.states and each.states[-1].text not in {"Empty", "Dead"}
        }
        asked = [group_id for group_id, places in stuck.items() if places]
        held: dict[str, dict[str, float]] = {}
        if asked:
            with Admin(read_properties(arguments)) as admin:
                try:
                    lags = admin.lag(asked, timeout_s=_TIMEOUT_S).values
                except Kip848Error:
                    return list(timelines)
                waiting = {
                    group_id: [one for one in lag.progress if one.lag and str(one.partition) in stuck[group_id]]
                    for group_id, lag in lags.items()
                }
                stable = stable_offsets(
                    admin, [one for several in waiting.values() for one in several], timeout_s=_TIMEOUT_S
                )
            held = {
                group_id: {str(one): float(stuck[group_id][str(one)]) for one in held_back(several, stable)}
                for group_id, several in waiting.items()
            }
        return [replace(each, held=held.get(each.group_id, {})) for each in timelines]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
