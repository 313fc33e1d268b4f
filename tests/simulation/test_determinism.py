"""One seed is one history, in every process: else a failing seed could not be played again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from kip848_client.testing.simulation import CHURN, run
from tests.simulation import shuffled_sets

TIMEOUT_S: Final = 150
ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = """
from kip848_client.testing.simulation import SCENARIOS, run
print([run(SCENARIOS[name], seed=3).digest for name in sorted(SCENARIOS)])
"""


def test_the_same_seed_twice_is_the_same_history() -> None:
    """Byte for byte, and it may not matter that another run came before in this process."""
    assert run(CHURN, seed=3).digest == run(CHURN, seed=3).digest


def test_another_seed_is_another_history() -> None:
    """A digest of nothing would be equal too."""
    assert run(CHURN, seed=3).digest != run(CHURN, seed=4).digest


def test_the_order_of_sets_and_dicts_does_not_matter() -> None:
    """Python shuffles the hashes of strings in every process; a failing seed must fail again in every process."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("scenario", "first", "last"),
    [("mixed", 0, 20), ("mixed", 391, 391), ("assignors", 1, 1)],
)
def test_no_order_of_a_set_reaches_the_history(scenario: str, first: int, last: int) -> None:
    """Every walk over a set goes in a drawn order: what depends on it would differ from one process to the next."""
    played = subprocess.run(
        [sys.executable, "-m", "tests.simulation.shuffled_sets", scenario, str(first), str(last + 1)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert played.stdout == "[]\n"


@pytest.mark.parametrize(
    "walk",
    [
        "for x in items: found.append(x)",
        "found = [x for x in items]",
        "found = list(items)",
        "found = [*items]",
        "found = list(dict.fromkeys(items))",
        "found = ''.join(items)",
        "found = sorted(items, key=len)",
    ],
)
def test_every_walk_over_a_set_is_shuffled(walk: str) -> None:
    """If the shuffling did not work, the test for dependence on the order of a set would see nothing."""
    seen = set()
    for _ in range(50):
        scope: dict[str, Any] = {"items": {"a", "b", "c"}, "found": [], shuffled_sets.WALK: shuffled_sets.walk}
        exec(shuffled_sets.shuffled(walk, "walk.py"), scope)
        seen.add(tuple(scope["found"]))
    assert len(seen) > 1
