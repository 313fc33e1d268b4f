"""``kip848 simulate --exhaustive``: every interleaving of a small group, told. The walk itself: `exhaustive`."""

from __future__ import annotations

import sys

from kip848_client.errors import ConfigError
from kip848_client.json_text import to_json
from kip848_client.simulation.exhaustive import Exploration, explore

_SHOWN_EVERY = 500


def walk(*, depth: int, faults: int, as_json: bool) -> int:
    """Walk, print, and return the exit status: 1 if an invariant broke.

    Raises:
        ConfigError: a bound makes no sense.
    """
    if depth < 1 or faults < 0:
        raise ConfigError(f"--depth {depth} --faults {faults}: a depth from 1 on, and no negative number of faults")

    def progress(states: int) -> None:
        if sys.stderr.isatty() and not states % _SHOWN_EVERY:
            print(f"\r{states:,} states", end="", file=sys.stderr, flush=True)

    found = explore(depth=depth, faults=faults, on_state=progress)
    print(to_json(_plain(found)) if as_json else _told(found, faults=faults))
    return 0 if found.violation is None else 1


def _plain(found: Exploration) -> dict[str, object]:
    violation = found.violation
    return {
        "states": found.states,
        "steps": found.steps,
        "depth": found.depth,
        "complete": found.complete,
        "violation": violation and {"invariant": violation.invariant, "message": violation.message},
        "path": [list(choice) for choice in found.path],
    }


def _told(found: Exploration, *, faults: int) -> str:
    if found.violation is None:
        walked = f"{found.states:,} states by {found.steps:,} steps, every path of {found.depth} steps"
        return f"two members, two partitions, up to {faults} faults: {walked}; every invariant held"
    steps = "\n".join(f"{number:3}. {what} ({which})" for number, (what, which) in enumerate(found.path, 1))
    return f"BROKEN: {found.violation}\nafter {len(found.path)} steps:\n{steps}"
