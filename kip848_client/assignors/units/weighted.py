"""`WeightedAssignor`: spreads units by their weights, and moves few of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from kip848_client.assignors.units.unit_interface import WorkerGroup, WorkerPlan
from kip848_client.common.model import Unit


class WeightedAssignor:
    """Gives workers loads that are as equal as their units' weights allow; a unit moves only if that helps.

    Only the weights of the worker that plans count, so give the same to all workers.

    Args:
        weights: name of a unit -> its weight; or a function of the unit. >= 0; of a name that is missing, 1.
        tolerance: loads that differ by less than this part of the mean load are left as they are.

    Raises:
        ValueError: a weight or the tolerance is negative or not finite. From `assign` for a function.

    Example::

        Worker(conf, units=["eurusd", "gbpusd", "usdjpy"], assignors=[WeightedAssignor({"eurusd": 5})])
    """

    name = "weighted"

    def __init__(self, weights: Mapping[str, float] | Callable[[Unit], float], *, tolerance: float = 0.1) -> None:
        self._weight_of: Final = weights if callable(weights) else lambda unit: weights.get(unit.name, 1.0)
        self._tolerance: Final = _checked(tolerance, "the tolerance")
        if not callable(weights):
            for name, weight in weights.items():
                _checked(weight, f"the weight of {name!r}")

    def assign(self, group: WorkerGroup) -> WorkerPlan:
        """Plan: keep units where they are, deal the others, the heaviest first, and move what evens the loads out."""
        weights = {unit: _checked(self._weight_of(unit), f"the weight of {unit}") for unit in group.units}
        plan: dict[str, set[Unit]] = {
            worker.member_id: {*worker.target} & group.units for worker in group.workers if not worker.draining
        }
        if not plan:
            return WorkerPlan({}, deferred=group.units)
        loads = {member_id: sum(weights[unit] for unit in units) for member_id, units in plan.items()}

        def by_load(member_id: str) -> tuple[float, int, str]:
            return loads[member_id], len(plan[member_id]), member_id

        def give(unit: Unit, member_id: str) -> None:
            plan[member_id].add(unit)
            loads[member_id] += weights[unit]

        for unit in sorted(group.units.difference(*plan.values()), key=lambda unit: (-weights[unit], unit)):
            give(unit, min(plan, key=by_load))
        least_gap = self._tolerance * sum(weights.values()) / len(plan)
        while True:  # each move makes the sum of the squares of the loads smaller
            highest, lowest = max(plan, key=by_load), min(plan, key=by_load)
            gap = loads[highest] - loads[lowest]
            movable = [unit for unit in plan[highest] if 0 < weights[unit] < gap * (1 - 1e-9)]
            if gap <= least_gap or not movable:
                break
            best = min(movable, key=lambda unit: (abs(gap - 2 * weights[unit]), unit))
            plan[highest].remove(best)
            loads[highest] -= weights[best]
            give(best, lowest)
        return WorkerPlan({member_id: sorted(units) for member_id, units in plan.items()})


def _checked(value: float, what: str) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{what} must be a number from 0, not {value!r}")
    return value
