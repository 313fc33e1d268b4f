"""What a counting worker tells the demo: one JSON object a line on its standard output. Values and their spelling only.

A line stands for its effect: what a worker has written, it has done, and what it has not written (because it was killed
in the middle of a line, say) never happened for anybody else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from kip848_client.cli.demo_ledger import CountedRun
from kip848_client.errors import ProtocolError


class Started(msgspec.Struct, frozen=True):
    """The process runs and is about to subscribe."""

    pid: int


class Status(msgspec.Struct, frozen=True):
    """What the consumer says of itself; written when it changed.

    Args:
        state: a value of `MemberState`.
    """

    state: str
    member_epoch: int
    partitions: tuple[int, ...]


class Moved(msgspec.Struct, frozen=True):
    """A rebalance listener ran.

    Args:
        what: ``assigned``, ``revoked`` or ``lost``.
    """

    what: str
    partitions: tuple[int, ...]


class Counted(msgspec.Struct, frozen=True):
    """One batch was counted. Nothing of it is committed yet."""

    runs: tuple[CountedRun, ...]


class Committed(msgspec.Struct, frozen=True):
    """Everything counted so far is committed."""


class Troubled(msgspec.Struct, frozen=True):
    """Something was refused or raised."""

    message: str


class Left(msgspec.Struct, frozen=True):
    """The consumer is closed; the process ends."""


Report: TypeAlias = Started | Status | Moved | Counted | Committed | Troubled | Left

_KINDS: Final[Mapping[str, type[Report]]] = {
    "started": Started,
    "status": Status,
    "moved": Moved,
    "counted": Counted,
    "committed": Committed,
    "troubled": Troubled,
    "left": Left,
}


def to_line(report: Report) -> bytes:
    """Spell a report, with the newline."""
    fields: dict[str, Any] = {"report": type(report).__name__.lower()}
    if isinstance(report, Counted):
        fields["runs"] = [(run.partition, run.first_offset, " ".join(run.carriers)) for run in report.runs]
    else:
        fields.update(msgspec.structs.asdict(report))
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def parse_line(line: bytes) -> Report:
    """Read a report.

    Raises:
        ProtocolError: it is not one; somebody else wrote to the worker's standard output.
    """
    try:
        fields = json.loads(line)
        kind = _KINDS[fields.pop("report")]
        if kind is Counted:
            return Counted(tuple(CountedRun(part, first, names.split()) for part, first, names in fields["runs"]))
        if "partitions" in fields:
            fields["partitions"] = tuple(fields["partitions"])
        return kind(**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(f"not a report of a worker: {line[:200]!r}") from error
