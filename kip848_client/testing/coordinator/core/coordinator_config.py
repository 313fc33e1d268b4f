"""Settings of the coordinator: Kafka's broker property names in, checked values out. Every default is here.

Two profiles. ``default`` is quick, for tests and development: its rebalances take a fraction of a second. ``kafka`` has
Kafka's own defaults and bounds. The settings that a group may override for itself are in `group_overrides`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Final, Literal, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from kip848_client.errors import ConfigError

Profile = Literal["default", "kafka"]
MigrationPolicy = Literal["disabled", "downgrade", "upgrade", "bidirectional"]
"""Conversions of a live group: none, only to a classic group, only to a consumer group, or both."""

_INT32_MAX: Final = 2**31 - 1
_SHARE_BOUNDED: Final = {
    "session.timeout.ms": "session_timeout_ms",
    "heartbeat.interval.ms": "heartbeat_interval_ms",
    "record.lock.duration.ms": "record_lock_duration_ms",
    "delivery.count.limit": "delivery_count_limit",
    "partition.max.record.locks": "partition_max_record_locks",
}
"""Settings of share groups that have a least and a greatest value: end of the property's name -> of the field's."""


class Property(msgspec.Struct, frozen=True):
    """Kafka's name of a setting, and the bounds of a number; stands in the annotation of a field."""

    name: str
    minimum: int = 0
    maximum: int = _INT32_MAX


@functools.cache
def properties_of(cls: type[msgspec.Struct]) -> Mapping[str, Property]:
    """The settings of *cls* that have a property: name of the field -> property."""
    hints = get_type_hints(cls, include_extras=True)
    return {
        name: item
        for name in cls.__struct_fields__
        for item in getattr(hints[name], "__metadata__", ())
        if isinstance(item, Property)
    }


