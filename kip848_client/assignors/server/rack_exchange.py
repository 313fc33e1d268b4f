"""Decides which members swap partitions, so that more are read in a rack with a replica. Works on counts only.

Members of one rack with one subscription are alike, a *place*; partitions of one set of racks that the same
subscriptions want are alike, a *kind*. The state is how many partitions of each kind are at each place. In a cycle
of places each gives one partition to the next, which leaves every load as it is. Cycles are run as long as one gains
more than it loses. When none is left, no other distribution with these loads reads more partitions in their racks (the
optimality condition of a flow of minimum cost).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

Counts: TypeAlias = dict[int, int]
"""Kind -> number of partitions; kinds without any are left out."""

_NO_EDGE: Final = -(1 << 60)
_SLACK: Final = -1
"""Stands for a kind where no partition moves: the receiving member's quota grows by one, the other's shrinks."""


class Place(msgspec.Struct):
    """Members that are alike, and their partitions by kind.

    Attributes:
        subscription: number of the subscription that they share.
        held: how many partitions of each kind.
        uprooted: how many of those are not where they were before this assignment: to move them costs nothing.
        small: members with the smaller of two loads; only where loads of this subscription differ by one.
        large: members with the larger one.
    """

    subscription: int
    held: Counts = msgspec.field(default_factory=dict)
    uprooted: Counts = msgspec.field(default_factory=dict)
    small: int = 0
    large: int = 0


def exchange(places: Sequence[Place], *, local: Sequence[frozenset[int]], wanted: Sequence[frozenset[int]]) -> bool:
    """Run every cycle that gains; counts in *places* change, loads do not (except which member has the larger of two).

    Args:
        local: per kind, the places in whose rack its partitions have a replica.
        wanted: per kind, the subscriptions that want it.

    Returns:
        Whether anything changed.
    """
    return _Exchange(places, local=local, wanted=wanted).run()


class _Exchange:
    def __init__(
        self, places: Sequence[Place], *, local: Sequence[frozenset[int]], wanted: Sequence[frozenset[int]]
    ) -> None:
        self._places: Final = places
        self._local: Final = local
        self._wanted: Final = wanted
        # A gain outweighs any moves that a cycle may cost: it has at most one partition per place.
        self._gain: Final = len(places) + 1
        self._best: Final = [self._edges_from(number) for number in range(len(places))]

    def run(self) -> bool:
        changed = False
        while cycle := self._pair() or self._cycle():
            self._run(cycle)
            changed = True
        return changed

    def _edges_from(self, giver: int) -> list[tuple[int, int]]:
        """For each other place, the best kind to give to it: (gain, kind)."""
        places, gain = self._places, self._gain
        place = places[giver]
        best = [(_NO_EDGE, _SLACK)] * len(places)
        for kind in sorted(place.held):
            local, wanted = self._local[kind], self._wanted[kind]
            cost = (gain if giver in local else 0) + (0 if place.uprooted.get(kind) else 1)
            for taker, other in enumerate(places):
                if other.subscription in wanted and taker != giver:
                    worth = (gain if taker in local else 0) - cost
                    if worth > best[taker][0]:
                        best[taker] = (worth, kind)
        if place.small:
            for taker, other in enumerate(places):
                if other.large and other.subscription == place.subscription and taker != giver and best[taker][0] < 0:
                    best[taker] = (0, _SLACK)
        return best

    def _pair(self) -> list[int] | None:
        """The two places that gain most by giving each other something; None if no two do."""
        best, found = self._best, None
        most = 0
        for one in range(len(best)):
            for other in range(one):
                worth = best[one][other][0] + best[other][one][0]
                if worth > most:
                    most, found = worth, [one, other]
        return found

    def _cycle(self) -> list[int] | None:
        """A longer cycle that gains, as places in the order of giving; None if there is none (Bellman, Ford)."""
        best, count = self._best, len(self._places)
        worths = [0] * count
        givers = [-1] * count
        last = -1
        for _ in range(count):
            last = -1
            for giver in range(count):
                base = worths[giver]
                for taker, (worth, _kind) in enumerate(best[giver]):
                    if worth > _NO_EDGE and base + worth > worths[taker]:
                        worths[taker] = base + worth
                        givers[taker] = giver
                        last = taker
            if last < 0:
                return None
        for _ in range(count):
            last = givers[last]
        cycle = [last]
        while (last := givers[last]) != cycle[0]:
            cycle.append(last)
        return cycle[::-1]

    def _run(self, cycle: Sequence[int]) -> None:
        places = self._places
        steps = []
        amount = 1 << 60
        for giver, taker in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            kind = self._best[giver][taker][1]
            steps.append((places[giver], places[taker], kind))
            if kind == _SLACK:
                amount = min(amount, places[giver].small, places[taker].large)
            else:
                amount = min(amount, places[giver].uprooted.get(kind) or places[giver].held[kind])
        for giving, taking, kind in steps:
            if kind == _SLACK:
                giving.small -= amount
                giving.large += amount
                taking.large -= amount
                taking.small += amount
            else:
                _add(giving.held, kind, -amount)
                if giving.uprooted.get(kind):
                    _add(giving.uprooted, kind, -amount)
                _add(taking.held, kind, amount)
                _add(taking.uprooted, kind, amount)
        for number in cycle:
            self._best[number] = self._edges_from(number)
        if any(kind == _SLACK for _, _, kind in steps):  # the other places see which member may shrink
            for number in range(len(places)):
                self._best[number] = self._edges_from(number)


def _add(counts: Counts, kind: int, amount: int) -> None:
    count = counts.get(kind, 0) + amount
    if count:
        counts[kind] = count
    else:
        counts.pop(kind, None)
