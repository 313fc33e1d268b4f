"""Where reading begins and ends: ``--from`` and ``--until``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from kip848_client.admin import Admin
from kip848_client.admin.results import raise_all
from kip848_client.admin.topics import At, IsolationLevel
from kip848_client.common.model import NamedPartition
from kip848_client.config.reset import duration_ms

WHERE: Final = "beginning, end, an offset, -N (the last N of each partition), a time, or PT1H (an hour ago)"
_WORDS: Final[dict[str, At]] = {"beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest"}


class ReadFrom(msgspec.Struct, frozen=True):
    """A place in every partition.

    Args:
        kind: ``at`` is an end of the partition or a time, in *at*; ``offset`` and ``last`` have a *number*.
    """

    kind: Literal["at", "offset", "last"]
    at: At = "latest"
    number: int = 0


def place(text: str) -> ReadFrom:
    """Read WHERE, for the *type* of an option.

    Raises:
        argparse.ArgumentTypeError: it is none of them.
    """
    if text in _WORDS:
        return ReadFrom("at", at=_WORDS[text])
    number = text.removeprefix("-")
    if number.isdecimal() and number.isascii():
        return ReadFrom("last" if text.startswith("-") else "offset", number=int(number))
    if (ago_ms := duration_ms(f"by_duration:{text}")) is not None:
        return ReadFrom("at", at=int(time.time() * 1000) - ago_ms)
    try:
        return ReadFrom("at", at=datetime.fromisoformat(text))  # without a zone it is local time, as in a log beside it
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not {WHERE}; a time is 2026-01-31T12:00:00Z") from error


def find(
    admin: Admin,
    wanted: Sequence[ReadFrom],
    partitions: Sequence[NamedPartition],
    *,
    isolation_level: IsolationLevel,
    timeout_s: float,
) -> list[dict[NamedPartition, int]]:
    """For each place its offset in each partition, no lower than the first one there and no higher than the next.

    Records may be written meanwhile: the end is the same for all places.

    Raises:
        Kip848Error: a partition does not exist, or its leader does not answer.
    """

    def ask(at: At) -> dict[NamedPartition, int | None]:
        found = admin.list_offsets(partitions, at, isolation_level=isolation_level, timeout_s=timeout_s)
        raise_all(list(found.errors.values()))
        return dict(found.values)

    edges = {"earliest": ask("earliest"), "latest": ask("latest")}

    def offsets(where: ReadFrom) -> dict[NamedPartition, int]:
        found = {}
        if where.kind == "at":
            found = edges[where.at] if isinstance(where.at, str) else ask(where.at)
        places = {}
        for one in partitions:
            first, end = edges["earliest"][one] or 0, edges["latest"][one] or 0
            match where.kind:
                case "at":
                    offset = found[one]  # None: no record is that new
                case "last":
                    offset = end - where.number
                case "offset":
                    offset = where.number
            places[one] = end if offset is None else min(max(offset, first), end)
        return places

    return [offsets(where) for where in wanted]
