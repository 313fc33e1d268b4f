"""The broker's configuration: Kafka's broker property names in, typed and checked values out.

Owns names, defaults and ranges of what concerns connections, topics and records; those of groups and offsets are the
coordinator's (`CoordinatorConfig`) and are passed on. What a value does is said where it is read.

Two profiles. ``default`` is made for tests: short intervals, wide ranges, the client-side assignor extension on.
``kafka`` has Apache Kafka's defaults and ranges, and the extension off.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from kip848_client.coordinator.config import CoordinatorConfig
from kip848_client.errors import ConfigError

__all__ = ["BrokerConfig", "Profile", "PROPERTY_NAMES"]

Profile = Literal["default", "kafka"]

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class _Property(NamedTuple):
    name: str
    minimum: int = 0
    maximum: int = INT32_MAX


def _integer(name: str, default: int, *, minimum: int = 0, maximum: int = INT32_MAX) -> Any:
    return dataclasses.field(default=default, metadata={"property": _Property(name, minimum, maximum)})


def _other(name: str, default: object) -> Any:
    return dataclasses.field(default=default, metadata={"property": _Property(name)})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Every setting, with the default of the profile ``default``. Times are milliseconds unless the name says more.

    Source:
        apache/kafka GroupCoordinatorConfig, ServerConfigs, SocketServerConfigs, for names and for the values of the
        profile ``kafka``. Names that start with ``kip848.`` are ours.
    """

    coordinator: CoordinatorConfig = dataclasses.field(default_factory=CoordinatorConfig)
    """Everything about groups and offsets."""

    # Topics and records
    auto_create_topics: bool = _other("auto.create.topics.enable", False)
    default_partitions: int = _integer("num.partitions", 1, minimum=1, maximum=100_000)
    delete_topics: bool = _other("delete.topic.enable", True)
    message_bytes_max: int = _integer("message.max.bytes", 1_048_588)
    flush_messages: int = _integer("log.flush.interval.messages", INT64_MAX, minimum=1, maximum=INT64_MAX)
    fetch_bytes_max: int = _integer("fetch.max.bytes", 57_671_680, minimum=1024)

    # Connections
    frame_bytes_max: int = _integer("socket.request.max.bytes", 104_857_600, minimum=1024)
    request_bytes_max: int = _integer("kip848.request.max.bytes", 8_388_608, minimum=1024)
    connections_max: int = _integer("max.connections", 512, minimum=1)
    connection_idle_ms_max: int = _integer("connections.max.idle.ms", 600_000, minimum=1, maximum=INT64_MAX)
    incomplete_frame_ms_max: int = _integer("kip848.incomplete.frame.max.ms", 30_000, minimum=1)
    unauthenticated_bytes_max: int = _integer("sasl.server.max.receive.size", 524_288, minimum=1024)
    connections_reauth_ms_max: int = _integer("connections.max.reauth.ms", 0, maximum=INT64_MAX)
    failed_authentication_delay_ms: int = _integer("connection.failed.authentication.delay.ms", 100)
    authentication_ms_max: int = _integer("kip848.authentication.max.ms", 30_000, minimum=1)
    unanswered_requests_max: int = _integer("kip848.unanswered.requests.max", 100, minimum=1)

    # Ours
    request_log_entries_max: int = _integer("kip848.request.log.max.entries", 10_000)
    request_log_bytes_max: int = _integer("kip848.request.log.max.bytes", 16_777_216, maximum=INT64_MAX)

    @property
    def client_assignors(self) -> bool:
        """Whether the client-side assignor extension is on (``kip848.client.assignors.enable``)."""
        return self.coordinator.client_assignors

    @classmethod
    def parse(cls, properties: Mapping[str, object], *, profile: Profile = "default") -> BrokerConfig:
        """Read Kafka's property names over the defaults of *profile*.

        Args:
            properties: values as text, as in a properties file; ints, bools and lists of names are taken too.

        Raises:
            ConfigError: a name or profile is unknown, or a value does not parse or is outside its range.
        """
        if profile not in ("default", "kafka"):
            raise ConfigError(f"profile {profile!r} is unknown; use 'default' or 'kafka'")
        values: dict[str, Any] = {}
        for_coordinator: dict[str, str] = {}
        for name, value in properties.items():
            if name in _COORDINATOR_NAMES:
                for_coordinator[name] = _text(value)
            elif name in _FIELDS:
                values[_FIELDS[name].name] = _parse(_FIELDS[name], value)
            else:
                raise ConfigError(f"broker property {name!r} is not known{_suggestion(name)}")
        return cls(coordinator=CoordinatorConfig.from_properties(for_coordinator, profile=profile), **values)

    def properties(self) -> dict[str, str]:
        """All settings under Kafka's names, as text (what DescribeConfigs shows)."""
        own = {name: _text(getattr(self, field.name)) for name, field in _FIELDS.items()}
        groups = {
            item.metadata["name"]: _text(getattr(self.coordinator, item.name))
            for item in dataclasses.fields(self.coordinator)
            if "name" in item.metadata
        }
        return own | groups


_FIELDS: Final[dict[str, dataclasses.Field[Any]]] = {
    item.metadata["property"].name: item for item in dataclasses.fields(BrokerConfig) if "property" in item.metadata
}

_COORDINATOR_NAMES: Final = CoordinatorConfig.property_names()

PROPERTY_NAMES: Final = frozenset(_FIELDS) | _COORDINATOR_NAMES
"""Every property name that `BrokerConfig.parse` takes."""


def _parse(field: dataclasses.Field[Any], value: object) -> object:
    name, minimum, maximum = field.metadata["property"]
    text = _text(value).strip()
    if isinstance(field.default, bool):
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"broker property {name}: {value!r} is not true or false")
        return text.lower() == "true"
    try:
        number = int(text)
    except ValueError as error:
        raise ConfigError(f"broker property {name}: {value!r} is not a whole number") from error
    if not minimum <= number <= maximum:
        raise ConfigError(f"broker property {name}: {number} is not between {minimum} and {maximum}")
    return number


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return ",".join(str(part) for part in value)
    return str(value)


def _suggestion(name: str) -> str:
    near = difflib.get_close_matches(name, sorted(PROPERTY_NAMES), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
