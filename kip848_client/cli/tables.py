"""Tables and names of partitions, as the commands print them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from kip848_client.model import TopicPartition


def name_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Write partitions by topic in runs: ``orders 0-3,7 payments 0``."""
    texts = []
    for topic, of_topic in itertools.groupby(sorted(partitions), key=lambda item: item.topic):
        runs = []
        numbers = [item.partition for item in of_topic]
        for _, group in itertools.groupby(enumerate(numbers), key=lambda item: item[1] - item[0]):
            run = [number for _, number in group]
            runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
        texts.append(f"{topic} {','.join(runs)}")
    return " ".join(texts) or "-"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table; columns whose cells are all empty are left out."""
    columns = [column for column in zip(header, *rows, strict=True) if any(column[1:]) or not rows]
    widths = [max(map(len, column)) for column in columns]
    numbers = [all(cell.replace(",", "").isdigit() or cell == "-" for cell in column[1:]) for column in columns]
    lines = []
    for cells in zip(*columns, strict=True):
        aligned = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(cells, widths, numbers, strict=True)
        ]
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)