class CoordinatorConfig(msgspec.Struct, frozen=True):
    """Settings of one coordinator. Times in ms unless the name says otherwise.

    Raises:
        ConfigError: a value is outside its bounds, or two contradict each other.

    Source:
        Kafka's ``GroupCoordinatorConfig``.
    """

    consumer_session_timeout_ms: Annotated[int, Property("group.consumer.session.timeout.ms", minimum=1)] = 10_000
    consumer_min_session_timeout_ms: Annotated[int, Property("group.consumer.min.session.timeout.ms", minimum=1)] = 100
    consumer_max_session_timeout_ms: Annotated[int, Property("group.consumer.max.session.timeout.ms", minimum=1)] = (
        60_000
    )
    consumer_heartbeat_interval_ms: Annotated[int, Property("group.consumer.heartbeat.interval.ms", minimum=1)] = 100
    consumer_min_heartbeat_interval_ms: Annotated[
        int, Property("group.consumer.min.heartbeat.interval.ms", minimum=1)
    ] = 10
    consumer_max_heartbeat_interval_ms: Annotated[
        int, Property("group.consumer.max.heartbeat.interval.ms", minimum=1)
    ] = 15_000
    consumer_max_size: Annotated[int, Property("group.consumer.max.size", minimum=1)] = _INT32_MAX
    protocols: Annotated[tuple[str, ...], Property("group.coordinator.rebalance.protocols")] = ("classic", "consumer")
    """Kinds of groups. ``classic`` and ``consumer`` are always served; ``connect``, which is ours, only if listed."""
    connect_session_timeout_ms: Annotated[int, Property("group.connect.session.timeout.ms", minimum=1)] = 10_000
    connect_heartbeat_interval_ms: Annotated[int, Property("group.connect.heartbeat.interval.ms", minimum=1)] = 100
    connect_max_size: Annotated[int, Property("group.connect.max.size", minimum=1)] = _INT32_MAX
    share_session_timeout_ms: Annotated[int, Property("group.share.session.timeout.ms", minimum=1)] = 10_000
    share_min_session_timeout_ms: Annotated[int, Property("group.share.min.session.timeout.ms", minimum=1)] = 100
    share_max_session_timeout_ms: Annotated[int, Property("group.share.max.session.timeout.ms", minimum=1)] = 60_000
    share_heartbeat_interval_ms: Annotated[int, Property("group.share.heartbeat.interval.ms", minimum=1)] = 100
    share_min_heartbeat_interval_ms: Annotated[int, Property("group.share.min.heartbeat.interval.ms", minimum=1)] = 10
    share_max_heartbeat_interval_ms: Annotated[int, Property("group.share.max.heartbeat.interval.ms", minimum=1)] = (
        15_000
    )
    share_assignment_interval_ms: Annotated[int, Property("group.share.assignment.interval.ms", maximum=15_000)] = 0
    share_max_size: Annotated[int, Property("group.share.max.size", minimum=1, maximum=1_000)] = 200
    share_record_lock_duration_ms: Annotated[
        int, Property("group.share.record.lock.duration.ms", minimum=100, maximum=3_600_000)
    ] = 30_000
    """How long a member may keep a record before others get it."""
    share_min_record_lock_duration_ms: Annotated[
        int, Property("group.share.min.record.lock.duration.ms", minimum=100, maximum=30_000)
    ] = 100
    share_max_record_lock_duration_ms: Annotated[
        int, Property("group.share.max.record.lock.duration.ms", minimum=30_000, maximum=3_600_000)
    ] = 3_600_000
    share_delivery_count_limit: Annotated[int, Property("group.share.delivery.count.limit", minimum=2, maximum=10)] = 5
    share_min_delivery_count_limit: Annotated[
        int, Property("group.share.min.delivery.count.limit", minimum=2, maximum=5)
    ] = 2
    share_max_delivery_count_limit: Annotated[
        int, Property("group.share.max.delivery.count.limit", minimum=5, maximum=25)
    ] = 10
    share_partition_max_record_locks: Annotated[
        int, Property("group.share.partition.max.record.locks", minimum=100, maximum=10_000)
    ] = 2_000
    share_min_partition_max_record_locks: Annotated[
        int, Property("group.share.min.partition.max.record.locks", minimum=100, maximum=2_000)
    ] = 100
    share_max_partition_max_record_locks: Annotated[
        int, Property("group.share.max.partition.max.record.locks", minimum=2_000, maximum=10_000)
    ] = 4_000
    classic_initial_rebalance_delay_ms: Annotated[int, Property("group.initial.rebalance.delay.ms")] = 0
    """How long an empty classic group waits for more members before its first generation."""
    classic_min_session_timeout_ms: Annotated[int, Property("group.min.session.timeout.ms", minimum=1)] = 100
    classic_max_session_timeout_ms: Annotated[int, Property("group.max.session.timeout.ms", minimum=1)] = 1_800_000
    classic_max_size: Annotated[int, Property("group.max.size", minimum=1)] = _INT32_MAX
    migration_policy: Annotated[MigrationPolicy, Property("group.consumer.migration.policy")] = "bidirectional"
    """Whether live groups change between the classic and the consumer protocol; groups without members always may."""
    members_max: Annotated[int, Property("kip848.members.max", minimum=1)] = 100_000
    """Limit of members of all groups together. Kafka has no such limit; here it bounds memory."""
    groups_max: Annotated[int, Property("kip848.groups.max", minimum=1)] = 20_000
    """Limit of groups, even without members or with offsets only. Kafka has no such limit; here it bounds memory."""
    consumer_assignors: Annotated[tuple[str, ...], Property("group.consumer.assignors")] = ("uniform", "range")
    """Names, the most preferred first: the first one decides where members ask for none, or votes are equal."""
    consumer_assignment_interval_ms: Annotated[
        int, Property("group.consumer.assignment.interval.ms", maximum=15_000)
    ] = 0
    """Least time between two targets of one group, so that many joins share one (KIP-1263)."""
    consumer_regex_refresh_interval_ms: Annotated[
        int, Property("group.consumer.regex.refresh.interval.ms", minimum=10_000)
    ] = 600_000
    consumer_regex_refresh_min_interval_ms: Annotated[int, Property("group.consumer.regex.refresh.min.interval.ms")] = (
        100
    )
    """Least time between two matches of one group's patterns. Kafka has 10 s and no property for it."""
    client_assignors: Annotated[bool, Property("kip848.client.assignors.enable")] = True
    """Whether members may compute the target (client-side assignors); if not, their offers are not read."""
    client_assignment_timeout_ms: Annotated[int, Property("kip848.client.assignment.timeout.ms")] = 0
    """How long a chosen member may take for the target before another one is asked; 0: its rebalance timeout."""
    client_assignors_bytes_max: Annotated[int, Property("kip848.client.assignors.max.bytes")] = 65_536
    """Limit of the names and metadata that one member offers, and of an assignor's metadata for one member."""
    offset_metadata_max_bytes: Annotated[int, Property("offset.metadata.max.bytes")] = 4096
    offsets_retention_minutes: Annotated[int, Property("offsets.retention.minutes", minimum=1)] = 10_080
    offsets_retention_check_interval_ms: Annotated[int, Property("offsets.retention.check.interval.ms", minimum=1)] = (
        600_000
    )

    def __post_init__(self) -> None:
        for name, item in properties_of(CoordinatorConfig).items():
            value = getattr(self, name)
            if isinstance(value, int) and not item.minimum <= value <= item.maximum:
                raise ConfigError(f"{item.name} must be within [{item.minimum}, {item.maximum}], got {value}")
        if self.migration_policy not in get_args(MigrationPolicy):
            raise ConfigError(
                f"group.consumer.migration.policy must be one of {', '.join(get_args(MigrationPolicy))}, "
                f"got {self.migration_policy!r}"
            )
        if not self.consumer_assignors or len(set(self.consumer_assignors)) != len(self.consumer_assignors):
            raise ConfigError(
                f"group.consumer.assignors needs one name or more, each once, got {','.join(self.consumer_assignors)!r}"
            )
        _check_between(
            "group.consumer.session.timeout.ms",
            self.consumer_session_timeout_ms,
            minimum=self.consumer_min_session_timeout_ms,
            maximum=self.consumer_max_session_timeout_ms,
        )
        _check_between(
            "group.consumer.heartbeat.interval.ms",
            self.consumer_heartbeat_interval_ms,
            minimum=self.consumer_min_heartbeat_interval_ms,
            maximum=self.consumer_max_heartbeat_interval_ms,
        )
        for name, field in _SHARE_BOUNDED.items():
            _check_between(
                f"group.share.{name}",
                getattr(self, f"share_{field}"),
                minimum=getattr(self, f"share_min_{field}"),
                maximum=getattr(self, f"share_max_{field}"),
            )
        if self.share_heartbeat_interval_ms >= self.share_session_timeout_ms:
            raise ConfigError(
                f"group.share.heartbeat.interval.ms ({self.share_heartbeat_interval_ms}) must be less than "
                f"group.share.session.timeout.ms ({self.share_session_timeout_ms}); a ninth of it is usual"
            )
        if unknown := sorted({"classic", "consumer"} ^ ({*self.protocols} - {"connect"})):
            raise ConfigError(
                f"group.coordinator.rebalance.protocols must be classic,consumer or classic,consumer,connect; "
                f"{', '.join(unknown)} can't be {'added' if unknown[0] in self.protocols else 'left out'} here"
            )
        if self.connect_heartbeat_interval_ms >= self.connect_session_timeout_ms:
            raise ConfigError(
                f"group.connect.heartbeat.interval.ms ({self.connect_heartbeat_interval_ms}) must be less than "
                f"group.connect.session.timeout.ms ({self.connect_session_timeout_ms}); a ninth of it is usual"
            )
        if self.classic_min_session_timeout_ms > self.classic_max_session_timeout_ms:
            raise ConfigError(
                f"group.min.session.timeout.ms ({self.classic_min_session_timeout_ms}) must not be above "
                f"group.max.session.timeout.ms ({self.classic_max_session_timeout_ms})"
            )
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            raise ConfigError(
                f"group.consumer.heartbeat.interval.ms ({self.consumer_heartbeat_interval_ms}) must be less than "
                f"group.consumer.session.timeout.ms ({self.consumer_session_timeout_ms}); a third of it is usual"
            )

    @classmethod
    def for_profile(cls, profile: Profile) -> CoordinatorConfig:
        """The defaults of *profile*."""
        return _KAFKA if profile == "kafka" else cls()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], *, profile: Profile = "default") -> CoordinatorConfig:
        """Read Kafka's broker properties over the defaults of *profile*.

        Args:
            properties: only names of `property_names`.

        Raises:
            ConfigError: an unknown name, or a value that is not of its type or outside its bounds.
        """
        by_name = {item.name: field for field, item in properties_of(CoordinatorConfig).items()}
        values: dict[str, int | bool | str | tuple[str, ...]] = {}
        for name, text in properties.items():
            if name not in by_name:
                raise ConfigError(f"unknown coordinator property {name!r}; known are {', '.join(sorted(by_name))}")
            if name in ("group.consumer.assignors", "group.coordinator.rebalance.protocols"):
                values[by_name[name]] = tuple(part.strip() for part in text.split(",") if part.strip())
            elif name == "group.consumer.migration.policy":
                values[by_name[name]] = text.strip().lower()
            elif name == "kip848.client.assignors.enable":
                values[by_name[name]] = _parse_bool(name, text)
            else:
                values[by_name[name]] = _parse_int(name, text)
        return replace(cls.for_profile(profile), **values)

    @staticmethod
    def property_names() -> frozenset[str]:
        """Every name that `from_properties` reads."""
        return frozenset(item.name for item in properties_of(CoordinatorConfig).values())

    @property
    def connect_groups(self) -> bool:
        """Whether connect groups are served."""
        return "connect" in self.protocols

    @property
    def may_upgrade(self) -> bool:
        """Whether a live classic group becomes a consumer group when such a member joins."""
        return self.migration_policy in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group becomes a classic one when its last member on the new protocol goes."""
        return self.migration_policy in ("downgrade", "bidirectional")

    @property
    def offsets_retention_ms(self) -> int:
        """offsets.retention.minutes in ms."""
        return self.offsets_retention_minutes * 60_000


def _parse_int(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError(f"{name} must be a whole number, got {text!r}") from error


def _parse_bool(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ConfigError(f"{name} must be true or false, got {text!r}")
    return text.strip().lower() == "true"


def _check_between(name: str, value: int, *, minimum: int, maximum: int) -> None:
    if not minimum <= value <= maximum:
        raise ConfigError(f"{name} must be within [{minimum}, {maximum}], got {value}")


_KAFKA: Final = CoordinatorConfig(
    consumer_session_timeout_ms=45_000,
    consumer_min_session_timeout_ms=45_000,
    consumer_heartbeat_interval_ms=5_000,
    consumer_min_heartbeat_interval_ms=5_000,
    consumer_assignment_interval_ms=1_000,
    consumer_regex_refresh_min_interval_ms=10_000,
    client_assignors=False,
    share_session_timeout_ms=45_000,
    share_min_session_timeout_ms=45_000,
    share_heartbeat_interval_ms=5_000,
    share_min_heartbeat_interval_ms=5_000,
    share_assignment_interval_ms=1_000,
    share_min_record_lock_duration_ms=15_000,
    share_max_record_lock_duration_ms=60_000,
    connect_session_timeout_ms=45_000,
    connect_heartbeat_interval_ms=5_000,
    classic_initial_rebalance_delay_ms=3_000,
    classic_min_session_timeout_ms=6_000,
)
