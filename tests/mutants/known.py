"""Bugs, put back one at a time: those that other implementations of this protocol had, and those that seeds found here.

A checker that no bug can trip checks nothing. Each `Mutant` says what is broken and which invariants may say so.
"""

from __future__ import annotations

from tests.mutants import (
    known_answers,
    known_assignors,
    known_classic,
    known_coordinator,
    known_incidents,
    known_invariants,
    known_member,
    known_transactions,
    known_walks,
    known_workers,
)
from tests.mutants.registry import MUTANTS, Mutant, by_name

__all__ = [
    "MUTANTS",
    "Mutant",
    "by_name",
    "known_answers",
    "known_assignors",
    "known_classic",
    "known_coordinator",
    "known_incidents",
    "known_invariants",
    "known_member",
    "known_transactions",
    "known_walks",
    "known_workers",
]
