"""Bugs, put back one at a time: those that other implementations of this protocol had, and those that seeds found here.

A checker that no bug can trip checks nothing. Each `KnownBug` says what is broken and which invariants may notice it.
"""

from __future__ import annotations

from tests.simulation.known_bugs import (
    assignors,
    classic,
    coordinator,
    incidents,
    invariants,
    member,
    processing,
    shares,
    transactions,
    workers,
)
from tests.simulation.known_bugs.registry import KNOWN_BUGS, KnownBug

__all__ = ["KNOWN_BUGS", "KnownBug"]

_READ = (assignors, classic, coordinator, incidents, invariants, member, processing, shares, transactions, workers)
"""Importing a module adds its bugs to `KNOWN_BUGS`."""
