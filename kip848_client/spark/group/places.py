"""Turns a place that options name into offsets, by asking the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, assert_never

from kip848_client.common.model import NamedPartition, describe_partitions
from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.spark.values.kafka_checkpoint import checkpoint_offsets
from kip848_client.spark.values.starting import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtCheckpoint,
    AtOffsets,
    AtTime,
    AtTimes,
    Edge,
    NoMatch,
    Place,
)


class OffsetLookup(Protocol):
    """The part of `LogOffsets` that is asked."""

    def begins(self, partitions: Iterable[NamedPartition]) -> Mapping[NamedPartition, int]:
        """First offsets."""
        ...

    def ends(self, partitions: Iterable[NamedPartition]) -> Mapping[NamedPartition, int]:
        """Next offsets."""
        ...

    def at_times(self, times_ms: Mapping[NamedPartition, int]) -> Mapping[NamedPartition, int | None]:
        """First offsets at or after times."""
        ...


class NoRecordAtTimeError(Kip848Error):
    """A partition has no record at or after startingTimestamp, and the strategy is ``error``."""


def find_place(place: Place, partitions: Iterable[NamedPartition], lookup: OffsetLookup) -> dict[NamedPartition, int]:
    """The offset of *place* in each of *partitions*; partitions that do not exist are absent.

    Args:
        place: anything but COMMITTED, which only the group knows.

    Raises:
        ConfigError: *place* names offsets, but not of all *partitions*.
        NoRecordAtTimeError: there is no record at or after the time, and that is to be an error.
        Kip848Error: no answer.
    """
    wanted = sorted(partitions)
    match place:
        case Edge.EARLIEST:
            return dict(lookup.begins(wanted))
        case Edge.LATEST:
            return dict(lookup.ends(wanted))
        case AtOffsets(offsets=offsets):
            _check_named(wanted, offsets)
            asked = {partition: offsets[partition] for partition in wanted}
            begins = lookup.begins([partition for partition in wanted if asked[partition] == EARLIEST_OFFSET])
            ends = lookup.ends([partition for partition in wanted if asked[partition] == LATEST_OFFSET])
            return {**{name: offset for name, offset in asked.items() if offset >= 0}, **begins, **ends}
        case AtTime(time_ms=time_ms, no_match=no_match):
            return _at_times(dict.fromkeys(wanted, time_ms), no_match, lookup)
        case AtTimes(times_ms=times_ms, no_match=no_match):
            _check_named(wanted, times_ms)
            return _at_times({partition: times_ms[partition] for partition in wanted}, no_match, lookup)
        case AtCheckpoint(location=location):
            known = checkpoint_offsets(location)
            found = {partition: known[partition] for partition in wanted if partition in known}
            return {**lookup.begins([partition for partition in wanted if partition not in known]), **found}
        case Edge.COMMITTED:
            raise AssertionError("committed offsets are for the group to say")
        case _:
            assert_never(place)


def _at_times(
    times_ms: Mapping[NamedPartition, int], no_match: NoMatch, lookup: OffsetLookup
) -> dict[NamedPartition, int]:
    # The ends first: a record that arrives between the two questions is not skipped.
    ends = lookup.ends(times_ms) if no_match is NoMatch.LATEST else {}
    found = lookup.at_times(times_ms)
    empty = [partition for partition, offset in found.items() if offset is None]
    if empty and no_match is NoMatch.ERROR:
        raise NoRecordAtTimeError(
            f"no record at or after the given time in {describe_partitions(empty)}; "
            "set startingOffsetsByTimestampStrategy to latest to begin there at the end"
        )
    offsets = {partition: offset for partition, offset in found.items() if offset is not None}
    return {**offsets, **{partition: ends[partition] for partition in empty if partition in ends}}


def _check_named(wanted: Iterable[NamedPartition], named: Mapping[NamedPartition, int]) -> None:
    missing = [partition for partition in wanted if partition not in named]
    if missing:
        raise ConfigError(
            f"offsets are given one by one, but not for {describe_partitions(missing)}: name every partition "
            "(-1 is latest, -2 is earliest)"
        )
