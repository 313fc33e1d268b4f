"""Plans for units: which worker runs which, computed inside the coordinator. Plain units and tasks are dealt apart.

Pure functions of the workers, the units and the target before; equal input gives an equal plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from kip848_client.common.model import Unit

UnitPlan: TypeAlias = Mapping[str, Sequence[Unit]]
"""Member id -> units."""


def plan_uniform(member_ids: Sequence[str], units: Iterable[Unit], previous: UnitPlan) -> dict[str, list[Unit]]:
    """Spread *units* so that two workers differ by at most one of each kind, and as few as possible move.

    Args:
        member_ids: ascending.
        previous: the plan before; units that are gone, and members that left, are ignored.
    """
    plan: dict[str, list[Unit]] = {member_id: [] for member_id in member_ids}
    if not member_ids:
        return plan
    for kind in split_kinds(units):
        lo, extra = divmod(len(kind), len(member_ids))
        free = set(kind)
        kept: dict[str, list[Unit]] = {}
        bonuses = extra
        for member_id in member_ids:
            held = sorted(free.intersection(previous.get(member_id, ())))
            bonus = len(held) > lo and bonuses > 0
            bonuses -= bonus
            kept[member_id] = held[: lo + bonus]
            free.difference_update(kept[member_id])
        left = iter(sorted(free))
        for member_id in member_ids:
            held = kept[member_id]
            held += [next(left) for _ in range(lo - len(held))]
        by_load = sorted(member_ids, key=lambda member_id: (len(plan[member_id]), member_id))
        for member_id in by_load:  # so that one worker does not get the odd unit of both kinds
            if bonuses and len(kept[member_id]) == lo:
                kept[member_id].append(next(left))
                bonuses -= 1
        for member_id in member_ids:
            plan[member_id] += kept[member_id]
    return plan


def plan_eager(member_ids: Sequence[str], units: Iterable[Unit], previous: UnitPlan) -> dict[str, list[Unit]]:
    """Deal *units* round-robin, plain units first, and ignore previous owners: Kafka Connect's ``EagerAssignor``.

    Args:
        member_ids: ascending.
        previous: not looked at.
    """
    plan: dict[str, list[Unit]] = {member_id: [] for member_id in member_ids}
    if member_ids:
        plain, tasks = split_kinds(units)
        for number, unit in enumerate([*plain, *tasks]):
            plan[member_ids[number % len(member_ids)]].append(unit)
    return plan


UNIT_PLANS: Final[Mapping[str, Callable[[Sequence[str], Iterable[Unit], UnitPlan], dict[str, list[Unit]]]]] = {
    "uniform": plan_uniform,
    "eager": plan_eager,
}
"""Server-side assignors of connect groups by name; the first one decides where workers ask for none."""


def split_kinds(units: Iterable[Unit]) -> tuple[list[Unit], list[Unit]]:
    """(plain units and connectors, tasks), each ascending."""
    plain: list[Unit] = []
    tasks: list[Unit] = []
    for unit in sorted(units):
        (plain if unit.index == -1 else tasks).append(unit)
    return plain, tasks
