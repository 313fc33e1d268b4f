"""Tables and names of partitions, as the commands print them."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from kip848_client.common.model import NamedPartition
from kip848_client.common.plain_text import printable

_STYLES: Final = {
    **dict.fromkeys(("Stable", "stable", "consumer"), "green"),
    **dict.fromkeys(("Reconciling", "Assigning", "PreparingRebalance", "CompletingRebalance"), "yellow"),
    **dict.fromkeys(("Dead", "Empty", "-"), "dim"),
}
"""Cell -> how it is drawn; the text says the same without it."""


def name_partitions(partitions: Iterable[NamedPartition]) -> str:
    """Write partitions by topic in runs: ``orders 0-3,7 payments 0``."""
    texts = []
    for topic, of_topic in itertools.groupby(sorted(partitions), key=lambda item: item.topic):
        runs = []
        numbers = [item.partition for item in of_topic]
        for _, group in itertools.groupby(enumerate(numbers), key=lambda item: item[1] - item[0]):
            run = [number for _, number in group]
            runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
        texts.append(f"{printable(topic)} {','.join(runs)}")
    return " ".join(texts) or "-"


def number(value: int | None) -> str:
    """Write a number, or a dash for None."""
    return "-" if value is None else f"{value:,}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table; columns whose cells are all empty are left out. In colour on a terminal, if rich is installed.

    Control characters are escaped, because cells may hold names that others chose.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    columns = [column for column in zip(header, *rows, strict=True) if any(column[1:]) or not rows]
    numbers = [all(cell.replace(",", "").isdigit() or cell == "-" for cell in column[1:]) for column in columns]
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        return _coloured(columns, numbers)
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for cells in zip(*columns, strict=True):
        aligned = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(cells, widths, numbers, strict=True)
        ]
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)


def _coloured(columns: Sequence[Sequence[str]], numbers: Sequence[bool]) -> str:
    from rich import box  # an extra, and slow to import
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, header_style="bold cyan", pad_edge=False)
    for (title, *_), is_number in zip(columns, numbers, strict=True):
        drawn.add_column(title, justify="right" if is_number else "left", overflow="fold")
    for cells in zip(*(column[1:] for column in columns), strict=True):
        drawn.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    console = Console(file=sys.stdout)
    with console.capture() as written:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in written.get().strip("\n").splitlines())
