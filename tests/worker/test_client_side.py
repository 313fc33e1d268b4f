"""Client-side assignors of workers; the numbers are those of the scenarios in the specification."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kip848_client import EmbeddedBroker, OwnedUnit, Unit, Worker
from kip848_client.assignors import CooperativeAssignor, EagerAssignor
from kip848_client.assignors.units.unit_interface import WorkerGroup, WorkerPlan, WorkerSpec
from kip848_client.wire.messages.connect_protocol import PlanMetadata, WorkerMetadata, decode, encode
from tests.support.connect_harness import FIVE, units
from tests.support.waiting import wait_until


class Fleet:
    """Plans one after the other; who shall run what, and the state between."""

    def __init__(self, assignor: CooperativeAssignor, catalogue: Sequence[Unit]) -> None:
        self._assignor = assignor
        self.catalogue = frozenset(catalogue)
        self.target: dict[str, tuple[Unit, ...]] = {}
        self.plan = WorkerPlan({})

    def run(self, members: str, *, age_ms: int = 0, names: dict[str, str] | None = None, **more: Any) -> WorkerPlan:
        """Plan for these members, who are reconciled; *names* are worker ids that differ from the member ids."""
        draining = more.get("draining", "").split()
        workers = tuple(
            WorkerSpec(
                one,
                (names or {}).get(one, one),
                self.target.get(one, ()),
                reconciled=more.get("reconciled", True),
                draining=one in draining,
            )
            for one in sorted(members.split())
        )
        group = WorkerGroup(workers, self.catalogue, self.plan.state, self.plan.state_version, age_ms)
        plan = self.plan = self._assignor.assign(group)
        self.target = {one: tuple(found) for one, found in plan.units.items()}
        planned = [unit for found in plan.units.values() for unit in found]
        assert len(planned) == len(set(planned))
        assert set(planned) | plan.deferred == self.catalogue
        assert not plan.deferred.intersection(planned)
        return plan

    def sizes(self) -> tuple[list[int], list[int]]:
        """(connectors, tasks) per worker, ascending."""
        kinds = [
            (sum(unit.index < 0 for unit in found), sum(unit.index >= 0 for unit in found))
            for found in self.target.values()
        ]
        return sorted(plain for plain, _ in kinds), sorted(tasks for _, tasks in kinds)

    def text(self) -> dict[str, str]:
        """Units per worker."""
        return {one: " ".join(map(str, found)) for one, found in self.target.items()}


def connectors(count: int, *, tasks: int) -> list[Unit]:
    """Units of connectors with so many tasks each."""
    return [Unit(f"c{number}", index) for number in range(count) for index in range(-1, tasks)]


def test_kafkas_own_sequence_of_two_connectors() -> None:
    """The first sequence of Kafka's IncrementalCooperativeAssignorTest moves the same units here (scenario 41)."""
    fleet = Fleet(CooperativeAssignor(mode="two_phase"), connectors(2, tasks=4))
    fleet.run("w1")
    assert fleet.sizes() == ([2], [8])
    fleet.run("w1 w2")
    assert fleet.sizes() == ([0, 1], [0, 4])
    fleet.run("w1 w2")
    assert fleet.sizes() == ([1, 1], [4, 4])


def test_kafkas_own_sequence_of_three_connectors() -> None:
    """Scenarios 41, 48 and 49: workers that join before the last move is done wait longer each time."""
    fleet = Fleet(CooperativeAssignor(mode="two_phase"), connectors(3, tasks=4))
    for members, age_ms, expected, delay_ms in (
        ("w1", 0, ([3], [12]), 0),
        ("w1 w2", 0, ([0, 2], [0, 6]), 0),
        ("w1 w2 w3", 0, ([0, 1, 2], [3, 3, 6]), 40),
        ("w1 w2 w3 w4", 40, ([0, 0, 1, 1], [0, 3, 3, 3]), 0),
        ("w1 w2 w3 w4 w5", 0, ([0, 0, 1, 1, 1], [1, 2, 3, 3, 3]), 1600),
        ("w1 w2 w3 w4 w5 w6", 1600, ([0, 0, 0, 1, 1, 1], [0, 1, 2, 2, 2, 2]), 0),
        ("w1 w2 w3 w4 w5 w6", 0, ([0, 0, 0, 1, 1, 1], [2] * 6), 0),
    ):
        plan = fleet.run(members, age_ms=age_ms)
        assert (fleet.sizes(), plan.delay_ms) == (expected, delay_ms), members


