"""`Weighted`: partitions in proportion to what a member can carry."""

from __future__ import annotations

import math
from collections.abc import Callable

from kip848_client.assignors.client.interface import (
    AssignmentSpec,
    AssignorMetadata,
    GroupAssignment,
    PartitionAssignor,
)
from kip848_client.assignors.client.spread import spread_by_weight
from kip848_client.assignors.library.metadata_json import decode, encode, number_of


class Weighted(PartitionAssignor):
    """Each member has a share of the partitions in proportion to its weight.

    For machines of different size, a canary that should have little, or a member that is being drained (weight 0).

    Guarantee: no partition could move and leave its new owner with less load for its weight than its old owner had
    (D'Hondt's method); nothing moves without need. If subscriptions differ, this holds between members that may take
    the partition. A member of weight 0 has nothing while another one can take it.

    Args:
        weight: this member's weight, or a function that is asked for it once in each heartbeat interval, on the
            assignor's thread: a new answer rebalances the group. ``weight=os.cpu_count`` is a good one.

    Raises:
        ValueError: the weight is negative or not finite.
    """

    name = "weighted"

    def __init__(self, weight: float | Callable[[], float | None] = 1.0) -> None:
        self._weight = weight
        if not callable(weight):
            _check(weight)

    def metadata(self) -> AssignorMetadata:
        """This member's weight."""
        found = self._weight() if callable(self._weight) else self._weight
        return encode({"weight": _check(1.0 if found is None else found)})

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Spread by weight; a member that told none weighs 1."""
        return spread_by_weight(spec, lambda member: number_of(member, decode(member), "weight", 1.0))


def _check(weight: float) -> float:
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"the weight {weight!r} cannot be used; weights are finite and not negative")
    return weight
