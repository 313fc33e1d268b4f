"""``kip848 simulate``: what a person, or a script, gets to see."""

from __future__ import annotations

import argparse
import json
import shlex
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from kip848_client.cli import main
from kip848_client.common.model import TopicIdPartition
from kip848_client.member.consumer.heartbeats import Heartbeats
from kip848_client.testing.commands.simulate import add_arguments
from kip848_client.testing.playing.simulate_shrink import shrink
from kip848_client.testing.simulation import ClientProcess, Observer, Report, RunState, fail, run, scenario_of
from kip848_client.testing.simulation.virtual.environment import plan_of
from kip848_client.testing.simulation.virtual.scenario import CHURN, SCENARIOS, Scenario, change, settled
from kip848_client.testing.simulation.virtual.scheduler import Scheduler

SHORT = ("--scenario", "churn", "--set", "duration_ms=5000")


def break_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a bug in that every run trips over: each heartbeat is sent twice."""
    honest = Heartbeats.send

    def send(self: Heartbeats, **options: Any) -> None:
        honest(self, **options)
        honest(self, **options)

    monkeypatch.setattr(Heartbeats, "send", send)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """A named scenario, or one of a user's own, with any of its numbers changed."""

    def changed(owner: Any) -> Any:
        values: dict[str, object] = {}
        for item in fields(owner):
            before = getattr(owner, item.name)
            if isinstance(before, msgspec.Struct):
                values[item.name] = changed(before)
            elif not draw(st.booleans()):
                continue
            elif isinstance(before, int):
                values[item.name] = draw(st.integers(0, 10**9))
            elif isinstance(before, float):
                values[item.name] = draw(st.floats(0, 1e6))
            elif isinstance(before, tuple):
                values[item.name] = tuple(sorted(draw(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)))))
            elif item.name == "topics":
                values[item.name] = draw(
                    st.dictionaries(
                        st.from_regex(r"[a-zA-Z0-9._-]{1,9}", fullmatch=True), st.integers(1, 99), min_size=1
                    )
                )
            elif item.name == "skip":
                values[item.name] = draw(st.frozensets(st.integers(0, 10**6)))
            else:
                assert item.name in {"name", "server_assignor"}, f"{item.name}: can --set change it?"
                values[item.name] = "of-a-user"
        return replace(owner, **values)

    scenario = changed(SCENARIOS[draw(st.sampled_from(sorted(SCENARIOS)))])
    assert isinstance(scenario, Scenario)
    return scenario


def test_one_seed_is_told_as_a_story(capsys: pytest.CaptureFixture[str]) -> None:
    """A user who debugs a group reads who did what, not JSON."""
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
    """A script that replays a seed reads one JSON object with its violation and history."""
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
    """One line of the sum, and nothing on the way in a short run."""
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
        ("--set", "faults.loss=nan"),
        ("--set", "faults.delay_ms=60"),
        ("--set", "faults.delay_ms=60,2"),
        ("--set", "topics=orders"),
    ],
)
def test_an_option_that_makes_no_sense_is_explained(
    options: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A typing error is answered by one line that names the option, and not by a traceback."""
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
    """A failing run is told as a story, in which every needless event would hide the cause."""
    break_the_member(monkeypatch)
    report = run(scenario_of("mixed", seed=6), seed=6)
    smaller = shrink(report, runs_max=60)
    assert plan_of(report.scenario, Scheduler(6))
    assert not plan_of(smaller.scenario, Scheduler(6))
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


@given(scenario=scenarios(), seed=st.integers(0, 2**31))
def test_the_replay_command_leads_to_the_same_scenario(scenario: Scenario, seed: int) -> None:
    """A number that the printed line leaves out is a failure that cannot be played again."""
    scenario = settled(scenario, seed=seed)
    report = Report(
        scenario=scenario,
        seed=seed,
        simulated_ms=0,
        violation=None,
        events=0,
        handed_out_twice=0,
        history=Scheduler(seed).history,
    )
    command, *options = shlex.split(report.replay_command)[1:]
    assert command == "simulate"
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    read = parser.parse_args(options)
    assert read.seed == seed
    played = scenario_of(read.scenario, seed=read.seed, changes=read.set)
    assert replace(played, name=scenario.name) == scenario
    assert list(played.topics) == list(scenario.topics)


def test_a_run_with_changed_ranges_is_played_again_to_the_letter() -> None:
    """The delays of the network decide every event; played again without them it is another history."""
    changes = ("duration_ms=5000", "faults.delay_ms=0,333", "behaviour.think_ms=5,6", "topics=one:1,two:2")
    report = run(change(CHURN, changes), seed=5)
    again = run(scenario_of("churn", seed=5, changes=_changes(report.replay_command)), seed=5)
    assert again.digest == report.digest


class SmallPolls(Observer):
    """A checker of a user's own: one that breaks soon."""

    def handed_out(self, consumer: ClientProcess, partition: TopicIdPartition, offsets: range) -> None:
        """Break the run."""
        fail("mine", f"{consumer.name} was handed {len(offsets)} records")


def small_polls(run_state: RunState) -> list[Observer]:
    """As --watch takes it."""
    assert run_state.scenario.name == "churn"
    return [SmallPolls()]


WATCH = ("--watch", f"{__name__}:small_polls")


def test_a_checker_of_ones_own_takes_part(capsys: pytest.CaptureFixture[str]) -> None:
    """A user's invariants are checked in the same runs, and the command that plays one again brings them along."""
    assert main(["simulate", *SHORT, "--seed", "1", *WATCH]) == 1
    told = capsys.readouterr().out
    assert "BROKEN" in told
    assert "mine: consumer-" in told
    assert " ".join(WATCH) in told
    assert main(["simulate", *SHORT, "--seeds", "1:3", "--jobs", "1", "--json", *WATCH]) == 1
    failures = json.loads(capsys.readouterr().out)["failures"]
    assert [failure["violation"]["invariant"] for failure in failures] == ["mine", "mine"]


@pytest.mark.parametrize("name", ["no_such_module:checkers", f"{__name__}:no_such_function", "nothing"])
def test_a_checker_that_is_not_there_is_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt ``--watch`` is answered by how to write it; the run would check nothing."""
    assert main(["simulate", *SHORT, "--watch", name]) == 1
    assert f"--watch {name!r}: give module:function" in capsys.readouterr().err
