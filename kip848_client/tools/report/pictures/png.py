"""Draws PNG and SVG files: the timeline of a group, periods of a log, and figures as lines.

Needs matplotlib (``pip install "kip848_client[plots]"``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kip848_client.common.plain_text import printable
from kip848_client.errors import Kip848Error
from kip848_client.tools.report.periods import CAUSES
from kip848_client.tools.report.timeline.timeline import Span, Timeline
from kip848_client.tools.report.wording import clock, is_date

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kip848_client.tools.report.figures import Percentiles
    from kip848_client.tools.report.periods import Period, PeriodFigures

_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c510a")
"""Okabe and Ito's colours, which colour-blind people tell apart."""
_HATCHES: Final = ("", "///", "...", "xxx", "---", "ooo", "\\\\\\", "+++")
"""After eight members the colours come again, with a pattern."""
_STATES: Final = {
    "UNJOINED": "#bbbbbb",
    "STABLE": "#7d8b99",
    "RECONCILING": "#7048e8",
    "RELEASING_ASSIGNMENT": "#4527a0",
    "FATAL": "#495057",
    "UNREVOKED_PARTITIONS": "#7048e8",
    "UNRELEASED_PARTITIONS": "#b197fc",
    "EMPTY": "#bbbbbb",
    "ASSIGNING": "#4527a0",
    "PREPARINGREBALANCE": "#7048e8",
    "COMPLETINGREBALANCE": "#b197fc",
    "DEAD": "#495057",
}
"""State of a member or a group, in capitals -> its colour."""
_OTHER: Final = "#868e96"
_FEW: Final = 5
"""Up to this number, periods are drawn as bars side by side; more of them as a line over time."""
_WIDE: Final = 30
"""Durations that differ by more than this factor are drawn on a logarithmic axis."""
_HALF_A_DAY_MS: Final = 43_200_000
_LABEL_WIDTH: Final = 0.008
"""Width of one digit of an epoch, as a share of the picture's width."""


class _Look(NamedTuple):
    """Colour and hatching of a bar."""

    colour: str
    hatch: str = ""


def draw_timeline(timeline: Timeline, path: Path) -> None:
    """Draw *timeline* into the file *path*; its ending (``.png``, ``.svg``) says how.

    Raises:
        Kip848Error: matplotlib is not installed.
    """
    figure_type = _figure_type()
    from matplotlib.patches import Patch

    rows = 2 + len(timeline.partitions) + len(timeline.members)
    figure = figure_type(figsize=(10, 1.2 + 0.28 * rows), layout="constrained")
    axes = figure.add_subplot()
    colours = {lane.member: member_look(index) for index, lane in enumerate(timeline.members)}
    states = {
        span.text: _Look(_STATES.get(span.text.upper(), _OTHER))
        for spans in (timeline.states, *(member.states for member in timeline.members))
        for span in spans
    }
    labels = ["group", "events"]
    _bars(axes, 0, timeline.states, timeline, height=0.6, looks=states)
    for label_s, text in epoch_labels(timeline):
        axes.annotate(text, (label_s, -0.35), fontsize=6, ha="left", va="bottom")
    faults = [mark for mark in timeline.marks if mark.kind != "life"]
    markers = {"fault": ("v", "#d55e00"), "refusal": (".", "#e69f00"), "failure": ("x", "#000000")}
    for kind, (marker, colour) in markers.items():
        at_s = [_seconds(timeline, mark.ts_ms) for mark in faults if mark.kind == kind]
        axes.scatter(at_s, [1] * len(at_s), marker=marker, s=18, c=colour, label=kind if at_s else None)
    read_anywhere = any(lane.read for lane in timeline.partitions)
    for lane in timeline.partitions:
        row = len(labels)
        if read_anywhere:
            _bars(axes, row - 0.08, lane.read, timeline, height=0.55, looks=colours)
            _bars(axes, row + 0.32, lane.held, timeline, height=0.12, looks=colours)
        else:
            _bars(axes, row, lane.held, timeline, height=0.6, looks=colours)
        labels.append(lane.partition)
    for member in timeline.members:
        _bars(axes, len(labels), member.states, timeline, height=0.5, looks=states)
        labels.append(member.member)
    axes.set_yticks(range(len(labels)), [_drawable(label) for label in labels], fontsize=8)
    for label, tick in zip(labels, axes.get_yticklabels(), strict=True):
        if label in colours:
            look = colours[label]
            tick.set_bbox({"facecolor": look.colour, "hatch": look.hatch, "edgecolor": "white", "alpha": 0.5, "pad": 1})
    axes.set_ylim(len(labels) - 0.5, -0.8)
    axes.set_xlim(0, _seconds(timeline, timeline.end_ms))
    start_ms = timeline.start_ms
    axes.set_xlabel(f"seconds since {clock(start_ms)} UTC" if is_date(start_ms) else "seconds")
    group = _drawable(timeline.group_id)
    axes.set_title(
        f"group {group}: which member reads which partition (thin: owner by the coordinator)"
        if read_anywhere
        else f"group {group}: the owner of each partition by the coordinator",
        fontsize=10,
    )
    axes.grid(axis="x", linewidth=0.4, alpha=0.6)
    seen = dict.fromkeys(state.upper() for state in states)
    patches = [Patch(color=_STATES.get(state, _OTHER), label=state.lower().replace("_", " ")) for state in sorted(seen)]
    handles, _ = axes.get_legend_handles_labels()
    axes.legend(handles=[*handles, *patches], loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7, frameon=False)
    figure.savefig(path, dpi=120)


