"""``kip848 report --bootstrap``: the events of a cluster's groups, up to now, without a file in between."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from kip848_client.admin import Admin
from kip848_client.cli.shared.properties import reach, read_properties
from kip848_client.errors import ConfigError
from kip848_client.journal import JournalEvent
from kip848_client.tools.recorder import Recorder
from kip848_client.tools.watching.offsets_reader import OffsetsReader, TopicIdLookup, exact_names, group_filter

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
