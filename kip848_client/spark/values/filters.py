"""Finds the part of a batch that a query's filters on topic, partition, offset and timestamp leave to read. Pure.

The ranges may hold more than the filters want, but never less: Spark applies the filters again to the records.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from kip848_client.common.model import NamedPartition


class FilteredRanges(msgspec.Struct, frozen=True):
    """The ranges that filters leave.

    Args:
        topics, partitions: None if all.
        offset_min, offset_max: both may be read.
        time_min_ms: no record that is older is wanted; None if any is.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_min: int = 0
    partition_max: int | None = None
    offset_min: int = 0
    offset_max: int | None = None
    time_min_ms: int | None = None

    def wants(self, partition: NamedPartition) -> bool:
        """Whether anything of *partition* is wanted."""
        number = partition.partition
        return (
            (self.topics is None or partition.topic in self.topics)
            and (self.partitions is None or number in self.partitions)
            and self.partition_min <= number
            and (self.partition_max is None or number <= self.partition_max)
        )


EVERYTHING: Final = FilteredRanges()


def narrowed(filters: Iterable[object]) -> FilteredRanges:
    """The part that fulfils all *filters*. Filters of other kinds, or on other columns, leave everything.

    Args:
        filters: those of ``pyspark.sql.datasource``, distinguished by the names of their classes, with their column and
            value as ``attribute`` and ``value``. There is no upper bound for times: records need not be in the order
            of their timestamps.
    """
    left = EVERYTHING
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        narrow = _COLUMNS.get(attribute[0]) if len(attribute) == 1 else None
        if narrow is not None:
            left = narrow(left, type(each).__name__, getattr(each, "value", None))
    return left


def _topic(left: FilteredRanges, kind: str, value: Any) -> FilteredRanges:
    chosen = _chosen(kind, value)
    if chosen is None:
        return left
    return msgspec.structs.replace(left, topics=chosen if left.topics is None else left.topics & chosen)


def _partition(left: FilteredRanges, kind: str, value: Any) -> FilteredRanges:
    chosen = _chosen(kind, value)
    if chosen is not None:
        return msgspec.structs.replace(left, partitions=chosen if left.partitions is None else left.partitions & chosen)
    low, high = _bounds(kind, value)
    return msgspec.structs.replace(
        left, partition_min=max(left.partition_min, low or 0), partition_max=_lower(left.partition_max, high)
    )


def _offset(left: FilteredRanges, kind: str, value: Any) -> FilteredRanges:
    low, high = _bounds(kind, value)
    return msgspec.structs.replace(
        left, offset_min=max(left.offset_min, low or 0), offset_max=_lower(left.offset_max, high)
    )


def _timestamp(left: FilteredRanges, kind: str, value: Any) -> FilteredRanges:
    times = list(value) if kind == "In" else [value]
    if kind not in {"EqualTo", "EqualNullSafe", "In", "GreaterThan", "GreaterThanOrEqual"}:
        return left
    if not times or not all(isinstance(at, dt.datetime) and at.tzinfo is not None for at in times):
        return left
    earliest_ms = int((min(times) - _EPOCH) // dt.timedelta(milliseconds=1))
    return msgspec.structs.replace(left, time_min_ms=max(left.time_min_ms or 0, earliest_ms, 0))


_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_COLUMNS: Final[Mapping[str, Callable[[FilteredRanges, str, Any], FilteredRanges]]] = {
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
}


def _chosen(kind: str, value: Any) -> frozenset[Any] | None:
    """The values that a filter allows, if it lists them."""
    if kind in {"EqualTo", "EqualNullSafe"}:
        return frozenset({value})
    return frozenset(value) if kind == "In" else None


def _bounds(kind: str, value: Any) -> tuple[int | None, int | None]:
    """The lowest and the highest value that a filter on whole numbers allows; None if there is no such bound."""
    match kind:
        case "EqualTo" | "EqualNullSafe":
            return value, value
        case "In" if value:
            return min(value), max(value)
        case "GreaterThan":
            return value + 1, None
        case "GreaterThanOrEqual":
            return value, None
        case "LessThan":
            return None, value - 1
        case "LessThanOrEqual":
            return None, value
        case _:
            return None, None


def _lower(one: int | None, other: int | None) -> int | None:
    known = [bound for bound in (one, other) if bound is not None]
    return min(known) if known else None
