"""Settings that one group overrides for itself (configuration resource GROUP). Checks and look-ups only.

The shell stores the overrides, and sends `ConfigChanged` with them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeAlias, get_type_hints

import msgspec

from kip848_client.config.reset import duration_ms
from kip848_client.errors import ConfigError
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
CONNECT_SESSION_TIMEOUT: Final = "connect.session.timeout.ms"
CONNECT_HEARTBEAT_INTERVAL: Final = "connect.heartbeat.interval.ms"

_SHORTER: Final = (
    (HEARTBEAT_INTERVAL, SESSION_TIMEOUT),
    (SHARE_HEARTBEAT_INTERVAL, SHARE_SESSION_TIMEOUT),
    (CONNECT_HEARTBEAT_INTERVAL, CONNECT_SESSION_TIMEOUT),
)
"""Pairs of which the first must be less than the second."""


Value: TypeAlias = int | bool | str


class Override(msgspec.Struct, frozen=True):
    """A number; stands in the annotation of a field of `GroupConfig`.

    Args:
        name: Kafka's, for a group.
        default: the field of `CoordinatorConfig` that holds for groups without an override.
        minimum: the least value, or the field of `CoordinatorConfig` that has it; the same for *maximum*.
    """

    name: str
    default: str
    minimum: int | str = 1
    maximum: int | str = 2**31 - 1

    def default_of(self, config: CoordinatorConfig) -> Value:
        """The value without an override."""
        number: int = getattr(config, self.default)
        return number

    def read(self, text: str, config: CoordinatorConfig) -> Value:
        """The value of an override.

        Raises:
            ConfigError: it is not a number, or outside the bounds.
        """
        try:
            value = int(text)
        except ValueError as error:
            raise ConfigError(f"{self.name} must be a whole number, got {text!r}") from error
        minimum, maximum = _bound(self.minimum, config), _bound(self.maximum, config)
        if not minimum <= value <= maximum:
            raise ConfigError(f"{self.name} must be within [{minimum}, {maximum}], got {value}")
        return value


class Choice(msgspec.Struct, frozen=True):
    """A text, or true or false, that no broker property stands for; in the annotation of a field, too.

    Args:
        accepts: whether it is a value.
        what: what a value must be, in words.
    """

    name: str
    default: bool | str
    accepts: Callable[[str], bool]
    what: str

    def default_of(self, config: CoordinatorConfig) -> Value:
        """The value without an override."""
        del config
        return self.default

    def read(self, text: str, config: CoordinatorConfig) -> Value:
        """The value of an override.

        Raises:
            ConfigError: it is none.
        """
        del config
        if not self.accepts(text):
            raise ConfigError(f"{self.name} must be {self.what}, got {text!r}")
        return text.lower() == "true" if isinstance(self.default, bool) else text


def _is_bool(text: str) -> bool:
    return text.lower() in ("true", "false")


def _is_auto_offset_reset(text: str) -> bool:
    return text in ("earliest", "latest") or duration_ms(text) is not None


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
    share_session_timeout_ms: Annotated[
        int,
        Override(
            SHARE_SESSION_TIMEOUT,
            default="share_session_timeout_ms",
            minimum="share_min_session_timeout_ms",
            maximum="share_max_session_timeout_ms",
        ),
    ]
    share_heartbeat_interval_ms: Annotated[
        int,
        Override(
            SHARE_HEARTBEAT_INTERVAL,
            default="share_heartbeat_interval_ms",
            minimum="share_min_heartbeat_interval_ms",
            maximum="share_max_heartbeat_interval_ms",
        ),
    ]
    share_assignment_interval_ms: Annotated[
        int, Override("share.assignment.interval.ms", default="share_assignment_interval_ms", minimum=0, maximum=15_000)
    ]
    share_record_lock_duration_ms: Annotated[
        int,
        Override(
            "share.record.lock.duration.ms",
            default="share_record_lock_duration_ms",
            minimum="share_min_record_lock_duration_ms",
            maximum="share_max_record_lock_duration_ms",
        ),
    ]
    share_delivery_count_limit: Annotated[
        int,
        Override(
            "share.delivery.count.limit",
            default="share_delivery_count_limit",
            minimum="share_min_delivery_count_limit",
            maximum="share_max_delivery_count_limit",
        ),
    ]
    share_partition_max_record_locks: Annotated[
        int,
        Override(
            "share.partition.max.record.locks",
            default="share_partition_max_record_locks",
            minimum="share_min_partition_max_record_locks",
            maximum="share_max_partition_max_record_locks",
        ),
    ]
    share_auto_offset_reset: Annotated[
        str,
        Choice(
            "share.auto.offset.reset",
            default="latest",
            accepts=_is_auto_offset_reset,
            what="earliest, latest, or by_duration:PT1H",
        ),
    ]
    share_isolation_level: Annotated[
        str,
        Choice(
            "share.isolation.level",
            default="read_uncommitted",
            accepts=("read_committed", "read_uncommitted").__contains__,
            what="read_committed or read_uncommitted",
        ),
    ]
    share_renew_acknowledge_enable: Annotated[
        bool, Choice("share.renew.acknowledge.enable", default=True, accepts=_is_bool, what="true or false")
    ]
    dead_letter_topic: Annotated[
        str,
        Choice(
            "errors.deadletterqueue.topic.name",
            default="",
            accepts=lambda text: not text.startswith("__"),
            what="a name without __ at its beginning",
        ),
    ]
    dead_letter_copy_record: Annotated[
        bool, Choice("errors.deadletterqueue.copy.record.enable", default=False, accepts=_is_bool, what="true or false")
    ]
    connect_session_timeout_ms: Annotated[int, Override(CONNECT_SESSION_TIMEOUT, default="connect_session_timeout_ms")]
    connect_heartbeat_interval_ms: Annotated[
        int, Override(CONNECT_HEARTBEAT_INTERVAL, default="connect_heartbeat_interval_ms")
    ]

    @classmethod
    def of(cls, config: CoordinatorConfig) -> GroupConfig:
        """The values for a group without overrides."""
        values: dict[str, Any] = {field: override.default_of(config) for field, override in _overrides().items()}
        return cls(**values)

    def properties(self) -> Mapping[str, str]:
        """Name -> value, as DescribeConfigs shows them."""
        values = {override.name: getattr(self, field) for field, override in _overrides().items()}
        return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}


@functools.cache
def _overrides() -> Mapping[str, Override | Choice]:
    """Field -> setting."""
    hints = get_type_hints(GroupConfig, include_extras=True)
    return {field: hints[field].__metadata__[0] for field in GroupConfig.__struct_fields__}


def resolve_group_config(overrides: Mapping[str, str], *, config: CoordinatorConfig) -> GroupConfig:
    """Lay *overrides* over *config*.

    Raises:
        ConfigError: an unknown name, a value that is not of its type or outside the bounds, or a heartbeat interval
            that is not below the session timeout. Kafka answers INVALID_CONFIG.

    Source:
        Kafka's ``GroupConfig.validate``.
    """
    known = {override.name: override for override in _overrides().values()}
    values: dict[str, Any] = {override.name: override.default_of(config) for override in known.values()}
    for name, text in overrides.items():
        if name not in known:
            raise ConfigError(f"unknown group config {name!r}; known are {', '.join(known)}")
        values[name] = known[name].read(text, config)
    for less, more in _SHORTER:
        if values[less] >= values[more]:
            raise ConfigError(f"{less} ({values[less]}) must be less than {more} ({values[more]})")
    return GroupConfig(**{field: values[override.name] for field, override in _overrides().items()})


def _bound(bound: int | str, config: CoordinatorConfig) -> int:
    number: int = getattr(config, bound) if isinstance(bound, str) else bound
    return number
