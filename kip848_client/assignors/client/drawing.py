"""An assignment before and after a change, as text and as an SVG picture: who has what, and what moved."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from kip848_client.assignors.client.interface import AssignmentSpec
from kip848_client.common.plain_text import counted

Holding = Mapping[str, Sequence[str]]
"""Member id -> names of partitions, sorted."""

_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#7b61c9", "#8c564b", "#2aa198",
)  # fmt: skip
_BOX, _GAP, _LEFT, _PER_LINE = 30, 4, 150, 12


def holding_of(spec: AssignmentSpec) -> dict[str, list[str]]:
    """The partitions that each member of *spec* holds, as text."""
    return {m: [str(p.topic_partition) for p in member.target] for m, member in spec.members.items()}


def moved_between(before: Holding, after: Holding) -> set[str]:
    """Partitions whose owner changed from one member to another."""
    owner = {partition: m for m, held in before.items() for partition in held}
    return {p for m, held in after.items() for p in held if p in owner and owner[p] != m}


def draw_text(before: Holding, after: Holding, *, change: str) -> list[str]:
    """As lines; ``*`` marks partitions that moved, ``+`` partitions that had no owner before."""
    moved = moved_between(before, after)
    had = {partition for held in before.values() for partition in held}
    width = max((len(m) for m in {*before, *after}), default=0)
    lines = ["before:"]
    lines += [f"  {m:<{width}}  {len(held):>3}  {' '.join(held)}" for m, held in before.items()]
    lines.append(f"after {change}:")
    for member, held in after.items():
        names = [name + ("*" if name in moved else "" if name in had else "+") for name in held]
        lines.append(f"  {member:<{width}}  {len(held):>3}  {' '.join(names)}")
    lines.append(f"{len(moved)} of {counted(len(had), 'partition')} moved (*)")
    return lines


def draw_svg(before: Holding, after: Holding, *, title: str, change: str) -> str:
    """As one SVG document, light or dark. A partition keeps the colour of its owner before; what moved is framed."""
    everybody = dict.fromkeys([*before, *after])
    colour = {member: _COLOURS[index % len(_COLOURS)] for index, member in enumerate(everybody)}
    owner = {partition: m for m, held in before.items() for partition in held}
    moved = moved_between(before, after)
    topics = sorted({name.rpartition("-")[0] for held in (*before.values(), *after.values()) for name in held})
    parts: list[str] = []
    x = 10
    bottom = 0
    for heading, holding in (("before", before), (f"after {change}", after)):
        parts.append(f'<text x="{x}" y="52" class="head">{html.escape(heading)}</text>')
        y = 66
        for member, held in holding.items():
            parts.append(f'<rect x="{x}" y="{y}" width="6" height="{_BOX}" rx="2" fill="{colour[member]}"/>')
            parts.append(f'<text x="{x + 12}" y="{y + 20}">{html.escape(_short(member))} ({len(held)})</text>')
            for index, name in enumerate(held):
                line, column = divmod(index, _PER_LINE)
                left, top = x + _LEFT + column * (_BOX + _GAP), y + line * (_BOX + _GAP)
                fill = f' fill="{colour[owner[name]]}"' if name in owner else ""
                kind = "moved" if name in moved else "" if name in owner else "moved paper"
                topic, _, number = name.rpartition("-")
                parts.append(
                    f'<g><title>{html.escape(name)}</title><rect x="{left}" y="{top}" width="{_BOX}" height="{_BOX}" '
                    f'rx="4"{fill} class="{kind}"/><text x="{left + _BOX / 2}" '
                    f'y="{top + 19}" class="{"new" if name not in owner else "number"}">'
                    f"{html.escape(_label(topic, number, topics))}</text></g>"
                )
            y += (_BOX + _GAP) * max(1, -(-len(held) // _PER_LINE)) + 4
        bottom = max(bottom, y)
        most = max((min(len(held), _PER_LINE) for held in holding.values()), default=1)
        x += max(_LEFT + max(3, most) * (_BOX + _GAP) + 40, 8 * len(heading) + 20)
    legend = ", ".join(f"{_letter(topic, topics)} = {topic}" for topic in topics) + "; " if len(topics) > 1 else ""
    foot = f"{legend}{len(moved)} of {counted(len(owner), 'partition')} moved (framed)"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {x} {bottom + 34}" width="{x}">',
            "<style>text{font:13px system-ui,sans-serif;fill:#1c2024}.title{font-size:16px;font-weight:600}"
            ".head{font-weight:600}.paper{fill:#fff}.moved{stroke:#111;stroke-width:2.5}"
            "@media(prefers-color-scheme:dark){text{fill:#e6e8ea}.paper{fill:#1e2129}.moved{stroke:#fff}}"
            ".number,.new{font-size:11px;text-anchor:middle}.number{fill:#fff}</style>",
            f'<rect width="{x}" height="{bottom + 34}" class="paper"/>',
            f'<text x="10" y="26" class="title">{html.escape(title)}</text>',
            *parts,
            f'<text x="10" y="{bottom + 20}">{html.escape(foot)}</text>',
            "</svg>",
            "",
        ]
    )


def _short(name: str) -> str:
    return name if len(name) <= 14 else name[:13] + "…"


def _letter(topic: str, topics: Sequence[str]) -> str:
    return chr(ord("a") + topics.index(topic)) if len(topics) <= 26 else topic[:3]


def _label(topic: str, number: str, topics: Sequence[str]) -> str:
    return number if len(topics) == 1 else _letter(topic, topics) + number
