"""Bugs, put back one at a time: those that other implementations of this protocol had, and those that seeds found here.

A checker that no bug can trip checks nothing. Each `Mutant` says what is broken and which invariants may say so; the
modules ``known_...`` beside this one add them.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from tests.mutants.registry import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant"]

for path in sorted(Path(__file__).parent.glob("known_*.py")):
    import_module(f"tests.mutants.{path.stem}")
