"""The summary of many groups on one page: totals, bars, and the worst groups and members.

A `Summary` holds plain values (`kip848_client.spark.analytics.analytics_page` makes them). This module renders it as
text for a terminal, as JSON, and as one self-contained HTML page.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Final

import msgspec

from kip848_client.tools.report.figures import Percentiles
from kip848_client.tools.report.wording import duration_or_dash, spread_sentence

_WIDTH: Final = 640
_BAR: Final = 20
_CHARACTER: Final = 6.6
"""Width of a character, rounded up."""
_COUNT: Final = 80


class Bar(msgspec.Struct, frozen=True):
    """One bar of a chart."""

    label: str
    count: int


class Table(msgspec.Struct, frozen=True):
    """A table of a page; cells are shown as they are.

    Args:
        links: where the first cell of each row leads to; of none if it is empty.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    links: Sequence[str] = ()


class Picture(msgspec.Struct, frozen=True):
    """A part of a group's history, drawn as SVG; `anchor` is its name for links."""

    anchor: str
    title: str
    svg: str


class Summary(msgspec.Struct, frozen=True):
    """Everything that the page shows.

    Args:
        title: of the page.
        totals: a name and a number, in the order in which they are shown.
        spreads: durations by name.
        charts: bars by title.
        alarming: names of `totals` that are bad news if they are not 0.
        pictures: at the end of the page.
    """

    title: str
    totals: Mapping[str, int]
    shares: Mapping[str, float | None]
    spreads: Mapping[str, Percentiles]
    charts: Mapping[str, Sequence[Bar]]
    tables: Sequence[Table]
    alarming: frozenset[str] = frozenset()
    pictures: Sequence[Picture] = ()

    def to_plain(self) -> dict[str, object]:
        """As JSON values."""
        plain: dict[str, object] = msgspec.to_builtins(self)
        del plain["alarming"], plain["pictures"]
        return plain


def sentences(summary: Summary) -> Iterator[str]:
    """The summary as text, for a terminal."""
    yield summary.title
    yield "  " + ", ".join(f"{count:,} {name}" for name, count in summary.totals.items())
    for name, times in summary.spreads.items():
        yield f"  {name:<22} {spread_sentence(times)}"
    for name, share in summary.shares.items():
        yield f"  {name:<22} {_share(share)}"
    for name in summary.totals:
        if name in summary.alarming and summary.totals[name]:
            yield f"  {name.upper()}: {summary.totals[name]:,}"


def render_summary(summary: Summary) -> str:
    """Write the page."""
    page = files(__package__).joinpath("summary.html").read_text(encoding="utf-8")
    return page.replace("__TITLE__", html.escape(summary.title)).replace("__BODY__", "\n".join(_body(summary)), 1)


def _body(summary: Summary) -> Iterator[str]:
    yield '<div class="figures">'
    for name, count in summary.totals.items():
        bad = ' bad"' if name in summary.alarming and count else '"'
        yield f'<div class="figure{bad}><b>{count:,}</b>{html.escape(name)}</div>'
    for name, share in summary.shares.items():
        yield f'<div class="figure"><b>{_share(share)}</b>{html.escape(name)}</div>'
    yield "</div>"
    spreads = [
        (
            name,
            f"{times.count:,}",
            *(duration_or_dash(ms) for ms in (times.p50_ms, times.p90_ms, times.p99_ms, times.max_ms)),
        )
        for name, times in summary.spreads.items()
    ]
    if spreads:
        yield from _table(Table("Durations", ("", "count", "median", "90 %", "99 %", "longest"), spreads))
    yield '<div class="charts">'
    for title, bars in summary.charts.items():
        yield f"<div><h2>{html.escape(title)}</h2>{_chart(title, bars)}</div>"
    yield "</div>"
    for table in summary.tables:
        yield from _table(table)
    for picture in summary.pictures:
        yield f'<h2 id="{html.escape(picture.anchor)}">{html.escape(picture.title)}</h2>{picture.svg}'


def _table(table: Table) -> Iterator[str]:
    yield f"<h2>{html.escape(table.title)}</h2>"
    if not table.rows:
        yield '<p class="soft">none</p>'
        return
    yield "<table><tr>" + _cells("th", table.header) + "</tr>"
    for row, link in itertools.zip_longest(table.rows, table.links):
        if link is None:
            yield "<tr>" + _cells("td", row) + "</tr>"
        else:
            first = f'<td><a href="{html.escape(link)}">{html.escape(row[0])}</a></td>'
            yield f"<tr>{first}{_cells('td', row[1:])}</tr>"
    yield "</table>"


def _cells(tag: str, cells: Iterable[str]) -> str:
    return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)


def _chart(title: str, bars: Sequence[Bar]) -> str:
    if not any(bar.count for bar in bars):
        return '<p class="soft">nothing to show</p>'
    most = max(bar.count for bar in bars)
    height = _BAR * len(bars)
    begin = 12 + _CHARACTER * max(len(bar.label) for bar in bars)
    drawn = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{html.escape(title)}">']
    for index, bar in enumerate(bars):
        top = index * _BAR
        width = (_WIDTH - begin - _COUNT) * bar.count / most
        label = html.escape(bar.label)
        drawn.append(
            f'<text x="{begin - 8:.1f}" y="{top + 14}" text-anchor="end">{label}</text>'
            f'<rect x="{begin:.1f}" y="{top + 3}" width="{width:.1f}" height="{_BAR - 6}" rx="2">'
            f"<title>{label}: {bar.count:,}</title></rect>"
            f'<text class="soft" x="{begin + width + 6:.1f}" y="{top + 14}">{bar.count:,}</text>'
        )
    return "".join(drawn) + "</svg>"


def _share(share: float | None) -> str:
    return "—" if share is None else f"{share:.1%}"
