"""``kip848 groups reset-offsets``: move the committed offsets of a group that has no members.

Without ``--execute`` it only shows the offsets that it would commit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime

import msgspec

from kip848_client.cli.groups_queries import EARLIEST, LATEST, Cluster, ask
from kip848_client.cli.properties import read_properties
from kip848_client.cli.tables import table
from kip848_client.errors import ConfigError, IllegalStateError
from kip848_client.json_text import to_json
from kip848_client.model import NamedPartition
from kip848_client.plain_text import printable


class Move(msgspec.Struct, frozen=True):
    """One partition: the offset that is committed (None: none is), and the one to commit."""

    partition: NamedPartition
    committed: int | None
    new: int


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
    target.add_argument("--to-datetime", metavar="TIME", help="2026-01-31T12:00:00Z: the first record since then")


def run(arguments: argparse.Namespace) -> int:
    """Show the new offsets, and commit them with ``--execute``.

    Raises:
        ConfigError: a topic or time cannot be read.
        IllegalStateError: the group has members, which would go on from where they are.
        Kip848Error: no broker answers, or one refuses.
    """
    (group_id,) = arguments.groups
    wanted = [_topic(text) for text in arguments.topic]
    since_ms = None if arguments.to_datetime is None else _milliseconds(arguments.to_datetime)

    async def reset(cluster: Cluster) -> list[Move]:
        moves = await _plan(cluster, group_id, wanted, arguments, since_ms)
        if arguments.execute:
            await cluster.commit(group_id, {move.partition: move.new for move in moves})
        return moves

    moves = ask(read_properties(arguments), reset, timeout_ms=int(arguments.timeout * 1000))
    if arguments.json:
        rows = [{**move.partition._asdict(), "committed": move.committed, "new": move.new} for move in moves]
        print(to_json({"group": group_id, "executed": arguments.execute, "offsets": rows}))
        return 0
    rows_of_text = [
        (
            move.partition.topic,
            str(move.partition.partition),
            "-" if move.committed is None else f"{move.committed:,}",
            f"{move.new:,}",
        )
        for move in moves
    ]
    print(table(("TOPIC", "PARTITION", "COMMITTED", "NEW"), rows_of_text))
    print("committed" if arguments.execute else "nothing was committed: add --execute to do it")
    return 0


async def _plan(
    cluster: Cluster,
    group_id: str,
    wanted: Sequence[tuple[str, tuple[int, ...]]],
    arguments: argparse.Namespace,
    since_ms: int | None,
) -> list[Move]:
    committed = await cluster.committed(group_id)
    members = await cluster.member_count(group_id)
    if members:
        raise IllegalStateError(
            f"members of group {group_id!r}: {members}; they would go on from where they are; stop them first"
        )
    partitions = sorted(committed) if not wanted else await _partitions(cluster, wanted)
    if not partitions:
        raise ConfigError(f"group {group_id!r} has no committed offsets; name the topics with --topic")
    starts = await cluster.offsets(partitions, EARLIEST)
    ends = await cluster.offsets(partitions, LATEST)
    since = {} if since_ms is None else await cluster.offsets(partitions, since_ms)
    moves = []
    for partition in partitions:
        if partition not in starts or partition not in ends:
            raise ConfigError(f"there is no {partition}, or its leader does not answer")
        low, high, old = starts[partition], ends[partition], committed.get(partition)
        if arguments.to_earliest:
            new = low
        elif arguments.to_latest:
            new = high
        elif arguments.to_offset is not None:
            new = arguments.to_offset
        elif arguments.shift_by is not None:
            if old is None:
                raise ConfigError(f"nothing is committed for {partition}, so it cannot be shifted; use --to-offset")
            new = old + arguments.shift_by
        else:
            new = since[partition] if since.get(partition, -1) >= 0 else high
        nearest = min(max(new, low), high)
        if nearest != new:
            print(
                f"{printable(str(partition))} has offsets {low:,} to {high:,}: {nearest:,} instead of {new:,}",
                file=sys.stderr,
            )
        moves.append(Move(partition, old, nearest))
    return moves


async def _partitions(cluster: Cluster, wanted: Sequence[tuple[str, tuple[int, ...]]]) -> list[NamedPartition]:
    counts = await cluster.partition_counts([topic for topic, _ in wanted])
    found = set()
    for topic, numbers in wanted:
        if topic not in counts:
            raise ConfigError(f"--topic {topic}: there is no such topic")
        found |= {NamedPartition(topic, number) for number in numbers or range(counts[topic])}
    return sorted(found)


def _topic(text: str) -> tuple[str, tuple[int, ...]]:
    name, colon, numbers = text.partition(":")
    try:
        return name, tuple(int(number) for number in numbers.split(",")) if colon else ()
    except ValueError as error:
        raise ConfigError(f"--topic {text!r} is not NAME or NAME:0,1,2") from error


def _milliseconds(text: str) -> int:
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"--to-datetime {text!r} is not a time such as 2026-01-31T12:00:00Z") from error
    return int(when.timestamp() * 1000)  # without a zone it is local time, as in a log beside it
