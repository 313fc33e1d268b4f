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

from __future__ import annotations

from kip848_client.simulation.actors.simulated_consumer import SimulatedConsumer, UserCode
from kip848_client.simulation.observer import Checker, Observer, RunState, Watch, about
from kip848_client.simulation.run import Report, run
from kip848_client.simulation.virtual.client_process import ClientProcess
from kip848_client.simulation.virtual.scenario import (
    BRIEF,
    CHURN,
    MIXED,
    SCENARIOS,
    Behaviour,
    NetworkFaults,
    Scenario,
    scenario_of,
)
from kip848_client.simulation.virtual.violation import InvariantViolation, fail

__all__ = [
    "run",
    "Report",
    "Scenario",
    "SCENARIOS",
    "CHURN",
    "BRIEF",
    "MIXED",
    "scenario_of",
    "Behaviour",
    "NetworkFaults",
    "SimulatedConsumer",
    "UserCode",
    "InvariantViolation",
    "Observer",
    "Checker",
    "RunState",
    "Watch",
    "ClientProcess",
    "about",
    "fail",
]
