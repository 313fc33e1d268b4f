"""The parts of docs/observability.md that are made from the code: every metric, log event and journal event.

``python -m tests.support.observability_document`` (``make docs``) rewrites them; a test fails until they agree.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from kip848_client import journal, telemetry
from kip848_client.logs import LogEvent
from kip848_client.telemetry import COORDINATOR_METRICS, GAUGES, METRICS

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "observability.md"

_BLOCK: Final = re.compile(r"(<!-- generated: (?P<name>[a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SIDE: Final = re.compile(r"^    # (?P<side>.+)\.$|^    \"(?P<event>[a-z_]+)\":", re.MULTILINE)


def rewrite(text: str) -> str:
    """The document with its generated parts as they should be."""
    return _BLOCK.sub(lambda match: f"{match[1]}{GENERATED[match['name']]()}\n{match[3]}", text)


def blocks(text: str) -> list[str]:
    """Names of the generated parts."""
    return [match["name"] for match in _BLOCK.finditer(text)]


def log_fields() -> dict[str, str]:
    """Name of each log event -> the string behind it in the source."""
    body = ast.parse(inspect.getsource(LogEvent)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, behind in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(statement, ast.Assign)
            and isinstance(behind, ast.Expr)
            and isinstance(behind.value, ast.Constant)
        ):
            target = statement.targets[0]
            assert isinstance(target, ast.Name)
            found[LogEvent[target.id].value] = " ".join(str(behind.value.value).split())
    return found


def sides() -> dict[str, list[str]]:
    """Comment above a part of `journal.EVENTS` -> its events."""
    source = Path(inspect.getfile(journal)).read_text(encoding="utf-8")
    listed = source[source.index("EVENTS: Final") : source.index("\n}\n", source.index("EVENTS: Final"))]
    found: dict[str, list[str]] = {}
    side = ""
    for match in _SIDE.finditer(listed):
        if match["side"]:
            side = match["side"]
        else:
            found.setdefault(side, []).append(match["event"])
    return found


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _named(entries: Mapping[str, str], head: tuple[str, str]) -> str:
    return _table(head, ((f"`{name}`", text) for name, text in entries.items()))


def _counters() -> str:
    return _named({name: text for name, text in METRICS.items() if telemetry._counts(name)}, ("counter", "counts"))


def _histograms() -> str:
    return _named(
        {name: text for name, text in METRICS.items() if not telemetry._counts(name)}, ("histogram", "measures")
    )


def _journal() -> str:
    parts = []
    for side, events in sides().items():
        table = _table(("event", "fields"), ((f"`{event}`", journal.EVENTS[event]) for event in events))
        parts.append(f"**{side}**\n\n{table}")
    return "\n\n".join(parts)


GENERATED: Final[dict[str, Callable[[], str]]] = {
    "counters": _counters,
    "histograms": _histograms,
    "gauges": lambda: _named(GAUGES, ("gauge", "tells")),
    "coordinator metrics": lambda: _named(COORDINATOR_METRICS, ("metric", "tells")),
    "log events": lambda: _named(log_fields(), ("event", "fields")),
    "journal events": _journal,
}


if __name__ == "__main__":
    DOCUMENT.write_text(rewrite(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
