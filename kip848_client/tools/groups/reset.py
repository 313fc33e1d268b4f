"""``kip848 groups reset-offsets``: move the committed offsets of a group that has no members, or the start offsets of a
share group.

Without ``--execute`` it only shows the new offsets.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kip848_client.admin import Admin, ResetPlan, ResetTo, ShiftBy, read_offsets
from kip848_client.admin.results import raise_all
from kip848_client.cli.shared.properties import read_properties
from kip848_client.cli.shared.tables import table
from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import printable
from kip848_client.config.reset import duration_ms
from kip848_client.errors import ConfigError
from kip848_client.tools.shared.partitions import topics_and_partitions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options, with the names of Kafka's own tool."""
    parser.add_argument("groups", metavar="GROUP", nargs="+")
    parser.add_argument(
        "--topic", metavar="NAME[:0,1]", action="append", default=[], help="these only; all with offsets if none"
    )
    parser.add_argument("--execute", action="store_true", help="commit; otherwise only show what would be committed")
    parser.add_argument("--export", action="store_true", help="print what --from-file takes, for one group")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-earliest", action="store_true", help="the first record that is there")
    target.add_argument("--to-latest", action="store_true", help="behind the last record")
    target.add_argument("--to-offset", metavar="N", type=int, help="this offset")
    target.add_argument("--shift-by", metavar="N", type=int, help="N records on, or back if N is negative")
    target.add_argument("--from-file", metavar="FILE", type=Path, help="topic,partition,offset, one a line")
    target.add_argument("--by-duration", metavar="PT1H", help="the first record since that long ago")
    target.add_argument("--to-current", action="store_true", help="the committed offsets, for --export")
    target.add_argument("--to-datetime", metavar="TIME", help="2026-01-31T12:00:00Z: the first record since then")


def run(arguments: argparse.Namespace) -> int:
    """Show the new offsets, and commit them with ``--execute``.

    Raises:
        ConfigError: a topic or time cannot be read.
        IllegalStateError: the group has members, which would go on from where they are.
        Kip848Error: no broker answers, or one refuses.
    """
    if arguments.export and (arguments.execute or len(arguments.groups) > 1):
        raise ConfigError("--export prints the offsets of one group, and changes nothing: without --execute")
    wanted = list(topics_and_partitions(arguments.topic))
    with Admin(read_properties(arguments)) as admin:
        plans = []
        for group_id in arguments.groups:  # all plans first: a group that has members stops the others, too
            target = _target(admin, group_id, arguments)
            plan = admin.plan_reset(group_id, target, partitions=wanted or None, timeout_s=arguments.timeout)
            _warn(plan)
            if plan.type != "share" and all(move.committed is None for move in plan.moves):
                _warn_if_new(admin, group_id, arguments)
            plans.append(plan)
        for plan in plans:
            if arguments.execute:
                admin.apply_reset(plan, timeout_s=arguments.timeout)
    if arguments.export:
        for move in plans[0].moves:
            print(f"{move.partition.topic},{move.partition.partition},{move.new}")
    elif arguments.json:
        for plan in plans:
            rows = [{**move.partition._asdict(), "committed": move.committed, "new": move.new} for move in plan.moves]
            print(to_json({"group": plan.group_id, "executed": arguments.execute, "offsets": rows}))
    else:
        print("\n\n".join(_shown(plan, executed=arguments.execute, named=len(plans) > 1) for plan in plans))
    return 0


def _shown(plan: ResetPlan, *, executed: bool, named: bool) -> str:
    rows = [
        (
            move.partition.topic,
            str(move.partition.partition),
            "-" if move.committed is None else f"{move.committed:,}",
            f"{move.new:,}",
        )
        for move in plan.moves
    ]
    is_shared = plan.type == "share"
    shown = table(("TOPIC", "PARTITION", "START" if is_shared else "COMMITTED", "NEW"), rows)
    done = "moved" if is_shared else "committed"
    said = done if executed else f"nothing was {done}: add --execute to do it"
    return f"group {printable(plan.group_id)}\n\n{shown}\n{said}" if named else f"{shown}\n{said}"


def _target(admin: Admin, group_id: str, arguments: argparse.Namespace) -> ResetTo:
    if arguments.to_current:
        found = admin.committed_offsets([group_id], timeout_s=arguments.timeout)
        raise_all(found.errors.values())
        return {partition: place.offset for partition, place in found.values[group_id].items()}
    if arguments.by_duration is not None:
        ago_ms = duration_ms(f"by_duration:{arguments.by_duration}")
        if ago_ms is None:
            raise ConfigError(f"--by-duration {arguments.by_duration!r} is not a duration such as PT1H or P1D")
        return datetime.now(UTC) - timedelta(milliseconds=ago_ms)
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


def _warn_if_new(admin: Admin, group_id: str, arguments: argparse.Namespace) -> None:
    """Offsets of a group that is not there make it: say so, as its name may be misspelt."""
    groups = [group.group_id for group in admin.list_groups(timeout_s=arguments.timeout).found]
    if group_id in groups:
        return
    near = difflib.get_close_matches(group_id, groups, n=1)
    hint = f"; did you mean {printable(near[0])}?" if near else ""
    makes = "is made by this" if arguments.execute else "--execute makes it"
    print(f"group {printable(group_id)} does not exist: {makes}{hint}", file=sys.stderr)


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)  # without a zone it is local time, as in a log beside it
    except ValueError as error:
        raise ConfigError(f"--to-datetime {text!r} is not a time such as 2026-01-31T12:00:00Z") from error
