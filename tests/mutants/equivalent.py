"""Generated mutants that are left out, each with the reason: nothing that a member or a coordinator does can show them.

A name is looked up as `generated` gives it; a test demands that every one still exists. Whole functions and statements
that only tell people something are left out by `only_tells`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.mutants.generated import Mutation
from tests.mutants.sources import short

EQUIVALENT: Final[Mapping[str, str]] = {}
"""Name of the mutant -> why it behaves as the original does."""

SURVIVORS: Final[Mapping[str, str]] = {}
"""Name of a mutant that nobody notices, and that is counted as such -> why that is so."""

TELLING: Final[Mapping[str, str]] = {
    "member/statistics": "counts and times for metrics; nothing is decided by them",
}
"""Modules, or functions of them, that no decision depends on -> what they are for."""


def reason_to_leave_out(mutation: Mutation) -> str | None:
    """Why a mutant is no target, or None if it is one."""
    found = EQUIVALENT.get(mutation.name)
    if found is not None:
        return found
    module = short(mutation.module)
    place = mutation.name.split(": ", 1)[0]
    for prefix, reason in TELLING.items():
        if prefix in (module, place):
            return reason
    return None
