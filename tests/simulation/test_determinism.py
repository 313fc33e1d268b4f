"""One seed is one history, in every process: else a failing seed could not be played again."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from kip848_client.simulation import CHURN, run

TIMEOUT_S: Final = 150
PROGRAM: Final = """
from kip848_client.simulation import SCENARIOS, run
print([run(SCENARIOS[name], seed=3).digest for name in sorted(SCENARIOS)])
"""


def test_the_same_seed_twice_is_the_same_history() -> None:
    """Byte for byte, and it may not matter that another run came before in this process."""
    assert run(CHURN, seed=3).digest == run(CHURN, seed=3).digest


def test_another_seed_is_another_history() -> None:
    """A digest of nothing would be equal too."""
    assert run(CHURN, seed=3).digest != run(CHURN, seed=4).digest


def test_the_order_of_sets_and_dicts_does_not_matter() -> None:
    """Python shuffles the hashes of strings in every process; a failing seed must fail for whoever plays it again."""
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