def test_declarative_plans_the_final_state_in_one_round() -> None:
    """Scenario 48: a fleet that has converged is balanced at once when a worker joins."""
    fleet = Fleet(CooperativeAssignor(), connectors(3, tasks=4))
    fleet.run("w1")
    assert fleet.run("w1 w2").delay_ms == 0
    assert fleet.sizes() == ([1, 2], [6, 6])
    assert fleet.run("w1 w2 w3", reconciled=False).delay_ms == 40
    fleet.run("w1 w2 w3", age_ms=40)
    assert fleet.sizes() == ([1, 1, 1], [4, 4, 4])


def _leaves(delay_ms: int = 300_000, **options: Any) -> Fleet:
    """W1 A A/0, W2 B B/0, W3 A/1; then W2 leaves."""
    fleet = Fleet(CooperativeAssignor(max_delay_ms=delay_ms, **options), units(FIVE))
    fleet.run("w1 w2 w3")
    fleet.target = {"w1": tuple(units("A A/0")), "w2": tuple(units("B B/0")), "w3": tuple(units("A/1"))}
    fleet.run("w1 w2 w3", reconciled=False)
    fleet.target = {"w1": tuple(units("A A/0")), "w2": tuple(units("B B/0")), "w3": tuple(units("A/1"))}
    fleet.target.pop("w2")
    return fleet


def test_lost_units_wait_and_then_go_to_those_with_the_fewest() -> None:
    """Scenarios 43, 50 and 52: "Worker leaves"; whichever worker plans goes on with the rest of the delay."""
    fleet = _leaves()
    plan = fleet.run("w1 w3")
    assert (plan.delay_ms, plan.deferred) == (300_000, frozenset(units("B B/0")))
    plan = fleet.run("w1 w3", age_ms=100_000)
    assert (plan.delay_ms, plan.deferred) == (200_000, frozenset(units("B B/0")))

    plan = fleet.run("w1 w3", age_ms=200_000)

    assert (fleet.text(), plan.deferred, plan.delay_ms) == ({"w1": "A A/0 B/0", "w3": "A/1 B"}, frozenset(), 0)


def test_a_worker_that_bounces_has_its_units_again_at_once() -> None:
    """Scenario 43: "Worker bounces", under its worker id."""
    fleet = _leaves()
    fleet.run("w1 w3")

    plan = fleet.run("w1 w2again w3", age_ms=10, names={"w2again": "w2"})

    assert (fleet.text()["w2again"], plan.deferred, plan.delay_ms) == ("B B/0", frozenset(), 0)


@pytest.mark.parametrize("recognise", [True, False])
def test_an_unknown_worker_gets_the_lost_units_when_the_delay_is_over(recognise: bool) -> None:
    """Scenario 43, variant: KIP-415's candidates. Scenario 45: a candidate that is gone gets nothing."""
    fleet = _leaves(recognise_workers=recognise)
    fleet.run("w1 w3")
    names = {"w4": "other" if recognise else "w2"}
    plan = fleet.run("w1 w3 w4", age_ms=100_000, names=names)
    assert (fleet.text()["w4"], plan.delay_ms) == ("", 200_000)
    fleet.run("w1 w3 w4", age_ms=200_000, names=names)
    assert fleet.text()["w4"] == "B B/0"

    gone = _leaves()
    gone.run("w1 w3")
    gone.run("w1 w3 w4", age_ms=1, names={"w4": "other"})
    gone.target.pop("w4")
    gone.run("w1 w3", age_ms=300_000)
    assert gone.text() == {"w1": "A A/0 B/0", "w3": "A/1 B"}


