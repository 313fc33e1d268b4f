"""The broker's configuration: parses Kafka's broker properties into typed and checked values.

Owns names, defaults and ranges of settings for connections, topics and records. Settings for groups and offsets belong
to the coordinator (`CoordinatorConfig`).

Two profiles. ``default`` is made for tests: short intervals, wide ranges, the client-side assignor extension on.
``kafka`` has Apache Kafka's defaults and ranges, and the extension off.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec.structs import replace

from kip848_client.errors import ConfigError
from kip848_client.testing.broker.metadata.kafka_configs import broker_configs
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig, Property, properties_of

Profile = Literal["default", "kafka"]

INT64_MAX: Final = 2**63 - 1


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting, with the default of the profile ``default``. Times are milliseconds unless the name says more.

    Source:
        apache/kafka GroupCoordinatorConfig, ServerConfigs, SocketServerConfigs, for names and for the values of the
        profile ``kafka``. Names that start with ``kip848.`` are ours.
    """

    coordinator: CoordinatorConfig = msgspec.field(default_factory=CoordinatorConfig)
    """Everything about groups and offsets."""
    profile: Profile = "default"
    """Whose defaults these settings are based on."""

    # Topics and records
    auto_create_topics: Annotated[bool, Property("auto.create.topics.enable")] = False
    default_partitions: Annotated[int, Property("num.partitions", minimum=1, maximum=100_000)] = 1
    delete_topics: Annotated[bool, Property("delete.topic.enable")] = True
    message_bytes_max: Annotated[int, Property("message.max.bytes")] = 1_048_588
    flush_messages: Annotated[int, Property("log.flush.interval.messages", minimum=1, maximum=INT64_MAX)] = INT64_MAX
    retention_check_interval_ms: Annotated[int, Property("log.retention.check.interval.ms")] = 0
    """0 means never; see `LogCleaner`."""
    cleaner_backoff_ms: Annotated[int, Property("log.cleaner.backoff.ms")] = 0
    """How often compacted topics are cleaned; 0 means never."""
    fetch_session_slots: Annotated[int, Property("max.incremental.fetch.session.cache.slots")] = 1000
    fetch_bytes_max: Annotated[int, Property("fetch.max.bytes", minimum=1024)] = 57_671_680

    # Share groups
    share_sessions_max: Annotated[int, Property("group.share.max.share.sessions", minimum=1)] = 2_000
    creates_dead_letter_topics: Annotated[bool, Property("errors.deadletterqueue.auto.create.topics.enable")] = False
    dead_letter_prefix: Annotated[str, Property("errors.deadletterqueue.topic.name.prefix")] = "dlq."

    # Several nodes
    default_replication_factor: Annotated[int, Property("default.replication.factor", minimum=1, maximum=32_767)] = 3
    in_sync_min: Annotated[int, Property("min.insync.replicas", minimum=1)] = 1
    replica_selector: Annotated[str, Property("replica.selector.class")] = ""
    """Only Kafka's own two classes: clients read from replicas of their rack unless this is the ``LeaderSelector``."""
    election_delay_ms: Annotated[int, Property("kip848.election.delay.ms")] = 0
    coordinator_load_ms: Annotated[int, Property("kip848.coordinator.load.ms")] = 0

    # Transactions
    transaction_timeout_ms_max: Annotated[int, Property("transaction.max.timeout.ms", minimum=1)] = 900_000
    transaction_check_interval_ms: Annotated[
        int, Property("transaction.abort.timed.out.transaction.cleanup.interval.ms", minimum=1)
    ] = 100
    transactional_id_expiration_ms: Annotated[int, Property("transactional.id.expiration.ms", minimum=1)] = 604_800_000
    transactional_id_check_interval_ms: Annotated[
        int, Property("transaction.remove.expired.transaction.cleanup.interval.ms", minimum=1)
    ] = 100
    transactional_ids_max: Annotated[int, Property("kip848.transactional.ids.max", minimum=1)] = 20_000
    transaction_version: Annotated[int, Property("kip848.transaction.version", maximum=2)] = 2
    transaction_marker_delay_ms: Annotated[int, Property("kip848.transaction.marker.delay.ms")] = 0

    # Connections
    frame_bytes_max: Annotated[int, Property("socket.request.max.bytes", minimum=1024)] = 104_857_600
    request_elements_max: Annotated[int, Property("kip848.request.max.elements", minimum=1)] = 2_000_000
    connections_max: Annotated[int, Property("max.connections", minimum=1)] = 10_000
    connection_idle_ms_max: Annotated[int, Property("connections.max.idle.ms", minimum=1, maximum=INT64_MAX)] = 600_000
    incomplete_frame_ms_max: Annotated[int, Property("kip848.incomplete.frame.max.ms", minimum=1)] = 30_000
    unauthenticated_bytes_max: Annotated[int, Property("sasl.server.max.receive.size", minimum=1024)] = 524_288
    connections_reauth_ms_max: Annotated[int, Property("connections.max.reauth.ms", maximum=INT64_MAX)] = 0
    failed_authentication_delay_ms: Annotated[int, Property("connection.failed.authentication.delay.ms")] = 100
    authentication_ms_max: Annotated[int, Property("kip848.authentication.max.ms", minimum=1)] = 30_000
    unanswered_requests_max: Annotated[int, Property("kip848.unanswered.requests.max", minimum=1)] = 100

    # Quotas
    quota_windows: Annotated[int, Property("quota.window.num", minimum=1)] = 11
    quota_window_s: Annotated[int, Property("quota.window.size.seconds", minimum=1)] = 1
    controller_quota_windows: Annotated[int, Property("controller.quota.window.num", minimum=1)] = 11
    controller_quota_window_s: Annotated[int, Property("controller.quota.window.size.seconds", minimum=1)] = 1

    # Metrics of clients
    client_telemetry: Annotated[bool, Property("kip848.client.telemetry.enable")] = False
    telemetry_bytes_max: Annotated[int, Property("telemetry.max.bytes", minimum=1)] = 1_048_576

    # Access
    authorizer: Annotated[str, Property("authorizer.class.name")] = ""
    super_users: Annotated[str, Property("super.users")] = ""
    allow_everyone: Annotated[bool, Property("allow.everyone.if.no.acl.found")] = False

    # Ours
    request_log_entries_max: Annotated[int, Property("kip848.request.log.max.entries")] = 10_000
    request_log_bytes_max: Annotated[int, Property("kip848.request.log.max.bytes", maximum=INT64_MAX)] = 16_777_216

    def __post_init__(self) -> None:
        if self.authorizer and self.authorizer not in _AUTHORIZERS:
            raise ConfigError(
                f"broker property authorizer.class.name: {self.authorizer!r} is not available; use 'standard'"
            )
        if self.replica_selector not in ("", _RACK_AWARE, LEADER_SELECTOR):
            raise ConfigError(
                f"broker property replica.selector.class: {self.replica_selector!r} is not available; use "
                f"{_RACK_AWARE} or {LEADER_SELECTOR}"
            )
        for name in self.super_user_names:
            if ":" not in name:
                raise ConfigError(f"broker property super.users: {name!r} is not a principal; write 'User:{name}'")

    @property
    def super_user_names(self) -> frozenset[str]:
        """The principals in ``super.users``: ``User:admin;User:ops``."""
        return frozenset(name.strip() for name in self.super_users.split(";") if name.strip())

    @property
    def client_assignors(self) -> bool:
        """Whether the client-side assignor extension is on (``kip848.client.assignors.enable``)."""
        return self.coordinator.client_assignors

    @property
    def extensions(self) -> frozenset[str]:
        """The extensions that are on; each brings private APIs."""
        on = {
            "client_assignors": self.coordinator.client_assignors,
            "connect": self.coordinator.connect_groups,
            "telemetry": self.client_telemetry,
        }
        return frozenset(name for name, is_on in on.items() if is_on)

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
        values: dict[str, Any] = dict(_OF_KAFKA) if profile == "kafka" else {}
        for_coordinator: dict[str, str] = {}
        for name, value in properties.items():
            if name in _COORDINATOR_NAMES:
                for_coordinator[name] = _text(value)
            elif name in _FIELDS:
                field = _FIELDS[name]
                values[field] = _parse(_PROPERTIES[field], value, default=getattr(_DEFAULTS, field))
            else:
                raise ConfigError(_why_unknown(name))
        coordinator = CoordinatorConfig.from_properties(for_coordinator, profile=profile)
        return cls(coordinator=coordinator, profile=profile, **values)

    def changed_by(self, properties: Mapping[str, str]) -> BrokerConfig:
        """These settings with other values for some, by Kafka's names; those of the coordinator are whole numbers.

        Raises:
            ConfigError: a value does not parse or is outside its range.
        """
        of_coordinator = {item.name: (field, item) for field, item in properties_of(CoordinatorConfig).items()}
        own: dict[str, Any] = {}
        theirs: dict[str, Any] = {}
        for name, value in properties.items():
            if name in of_coordinator:
                field, item = of_coordinator[name]
                theirs[field] = _parse(item, value, default=0)
            else:
                field = _FIELDS[name]
                own[field] = _parse(_PROPERTIES[field], value, default=getattr(_DEFAULTS, field))
        return replace(self, coordinator=replace(self.coordinator, **theirs), **own)

    def properties(self) -> dict[str, str]:
        """All settings under Kafka's names, as text (what DescribeConfigs shows)."""
        own = {name: _text(getattr(self, field)) for name, field in _FIELDS.items()}
        groups = {
            item.name: _text(getattr(self.coordinator, field))
            for field, item in properties_of(CoordinatorConfig).items()
        }
        return own | groups


_RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
_AUTHORIZERS: Final = frozenset({"standard", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"})
_DEFAULTS: Final = BrokerConfig()
_OF_KAFKA: Final[Mapping[str, int]] = {
    "transaction_check_interval_ms": 10_000,
    "transactional_id_check_interval_ms": 3_600_000,
    "default_replication_factor": 1,
    "retention_check_interval_ms": 300_000,
    "cleaner_backoff_ms": 15_000,
}
"""Values of the profile ``kafka`` that differ from the default profile."""
_PROPERTIES: Final = properties_of(BrokerConfig)
_FIELDS: Final = {item.name: field for field, item in _PROPERTIES.items()}

_COORDINATOR_NAMES: Final = CoordinatorConfig.property_names()

PROPERTY_NAMES: Final = frozenset(_FIELDS) | _COORDINATOR_NAMES
"""Every property name that `BrokerConfig.parse` takes."""


def _parse(item: Property, value: object, *, default: object) -> object:
    name, minimum, maximum = item.name, item.minimum, item.maximum
    text = _text(value).strip()
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
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


def _why_unknown(name: str) -> str:
    if name in broker_configs():
        return f"broker property {name!r} is Apache Kafka's, and the embedded broker does not have it; leave it out"
    near = difflib.get_close_matches(name, sorted(PROPERTY_NAMES), n=1)
    return f"broker property {name!r} is not known" + (f"; did you mean {near[0]!r}?" if near else "")
