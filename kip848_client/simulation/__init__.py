"""The production cores of member and coordinator on a virtual clock, with faults, from one seed.

`run` (in `play`) plays one `scenario` and returns what happened. Nothing here reads a clock or opens a socket: 45
seconds of session timeout take microseconds. Where is what:

- time and randomness: `world`; what is written down: `history`
- the cluster: `topics`, `cluster` (coordinators, their log, crashes, failovers)
- a consumer: `process` (its clock), `consumer` (the member), `clientside` (its requests), `application` (poll(),
  listeners, records), `user_assignor`
- between them: `network` (delays, faults, rules of `kip848_client.faults`)
- what happens: `scenario` (numbers), `ground` (planned events, healing), `stage`, `actions`, `trials`, `play`
- beside the group: `transactions`, `workers`; `what_if` plays changes of a given group
- the interface for checkers: `observer` (typed hooks), `mirror` (a copy of the coordinator's group)
- the invariants: `checkers`, one file per subject; each checker is an observer

`run(..., watch=[...])` adds further checkers, such as those of `tests/simulation/probes`.

Source: KIP-848 "Test Plan", which names discrete-event simulation as its primary method.
"""

from __future__ import annotations

from kip848_client.simulation.consumer import SimulatedConsumer, UserCode
from kip848_client.simulation.observer import Checker, Observer, Scene, Watch, about
from kip848_client.simulation.play import Report, run
from kip848_client.simulation.process import Process
from kip848_client.simulation.scenario import (
    BRIEF,
    CHURN,
    MIXED,
    SCENARIOS,
    Behaviour,
    NetworkFaults,
    Scenario,
    scenario_of,
)
from kip848_client.simulation.violation import InvariantViolation, fail

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
    "Scene",
    "Watch",
    "Process",
    "about",
    "fail",
]