def test_without_a_delay_lost_units_move_at_once() -> None:
    """With a rebalance delay of 0 the units of a lost worker start elsewhere at once (scenario 44)."""
    fleet = _leaves(0)
    assert fleet.run("w1 w3").deferred == frozenset()
    assert fleet.text() == {"w1": "A A/0 B/0", "w3": "A/1 B"}


def test_a_second_loss_does_not_extend_the_delay() -> None:
    """Scenario 42: workers that leave one after the other are waited for together."""
    fleet = _leaves()
    fleet.run("w1 w3")
    fleet.target.pop("w3")
    plan = fleet.run("w1", age_ms=100_000)
    assert (plan.delay_ms, plan.deferred) == (200_000, frozenset(units("A/1 B B/0")))


def test_units_that_come_and_go_during_a_delay() -> None:
    """Scenarios 46 and 47: a deleted unit stops at once, a new one starts at once."""
    fleet = _leaves()
    fleet.run("w1 w3")
    fleet.catalogue = frozenset(units("A A/0 A/1 B C"))
    plan = fleet.run("w1 w3", age_ms=1)
    assert plan.deferred == frozenset(units("B"))
    assert "C" in fleet.text()["w3"]


def test_age_unknown_after_a_fail_over_begins_the_delay_again() -> None:
    """Scenario 51: the safe side. Scenario 56: a state of an unknown version counts as none."""
    fleet = _leaves()
    fleet.run("w1 w3")
    assert fleet.run("w1 w3", age_ms=-1).delay_ms == 300_000

    fleet.plan = WorkerPlan(fleet.plan.units, state=b"?", state_version=9)
    plan = fleet.run("w1 w3", age_ms=5)
    assert (plan.delay_ms, plan.deferred) == (0, frozenset())


def test_a_draining_worker_gives_its_units_away_without_a_delay() -> None:
    """Scenario 54: an orderly shutdown costs no pause; if all drain, the units keep running."""
    fleet = Fleet(CooperativeAssignor(), units(FIVE))
    fleet.run("w1 w2")
    plan = fleet.run("w1 w2", draining="w2")
    assert (fleet.text()["w2"], plan.deferred, plan.delay_ms) == ("", frozenset(), 0)
    fleet.target.pop("w2")
    before = fleet.text()
    assert fleet.run("w1").deferred == frozenset()
    assert fleet.text() == before
    assert fleet.run("w1", draining="w1").deferred == frozenset()


def test_eager_deals_round_robin() -> None:
    """Scenario 55: the example of Kafka Connect's EagerAssignor."""
    catalogue = frozenset(units("A A/0 A/1 B B/0"))
    plan = EagerAssignor().assign(WorkerGroup((WorkerSpec("w1"), WorkerSpec("w2")), catalogue))
    assert {one: " ".join(map(str, found)) for one, found in plan.units.items()} == {"w1": "A A/0 B/0", "w2": "B A/1"}


@pytest.mark.parametrize("seed", range(40))
def test_random_histories_lose_no_unit_and_come_to_rest_balanced(seed: int) -> None:
    """Whatever comes and goes: each unit is planned once or deferred, and at rest two workers differ by one at most."""
    rng = random.Random(seed)
    fleet = Fleet(CooperativeAssignor(max_delay_ms=rng.choice((0, 1_000, 300_000))), connectors(3, tasks=3))
    members = {"w0"}
    for step in range(30):
        if rng.random() < 0.5:
            members.add(f"w{rng.randrange(6)}")
        elif len(members) > 1:
            members.discard(rng.choice(sorted(members)))
        if rng.random() < 0.2:
            fleet.catalogue = frozenset(connectors(rng.randrange(1, 5), tasks=rng.randrange(4)))
        fleet.target = {one: found for one, found in fleet.target.items() if one in members}
        fleet.run(" ".join(members), age_ms=rng.choice((0, 500, 400_000)), reconciled=rng.random() < 0.5)
        del step
    for _ in range(6):
        fleet.run(" ".join(members), age_ms=400_000)
    assert not fleet.plan.deferred
    assert all(max(kind) - min(kind) <= 1 for kind in fleet.sizes()), fleet.text()


