"""Pictures as PNG or SVG files: the timeline of a group, and lines of figures.

Needs matplotlib (``pip install "kip848_client[plots]"``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kip848_client.errors import Kip848Error
from kip848_client.report.timeline import Span, Timeline

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OWNERS: Final = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#7b61c9", "#8c564b", "#2aa198",
)  # fmt: skip
_STATES: Final = {
    "UNJOINED": "#9aa0a8",
    "STABLE": "#2f9e44",
    "RECONCILING": "#f08c00",
    "RELEASING_ASSIGNMENT": "#e8590c",
    "FATAL": "#c92a2a",
    "UNREVOKED_PARTITIONS": "#f08c00",
    "UNRELEASED_PARTITIONS": "#fab005",
    "Empty": "#9aa0a8",
    "Stable": "#2f9e44",
    "Reconciling": "#f08c00",
    "Assigning": "#1c7ed6",
    "Dead": "#495057",
}
_OTHER: Final = "#868e96"


def draw_timeline(timeline: Timeline, path: Path) -> None:
    """Draw *timeline* into the file *path*; its ending (``.png``, ``.svg``) says how.

    Raises:
        Kip848Error: matplotlib is not installed.
    """
    figure_type = _figure_type()
    from matplotlib.patches import Patch

    rows = 2 + len(timeline.partitions) + len(timeline.members)
    figure = figure_type(figsize=(13, 1.2 + 0.28 * rows), layout="constrained")
    axes = figure.add_subplot()
    colours = {lane.member: _OWNERS[index % len(_OWNERS)] for index, lane in enumerate(timeline.members)}
    labels = ["group", "events"]
    _bars(axes, 0, timeline.states, timeline, height=0.6, colours=_STATES)
    for at_ms, epoch, _ in timeline.epochs:
        axes.annotate(str(epoch), (_seconds(timeline, at_ms), -0.35), fontsize=6, ha="left", va="bottom")
    faults = [mark for mark in timeline.marks if mark.kind != "life"]
    markers = {"fault": ("v", "#c92a2a"), "refusal": (".", "#e67700"), "failure": ("x", "#9c36b5")}
    for kind, (marker, colour) in markers.items():
        at_s = [_seconds(timeline, mark.ts_ms) for mark in faults if mark.kind == kind]
        axes.scatter(at_s, [1] * len(at_s), marker=marker, s=18, c=colour, label=kind if at_s else None)
    read_anywhere = any(lane.read for lane in timeline.partitions)
    for lane in timeline.partitions:
        row = len(labels)
        if read_anywhere:
            _bars(axes, row - 0.08, lane.read, timeline, height=0.55, colours=colours)
            _bars(axes, row + 0.32, lane.held, timeline, height=0.12, colours=colours)
        else:
            _bars(axes, row, lane.held, timeline, height=0.6, colours=colours)
        labels.append(lane.partition)
    for member in timeline.members:
        _bars(axes, len(labels), member.states, timeline, height=0.5, colours=_STATES)
        labels.append(member.member)
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    for tick in axes.get_yticklabels():
        if tick.get_text() in colours:
            tick.set_color(colours[tick.get_text()])
    axes.set_ylim(len(labels) - 0.5, -0.8)
    axes.set_xlim(0, _seconds(timeline, timeline.end_ms))
    axes.set_xlabel("seconds")
    axes.set_title(
        f"group {timeline.group_id}: which member reads which partition (thin: owner by the coordinator)"
        if read_anywhere
        else f"group {timeline.group_id}: the owner of each partition by the coordinator",
        fontsize=10,
    )
    axes.grid(axis="x", linewidth=0.4, alpha=0.6)
    seen = {span.text for spans in (timeline.states, *(m.states for m in timeline.members)) for span in spans}
    patches = [Patch(color=colour, label=state) for state, colour in _STATES.items() if state in seen]
    handles, _ = axes.get_legend_handles_labels()
    axes.legend(handles=[*handles, *patches], loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7, frameon=False)
    figure.savefig(path, dpi=120)


def plot_lines(
    path: Path, *, title: str, x_label: str, y_label: str, x: Sequence[float], lines: Mapping[str, Sequence[float]]
) -> None:
    """Draw *lines*, name -> one value for each of *x*, into the file *path*.

    Raises:
        Kip848Error: matplotlib is not installed.
    """
    figure = _figure_type()(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    for colour, (name, values) in zip(_OWNERS, lines.items(), strict=False):
        axes.plot(x, values, marker="o", markersize=4, color=colour, label=name)
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_ylim(bottom=0)
    axes.grid(linewidth=0.4, alpha=0.6)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def _figure_type() -> type[Figure]:
    try:
        from matplotlib.figure import Figure  # heavy, and an extra
    except ImportError as error:
        raise Kip848Error('pictures need matplotlib: pip install "kip848_client[plots]"') from error
    return Figure


def _bars(
    axes: Axes, row: float, spans: Sequence[Span], timeline: Timeline, *, height: float, colours: dict[str, str]
) -> None:
    axes.broken_barh(
        [(_seconds(timeline, span.start_ms), max(0.001, (span.end_ms - span.start_ms) / 1000)) for span in spans],
        (row - height / 2, height),
        facecolors=[colours.get(span.text, _OTHER) for span in spans],
    )


def _seconds(timeline: Timeline, at_ms: float) -> float:
    return (at_ms - timeline.start_ms) / 1000
