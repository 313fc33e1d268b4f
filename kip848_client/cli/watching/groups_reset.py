"""``kip848 groups reset-offsets``: move the committed offsets of a group that has no members, or the start offsets of a
share group.

Without ``--execute`` it only shows the new offsets.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from kip848_client.admin import Admin, ResetPlan, ResetTo, ShiftBy, read_offsets
from kip848_client.cli.shared.properties import read_properties
from kip848_client.cli.shared.tables import table
from kip848_client.errors import ConfigError
from kip848_client.json_text import to_json
from kip848_client.plain_text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options, with the names of Kafka's own tool."""
    parser.add_argument("groups", metavar="GROUP", nargs=1)
    parser.add_argument(
        "--topic", metavar="NAME[:0,1]", action="append", default=[], help="these only; all with offsets if none"
    )
    parser.add_argument("--execute", action="store_true", help="commit; otherwise only show what would be committed")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-earliest", action="store_true", help="the first record that is there")
    target.add_argument("--to-latest", action="store_true", help="behind the last record")
    target.add_argument("--to-offset", metavar="N", type=int, help="this offset")
    target.add_argument("--shift-by", metavar="N", type=int, help="N records on, or back if N is negative")
    target.add_argument("--from-file", metavar="FILE", type=Path, help="topic,partition,offset, one a line")
    target.add_argument("--to-datetime", metavar="TIME", help="2026-01-31T12:00:00Z: the first record since then")


def run(arguments: argparse.Namespace) -> int:
    """Show the new offsets, and commit them with ``--execute``.

    Raises:
        ConfigError: a topic or time cannot be read.
        IllegalStateError: the group has members, which would go on from where they are.
        Kip848Error: no broker answers, or one refuses.
    """
    (group_id,) = arguments.groups
    wanted = list(_partitions(arguments.topic)) or None
    with Admin(read_properties(arguments)) as admin:
        plan = admin.plan_reset(group_id, _target(arguments), partitions=wanted, timeout_s=arguments.timeout)
        _warn(plan)
        if arguments.execute:
            admin.apply_reset(plan, timeout_s=arguments.timeout)
    if arguments.json:
        rows = [{**move.partition._asdict(), "committed": move.committed, "new": move.new} for move in plan.moves]
        print(to_json({"group": group_id, "executed": arguments.execute, "offsets": rows}))
        return 0
    rows_of_text = [
        (
            move.partition.topic,
            str(move.partition.partition),
            "-" if move.committed is None else f"{move.committed:,}",
            f"{move.new:,}",
        )
        for move in plan.moves
    ]
    is_shared = plan.type == "share"
    print(table(("TOPIC", "PARTITION", "START" if is_shared else "COMMITTED", "NEW"), rows_of_text))
    done = "moved" if is_shared else "committed"
    print(done if arguments.execute else f"nothing was {done}: add --execute to do it")
    return 0


def _target(arguments: argparse.Namespace) -> ResetTo:
    if arguments.to_earliest:
        return "earliest"
    if arguments.to_latest:
        return "latest"
    if arguments.from_file is not None:
        return read_offsets(arguments.from_file)
    if arguments.shift_by is not None:
        return ShiftBy(arguments.shift_by)
    if arguments.to_offset is not None:
        return int(arguments.to_offset)
    return _time(arguments.to_datetime)


def _warn(plan: ResetPlan) -> None:
    for move in plan.moves:
        if move.new != move.wanted:
            print(
                f"{printable(str(move.partition))} has offsets {move.first:,} to {move.end:,}: {move.new:,} instead of "
                f"{move.wanted:,}",
                file=sys.stderr,
            )


def _partitions(texts: Sequence[str]) -> Iterator[str | tuple[str, int]]:
    for text in texts:
        name, colon, numbers = text.partition(":")
        if not colon:
            yield name
            continue
        try:
            yield from [(name, int(number)) for number in numbers.split(",")]
        except ValueError as error:
            raise ConfigError(f"--topic {text!r} is not NAME or NAME:0,1,2") from error


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)  # without a zone it is local time, as in a log beside it
    except ValueError as error:
        raise ConfigError(f"--to-datetime {text!r} is not a time such as 2026-01-31T12:00:00Z") from error
