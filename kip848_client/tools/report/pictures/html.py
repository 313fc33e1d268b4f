"""One self-contained HTML page: the timeline of each group with a slider, and the numbers. It loads nothing else."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Final

from kip848_client.common.json_text import to_json
from kip848_client.tools.report.figures import figures_of
from kip848_client.tools.report.findings import Finding, at_rest, findings_of_all
from kip848_client.tools.report.timeline.timeline import Span, Timeline

_BEGIN: Final = """\
begin(JSON.parse(byId("data").textContent), JSON.parse(byId("found").textContent));
addEventListener("hashchange", follow);
follow();
"""


def render_html(timelines: Sequence[Timeline], findings: Sequence[Finding] | None = None) -> str:
    """Write the page.

    Args:
        timelines: at least one group.
        findings: if they are known already, perhaps from more than these timelines.
    """
    findings = findings_of_all(timelines) if findings is None else findings
    scripts = (
        f'<script type="application/json" id="found">{_safe(to_json(findings))}</script>\n'
        f'<script type="application/json" id="data">{_safe(to_json(plain_timelines(timelines)))}</script>\n'
        f"<script>\n{asset('page.js')}{_BEGIN}</script>"
    )
    return fill_page(
        title="Groups " + ", ".join(timeline.group_id for timeline in timelines),
        style=f"<style>\n{asset('page.css')}</style>",
        rest="; ".join(at_rest(timelines, findings)),
        scripts=scripts,
    )


def fill_page(*, title: str, style: str, scripts: str, rest: str = "", top: str = "") -> str:
    """The page around these parts.

    Args:
        title, rest: text.
        style, scripts, top: HTML.
    """
    page = asset("page.html")
    # From the last one to the first: a name may look like a placeholder, and stands behind those that are left.
    page = page.replace("__SCRIPTS__", scripts, 1).replace("__REST__", html.escape(rest), 1)
    return page.replace("__TOP__", top, 1).replace("__STYLE__", style, 1).replace("__TITLE__", html.escape(title), 1)


def asset(name: str) -> str:
    """A file of this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def plain_timelines(timelines: Iterable[Timeline]) -> list[dict[str, object]]:
    """What the page draws, as JSON values."""
    return [_plain(timeline) for timeline in timelines]


def _safe(data: str) -> str:
    """Names come from logs: nothing in them may end the script element."""
    return data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(timeline: Timeline) -> dict[str, object]:
    return {
        "group_id": timeline.group_id,
        "start_ms": timeline.start_ms,
        "end_ms": timeline.end_ms,
        "states": _spans(timeline.states),
        "epochs": [list(epoch) for epoch in timeline.epochs],
        "marks": [[mark.ts_ms, mark.who, mark.kind, mark.text] for mark in timeline.marks],
        "partitions": [
            {"partition": lane.partition, "read": _spans(lane.read), "held": _spans(lane.held)}
            for lane in timeline.partitions
        ],
        "members": [
            {
                "member": lane.member,
                "host": lane.host,
                "since_ms": lane.since_ms,
                "states": _spans(lane.states),
                "epochs": [list(epoch) for epoch in lane.epochs],
                "calls": _spans(lane.calls),
            }
            for lane in timeline.members
        ],
        "figures": figures_of(timeline).to_plain(),
    }


def _spans(spans: Iterable[Span]) -> list[list[float | str]]:
    return [[round(span.start_ms, 3), round(span.end_ms, 3), span.text] for span in spans]
