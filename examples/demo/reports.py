"""The reports of a counting worker to the demo: one JSON object per line on its standard output.

A line stands for its effect: a worker has done what it has reported. A line that is incomplete, because the worker was
killed in the middle of it, does not count.
"""

from __future__ import annotations

import functools
from typing import TypeAlias

import msgspec

from demo.ledger import CountedRun
from kip848_client.errors import ProtocolError


class _Report(msgspec.Struct, frozen=True, tag_field="report", tag=str.lower):
    """Base of all reports. A line names the class of its report."""


class Started(_Report, frozen=True):
    """The process runs and is about to subscribe."""

    pid: int


class Status(_Report, frozen=True):
    """A consumer's report about itself; written when it changed.

    Args:
        state: a value of `MemberState`.
    """

    state: str
    member_epoch: int
    partitions: tuple[int, ...]


class Moved(_Report, frozen=True):
    """A rebalance listener ran.

    Args:
        what: ``assigned``, ``revoked`` or ``lost``.
    """

    what: str
    partitions: tuple[int, ...]


class Counted(_Report, frozen=True):
    """One batch was counted. Nothing of it is committed yet."""

    runs: tuple[CountedRun, ...]


class Committed(_Report, frozen=True):
    """Everything counted so far is committed."""


class Troubled(_Report, frozen=True):
    """Something was refused or raised."""

    message: str


class Left(_Report, frozen=True):
    """The consumer is closed; the process ends."""


Report: TypeAlias = Started | Status | Moved | Counted | Committed | Troubled | Left


@functools.cache
def _decoder() -> msgspec.json.Decoder[Report]:
    return msgspec.json.Decoder(Report)


def to_line(report: Report) -> bytes:
    """Spell a report, with the newline."""
    return msgspec.json.encode(report) + b"\n"


def parse_line(line: bytes) -> Report:
    """Read a report.

    Raises:
        ProtocolError: it is not one; other code wrote to the worker's standard output.
    """
    try:
        return _decoder().decode(line)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ProtocolError(f"not a report of a worker: {line[:200]!r}") from error
