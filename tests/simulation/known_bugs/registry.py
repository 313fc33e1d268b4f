"""The list of known bugs, and what one of them is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

Patch = pytest.MonkeyPatch


class KnownBug(msgspec.Struct, frozen=True):
    """One bug.

    Args:
        name: what is wrong, as a sentence.
        found_by: invariants that may notice it.
        put: puts the bug in.
        scenario: where it shows soonest.
        seed: a seed near one that shows it.
        probes: it is looked for in runs with probes only.
    """

    name: str
    found_by: frozenset[str]
    put: Callable[[Patch], None]
    scenario: str = "mixed"
    seed: int = 0
    probes: bool = False


KNOWN_BUGS: list[KnownBug] = []


def known_bug(
    name: str, *found_by: str, scenario: str = "mixed", seed: int = 0, probes: bool = False
) -> Callable[[Any], Any]:
    """Add a bug to the list."""

    def add(put: Callable[[Patch], None]) -> Callable[[Patch], None]:
        KNOWN_BUGS.append(KnownBug(name, frozenset(found_by), put, scenario, seed, probes))
        return put

    return add
