"""Settings that one group overrides for itself (configuration resource GROUP). Checks and look-ups only.

Where the overrides are kept is the shell's business: it sends `ConfigChanged` with what is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kip848_client.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.errors import ConfigError

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"

CONNECT_SESSION_TIMEOUT: Final = "connect.session.timeout.ms"
CONNECT_HEARTBEAT_INTERVAL: Final = "connect.heartbeat.interval.ms"

GROUP_CONFIG_NAMES: Final = (
    SESSION_TIMEOUT,
    HEARTBEAT_INTERVAL,
    ASSIGNMENT_INTERVAL,
    CONNECT_SESSION_TIMEOUT,
    CONNECT_HEARTBEAT_INTERVAL,
)
"""Every name that a group may override."""


class GroupConfig(msgspec.Struct, frozen=True):
    """The settings in force for one group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    connect_session_timeout_ms: int = 45_000
    connect_heartbeat_interval_ms: int = 5_000

    @classmethod
    def of(cls, config: CoordinatorConfig) -> GroupConfig:
        """What holds for a group without overrides."""
        return cls(
            session_timeout_ms=config.consumer_session_timeout_ms,
            heartbeat_interval_ms=config.consumer_heartbeat_interval_ms,
            assignment_interval_ms=config.consumer_assignment_interval_ms,
            connect_session_timeout_ms=config.connect_session_timeout_ms,
            connect_heartbeat_interval_ms=config.connect_heartbeat_interval_ms,
        )

    def properties(self) -> Mapping[str, str]:
        """Name -> value, as DescribeConfigs shows them."""
        return {
            SESSION_TIMEOUT: str(self.session_timeout_ms),
            HEARTBEAT_INTERVAL: str(self.heartbeat_interval_ms),
            ASSIGNMENT_INTERVAL: str(self.assignment_interval_ms),
            CONNECT_SESSION_TIMEOUT: str(self.connect_session_timeout_ms),
            CONNECT_HEARTBEAT_INTERVAL: str(self.connect_heartbeat_interval_ms),
        }


def resolve_group_config(overrides: Mapping[str, str], *, config: CoordinatorConfig) -> GroupConfig:
    """Lay *overrides* over *config*.

    Raises:
        ConfigError: an unknown name, a value that is not a number or outside the bounds, or a heartbeat interval
            that is not below the session timeout. Kafka answers INVALID_CONFIG.

    Source:
        Kafka's ``GroupConfig.validate``.
    """
    bounds = {
        SESSION_TIMEOUT: (config.consumer_min_session_timeout_ms, config.consumer_max_session_timeout_ms),
        HEARTBEAT_INTERVAL: (config.consumer_min_heartbeat_interval_ms, config.consumer_max_heartbeat_interval_ms),
        ASSIGNMENT_INTERVAL: (0, 15_000),
        CONNECT_SESSION_TIMEOUT: (1, 2**31 - 1),
        CONNECT_HEARTBEAT_INTERVAL: (1, 2**31 - 1),
    }
    values = {name: int(value) for name, value in GroupConfig.of(config).properties().items()}
    for name, text in overrides.items():
        if name not in bounds:
            raise ConfigError(f"unknown group config {name!r}; known are {', '.join(GROUP_CONFIG_NAMES)}")
        try:
            value = int(text)
        except ValueError as error:
            raise ConfigError(f"{name} must be a whole number, got {text!r}") from error
        minimum, maximum = bounds[name]
        if not minimum <= value <= maximum:
            raise ConfigError(f"{name} must be within [{minimum}, {maximum}], got {value}")
        values[name] = value
    for interval, session in (
        (HEARTBEAT_INTERVAL, SESSION_TIMEOUT),
        (CONNECT_HEARTBEAT_INTERVAL, CONNECT_SESSION_TIMEOUT),
    ):
        if values[interval] >= values[session]:
            raise ConfigError(f"{interval} ({values[interval]}) must be less than {session} ({values[session]})")
    return GroupConfig(
        session_timeout_ms=values[SESSION_TIMEOUT],
        heartbeat_interval_ms=values[HEARTBEAT_INTERVAL],
        assignment_interval_ms=values[ASSIGNMENT_INTERVAL],
        connect_session_timeout_ms=values[CONNECT_SESSION_TIMEOUT],
        connect_heartbeat_interval_ms=values[CONNECT_HEARTBEAT_INTERVAL],
    )
