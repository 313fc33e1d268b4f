"""The production cores of member and coordinator on a virtual clock, with faults, from one seed.

`run` (in `play`) plays one `scenario` and returns what happened; `world` is time and randomness, `network` what can go
wrong between peers, `consumer` a member with its application, `cluster` the coordinator with its log, `*_checkers` what
must always hold. Nothing here reads a clock or opens a socket: 45 seconds of session timeout take microseconds.

Source: KIP-848 "Test Plan", which names discrete-event simulation as its primary method.
"""

from __future__ import annotations

from kip848_client.simulation.faults import NetworkFaults
from kip848_client.simulation.play import Report, run
from kip848_client.simulation.scenario import CHURN, SCENARIOS, Scenario
from kip848_client.simulation.violation import InvariantViolation

__all__ = ["run", "Report", "Scenario", "SCENARIOS", "CHURN", "NetworkFaults", "InvariantViolation"]
