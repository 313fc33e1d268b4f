"""The options that say where a query begins and a batch ends, as values. Looks nothing up."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Final, TypeAlias, assert_never

import msgspec

from kip848_client.common.model import NamedPartition
from kip848_client.errors import ConfigError

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1
"""Kafka's numbers for the two ends of a partition, in JSON offsets and in ListOffsets."""


class Edge(enum.Enum):
    """A place that every partition has."""

    COMMITTED = "committed"
    """The group's committed offset; without one, what auto.offset.reset says."""
    EARLIEST = "earliest"
    LATEST = "latest"


class NoMatch(enum.Enum):
    """The strategy for a partition without a record at or after a time."""

    ERROR = "error"
    LATEST = "latest"


class AtOffsets(msgspec.Struct, frozen=True):
    """An offset for each partition; -2 is its beginning and -1 its end."""

    offsets: Mapping[NamedPartition, int]


class AtTime(msgspec.Struct, frozen=True):
    """The first record at or after a time, ms since 1970, in every partition."""

    time_ms: int
    no_match: NoMatch


class AtTimes(msgspec.Struct, frozen=True):
    """Like `AtTime`, with a time for each partition."""

    times_ms: Mapping[NamedPartition, int]
    no_match: NoMatch


class AtCheckpoint(msgspec.Struct, frozen=True):
    """The position in the checkpoint of a query of Spark's own ``kafka`` source; the beginning of other partitions."""

    location: str


Place: TypeAlias = Edge | AtOffsets | AtTime | AtTimes | AtCheckpoint


def named_partitions(place: Place) -> frozenset[NamedPartition]:
    """Partitions that *place* names one by one; none if it holds for all."""
    match place:
        case AtOffsets(offsets=offsets):
            return frozenset(offsets)
        case AtTimes(times_ms=times_ms):
            return frozenset(times_ms)
        case Edge() | AtTime() | AtCheckpoint():
            return frozenset()
        case _:
            assert_never(place)


def parse_place(option: str, text: str) -> Edge | AtOffsets:
    """Read startingOffsets or endingOffsets: a word, or JSON with an offset for each partition.

    Raises:
        ConfigError: neither.
    """
    word = text.strip().lower()
    for edge in Edge:
        if word == edge.value:
            return edge
    offsets = parse_partition_numbers(option, text)
    for partition, offset in offsets.items():
        if offset < EARLIEST_OFFSET:
            raise ConfigError(f"{option}: {partition} has offset {offset}; give one >= 0, -1 (latest) or -2 (earliest)")
    return AtOffsets(offsets)


def parse_times(option: str, text: str, no_match: NoMatch) -> AtTimes:
    """Read startingOffsetsByTimestamp or endingOffsetsByTimestamp.

    Raises:
        ConfigError: not JSON of times, or a time before 1970.
    """
    times_ms = parse_partition_numbers(option, text)
    for partition, time_ms in times_ms.items():
        if time_ms < 0:
            raise ConfigError(f"{option}: {partition} has {time_ms}; give milliseconds since 1970")
    return AtTimes(times_ms, no_match)


def parse_partition_numbers(option: str, text: str) -> dict[NamedPartition, int]:
    """Read ``{"topic": {"0": 23, "1": -1}}``.

    Raises:
        ConfigError: it is something else.
    """
    example = '{"orders":{"0":23,"1":-1}}'
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{option}: expected a word or JSON such as {example}, got {text!r}: {error}") from error
    numbers: dict[NamedPartition, int] = {}
    if not isinstance(parsed, dict) or not all(isinstance(of_topic, dict) for of_topic in parsed.values()):
        raise ConfigError(f"{option}: expected JSON such as {example}, got {text!r}")
    for topic, of_topic in parsed.items():
        for partition, number in of_topic.items():
            if not partition.isdecimal() or isinstance(number, bool) or not isinstance(number, int):
                raise ConfigError(f"{option}: expected JSON such as {example}, got {partition!r}: {number!r}")
            numbers[NamedPartition(topic, int(partition))] = number
    if not numbers:
        raise ConfigError(f"{option}: names no partition; expected JSON such as {example}")
    return numbers


def parse_assign(text: str) -> frozenset[NamedPartition]:
    """Read ``{"topic": [0, 1]}``.

    Raises:
        ConfigError: it is something else, or empty.
    """
    example = '{"orders":[0,1]}'
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"assign: expected JSON such as {example}, got {text!r}: {error}") from error
    found: set[NamedPartition] = set()
    if isinstance(parsed, dict):
        for topic, numbers in parsed.items():
            if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
                raise ConfigError(f"assign: expected JSON such as {example}, got {topic!r}: {numbers!r}")
            found.update(NamedPartition(topic, number) for number in numbers)
    if not found:
        raise ConfigError(f"assign: names no partition; expected JSON such as {example}, got {text!r}")
    return frozenset(found)
