"""The base of every run: a cluster, a network, and a plan of events; first with faults, then healed.

The events of the safety phase are drawn in advance from the numbers of a scenario. Each has a number and its own random
generator. So an event can be left out (`Scenario.skip`) without a change of the others, which makes a failing run
smaller.

Does not own: how an event is carried out (`actions` for consumers, `simulated_workers` for workers).
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from typing import Final

import msgspec

from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.simulation.virtual.cluster import VirtualCluster
from kip848_client.testing.simulation.virtual.network import Network
from kip848_client.testing.simulation.virtual.scenario import Scenario
from kip848_client.testing.simulation.virtual.scheduler import Scheduler

GROUP: Final = "simulated"


class Kind(enum.Enum):
    """Kinds of planned events; the value is the name of the rate in a scenario."""

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
    SWITCH = "switches"
    DELETE_GROUP = "group_deletions"
    HAND_OVER = "handovers"
    REPLACE = "replacements"


class PlannedEvent(msgspec.Struct, frozen=True):
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


def plan_of(scenario: Scenario, scheduler: Scheduler) -> list[PlannedEvent]:
    """Draw the events of a run, in the order of time, without the skipped ones.

    Each kind has its own random generator: without the crashes, the leaves stay the same.
    """
    found: list[PlannedEvent] = []
    for order, kind in enumerate(Kind):
        rate: float = getattr(scenario, kind.value)
        if not rate:
            continue
        rng = scheduler.random(f"plan {kind.value}")
        expected = rate * scenario.duration_ms / 1000
        count = int(expected) + (rng.random() < expected - int(expected))
        first = order * _NUMBERS_PER_KIND
        found += [
            PlannedEvent(number, int(rng.random() * scenario.duration_ms), kind, rng.getrandbits(32))
            for number in range(first, first + count)
        ]
    found.sort(key=lambda planned: (planned.at_ms, planned.number))
    return [planned for planned in found if planned.number not in scenario.skip]


class Environment:
    """The cluster and the network of a run.

    Args:
        config: of the coordinators.
        rng: draws how long a coordinator that died is away.
    """

    def __init__(
        self, scenario: Scenario, scheduler: Scheduler, config: CoordinatorConfig, *, rng: random.Random
    ) -> None:
        self.scenario: Final = scenario
        self.scheduler: Final = scheduler
        self.healed: bool = False
        """The faults have ended."""
        self.cluster: Final = VirtualCluster(scheduler, config, scenario)
        self.network: Final = Network(scheduler, self.cluster, scenario, topic_name=self.cluster.topics.names.get)
        self.cluster.on_node_down = self.node_down
        self._rng = rng

    def play_plan(self, perform: Callable[[Kind, random.Random], None]) -> None:
        """Play the safety phase: faults, and the planned events, each carried out by *perform*."""

        def carry_out(planned: PlannedEvent) -> None:
            if not self.healed:
                self.scheduler.events += 1
                perform(planned.kind, random.Random(planned.draws))

        for planned in plan_of(self.scenario, self.scheduler):
            self.scheduler.call_in(planned.at_ms, lambda planned=planned: carry_out(planned))  # type: ignore[misc]
        self.network.faults = self.scenario.faults
        self.scheduler.run_until(self.scenario.duration_ms)

    def heal(self) -> None:
        """End the faults."""
        self.healed = True
        self.network.settle()
        self.cluster.heal()

    def node_down(self, node_id: int) -> set[str]:
        """A coordinator died: its connections end, and it comes back later. Returns the clients that had one."""
        ended = self.network.drop_all(node_id, "the coordinator died")
        if not self.healed:
            self.cluster.restart_later(self._rng)
        return ended
