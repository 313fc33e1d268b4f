"""``python -m tests.simulation.gate``: play many simulated groups, some from new seeds, and compare digests.

Environment:
    SIMULATED_SEEDS: seeds of the scenario `brief` (50,000); 200 is quick.
    SIMULATED_WITHIN_S: seconds for them (90).
    SIMULATED_LONG_WITHIN_S: seconds for each scenario of a minute (30): some bugs need a group that lived for a while.
    SIMULATED_FRESH_WITHIN_S: seconds for each scenario with fresh seeds (15), which begin at a number of the commit, or
        of the day where there is no git. What breaks is named with its command.
    SIMULATED_WATCH: more observers; tests.judge.client.simulated:watch is the referee of `kip848 judge client`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Final

SIMULATE: Final = (sys.executable, *("-m", "kip848_client", "simulate", "--watch", "tests.simulation.probes:probes"))
"""Plays runs with the questions and walks of the tests."""
LONG: Final = ("assignors", "storm")
FRESH: Final = (
    *("brief", "mixed", "churn", "zombies", "static", "patterns", "topics", "failover", "refusals", "assignors"),
    *("storm", "classic", "migration", "workers", "classic_workers", "transactions", "shares", "processing"),
    *("processing_outputs", "processing_transactions", "processing_limits", "queue_members", "deploys"),
)
FRESH_SEEDS: Final = 4000
DIGESTS_OF: Final = 600


def setting(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


def play(*options: str) -> None:
    """Play runs; end here if one breaks."""
    watch = os.environ.get("SIMULATED_WATCH")
    done = subprocess.run([*SIMULATE, *(("--watch", watch) if watch else ()), *options], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def digest(hash_seed: str) -> str:
    """The digest of many histories, in a process whose hashes of strings differ from another's."""
    done = subprocess.run(
        [*SIMULATE, "--seeds", f"0:{DIGESTS_OF}", "--digest", "--json"],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        check=True,
    )
    return str(json.loads(done.stdout)["digest"])


def fresh_seed() -> int:
    """A number that no other commit has."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    text = asked.stdout.strip() if asked.returncode == 0 else time.strftime("%Y%m%d")
    return int(text[:7], 16) * 256


def main() -> int:
    within_s = setting("SIMULATED_WITHIN_S", 90)
    play("--scenario", "brief", "--seeds", f"0:{setting('SIMULATED_SEEDS', 50_000)}", "--within", str(within_s))
    for scenario in LONG:
        within_s = setting("SIMULATED_LONG_WITHIN_S", 30)
        play("--scenario", scenario, "--seeds", "0:1000", "--within", str(within_s))
    first, within_s = fresh_seed(), setting("SIMULATED_FRESH_WITHIN_S", 15)
    print(f"seeds of this commit begin at {first}", flush=True)
    for scenario in FRESH:
        limit_s = 4 * within_s if scenario == "brief" else within_s
        play("--scenario", scenario, "--seeds", f"{first}:{first + FRESH_SEEDS}", "--within", str(limit_s))
    digests = {digest("1"), digest("2")}
    same = "equal" if len(digests) == 1 else f"different: {sorted(digests)}"
    print(f"digests of {DIGESTS_OF} histories, in processes with different hashes: {same}")
    return len(digests) - 1


if __name__ == "__main__":
    sys.exit(main())
