"""Settings that one group overrides for itself (configuration resource GROUP). Checks and look-ups only.

The shell stores the overrides, and sends `ConfigChanged` with them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Final, get_type_hints

import msgspec

from kip848_client.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.errors import ConfigError

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
CONNECT_SESSION_TIMEOUT: Final = "connect.session.timeout.ms"
CONNECT_HEARTBEAT_INTERVAL: Final = "connect.heartbeat.interval.ms"

_SHORTER: Final = (
    (HEARTBEAT_INTERVAL, SESSION_TIMEOUT),
    (CONNECT_HEARTBEAT_INTERVAL, CONNECT_SESSION_TIMEOUT),
)
"""Pairs of which the first must be less than the second."""


class Override(msgspec.Struct, frozen=True):
    """One setting; stands in the annotation of a field of `GroupConfig`.

    Args:
        name: Kafka's, for a group.
        default: the field of `CoordinatorConfig` that holds for groups without an override.
        minimum: the least value, or the field of `CoordinatorConfig` that has it; the same for *maximum*.
    """

    name: str
    default: str
    minimum: int | str = 1
    maximum: int | str = 2**31 - 1


class GroupConfig(msgspec.Struct, frozen=True):
    """The settings in force for one group."""

    session_timeout_ms: Annotated[
        int,
        Override(
            SESSION_TIMEOUT,
            default="consumer_session_timeout_ms",
            minimum="consumer_min_session_timeout_ms",
            maximum="consumer_max_session_timeout_ms",
        ),
    ]
    heartbeat_interval_ms: Annotated[
        int,
        Override(
            HEARTBEAT_INTERVAL,
            default="consumer_heartbeat_interval_ms",
            minimum="consumer_min_heartbeat_interval_ms",
            maximum="consumer_max_heartbeat_interval_ms",
        ),
    ]
    assignment_interval_ms: Annotated[
        int,
        Override(
            "consumer.assignment.interval.ms", default="consumer_assignment_interval_ms", minimum=0, maximum=15_000
        ),
    ]
    connect_session_timeout_ms: Annotated[int, Override(CONNECT_SESSION_TIMEOUT, default="connect_session_timeout_ms")]
    connect_heartbeat_interval_ms: Annotated[
        int, Override(CONNECT_HEARTBEAT_INTERVAL, default="connect_heartbeat_interval_ms")
    ]

    @classmethod
    def of(cls, config: CoordinatorConfig) -> GroupConfig:
        """The values for a group without overrides."""
        return cls(**{field: getattr(config, override.default) for field, override in _overrides().items()})

    def properties(self) -> Mapping[str, str]:
        """Name -> value, as DescribeConfigs shows them."""
        return {override.name: str(getattr(self, field)) for field, override in _overrides().items()}


@functools.cache
def _overrides() -> Mapping[str, Override]:
    """Field -> setting."""
    hints = get_type_hints(GroupConfig, include_extras=True)
    return {field: hints[field].__metadata__[0] for field in GroupConfig.__struct_fields__}


GROUP_CONFIG_NAMES: Final = tuple(override.name for override in _overrides().values())
"""Every name that a group may override."""


def resolve_group_config(overrides: Mapping[str, str], *, config: CoordinatorConfig) -> GroupConfig:
    """Lay *overrides* over *config*.

    Raises:
        ConfigError: an unknown name, a value that is not a number or outside the bounds, or a heartbeat interval
            that is not below the session timeout. Kafka answers INVALID_CONFIG.

    Source:
        Kafka's ``GroupConfig.validate``.
    """
    known = {override.name: override for override in _overrides().values()}
    values = {name: int(value) for name, value in GroupConfig.of(config).properties().items()}
    for name, text in overrides.items():
        if name not in known:
            raise ConfigError(f"unknown group config {name!r}; known are {', '.join(known)}")
        try:
            value = int(text)
        except ValueError as error:
            raise ConfigError(f"{name} must be a whole number, got {text!r}") from error
        minimum, maximum = _bound(known[name].minimum, config), _bound(known[name].maximum, config)
        if not minimum <= value <= maximum:
            raise ConfigError(f"{name} must be within [{minimum}, {maximum}], got {value}")
        values[name] = value
    for less, more in _SHORTER:
        if values[less] >= values[more]:
            raise ConfigError(f"{less} ({values[less]}) must be less than {more} ({values[more]})")
    return GroupConfig(**{field: values[override.name] for field, override in _overrides().items()})


def _bound(bound: int | str, config: CoordinatorConfig) -> int:
    number: int = getattr(config, bound) if isinstance(bound, str) else bound
    return number
