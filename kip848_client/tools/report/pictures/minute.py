"""Draws a short part of a group's history as inline SVG: the counted owner of each partition around a moment."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Final

from kip848_client.tools.report.timeline.lanes import natural
from kip848_client.tools.report.timeline.timeline import Span
from kip848_client.tools.report.wording import clock

_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c510a")
_WIDTH: Final = 900
_LEFT: Final = 160
_ROW: Final = 16


def minute_svg(
    owners: Mapping[str, Sequence[Span]], *, start_ms: float, end_ms: float, marked: tuple[float, float]
) -> str:
    """Draw the owners of partitions.

    Args:
        owners: by partition; spans may reach beyond the picture.
        marked: a period that is shaded.
    """
    scale = (_WIDTH - _LEFT) / max(1.0, end_ms - start_ms)

    def x(at_ms: float) -> float:
        return _LEFT + (min(max(at_ms, start_ms), end_ms) - start_ms) * scale

    rows = sorted(owners, key=natural)
    names = sorted({span.text for spans in owners.values() for span in spans}, key=natural)
    height = _ROW * (len(rows) + 2)
    shade = f'x="{x(marked[0]):.1f}" width="{max(1.0, x(marked[1]) - x(marked[0])):.1f}"'
    drawn = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">',
        f'<rect {shade} y="0" height="{height}" fill="#d6336c" fill-opacity="0.15"/>',
        f'<text class="soft" x="{_LEFT}" y="12">{html.escape(clock(start_ms))}</text>',
        f'<text class="soft" x="{_WIDTH}" y="12" text-anchor="end">{html.escape(clock(end_ms))}</text>',
    ]
    for row, partition in enumerate(rows, start=1):
        top = _ROW * row
        drawn.append(f'<text x="{_LEFT - 8}" y="{top + 12}" text-anchor="end">{html.escape(partition)}</text>')
        for span in owners[partition]:
            colour = _COLOURS[names.index(span.text) % len(_COLOURS)]
            width = max(1.0, x(span.end_ms) - x(span.start_ms))
            drawn.append(
                f'<rect x="{x(span.start_ms):.1f}" y="{top + 2}" width="{width:.1f}" height="{_ROW - 4}" '
                f'fill="{colour}"><title>{html.escape(span.text)}</title></rect>'
            )
    places = (_LEFT + index * 180 for index in range(len(names)))
    drawn += [
        f'<text x="{place}" y="{height - 3}" fill="{_COLOURS[index % len(_COLOURS)]}">{html.escape(name[:24])}</text>'
        for index, (name, place) in enumerate(zip(names[:4], places, strict=False))
    ]
    return "".join(drawn) + "</svg>"