def _drawable(name: str) -> str:
    """A name that others chose: no font has control characters, and ``$`` would begin a formula."""
    return printable(name).replace("$", r"\$")


def member_look(index: int) -> _Look:
    """The look of the member with this number; no two of the first 64 are equal."""
    return _Look(_COLOURS[index % len(_COLOURS)], _HATCHES[index // len(_COLOURS) % len(_HATCHES)])


def epoch_labels(timeline: Timeline) -> list[tuple[float, str]]:
    """Seconds and text of the epochs that are written; one that would cover the one before is left out."""
    length_s = _seconds(timeline, timeline.end_ms)
    shown: list[tuple[float, str]] = []
    free_from_s = 0.0
    for at_ms, epoch, _ in timeline.epochs:
        at_s = _seconds(timeline, at_ms)
        if at_s >= free_from_s:
            shown.append((at_s, str(epoch)))
            free_from_s = at_s + (len(str(epoch)) + 0.5) * _LABEL_WIDTH * length_s
    return shown


def plot_lines(
    path: Path,
    *,
    title: str,
    x_label: str,
    y_label: str,
    x: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    counts: Sequence[int] = (),
) -> None:
    """Draw *lines*, name -> one value for each of *x*, into the file *path*.

    Args:
        counts: how many samples are behind each of *x*, drawn as bars below.

    Raises:
        Kip848Error: matplotlib is not installed.
    """
    figure = _figure_type()(figsize=(9, 6 if counts else 5), layout="constrained")
    if counts:
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        bars = below.bar(x, counts, color=_OTHER)
        below.bar_label(bars, labels=[f"{count:,}" for count in counts], fontsize=6)
        below.set_ylabel("samples")
        below.set_ylim(0, max(counts) * 1.25)
        below.set_xlabel(x_label)
    else:
        axes = figure.add_subplot()
        axes.set_xlabel(x_label)
    for colour, (name, values) in zip(_COLOURS, lines.items(), strict=False):
        axes.plot(x, values, marker="o", markersize=4, color=colour, label=name)
    axes.set_title(title, fontsize=11)
    axes.set_ylabel(y_label)
    axes.set_ylim(bottom=0)
    axes.grid(linewidth=0.4, alpha=0.6)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def plot_groups(
    path: Path,
    *,
    title: str,
    y_label: str,
    groups: Sequence[str],
    bars: Mapping[str, Sequence[tuple[float, float]]],
) -> None:
    """Draw *bars*, name -> (height, end of its line) in each of *groups*, into the file *path*.

    Raises:
        Kip848Error: matplotlib is not installed.
    """
    figure = _figure_type()(figsize=(10, 5), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / max(1, len(bars))
    for index, (name, values) in enumerate(bars.items()):
        look = member_look(index)
        at = [group + (index - (len(bars) - 1) / 2) * width for group in range(len(groups))]
        heights = [height for height, _ in values]
        lines = [[0.0] * len(values), [max(0.0, end - height) for height, end in values]]
        drawn = axes.bar(
            at, heights, width * 0.95, yerr=lines, color=look.colour, hatch=look.hatch, label=name, capsize=3
        )
        axes.bar_label(drawn, fmt="{:,.1f}", fontsize=7, padding=2)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(y_label)
    axes.set_title(title, fontsize=9, wrap=True)
    axes.grid(axis="y", linewidth=0.4, alpha=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def draw_periods(periods: Sequence[PeriodFigures], path: Path) -> None:
    """Draw rebalances, convergence, time without a reader and causes, period by period, into the file *path*.

    Raises:
        Kip848Error: matplotlib is not installed.
    """
    figure = _figure_type()(figsize=(13, 8), layout="constrained")
    (upper_left, upper_right), (lower_left, lower_right) = figure.subplots(2, 2)
    at = range(len(periods))
    few = len(periods) <= _FEW
    labels = [each.period.label.replace(" to ", "\nto ") if few else _short(each.period) for each in periods]
    bars = upper_left.bar(at, [each.rebalances for each in periods], color=_COLOURS[0])
    if few:
        upper_left.bar_label(bars, fmt="{:,.0f}", fontsize=8)
    upper_left.set_title("rebalances", fontsize=10)
    _spreads(upper_right, "seconds until all had their part", [each.change for each in periods], few=few)
    _spreads(lower_left, "seconds without a reader", [each.without_reader for each in periods], few=few)
    for axes in (upper_left, upper_right, lower_left):
        axes.set_xticks(at[:: max(1, len(periods) // 8)], labels[:: max(1, len(periods) // 8)], fontsize=7)
        axes.set_xlim(-0.6, len(periods) - 0.4)
        axes.tick_params(axis="x", rotation=0 if few else 30)
        axes.grid(axis="y", linewidth=0.4, alpha=0.6)
        axes.set_axisbelow(True)
    _cause_bars(lower_right, periods, few=few)
    figure.savefig(path, dpi=120)


def _short(period: Period) -> str:
    """When it begins, in the length that it asks for."""
    date, _, time = clock(period.start_ms).partition(" ")
    if "-" not in date or not time:
        return f"{date} {time}".rstrip()
    return date if period.end_ms - period.start_ms >= _HALF_A_DAY_MS else f"{date[5:]} {time[:5]}"


def _spreads(axes: Axes, title: str, spreads: Sequence[Percentiles], *, few: bool) -> None:
    """Bars of a few periods, lines of many."""
    axes.set_title(title, fontsize=10)
    kinds = {
        "median": ([each.p50_ms for each in spreads], _COLOURS[0]),
        "90 %": ([each.p90_ms for each in spreads], _COLOURS[1]),
        "longest": ([each.max_ms for each in spreads], _COLOURS[5]),
    }
    for index, (name, (values, colour)) in enumerate(kinds.items()):
        seconds = [math.nan if ms is None else ms / 1000 for ms in values]
        if few:
            at = [number + (index - 1) * 0.27 for number in range(len(values))]
            bars = axes.bar(at, [0 if math.isnan(each) else each for each in seconds], 0.25, color=colour, label=name)
            axes.bar_label(bars, labels=["" if math.isnan(each) else f"{each:,.3g}" for each in seconds], fontsize=8)
        else:
            axes.plot(range(len(values)), seconds, marker="o", markersize=4, color=colour, label=name)
    seen = [ms for values, _ in kinds.values() for ms in values if ms]
    if seen and not few and max(seen) > _WIDE * min(seen):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:,g}")
    else:
        axes.set_ylim(bottom=0)
    axes.margins(y=0.1)
    axes.legend(frameon=False, fontsize=8)


def _cause_bars(axes: Axes, periods: Sequence[PeriodFigures], *, few: bool) -> None:
    """The most frequent causes: a bar for each period, or one for all if there are many."""
    total: Counter[str] = Counter()
    for each in periods:
        total.update(each.causes)
    names = [name for name, _ in total.most_common(CAUSES)]
    shown = {each.period.label: each.causes for each in periods} if few else {"": total}
    height = 0.8 / len(shown)
    for index, (label, causes) in enumerate(shown.items()):
        at = [row + (index - (len(shown) - 1) / 2) * height for row in range(len(names))]
        bars = axes.barh(at, [causes.get(name, 0) for name in names], height * 0.95, color=_COLOURS[index], label=label)
        axes.bar_label(bars, fmt="{:,.0f}", fontsize=7, padding=2)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_title("causes of rebalances" if few else f"causes of {sum(total.values()):,} rebalances", fontsize=10)
    axes.grid(axis="x", linewidth=0.4, alpha=0.6)
    axes.set_axisbelow(True)
    if few:
        axes.legend(frameon=False, fontsize=8)


def _figure_type() -> type[Figure]:
    try:
        from matplotlib.figure import Figure  # heavy, and an extra
    except ImportError as error:
        raise Kip848Error('pictures need matplotlib: pip install "kip848_client[plots]"') from error
    return Figure


def _bars(
    axes: Axes, row: float, spans: Sequence[Span], timeline: Timeline, *, height: float, looks: Mapping[str, _Look]
) -> None:
    by_look: dict[_Look, list[Span]] = {}
    for span in spans:
        by_look.setdefault(looks.get(span.text, _Look(_OTHER)), []).append(span)
    for look, alike in by_look.items():
        axes.broken_barh(
            [(_seconds(timeline, span.start_ms), max(0.001, (span.end_ms - span.start_ms) / 1000)) for span in alike],
            (row - height / 2, height),
            facecolors=look.colour,
            hatch=look.hatch or None,
            edgecolor="white" if look.hatch else "none",
            linewidth=0,
        )


def _seconds(timeline: Timeline, at_ms: float) -> float:
    return (at_ms - timeline.start_ms) / 1000
