"""``kip848 simulate``: what a person, or a script, gets to see."""

from __future__ import annotations

import json

import pytest

from kip848_client.cli import main
from kip848_client.member.heartbeat import Heartbeats
from kip848_client.simulation import run, scenario_of
from kip848_client.simulation.plan import plan_of
from kip848_client.simulation.scenario import CHURN, SCENARIOS, Scenario, change, differences
from kip848_client.simulation.shrink import shrink
from kip848_client.simulation.world import World

SHORT = ("--scenario", "churn", "--set", "duration_ms=5000")


def break_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a bug in that every run trips over."""
    monkeypatch.setattr(Heartbeats, "in_flight", False)


def test_one_seed_is_told_as_a_story(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever debugs a group reads who did what, not JSON."""
    assert main(["simulate", "--seed", "3", *SHORT]) == 0
    told = capsys.readouterr().out
    assert "consumer-1    starts" in told
    assert "joins the group and wants" in told
    assert "on_partitions_assigned(" in told
    assert "every invariant held" in told
    assert "{" not in told


def test_verbose_tells_what_is_lost_too(capsys: pytest.CaptureFixture[str]) -> None:
    """The short story leaves out what happens every second."""
    main(["simulate", "--seed", "3", *SHORT])
    short = capsys.readouterr().out
    main(["simulate", "--seed", "3", *SHORT, "--verbose"])
    assert len(capsys.readouterr().out) > len(short)


def test_one_seed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts get one object."""
    assert main(["simulate", "--seed", "3", *SHORT, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["violation"] is None
    assert answer["history"][0]["what"] == "topic_created"
    assert answer["digest"] == run(change(CHURN, [SHORT[-1]]), seed=3).digest


def test_a_broken_invariant_is_an_exit_status_and_a_way_back(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A night's run is worth nothing if a failure cannot be played again."""
    break_the_member(monkeypatch)
    assert main(["simulate", "--seed", "3", *SHORT]) == 1
    told = capsys.readouterr().out
    assert "BROKEN" in told
    assert "C4" in told
    assert "kip848 simulate --scenario churn --seed 3 --set duration_ms=5000" in told


def test_many_seeds_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """One line of the sum, and nothing on the way when nobody watches for long."""
    assert main(["simulate", "--seeds", "0:2", "--jobs", "1", *SHORT]) == 0
    told = capsys.readouterr().out
    assert "churn: 2 runs" in told
    assert "0 broken" in told


def test_many_seeds_in_processes_come_to_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """How many processes played them may not matter."""
    totals = []
    for jobs in ("1", "2"):
        assert main(["simulate", "--seeds", "0:3", "--jobs", jobs, "--json", *SHORT]) == 0
        totals.append(json.loads(capsys.readouterr().out))
    assert totals[0]["counts"] == totals[1]["counts"]
    assert totals[0]["runs"] == totals[1]["runs"] == 3


def test_failures_among_many_are_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With their last events and the command that plays them again; and a line at once, for runs of hours."""
    break_the_member(monkeypatch)
    assert main(["simulate", "--seeds", "0:2", "--jobs", "1", *SHORT]) == 1
    told, on_the_way = capsys.readouterr()
    assert "seed 0 broke C4" in on_the_way
    assert "seed 1 broke C4" in on_the_way
    assert "2 broken" in told
    assert "--seed 1 " in told


@pytest.mark.parametrize(
    "options",
    [
        ("--seeds", "5"),
        ("--seeds", "5:5"),
        ("--set", "colour=1"),
        ("--set", "faults=1"),
        ("--set", "members=two"),
        ("--set", "skip=first"),
    ],
)
def test_an_option_that_makes_no_sense_is_explained(
    options: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A typing error is no traceback."""
    assert main(["simulate", *options]) == 1
    assert options[1] in capsys.readouterr().err


def test_a_failing_scenario_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two consumers and no faults say more than a storm, if they break the same invariant."""
    break_the_member(monkeypatch)
    report = run(SCENARIOS["storm"], seed=1)
    smaller = shrink(report, runs_max=60)
    assert smaller.violation is not None
    assert report.violation is not None
    assert smaller.violation.invariant == report.violation.invariant
    assert smaller.scenario.members < report.scenario.members
    assert smaller.scenario.faults.loss == 0


def test_a_failing_run_is_made_smaller_by_leaving_events_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is told as a story; each event that is not needed hides the one that is."""
    break_the_member(monkeypatch)
    report = run(scenario_of("mixed", seed=6), seed=6)
    smaller = shrink(report, runs_max=60)
    assert plan_of(report.scenario, World(6))
    assert not plan_of(smaller.scenario, World(6))
    assert run(scenario_of("mixed", seed=6, changes=_changes(smaller.replay_command)), seed=6).digest == smaller.digest


def _changes(command: str) -> list[str]:
    return [word for word in command.split() if "=" in word]


def test_the_same_histories_have_one_digest(capsys: pytest.CaptureFixture[str]) -> None:
    """Two machines compare one line, and not fifty thousand."""
    found = []
    for jobs in ("1", "2"):
        assert main(["simulate", "--seeds", "0:6", "--jobs", jobs, "--digest", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["digest"])
    assert found[0] == found[1]


def test_cells_are_listed_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever adds a fault sees what it reaches."""
    assert main(["simulate", "--seeds", "0:3", "--jobs", "1", "--cells"]) == 0
    told = capsys.readouterr().out
    assert "IN_SYNC heartbeat" in told
    assert "STABLE heartbeat" in told.replace("Stable", "STABLE")


def test_a_changed_scenario_can_be_named() -> None:
    """The replay command must lead to the same scenario."""
    changed = change(CHURN, ["faults.loss=0.5", "members=2", "behaviour.stall=0", "skip=2000,1"])
    assert changed.faults.loss == 0.5
    assert change(CHURN, differences(changed, CHURN)) == changed
    assert isinstance(changed, Scenario)
