"""``kip848 report --period``: periods of a log side by side, as text, JSON, a page or a picture."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import printable
from kip848_client.errors import Kip848Error
from kip848_client.tools.report.figures import Percentiles
from kip848_client.tools.report.periods import CAUSES, Comparison
from kip848_client.tools.report.pictures.png import draw_periods
from kip848_client.tools.report.pictures.summary import Bar, Summary, Table, render_summary
from kip848_client.tools.report.wording import duration, duration_or_dash


def tell_comparison(comparison: Comparison, arguments: argparse.Namespace) -> int:
    """Print periods side by side, and draw them if options ask for it.

    Raises:
        Kip848Error: a file cannot be written.
    """
    if arguments.html is not None:
        try:
            arguments.html.write_text(render_summary(_summary(comparison)), encoding="utf-8")
        except OSError as error:
            raise Kip848Error(f"the page cannot be written: {error}") from error
    if arguments.png is not None:
        draw(comparison, arguments.png)
    if arguments.json:
        print(to_json(comparison.to_plain()))
        return 0
    print("\n".join(map(printable, _lines(comparison))))
    for path in (arguments.html, arguments.png):
        if path is not None:
            print(f"written: {path}")
    return 0


def draw(comparison: Comparison, path: Path) -> None:
    """Draw the periods into a file.

    Raises:
        Kip848Error: it cannot be written, or matplotlib is missing.
    """
    try:
        draw_periods(comparison.periods, path)
    except Kip848Error:
        raise
    except (OSError, ValueError) as error:
        raise Kip848Error(f"the picture cannot be written: {error}") from error


def _table(comparison: Comparison) -> Table:
    """A column for each period, and for two periods one with their difference."""
    periods = comparison.periods
    rows: list[tuple[str, list[float | None], bool]] = [
        ("groups that rebalanced", [each.groups for each in periods], False),
        ("rebalances", [each.rebalances for each in periods], False),
        ("rebalances a day", [each.rebalances / each.days for each in periods], False),
        *(_spread_rows("rebalance", [each.rebalance for each in periods])),
        *(_spread_rows("until all had their part", [each.change for each in periods])),
        *(_spread_rows("without a reader", [each.without_reader for each in periods])),
        ("without a reader, sum", [each.without_reader_ms for each in periods], True),
        ("partitions moved", [each.moves for each in periods], False),
        ("moved for nothing", [each.bounces for each in periods], False),
    ]
    header = ["", *(each.period.label for each in periods)]
    if len(periods) == 2:
        header.append("change")
    cells = [
        [name, *(_cell(number, is_time=is_time) for number in numbers), *_difference(numbers)]
        for name, numbers, is_time in rows
    ]
    return Table("Periods side by side", header, cells)


def _summary(comparison: Comparison) -> Summary:
    """The comparison for the page."""
    periods = comparison.periods
    header = ("group", *(f"{name}, {each.period.label}" for each in periods for name in ("rebalances", "no reader")))
    return Summary(
        title="Consumer groups, period by period",
        totals={},
        shares={},
        spreads={},
        charts={
            f"Causes of rebalances, {each.period.label}": [Bar(*item) for item in list(each.causes.items())[:CAUSES]]
            for each in periods
        },
        tables=[
            _table(comparison),
            Table(
                "Groups that changed most",
                header,
                [
                    (
                        each.group_id,
                        *(
                            cell
                            for count, ms in zip(each.rebalances, each.without_reader_ms, strict=True)
                            for cell in (f"{count:,}", duration(ms))
                        ),
                    )
                    for each in comparison.groups
                ],
            ),
        ],
    )


def _lines(comparison: Comparison) -> Iterator[str]:
    """The comparison as lines for a terminal."""
    table = _table(comparison)
    rows = [list(table.header), *(list(row) for row in table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.header))]
    for row in rows:
        first, *others = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join([first, *(cell.strip().rjust(len(cell)) for cell in others)]).rstrip()
    for each in comparison.periods:
        causes = ", ".join(f"{cause} {count:,}" for cause, count in list(each.causes.items())[:CAUSES])
        yield f"causes, {each.period.label}: {causes or 'none'}"


def _spread_rows(name: str, spreads: Sequence[Percentiles]) -> Iterator[tuple[str, list[float | None], bool]]:
    yield f"{name}, median", [each.p50_ms for each in spreads], True
    yield f"{name}, 90 %", [each.p90_ms for each in spreads], True
    yield f"{name}, longest", [each.max_ms for each in spreads], True


def _cell(number: float | None, *, is_time: bool) -> str:
    if is_time or number is None:
        return duration_or_dash(number)
    return f"{number:,.1f}".removesuffix(".0")


def _difference(numbers: Sequence[float | None]) -> list[str]:
    if len(numbers) != 2:
        return []
    before, after = numbers
    if before is None or after is None or not before:
        return ["" if before == after else "—"]
    return [f"{(after - before) / before:+.0%}"]
