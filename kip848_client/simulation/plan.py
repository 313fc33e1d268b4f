"""What shall happen to a group in the safety phase, and when: drawn in advance from the numbers of a scenario.

Every planned event has a number, and brings its own randomness. So an event can be left out (`Scenario.skip`) and the
others stay what they are: that is how a failing run is made smaller.

Does not own: carrying it out (`actions`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from kip848_client.simulation.scenario import Scenario
from kip848_client.simulation.world import World


class Kind(enum.Enum):
    """What can be planned."""

    JOIN = "joins"
    LEAVE = "leaves"
    CRASH = "crashes"
    CUT = "cuts"
    RESUBSCRIBE = "resubscriptions"
    GROW = "growths"
    DELETE_TOPIC = "deletions"
    CRASH_COORDINATOR = "coordinator_crashes"
    FAIL_OVER = "failovers"
    FREEZE = "freezes"
    JUMP_WALL_CLOCK = "wall_jumps"
    REFUSE = "refusals"
    THROTTLE = "throttles"
    CHANGE_CONFIG = "config_changes"
    DOUBLE_START = "double_starts"
    HOLD_INSTANCE = "held_instances"


@dataclass(frozen=True, slots=True)
class Planned:
    """One event.

    Args:
        number: names it in `Scenario.skip`; a thousand for each kind.
        draws: seed of the randomness with which it is carried out.
    """

    number: int
    at_ms: int
    kind: Kind
    draws: int


_NUMBERS_PER_KIND: Final = 1_000


def plan_of(scenario: Scenario, world: World) -> list[Planned]:
    """Draw the events of a run, in the order of time; those that are skipped are missing.

    Each kind has a randomness of its own: without the crashes, the leaves are what they were.
    """
    found: list[Planned] = []
    for order, kind in enumerate(Kind):
        rate: float = getattr(scenario, kind.value)
        if not rate:
            continue
        rng = world.random(f"plan {kind.value}")
        expected = rate * scenario.duration_ms / 1000
        count = int(expected) + (rng.random() < expected - int(expected))
        first = order * _NUMBERS_PER_KIND
        found += [
            Planned(number, int(rng.random() * scenario.duration_ms), kind, rng.getrandbits(32))
            for number in range(first, first + count)
        ]
    found.sort(key=lambda planned: (planned.at_ms, planned.number))
    return [planned for planned in found if planned.number not in scenario.skip]
