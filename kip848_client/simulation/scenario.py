"""What is played: the numbers of a scenario, the scenarios that have names, and how to change a number by its name.

Does not own: playing (`play`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Final

from kip848_client.errors import ConfigError
from kip848_client.simulation.consumer import Behaviour
from kip848_client.simulation.faults import HEALTHY, NetworkFaults

_ROUGH: Final = NetworkFaults(loss=0.03, duplicate=0.03, break_connection=0.01, delay_ms=(0, 60), slow=0.02)
_CARELESS: Final = Behaviour(listener_raises=0.05, stall=0.003)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is played. Times in ms of virtual time; rates are expected events per virtual second.

    Args:
        members: how many consumers are there at the start.
        topics: name -> partitions.
        coordinator_crashes_after_append: part of the appends after which it dies without answering.
        freezes: processes that stand still, as a paused virtual machine does, for up to two sessions.
        statics: part of the consumers that are static members; after a crash or a close they come back.
        patterns: part of the subscriptions that are by regular expression.
        heal_ms: bound of the liveness phase.
    """

    name: str = "churn"
    members: int = 3
    members_max: int = 6
    topics: Mapping[str, int] = field(default_factory=lambda: {"orders": 6, "audit": 3})
    duration_ms: int = 60_000
    heal_ms: int = 120_000
    faults: NetworkFaults = _ROUGH
    behaviour: Behaviour = _CARELESS
    joins: float = 0.15
    leaves: float = 0.08
    crashes: float = 0.05
    cuts: float = 0.05
    resubscriptions: float = 0.03
    growths: float = 0.01
    coordinator_crashes: float = 0.03
    coordinator_crashes_after_append: float = 0.003
    freezes: float = 0.0
    statics: float = 0.0
    patterns: float = 0.0
    heartbeat_interval_ms: int = 1_000
    session_timeout_ms: int = 6_000
    max_poll_interval_ms: int = 10_000


CHURN: Final = Scenario()
QUIET: Final = Scenario(
    name="quiet",
    faults=HEALTHY,
    behaviour=Behaviour(),
    leaves=0.0,
    crashes=0.0,
    cuts=0.0,
    coordinator_crashes=0.0,
    coordinator_crashes_after_append=0.0,
)
ZOMBIES: Final = Scenario(
    name="zombies",
    behaviour=Behaviour(listener_raises=0.02, stall=0.01, hang=0.03),
    freezes=0.15,
    coordinator_crashes=0.0,
    coordinator_crashes_after_append=0.0,
)
STATIC: Final = Scenario(name="static", statics=0.7, leaves=0.1, crashes=0.1)
PATTERNS: Final = Scenario(name="patterns", patterns=0.6, resubscriptions=0.15, growths=0.05)
STORM: Final = Scenario(
    name="storm",
    members=5,
    members_max=9,
    topics={"orders": 8, "audit": 4, "clicks": 3},
    faults=NetworkFaults(loss=0.08, duplicate=0.08, break_connection=0.03, delay_ms=(0, 120), slow=0.05),
    behaviour=Behaviour(listener_raises=0.1, stall=0.006, hang=0.01, commit=0.1),
    joins=0.3,
    leaves=0.15,
    crashes=0.1,
    cuts=0.1,
    resubscriptions=0.15,
    growths=0.03,
    freezes=0.08,
    statics=0.3,
    patterns=0.3,
    coordinator_crashes=0.06,
    coordinator_crashes_after_append=0.01,
)
SCENARIOS: Final[Mapping[str, Scenario]] = {
    scenario.name: scenario for scenario in (CHURN, ZOMBIES, STATIC, PATTERNS, STORM, QUIET)
}


def change(scenario: Scenario, assignments: Iterable[str]) -> Scenario:
    """Change numbers by name, such as ``members=2``, ``faults.loss=0.1`` or ``behaviour.stall=0``.

    Raises:
        ConfigError: there is no such number, or the value is none.
    """
    for assignment in assignments:
        path, _, text = assignment.partition("=")
        scenario = _change(scenario, path.split("."), text, assignment)
    return scenario


def differences(scenario: Scenario, base: Scenario) -> list[str]:
    """What to give to `change` to make *scenario* of *base*."""
    return [f"{path}={value}" for path, value in numbers(scenario) if dict(numbers(base))[path] != value]


def numbers(scenario: Scenario) -> list[tuple[str, int | float]]:
    """Every number that `change` can change, by its path."""
    return list(_numbers(scenario, ""))


def _numbers(owner: Any, prefix: str) -> Iterable[tuple[str, int | float]]:
    for item in fields(owner):
        value = getattr(owner, item.name)
        if is_dataclass(value):
            yield from _numbers(value, f"{prefix}{item.name}.")
        elif isinstance(value, int | float):
            yield f"{prefix}{item.name}", value


def _change(owner: Any, path: list[str], text: str, assignment: str) -> Any:
    before = getattr(owner, path[0], None) if path[0] in {item.name for item in fields(owner)} else None
    if len(path) > 1 and is_dataclass(before):
        return replace(owner, **{path[0]: _change(before, path[1:], text, assignment)})
    if len(path) > 1 or not isinstance(before, int | float):
        raise ConfigError(f"{assignment!r}: a scenario has no number of that name")
    try:
        value = type(before)(text)
    except ValueError:
        raise ConfigError(f"{assignment!r}: {text!r} is no {type(before).__name__}") from None
    if value < 0:
        raise ConfigError(f"{assignment!r}: must not be negative")
    return replace(owner, **{path[0]: value})
