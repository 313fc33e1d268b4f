"""Decides how many rows of each partition a batch reads, and cuts them into tasks. Pure arithmetic."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from kip848_client.common.model import NamedPartition, OffsetRange

Task: TypeAlias = tuple[OffsetRange, ...]
"""The ranges of one task, in the order of reading."""


def plan_ranges(
    *,
    positions: Mapping[NamedPartition, int],
    ends: Mapping[NamedPartition, int],
    rows_max: int | None,
    turn: int = 0,
) -> tuple[OffsetRange, ...]:
    """The ranges of the next batch: everything, or at most *rows_max* rows, shared in proportion to the backlog.

    Args:
        positions: next offset of each partition that may be read.
        ends: the offset after its last record; partitions without one are left out.
        turn: grows from batch to batch; rotates the partitions when there are fewer rows than partitions.

    Returns:
        Ranges that are not empty, sorted by partition.
    """
    waiting = {
        partition: ends[partition] - position
        for partition, position in sorted(positions.items())
        if ends.get(partition, 0) > position
    }
    rows = share_rows(waiting, rows_max=rows_max, turn=turn)
    return tuple(
        OffsetRange(partition, positions[partition], positions[partition] + count)
        for partition, count in sorted(rows.items())
        if count
    )


def share_rows(
    waiting: Mapping[NamedPartition, int], *, rows_max: int | None, turn: int = 0
) -> dict[NamedPartition, int]:
    """Share *rows_max* among partitions in proportion to their backlog.

    Every partition gets at least one row, so that none starves behind a large one; if there are not even that many
    rows, partitions take turns.

    Args:
        waiting: rows that wait, each above 0.

    Returns:
        Rows for each partition; their sum is *rows_max*, or everything if that is less.
    """
    total = sum(waiting.values())
    if rows_max is None or total <= rows_max:
        return dict(waiting)
    names = sorted(waiting)
    if rows_max <= len(names):
        first = turn * rows_max
        return {names[(first + i) % len(names)]: 1 for i in range(rows_max)}
    # One for each; the rest by volume, and what rounding leaves over to the largest remainders.
    spare, beyond = rows_max - len(names), total - len(names)
    shares = {name: divmod(spare * (waiting[name] - 1), beyond) for name in names}
    left = spare - sum(whole for whole, _ in shares.values())
    favoured = set(sorted(names, key=lambda name: (-shares[name][1], name))[:left])
    return {name: 1 + shares[name][0] + (name in favoured) for name in names}


def cut_tasks(
    ranges: Iterable[OffsetRange],
    *,
    tasks_min: int | None = None,
    tasks_max: int | None = None,
    task_rows_max: int | None = None,
) -> list[Task]:
    """Cut ranges into tasks: one for each range, unless options say otherwise.

    Args:
        tasks_min: cut the larger ranges until there are this many tasks (minPartitions).
        tasks_max: let tasks read several ranges, so that there are no more (maxTasks).
        task_rows_max: cut ranges that are longer (maxRecordsPerPartition); *tasks_max* wins over it.

    Returns:
        Tasks with their ranges in order; every offset in exactly one.
    """
    pieces = [piece for each in ranges for piece in cut_range(each, parts=_parts(each.rows, task_rows_max))]
    if tasks_min is not None and len(pieces) < tasks_min:
        pieces = _cut_further(pieces, tasks_min)
    if tasks_max is None or len(pieces) <= tasks_max:
        return [(piece,) for piece in pieces]
    return pack(pieces, tasks_max)


def cut_range(whole: OffsetRange, *, parts: int) -> list[OffsetRange]:
    """Cut a range into *parts* pieces whose sizes differ by one at most; fewer if it has fewer rows."""
    parts = max(1, min(parts, whole.rows))
    cuts = [whole.start + whole.rows * i // parts for i in range(parts + 1)]
    return [OffsetRange(whole.partition, cuts[i], cuts[i + 1]) for i in range(parts)]


def pack(pieces: Sequence[OffsetRange], tasks: int) -> list[Task]:
    """Distribute *pieces* over *tasks* of about equal size: the largest first, each to the smallest task."""
    loads: list[tuple[int, int]] = [(0, number) for number in range(tasks)]
    contents: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    for piece in sorted(pieces, key=lambda piece: (-piece.rows, piece.partition, piece.start)):
        load, number = heapq.heappop(loads)
        contents[number].append(piece)
        heapq.heappush(loads, (load + piece.rows, number))
    return [tuple(sorted(task, key=lambda piece: (piece.partition, piece.start))) for task in contents if task]


def _parts(rows: int, rows_max: int | None) -> int:
    """*rows* divided by *rows_max*, rounded up."""
    return 1 if rows_max is None else (rows + rows_max - 1) // rows_max


def _cut_further(pieces: Sequence[OffsetRange], tasks_min: int) -> list[OffsetRange]:
    """Cut so that there are *tasks_min* pieces, each cut going to the range whose pieces are largest."""
    if not pieces:
        return []
    parts = [1] * len(pieces)
    largest = [(-piece.rows, number) for number, piece in enumerate(pieces)]
    heapq.heapify(largest)
    for _ in range(tasks_min - len(pieces)):
        size, number = heapq.heappop(largest)
        if size > -2:  # nothing is left to cut
            break
        parts[number] += 1
        heapq.heappush(largest, (-_parts(pieces[number].rows, parts[number]), number))
    return [piece for whole, count in zip(pieces, parts, strict=True) for piece in cut_range(whole, parts=count)]
