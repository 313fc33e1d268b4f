"""One self-contained HTML page: the timeline of each group with a slider, and the numbers. It loads nothing else."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from importlib.resources import files

from kip848_client.common.json_text import to_json
from kip848_client.tools.report.figures import figures_of
from kip848_client.tools.report.findings import at_rest, findings_of_all
from kip848_client.tools.report.timeline import Span, Timeline


def render_html(timelines: Sequence[Timeline]) -> str:
    """Write the page.

    Args:
        timelines: at least one group.
    """
    title = "Groups " + ", ".join(timeline.group_id for timeline in timelines)
    data = to_json([_plain(timeline) for timeline in timelines])
    findings = findings_of_all(timelines)
    page = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    # From the last one to the first: a name may look like a placeholder, and stands behind those that are left.
    page = page.replace("__DATA__", _safe(data), 1).replace("__FINDINGS__", _safe(to_json(findings)), 1)
    page = page.replace("__REST__", html.escape("; ".join(at_rest(timelines, findings))), 1)
    return page.replace("__TITLE__", html.escape(title), 1)


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
