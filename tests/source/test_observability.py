"""docs/observability.md names only what there is, and every span; every event is explained and written somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kip848_client.common.logs import LogEvent
from kip848_client.common.telemetry import (
    COORDINATOR_METRICS,
    GAUGES,
    MESSAGING_METRICS,
    METRICS,
    PROCESS_GAUGES,
    PROCESS_METRICS,
    SHARE_GAUGES,
    SPANS,
    WORKER_GAUGES,
    WORKER_METRICS,
    is_counter,
    unit_of,
)
from kip848_client.journal import EVENTS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kip848_client"
TEXT = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
SOURCE = "\n".join(
    path.read_text(encoding="utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.relative_to(PACKAGE).as_posix() not in {"journal.py", "telemetry.py"}
)


def test_no_name_is_written_that_the_code_does_not_have() -> None:
    """A user builds an alert on a name that is written here."""
    known = {
        *METRICS,
        *GAUGES,
        *SPANS,
        *WORKER_METRICS,
        *WORKER_GAUGES,
        *PROCESS_GAUGES,
        *PROCESS_METRICS,
    }
    known |= {*SHARE_GAUGES, *COORDINATOR_METRICS, *MESSAGING_METRICS, "kip848.process.attempt"}
    written = set(re.findall(r"`((?:kafka|kip848)\.[a-z_]+\.[a-z0-9_.]+|messaging\.[a-z]+\.duration)`", TEXT))
    assert written <= known
    assert written >= SPANS.keys()


def test_every_event_is_explained() -> None:
    """An event without a word about its fields cannot be used."""
    assert all(EVENTS.values())
    assert all(event.fields for event in LogEvent)
    assert set(re.findall(r"`((?:member|consumer|worker|broker)\.[a-z_]+)`", TEXT)) <= {
        str(event) for event in LogEvent
    }


@pytest.mark.parametrize("event", sorted(EVENTS))
def test_every_event_of_the_journal_is_written_somewhere(event: str) -> None:
    """A user would wait for a name that is never written."""
    kind = event.removeprefix("partitions_")
    assert f'"{event}"' in SOURCE or (event.startswith("partitions_") and f'"{kind}"' in SOURCE)


@pytest.mark.parametrize("event", list(LogEvent))
def test_every_log_event_is_written_somewhere(event: LogEvent) -> None:
    """Operators grep for the log events of the page; one that is never written misleads them."""
    assert f"LogEvent.{event.name}" in SOURCE


UNITS = {"s": "seconds", "ms": "milliseconds", "ns": "nanoseconds", "By": "bytes"}
LABELS = {
    "kafka": {"client_id", "group_id", "topic", "partition", "cause"},
    "kip848": {"client_id", "group_id", "topic"},
    "messaging": {
        "error_type",
        "messaging_consumer_group_name",
        "messaging_destination_name",
        "messaging_operation_name",
    },
}
"""By the first word of a metric."""


def in_prometheus(name: str) -> Iterator[str]:
    """The names that OpenTelemetry's rules for Prometheus make of a metric of consumers."""
    words = name.removesuffix(".total").split(".")
    unit = UNITS.get(unit_of(name))
    words += [unit] if unit is not None and unit not in words else []
    base = "_".join(words).replace("-", "_")
    if is_counter(name):
        yield f"{base}_total"
    elif name in GAUGES or name in PROCESS_GAUGES:
        yield base
    else:
        yield from (f"{base}_bucket", f"{base}_sum", f"{base}_count")


def test_the_dashboard_of_consumers_asks_for_what_there_is() -> None:
    """Prometheus answers a wrong name or label with nothing, and the panel stays empty without a word."""
    every = {*METRICS, *GAUGES, *PROCESS_METRICS, *PROCESS_GAUGES, *MESSAGING_METRICS}
    known = {prometheus for name in every for prometheus in in_prometheus(name)}
    dashboard = (ROOT / "examples" / "monitoring" / "grafana-consumers.json").read_text(encoding="utf-8")
    panels = msgspec.json.decode(dashboard)["panels"]
    targets = [target for panel in panels for target in panel["targets"]]
    assert len(targets) > len(panels) > 10
    for target in targets:
        text = target["expr"]
        # Python's exporter for Prometheus repeats a unit that is not the last word of the name.
        (metric,) = re.findall(r"\b(?:kafka|kip848|messaging)_\w+(?={|\")", re.sub(r"\(\w+\)\?", "", text))
        assert metric in known
        grouped = set(re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", text)))) - {"le"}
        selected = set(re.findall(r"(\w+)(?:=~|!=|=)", text)) - {"__name__"}
        assert grouped | selected <= LABELS[metric.split("_")[0]], text
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= grouped, text
