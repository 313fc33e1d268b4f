"""Settings that make no sense, and what the coordinator says to them: S13, once at the end of a run with probes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.coordinator.group_configs import (
    ASSIGNMENT_INTERVAL,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    GroupConfig,
)
from kip848_client.coordinator.requests import ConfigChanged
from kip848_client.coordinator.result import GroupConfigReplaced, SoftChange
from kip848_client.errors import ConfigError
from kip848_client.member.settings import MemberConfig
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.observer import Observer
from kip848_client.simulation.violation import fail
from kip848_client.simulation.world import World
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor

_INT32_MAX: Final = 2**31 - 1


class Settings(Observer):
    """S13: a setting of a broker, a group or a member that is out of its bounds or contradicts another is refused."""

    def __init__(self, world: World, cluster: Cluster, config: CoordinatorConfig) -> None:
        self._world = world
        self._cluster = cluster
        self._config = config

    def converged(self) -> None:
        """Try them all."""
        for changes, good in _of_broker(self._config):
            try:
                replace(self._config, **changes)
                taken = True
            except ConfigError:
                taken = False
            if taken != good:
                fail("S13", f"settings of a broker: {changes} are taken: {taken}")
        for changes, good in _of_member():
            try:
                MemberConfig(**{"group_id": "elsewhere", "member_id": "somebody", **changes})  # type: ignore[arg-type]
                taken = True
            except ConfigError:
                taken = False
            if taken != good:
                fail("S13", f"settings of a member: {changes} are taken: {taken}")
        config = self._config
        for overrides, fits in _of_group(config):
            try:
                result = self._cluster.coordinator.handle(
                    ConfigChanged("elsewhere", overrides), now_ms=self._world.now_ms
                )
                found: tuple[SoftChange, ...] = result.soft
            except ConfigError:
                found = ()
            wanted = (GroupConfigReplaced("elsewhere", _resolved(config, overrides) if overrides else None),)
            if found != (wanted if fits else ()):
                fail("S13", f"settings of a group: {overrides} lead to {found}")


def _resolved(config: CoordinatorConfig, overrides: Mapping[str, str]) -> GroupConfig | None:
    if not all(value.isdigit() for value in overrides.values()):
        return None
    return GroupConfig(
        session_timeout_ms=int(overrides.get(SESSION_TIMEOUT, config.consumer_session_timeout_ms)),
        heartbeat_interval_ms=int(overrides.get(HEARTBEAT_INTERVAL, config.consumer_heartbeat_interval_ms)),
        assignment_interval_ms=int(overrides.get(ASSIGNMENT_INTERVAL, config.consumer_assignment_interval_ms)),
        connect_session_timeout_ms=config.connect_session_timeout_ms,
        connect_heartbeat_interval_ms=config.connect_heartbeat_interval_ms,
    )


def _of_broker(config: CoordinatorConfig) -> Iterator[tuple[Mapping[str, object], bool]]:
    """(what is set, whether it is taken)."""
    session_ms, interval_ms = config.consumer_session_timeout_ms, config.consumer_heartbeat_interval_ms
    session_max_ms, interval_max_ms = (
        config.consumer_max_session_timeout_ms,
        config.consumer_max_heartbeat_interval_ms,
    )
    fitting: tuple[Mapping[str, object], ...] = (
        {"consumer_session_timeout_ms": session_max_ms, "consumer_heartbeat_interval_ms": interval_max_ms},
        {"consumer_min_session_timeout_ms": session_ms, "consumer_min_heartbeat_interval_ms": interval_ms},
        {"consumer_heartbeat_interval_ms": session_ms - 1},
        {"consumer_assignment_interval_ms": 0},
        {"consumer_assignment_interval_ms": 15_000},
        {"consumer_assignors": ("range",)},
        {"consumer_max_size": 1},
        {"members_max": _INT32_MAX},
    )
    bad: tuple[Mapping[str, object], ...] = (
        {"consumer_session_timeout_ms": session_max_ms + 1},
        {"consumer_min_session_timeout_ms": session_ms + 1},
        {"consumer_session_timeout_ms": session_max_ms, "consumer_heartbeat_interval_ms": interval_max_ms + 1},
        {"consumer_min_heartbeat_interval_ms": interval_ms + 1},
        {"consumer_heartbeat_interval_ms": session_ms},
        {"consumer_assignors": ()},
        {"consumer_assignors": ("uniform", "uniform")},
        {"consumer_max_size": 0},
        {"members_max": _INT32_MAX + 1},
        {"consumer_assignment_interval_ms": -1},
        {"consumer_assignment_interval_ms": 15_001},
    )
    yield from ((changes, True) for changes in fitting)
    yield from ((changes, False) for changes in bad)


def _of_member() -> Iterator[tuple[Mapping[str, object], bool]]:
    """(what is set, whether it is taken)."""
    for name, least in (
        ("assignor_timeout_ms", 1),
        ("max_poll_interval_ms", 1),
        ("rebalance_timeout_ms", 1),
        ("request_timeout_ms", 1),
        ("retry_backoff_ms", 0),
        ("retry_backoff_max_ms", 0),
        ("auto_commit_interval_ms", 0),
        ("unreleased_instance_retry_ms", 0),
    ):
        yield {name: least}, True
        yield {name: least - 1}, False
    assignors = (Assignor("somebody's", 0, 1, 0, 1, b""),)
    yield {"auto_commit_interval_ms": None}, True
    yield {"client_assignors": assignors}, True
    yield {"server_assignor": "uniform"}, True
    yield {"client_assignors": assignors, "server_assignor": "uniform"}, False
    for name in ("group_id", "member_id", "instance_id"):
        yield {name: ""}, False
    yield {"group_id": " "}, False


def _of_group(config: CoordinatorConfig) -> Iterator[tuple[Mapping[str, str], bool]]:
    """(what is set, whether it is taken)."""
    session_ms = config.consumer_session_timeout_ms
    for name, low, high in (
        (SESSION_TIMEOUT, config.consumer_heartbeat_interval_ms + 1, config.consumer_max_session_timeout_ms),
        (HEARTBEAT_INTERVAL, config.consumer_min_heartbeat_interval_ms, session_ms - 1),
        (ASSIGNMENT_INTERVAL, 0, 15_000),
    ):
        for value, good in ((low, True), (low - 1, False), (high, True), (high + 1, False)):
            yield {name: str(value)}, good
        yield {name: "much"}, False
    yield {"consumer.unknown": "1"}, False
    yield {}, True
