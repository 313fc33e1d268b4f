"""With loss, delay, duplication, cuts, crashes and slow applications no invariant breaks; and then all is well again.

The liveness phase is part of every run: faults end, and within two virtual minutes the group has to be at rest with
everything read.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import Unit
from kip848_client.testing.simulation import MIXED, SCENARIOS, run, scenario_of
from kip848_client.testing.simulation.actors.simulated_workers import WorkerProcess
from kip848_client.testing.simulation.virtual.history import FAULTS
from kip848_client.testing.simulation.virtual.scenario import QUIET
from kip848_client.worker.events import GiveUpRequested
from tests.simulation.cells import Cells
from tests.simulation.probes import play, probes

SEEDS: Final = range(1_000, 1_002)
MIXED_SEEDS: Final = range(1_000, 1_100)
KEPT: Final = Path(__file__).with_name("seeds.txt")


def kept_seeds() -> list[tuple[str, int, tuple[str, ...]]]:
    """(scenario, seed, changed numbers) of every line of seeds.txt."""
    lines = (line.split("#")[0].split() for line in KEPT.read_text().splitlines())
    return [(words[0], int(words[1]), tuple(words[2:])) for words in lines if words]


@pytest.mark.parametrize("scenario", sorted(SCENARIOS.keys() - {"quiet", "mixed"}))
def test_no_invariant_breaks_and_the_group_recovers(scenario: str) -> None:
    """A few seeds on every change; `kip848 simulate --seeds` plays thousands."""
    for seed in SEEDS:
        report = play(SCENARIOS[scenario], seed=seed)
        assert report.violation is None, f"{report.violation}\n{report.replay_command}"


def test_no_invariant_breaks_in_scenarios_that_seeds_draw() -> None:
    """A hundred of the fifty thousand that `make simulate` plays."""
    for seed in MIXED_SEEDS:
        report = play(MIXED, seed=seed)
        assert report.violation is None, f"{report.violation}\n{report.replay_command}"


@pytest.mark.parametrize(("scenario", "seed", "changes"), kept_seeds())
def test_a_seed_that_found_a_bug_finds_none(scenario: str, seed: int, changes: tuple[str, ...]) -> None:
    """Seeds that once broke an invariant; seeds.txt says why each is kept."""
    report = play(scenario_of(scenario, seed=seed, changes=changes), seed=seed)
    assert report.violation is None, f"{report.violation}\n{report.replay_command}"


def test_workers_give_up_units_while_processes_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that is given up moves as any other does: it runs on one worker at a time, and it runs in the end."""
    leave = WorkerProcess.leave
    given_up: list[Unit] = []

    def give_up(worker: WorkerProcess, rng: random.Random) -> None:
        units = frozenset(worker._runs)
        if worker.classic is None or not units or rng.random() < 0.3:
            leave(worker, rng)
            return
        given_up.extend(units)
        worker.classic.give_up(units)
        worker.step(GiveUpRequested(units, in_group=True))

    monkeypatch.setattr(WorkerProcess, "leave", give_up)
    for seed in range(1_000, 1_040):
        report = play(SCENARIOS["classic_workers"], seed=seed)
        assert report.violation is None, f"{report.violation}, seed {seed}"
    assert len(given_up) > 10


@pytest.mark.slow
def test_what_is_seldom_is_played_on_demand() -> None:
    """Consumers without a reset policy, and a coordinator that refuses a member its own instance id: without them no
    checker would notice an application that cannot say where to begin, or a static member that waits a session.
    """
    changes = ("probes=1", "trials=0", "statics=0.5", "no_reset=0.5", "held_instances=0.6")
    cells = Cells()
    for seed in range(25):
        scenario = scenario_of("mixed", seed=seed, changes=changes)
        report = run(scenario, seed=seed, watch=[probes, cells.watch], keep_history=False)
        assert report.violation is None, f"{report.violation}\n{report.replay_command}"
    reached = {(what, error) for _, what, error in cells.reached}
    assert ("PositionSet", None) in reached
    assert ("heartbeat", ErrorCode.UNRELEASED_INSTANCE_ID) in reached


@pytest.mark.slow
def test_the_faults_happen() -> None:
    """A safety phase in which nothing goes wrong proves nothing."""
    counts: Counter[str] = Counter()
    for seed in range(250):
        counts.update(run(MIXED, seed=seed, keep_history=False).counts)
    # Listeners of lost partitions are called rarely, and mostly after the faults: thousands of seeds make one raise.
    # Only workers have units whose stop hangs.
    expected = FAULTS.keys() - {"lost_raised", "stop_hangs"} | {
        "request_timed_out",
        "member_fenced",
        "commit_refused",
        "cut_off_one_way",
    }
    expected |= {"coordinator_crashed_before_append", "coordinator_crashed_after_append", "coordinator_resigned"}
    assert expected <= counts.keys()
    workers = SCENARIOS["workers"]
    assert any("stop_hangs" in run(workers, seed=seed, keep_history=False).counts for seed in range(100))


def test_without_faults_no_member_is_fenced_and_nothing_is_read_twice() -> None:
    """Members that only join, and topics that grow, cause no time-out, no refusal and no duplicate."""
    report = run(QUIET, seed=1)
    assert report.violation is None
    assert report.handed_out_twice == 0
    assert not report.counts.keys() & {"member_fenced", "commit_refused", "request_timed_out", "lost_begins"}
