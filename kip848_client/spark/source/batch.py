"""Finds the ranges that a batch read covers, from its starting to its ending place. Joins no group."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from kip848_client.common.model import NamedPartition, OffsetRange, describe_partitions
from kip848_client.errors import ConfigError, join_names
from kip848_client.spark.group.group_offsets import GroupOffsets, begin_at_committed
from kip848_client.spark.group.log_offsets import LogOffsets
from kip848_client.spark.group.places import find_place
from kip848_client.spark.group.selection import matching_topics
from kip848_client.spark.source.fetch import check_settings, log_offsets
from kip848_client.spark.source.planner import Task, cut_tasks
from kip848_client.spark.values.data_loss import data_loss
from kip848_client.spark.values.filters import EVERYTHING, FilteredRanges
from kip848_client.spark.values.options import SourceOptions
from kip848_client.spark.values.starting import Edge


def plan_batch(options: SourceOptions, wanted: FilteredRanges = EVERYTHING) -> list[Task]:
    """Find the ranges, and cut them into tasks.

    Args:
        wanted: the part that the query's filters leave.

    Raises:
        ConfigError: the options name partitions that do not exist, or librdkafka refuses a setting.
        DataLossError: records to be read are gone, and failOnDataLoss is on.
        Kip848Error: no answer.
    """
    check_settings(options)
    with contextlib.closing(log_offsets(options)) as log:
        return _plan(options, wanted, log)


def _plan(options: SourceOptions, wanted: FilteredRanges, log: LogOffsets) -> list[Task]:
    partitions = _partitions(options, log)
    _check_known(partitions, log.ends(partitions))
    assert options.ending is not None
    starts = _starts(options, partitions, log)
    stops = find_place(options.ending, partitions, log)
    # Asked for last: producers go on meanwhile, and an end that was found earlier would lie before one found later.
    begins, ends = log.begins(partitions), log.ends(partitions)
    for found in (starts, stops, begins, ends):
        _check_known(partitions, found)
    if options.starting is Edge.EARLIEST:
        starts = begins
    ranges = []
    for partition in sorted(filter(wanted.wants, partitions)):
        start, stop = starts[partition], min(stops[partition], ends[partition])
        if start < begins[partition] or max(start, stops[partition]) > ends[partition]:
            if options.fail_on_data_loss:
                raise data_loss(
                    f"{partition} was to be read from {start} to {stops[partition]}, and holds {begins[partition]} "
                    f"to {ends[partition]}"
                )
            start = max(start, begins[partition])
        start = max(start, wanted.offset_min)
        if wanted.offset_max is not None:
            stop = min(stop, wanted.offset_max + 1)
        if start < stop:
            ranges.append(OffsetRange(partition, start, stop))
    if wanted.time_min_ms is not None:
        ranges = _from_time(ranges, wanted.time_min_ms, log)
    return cut_tasks(
        ranges, tasks_min=options.tasks_min, tasks_max=options.tasks_max, task_rows_max=options.task_rows_max
    )


def _from_time(ranges: list[OffsetRange], time_ms: int, log: LogOffsets) -> list[OffsetRange]:
    """Without the records before the first one at or after a time: all of them are older."""
    firsts = log.at_times({each.partition: time_ms for each in ranges})
    later = []
    for each in ranges:
        first = firsts.get(each.partition)
        if first is not None and first < each.end:
            later.append(OffsetRange(each.partition, max(each.start, first), each.end))
    return later


def _check_known(partitions: frozenset[NamedPartition], found: Mapping[NamedPartition, int]) -> None:
    missing = partitions - found.keys()
    if missing:
        raise ConfigError(f"{describe_partitions(missing)} cannot be read: no such partition")


def _partitions(options: SourceOptions, log: LogOffsets) -> frozenset[NamedPartition]:
    if options.assigned:
        return options.assigned
    counts = matching_topics(options.subscription, log)
    missing = (options.subscription.topics or frozenset()) - counts.keys()
    if missing:
        raise ConfigError(f"subscribe: no such topic: {join_names(sorted(missing))}")
    return frozenset(NamedPartition(topic, number) for topic, count in counts.items() for number in range(count))


def _starts(
    options: SourceOptions, partitions: frozenset[NamedPartition], log: LogOffsets
) -> dict[NamedPartition, int]:
    if options.starting is not Edge.COMMITTED:
        return find_place(options.starting, partitions, log)
    group = GroupOffsets(options.client, timeout_ms=options.lookup_timeout_ms)
    try:
        return begin_at_committed(group, partitions, log, reset=options.client["auto.offset.reset"])
    finally:
        group.close()
