"""A simulated history in the schema that clients and brokers write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kip848_client.cli import main
from kip848_client.journal import EVENTS, parse_line
from kip848_client.testing.simulation.run import Report
from kip848_client.testing.simulation.run import run as play
from kip848_client.testing.simulation.virtual.history import FAULTS, to_event_log
from kip848_client.testing.simulation.virtual.scenario import SCENARIOS
from kip848_client.tools.report import build_timelines, figures_of

LEFT_OUT = {"closing", "handing_over", "request_timed_out", "at_rest", "coordinator_resigned"}
"""Kinds of history lines without a name in the event log."""


@pytest.fixture(scope="module")
def storm() -> Report:
    """A run with most kinds of faults."""
    return play(SCENARIOS["storm"], seed=5)


def test_every_kind_of_line_is_translated_or_left_out_by_name(storm: Report) -> None:
    """A new kind of line must not vanish from the reports unseen."""
    events = list(to_event_log(storm.lines))
    translated = {event.event for event in events} | {str(event.fields.get("action")) for event in events}
    for line in storm.lines:
        what = json.loads(line)["what"]
        call, _, stage = what.partition("_")
        if what in LEFT_OUT or stage == "begins" or call == "trial":
            continue
        wanted = (
            f"partitions_{call}" if stage in {"ended", "raised"} and call in {"assigned", "revoked", "lost"} else what
        )
        renamed = {
            "started": "consumer_started",
            "closed": "consumer_closed",
            "crashed": "consumer_crashed",
            "healed": "faults_ended",
        }
        assert renamed.get(wanted, wanted) in translated, f"{what} is neither translated nor listed in LEFT_OUT"
    assert {event.event for event in events} <= set(EVENTS)
    assert translated & FAULTS.keys()


def test_a_quiet_group_is_reported_without_two_readers_and_without_failures() -> None:
    """A report must not show faults in a run in which no invariant broke."""
    report = play(SCENARIOS["quiet"], seed=1)
    (timeline,) = build_timelines(to_event_log(report.lines))
    figures = figures_of(timeline)
    assert not figures.two_readers
    assert "failure" not in figures.marks
    assert figures.rebalances
    assert figures.rebalances[-1].end_ms is not None


def test_the_command_writes_the_history_of_a_seed_for_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``kip848 simulate --history`` writes a file that ``kip848 report`` can draw."""
    path = tmp_path / "history.jsonl"
    assert main(["simulate", "--scenario", "quiet", "--seed", "3", "--history", str(path)]) == 0
    events = [parse_line(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert {"consumer_started", "partitions_assigned", "member_assignment_changed"} <= {event.event for event in events}
    capsys.readouterr()
    assert main(["report", str(path), "--html", str(tmp_path / "page.html")]) == 0
    assert "group simulated" in capsys.readouterr().out
