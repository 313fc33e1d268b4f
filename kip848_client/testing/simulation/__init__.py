"""The production cores of member and coordinator on a virtual clock, with faults, from one seed.

`run` plays one `Scenario` and returns what happened. Nothing here reads a clock or opens a socket: 45 seconds of
session timeout take microseconds. Where is what:

- `virtual`: the scheduler (time, randomness), the history, the network with its faults, the cluster with its
  coordinators, the numbers of scenarios, planned events
- `actors`: consumers with their applications, transactional producers, workers
- a run: `run` (safety with faults, then healing and liveness), `consumer_environment`, `actions`, `trials`; `what_if`
  plays changes of a given group
- the interface for checkers: `observer` (typed hooks), `observed_group` (a copy of the coordinator's group)
- `checkers`: the invariants, one file per subject; each checker is an observer

`run(..., watch=[...])` adds further checkers, such as those of `tests/simulation/probes`.

Source: KIP-848 "Test Plan", which names discrete-event simulation as its primary method.
"""

from kip848_client.common.model import NamedPartition, TopicIdPartition
from kip848_client.testing.simulation.actors.simulated_consumer import SimulatedConsumer, UserCode
from kip848_client.testing.simulation.observer import Checker, Observer, RunState, Watch, about
from kip848_client.testing.simulation.run import Report, run
from kip848_client.testing.simulation.virtual.client_process import ClientProcess
from kip848_client.testing.simulation.virtual.scenario import (
    BRIEF,
    CHURN,
    MIXED,
    SCENARIOS,
    Behaviour,
    NetworkFaults,
    Scenario,
    scenario_of,
)
from kip848_client.testing.simulation.virtual.violation import InvariantViolation, fail

__all__ = [
    "BRIEF",
    "Behaviour",
    "CHURN",
    "Checker",
    "ClientProcess",
    "InvariantViolation",
    "MIXED",
    "NamedPartition",
    "NetworkFaults",
    "Observer",
    "Report",
    "RunState",
    "SCENARIOS",
    "Scenario",
    "SimulatedConsumer",
    "TopicIdPartition",
    "UserCode",
    "Watch",
    "about",
    "fail",
    "run",
    "scenario_of",
]
