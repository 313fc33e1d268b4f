"""The production cores of member and coordinator on a virtual clock, with faults, from one seed.

`run` (in `play`) plays one `scenario` and returns what happened. Nothing here reads a clock or opens a socket: 45
seconds of session timeout take microseconds. Where is what:

- time and randomness: `world`; what is written down: `history`, `coverage`
- the cluster: `topics`, `host` (one coordinator), `cluster` (its log, crashes, failovers)
- a consumer: `consumer` (the member), `clientside` (its requests), `application` (poll(), listeners, records)
- between them: `network`, `refusals` (rules of `kip848_client.faults`)
- every interleaving of a small group, without a seed: `exhaustive`
- what happens: `scenario` (numbers), `variety` (numbers drawn from a seed), `plan`, `actions`, `stage`, `trials`
- what must hold: `mirror` and `observer`, then `group_checkers`, `fencing_checkers`, `member_checkers`,
  `reading_checkers`

Source: KIP-848 "Test Plan", which names discrete-event simulation as its primary method.
"""

from __future__ import annotations

from kip848_client.simulation.application import UserCode
from kip848_client.simulation.consumer import SimulatedConsumer
from kip848_client.simulation.faults import NetworkFaults
from kip848_client.simulation.play import Report, run
from kip848_client.simulation.scenario import BRIEF, CHURN, MIXED, SCENARIOS, Behaviour, Scenario
from kip848_client.simulation.variety import scenario_of
from kip848_client.simulation.violation import InvariantViolation

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
]