def test_the_golden_bytes_of_the_metadata() -> None:
    """Workers of different versions of this library read each other."""
    worker = WorkerMetadata(trigger_seq=3, draining=False)
    plan = PlanMetadata(leader="w1", leader_url="http://w1", catalog_offset=42, delay_ms=300_000)
    assert encode(worker).hex() == "000000030000"
    assert encode(plan).hex() == "0377310a687474703a2f2f7731000000000000002a000493e000"
    assert decode(WorkerMetadata, encode(worker)) == worker
    assert decode(PlanMetadata, encode(plan)) == plan


@pytest.fixture(params=["connect", "classic"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    config = {"group.connect.session.timeout.ms": 1_500, "group.connect.heartbeat.interval.ms": 30}
    is_connect = request.param == "connect"
    with EmbeddedBroker(connect_groups=is_connect, config=config if is_connect else {}) as running:
        yield running


_CLASSIC = {"session.timeout.ms": 1_500, "heartbeat.interval.ms": 30}


def _add(broker: EmbeddedBroker, worker_id: str, assignor: Any) -> Worker:
    worker = Worker(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "worker.id": worker_id, **_CLASSIC},
        units=["a", "b", "c", "d"],
        assignors=[assignor],
        on_assigned=lambda *_: None,
        on_revoked=lambda *_: None,
    )
    return worker.start()


def test_workers_plan_for_themselves(broker: EmbeddedBroker) -> None:
    """Prepare, plan, install: the group is balanced, a drained worker is empty, and a lost one is waited for."""
    workers = [_add(broker, f"w{number}", CooperativeAssignor(max_delay_ms=600)) for number in range(2)]
    first, second = workers
    wait_until(lambda: [len(worker.assignment()) for worker in workers] == [2, 2])

    first.request_rebalance()
    first.drain()
    wait_until(lambda: [len(worker.assignment()) for worker in workers] == [0, 4])
    first.close()
    third = _add(broker, "w3", CooperativeAssignor(max_delay_ms=600))
    wait_until(lambda: len(third.assignment()) == len(second.assignment()) == 2)

    third.close()  # without draining: its units wait for it, and move when the delay is over
    wait_until(lambda: len(second.assignment()) == 4)
    second.close()


def test_a_worker_that_restarts_under_its_worker_id_has_its_units_again(broker: EmbeddedBroker) -> None:
    """A restart moves nothing, also in classic groups, which have no static workers; a hand-over is not waited for."""
    first, second = [_add(broker, f"w{number}", CooperativeAssignor(max_delay_ms=60_000)) for number in (1, 2)]
    wait_until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
    before = [[owned.unit for owned in worker.assignment()] for worker in (first, second)]

    second.close()
    again = _add(broker, "w2", CooperativeAssignor(max_delay_ms=60_000))

    wait_until(lambda: [[owned.unit for owned in worker.assignment()] for worker in (first, again)] == before)
    again.hand_over()
    wait_until(lambda: len(first.assignment()) == 4)
    first.close()


class _Broken:
    name = "cooperative"
    raises = True
    failures = 0

    def assign(self, group: WorkerGroup) -> WorkerPlan:
        if self.raises and len(group.workers) > 1:
            self.failures += 1
            raise ValueError("no plan")
        return CooperativeAssignor().assign(group)


def test_an_assignor_that_raises_stops_nothing_and_is_called_until_it_works(broker: EmbeddedBroker) -> None:
    """Scenario 38 from a worker's side. What runs goes on running; but nothing would ever run a lost worker's units."""
    assignors = [_Broken(), _Broken()]
    first = _add(broker, "w1", assignors[0])
    wait_until(lambda: len(first.assignment()) == 4)
    second = _add(broker, "w2", assignors[1])
    wait_until(lambda: second.member_epoch > 0)
    owned: list[OwnedUnit] = first.assignment()
    assert len(owned) == 4
    wait_until(lambda: any(assignor.failures for assignor in assignors))
    for assignor in assignors:
        assignor.raises = False
    wait_until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
    second.close()
    first.close()
