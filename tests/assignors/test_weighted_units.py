"""`WeightedAssignor`: units of workers by their weights."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip848_client import Unit
from kip848_client.assignors import WeightedAssignor, WorkerGroup, WorkerSpec


def test_heavy_units_are_spread_and_little_moves_when_a_worker_joins() -> None:
    """One feed may be as much work as five others; by count a worker would get two of the heavy ones."""
    assignor = WeightedAssignor({"heavy-1": 5, "heavy-2": 5})
    units = frozenset(map(Unit, ["heavy-1", "heavy-2", "a", "b", "c", "d"]))
    plan = assignor.assign(WorkerGroup((WorkerSpec("w1"), WorkerSpec("w2")), units)).units
    assert [sum(5 if unit.name.startswith("heavy") else 1 for unit in plan[one]) for one in ("w1", "w2")] == [7, 7]

    three = tuple(WorkerSpec(one, target=tuple(plan.get(one, ()))) for one in ("w1", "w2", "w3"))
    later = assignor.assign(WorkerGroup(three, units)).units
    assert sorted(sum(5 if unit.name.startswith("heavy") else 1 for unit in later[one]) for one in later) == [4, 5, 5]
    assert sum(len({*later[one]} - {*plan.get(one, ())}) for one in later) <= 3


@given(
    st.dictionaries(st.integers(0, 20), st.floats(0, 100, allow_subnormal=False), min_size=1),
    st.lists(st.booleans(), min_size=1, max_size=5),
)
def test_each_unit_has_one_worker_and_a_plan_that_is_made_again_moves_nothing(
    weights: dict[int, float], drains: list[bool]
) -> None:
    """A unit in no plan would run nowhere; one that moves in each round would never run."""
    names = {f"u{number}": weight for number, weight in weights.items()}
    units, assignor = frozenset(map(Unit, names)), WeightedAssignor(names)
    held: dict[str, tuple[Unit, ...]] = {}
    for _ in range(2):
        workers = tuple(
            WorkerSpec(f"w{number}", target=held.get(f"w{number}", ()), draining=drains[number])
            for number in range(len(drains))
        )
        plan = assignor.assign(WorkerGroup(workers, units))
        if all(drains):
            assert plan.deferred == units
            return
        given_units = [unit for planned in plan.units.values() for unit in planned]
        assert sorted(given_units) == sorted(units)
        assert not any(drains[int(member_id[1:])] for member_id in plan.units)
        after = {member_id: tuple(planned) for member_id, planned in plan.units.items()}
        assert held in ({}, after)
        held = after
    loads = {member_id: [names[unit.name] for unit in planned] for member_id, planned in held.items()}
    lowest, highest = min(loads.values(), key=sum), max(loads.values(), key=sum)
    least_move = max(min([weight for weight in highest if weight], default=0), 0.1 * sum(names.values()) / len(loads))
    assert sum(highest) - sum(lowest) <= least_move * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("weight", [-1, math.nan, math.inf])
def test_a_weight_that_is_no_weight_is_refused(weight: float) -> None:
    """It would give a worker everything, or never end."""
    with pytest.raises(ValueError, match="the weight of 'a' must be a number from 0"):
        WeightedAssignor({"a": weight})
