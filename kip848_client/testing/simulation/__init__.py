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

from kip848_client.common.model import NamedPartition as NamedPartition
from kip848_client.common.model import TopicIdPartition as TopicIdPartition
from kip848_client.testing.simulation.actors.simulated_consumer import SimulatedConsumer as SimulatedConsumer
from kip848_client.testing.simulation.actors.simulated_consumer import UserCode as UserCode
from kip848_client.testing.simulation.observer import Checker as Checker
from kip848_client.testing.simulation.observer import Observer as Observer
from kip848_client.testing.simulation.observer import RunState as RunState
from kip848_client.testing.simulation.observer import Watch as Watch
from kip848_client.testing.simulation.observer import about as about
from kip848_client.testing.simulation.run import Report as Report
from kip848_client.testing.simulation.run import run as run
from kip848_client.testing.simulation.virtual.client_process import ClientProcess as ClientProcess
from kip848_client.testing.simulation.virtual.scenario import BRIEF as BRIEF
from kip848_client.testing.simulation.virtual.scenario import CHURN as CHURN
from kip848_client.testing.simulation.virtual.scenario import MIXED as MIXED
from kip848_client.testing.simulation.virtual.scenario import SCENARIOS as SCENARIOS
from kip848_client.testing.simulation.virtual.scenario import Behaviour as Behaviour
from kip848_client.testing.simulation.virtual.scenario import NetworkFaults as NetworkFaults
from kip848_client.testing.simulation.virtual.scenario import Scenario as Scenario
from kip848_client.testing.simulation.virtual.scenario import scenario_of as scenario_of
from kip848_client.testing.simulation.virtual.violation import InvariantViolation as InvariantViolation
from kip848_client.testing.simulation.virtual.violation import fail as fail
