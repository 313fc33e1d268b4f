"""Scenarios whose numbers come from the seed: small and dense, each with only some kinds of faults.

With all kinds of faults at once a group makes little progress, so each seed turns on a few of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from kip848_client.simulation.scenario import BRIEF, MIXED, SCENARIOS, Behaviour, NetworkFaults, Scenario, change

_TOPICS: Final = ({"orders": 4}, {"orders": 4, "audit": 2}, {"orders": 3, "audit": 2, "clicks": 1}, {"orders": 2})

_WITH_ASSIGNORS: Final = 0.05

_EARLY: Final = (0.0, 0.0, 0.5, 1.0)
"""Part of the consumers with early heartbeats, as a consumer has by default."""

_EVENTS: Final[tuple[tuple[str, float, float], ...]] = (
    # number of the scenario     part of the seeds   expected events a second, at most
    ("joins", 0.6, 0.6),
    ("leaves", 0.5, 0.5),
    ("crashes", 0.4, 0.5),
    ("cuts", 0.35, 0.6),
    ("resubscriptions", 0.3, 0.5),
    ("growths", 0.2, 0.3),
    ("deletions", 0.15, 0.4),
    ("coordinator_crashes", 0.2, 0.4),
    ("failovers", 0.25, 0.5),
    ("freezes", 0.25, 0.5),
    ("refusals", 0.4, 1.2),
    ("throttles", 0.05, 0.5),
    ("wall_jumps", 0.05, 0.5),
    ("config_changes", 0.1, 0.4),
    ("double_starts", 0.15, 0.6),
)


def scenario_of(name: str, *, seed: int, changes: Iterable[str] = ()) -> Scenario:
    """The scenario of that name for a seed, with numbers changed as `change` does it.

    Raises:
        ConfigError: a change makes no sense.
        KeyError: there is no such scenario.
    """
    return change(settled(SCENARIOS[name], seed=seed), changes)


def settled(scenario: Scenario, *, seed: int) -> Scenario:
    """*scenario* itself, or if it is `MIXED` or `BRIEF` what *seed* makes of it."""
    if scenario == MIXED:
        drawn = _draw(random.Random(f"{seed}/variety"))
    elif scenario == BRIEF:
        drawn = _draw_brief(random.Random(f"{seed}/brief"))
    else:
        return scenario
    # A randomness of its own, so that the other numbers of a seed are what they were before there was this one.
    return replace(drawn, early=random.Random(f"{seed}/early").choice(_EARLY))


def _draw(rng: random.Random) -> Scenario:
    def maybe(part: float, value: float) -> float:
        return round(rng.random() * value, 4) if rng.random() < part else 0.0

    events = {name: maybe(part, most) for name, part, most in _EVENTS}
    faults = NetworkFaults(
        loss=maybe(0.5, 0.12) if rng.random() < 0.95 else maybe(1.0, 0.5),
        duplicate=maybe(0.5, 0.15),
        break_connection=maybe(0.3, 0.06),
        delay_ms=(0, rng.choice((2, 20, 60, 150))),
        slow=maybe(0.3, 0.05),
        stuck=maybe(0.2, 0.02),
    )
    behaviour = Behaviour(
        think_ms=(10, rng.choice((50, 200, 600))),
        listener_ms=(0, rng.choice((5, 50, 400))),
        listener_raises=maybe(0.25, 0.6),
        hang=maybe(0.15, 0.1),
        stall=maybe(0.15, 0.05),
        commit=maybe(0.5, 0.6),
    )
    heartbeat_interval_ms = rng.choice((500, 500, 1_000))
    # Three seconds of a group that heartbeats twice a second see as much as a minute of one that does every five.
    return Scenario(
        name="mixed",
        members=rng.choice((2, 3, 3, 3, 4, 4, 5)),
        members_max=6,
        topics=rng.choice(_TOPICS),
        duration_ms=rng.choice((4, 5, 7)) * heartbeat_interval_ms,
        faults=faults,
        behaviour=behaviour,
        **events,  # type: ignore[arg-type]  # all of them are rates
        one_way=0.4,
        deposed=0.5,
        coordinator_crashes_after_append=maybe(0.15, 0.04),
        coordinator_crashes_before_append=maybe(0.15, 0.04),
        replication_ms=rng.choice((0, 0, 60, 500)),
        statics=rng.choice((0.0, 0.0, 0.0, 0.5, 1.0)),
        patterns=rng.choice((0.0, 0.0, 0.0, 0.0, 0.5)),
        metadata_lag_ms=rng.choice((0, 0, 0, 400)),
        group_max_size=rng.choice((0, 0, 0, 0, 0, 0, 0, 4)),
        produce_ms=rng.choice((150, 300, 600)),
        heartbeat_interval_ms=heartbeat_interval_ms,
        session_timeout_ms=heartbeat_interval_ms * rng.choice((4, 5, 6)),
        max_poll_interval_ms=heartbeat_interval_ms * rng.choice((6, 8)),
        request_timeout_ms=rng.choice((800, 1_500, 3_000)),
    )


def _draw_brief(rng: random.Random) -> Scenario:
    """What `_draw` makes, for two or three intervals; half of them without a trial. Applications poll often."""
    scenario = _draw(rng)
    assigns = rng.random() < _WITH_ASSIGNORS
    behaviour = replace(scenario.behaviour, poll_ms=100)
    if assigns:
        behaviour = replace(behaviour, misbehaves=rng.choice((0.0, 0.0, 0.2)), reweighs=rng.choice((0.0, 0.1)))
    return replace(
        scenario,
        name="brief",
        duration_ms=rng.choice((2, 3)) * scenario.heartbeat_interval_ms,
        trials=rng.choice((0, 1)),
        assignors=0.97 if assigns else 0.0,
        behaviour=behaviour,
        encoded=0.05,
        purity=0.03,
        probes=0.03,
    )
