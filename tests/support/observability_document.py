"""The tables of docs/observability.md that are made from the code: every metric.

``python -m tests.support.observability_document`` (``make docs``) rewrites them; a test fails until they agree. The
tables of log events and journal events are on the site only (docs/site_hooks.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kip848_client import telemetry
from kip848_client.telemetry import COORDINATOR_METRICS, GAUGES, METRICS, WORKER_GAUGES, WORKER_METRICS

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "observability.md"

_BLOCK: Final = re.compile(r"(<!-- generated: (?P<name>[a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rewrite(text: str) -> str:
    """The document with its generated parts as they should be."""
    return _BLOCK.sub(lambda match: f"{match[1]}{GENERATED[match['name']]()}\n{match[3]}", text)


def blocks(text: str) -> list[str]:
    """Names of the generated parts."""
    return [match["name"] for match in _BLOCK.finditer(text)]


def _named(entries: Mapping[str, str], head: tuple[str, str]) -> str:
    lines = [head, ("---", "---"), *((f"`{name}`", text) for name, text in entries.items())]
    return "\n".join(f"| {name} | {text} |" for name, text in lines)


def _counters() -> str:
    return _named({name: text for name, text in METRICS.items() if telemetry._counts(name)}, ("counter", "counts"))


def _histograms() -> str:
    return _named(
        {name: text for name, text in METRICS.items() if not telemetry._counts(name)}, ("histogram", "measures")
    )


GENERATED: Final[dict[str, Callable[[], str]]] = {
    "counters": _counters,
    "histograms": _histograms,
    "gauges": lambda: _named(GAUGES, ("gauge", "tells")),
    "worker metrics": lambda: _named({**WORKER_METRICS, **WORKER_GAUGES}, ("metric", "tells")),
    "coordinator metrics": lambda: _named(COORDINATOR_METRICS, ("metric", "tells")),
}


if __name__ == "__main__":
    DOCUMENT.write_text(rewrite(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
