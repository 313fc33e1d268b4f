"""Settings of the coordinator: Kafka's broker property names in, checked values out. Every default is here.

Two profiles. ``default`` is quick, for tests and development: its rebalances take a fraction of a second. ``kafka`` has
Kafka's own defaults and bounds. What one group may override for itself is in `group_configs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final, Literal

from kip848_client.errors import ConfigError

Profile = Literal["default", "kafka"]

_INT32_MAX: Final = 2**31 - 1


def _setting(default: int, name: str, *, minimum: int = 0, maximum: int = _INT32_MAX) -> int:
    value: int = field(default=default, metadata={"name": name, "minimum": minimum, "maximum": maximum})
    return value


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """What the coordinator is told at its start. Times in ms unless the name says otherwise.

    Raises:
        ConfigError: a value is outside its bounds, or two contradict each other.

    Source:
        Kafka's ``GroupCoordinatorConfig``.
    """

    consumer_session_timeout_ms: int = _setting(10_000, "group.consumer.session.timeout.ms", minimum=1)
    consumer_min_session_timeout_ms: int = _setting(100, "group.consumer.min.session.timeout.ms", minimum=1)
    consumer_max_session_timeout_ms: int = _setting(60_000, "group.consumer.max.session.timeout.ms", minimum=1)
    consumer_heartbeat_interval_ms: int = _setting(100, "group.consumer.heartbeat.interval.ms", minimum=1)
    consumer_min_heartbeat_interval_ms: int = _setting(10, "group.consumer.min.heartbeat.interval.ms", minimum=1)
    consumer_max_heartbeat_interval_ms: int = _setting(15_000, "group.consumer.max.heartbeat.interval.ms", minimum=1)
    consumer_max_size: int = _setting(_INT32_MAX, "group.consumer.max.size", minimum=1)
    members_max: int = _setting(100_000, "kip848.members.max", minimum=1)
    """Members of all groups together; who would be one more is refused. Not Kafka's: it bounds memory."""
    groups_max: int = _setting(20_000, "kip848.groups.max", minimum=1)
    """Groups with members, without them and with offsets only; one more is not made. Not Kafka's, as above."""
    consumer_assignors: tuple[str, ...] = field(
        default=("uniform", "range"), metadata={"name": "group.consumer.assignors"}
    )
    """Names, the most preferred first: the first one decides where members ask for none, or votes are equal."""
    consumer_assignment_interval_ms: int = _setting(0, "group.consumer.assignment.interval.ms", maximum=15_000)
    """Least time between two targets of one group, so that many joins share one (KIP-1263)."""
    consumer_regex_refresh_interval_ms: int = _setting(
        600_000, "group.consumer.regex.refresh.interval.ms", minimum=10_000
    )
    consumer_regex_refresh_min_interval_ms: int = _setting(100, "group.consumer.regex.refresh.min.interval.ms")
    """Least time between two matches of one group's patterns. Kafka has 10 s and no property for it."""
    client_assignors: bool = field(default=True, metadata={"name": "kip848.client.assignors.enable"})
    """Whether members may compute the target (client-side assignors); if not, what they offer is not read."""
    client_assignment_timeout_ms: int = _setting(0, "kip848.client.assignment.timeout.ms")
    """How long a chosen member may take for the target before another one is asked; 0: its rebalance timeout."""
    client_assignors_bytes_max: int = _setting(65_536, "kip848.client.assignors.max.bytes")
    """Names and metadata that one member may offer, and metadata that an assignor may tell one member."""
    offset_metadata_max_bytes: int = _setting(4096, "offset.metadata.max.bytes")
    offsets_retention_minutes: int = _setting(10_080, "offsets.retention.minutes", minimum=1)
    offsets_retention_check_interval_ms: int = _setting(600_000, "offsets.retention.check.interval.ms", minimum=1)

    def __post_init__(self) -> None:
        for item in fields(self):
            if (minimum := item.metadata.get("minimum")) is not None:
                value, maximum = getattr(self, item.name), item.metadata["maximum"]
                if not minimum <= value <= maximum:
                    raise ConfigError(f"{item.metadata['name']} must be within [{minimum}, {maximum}], got {value}")
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
        by_name = {item.metadata["name"]: item.name for item in fields(cls)}
        values: dict[str, int | bool | tuple[str, ...]] = {}
        for name, text in properties.items():
            if name not in by_name:
                raise ConfigError(f"unknown coordinator property {name!r}; known are {', '.join(sorted(by_name))}")
            if name == "group.consumer.assignors":
                values[by_name[name]] = tuple(part.strip() for part in text.split(",") if part.strip())
            elif name == "kip848.client.assignors.enable":
                values[by_name[name]] = _parse_bool(name, text)
            else:
                values[by_name[name]] = _parse_int(name, text)
        return replace(cls.for_profile(profile), **values)  # type: ignore[arg-type]  # names and types are from fields()

    @staticmethod
    def property_names() -> frozenset[str]:
        """Every name that `from_properties` reads."""
        return frozenset(item.metadata["name"] for item in fields(CoordinatorConfig))

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
)
