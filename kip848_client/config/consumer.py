"""Configuration: Kafka's dotted property names in, typed and checked values out. Every default is here.

Three kinds of keys:

* keys of the **control plane** (`_OWN_KEYS`): read here, and passed on only where the data plane needs them too;
* keys of the **classic protocol** (`CLASSIC_KEYS`): a configuration that has one was written for that protocol, so
  without ``group.protocol`` it means ``classic``. With ``group.protocol=consumer`` they are refused, and the message
  says where the setting lives there;
* **everything else** goes to the data plane (librdkafka) unchanged. If
  librdkafka refuses a key, the data plane raises a `ConfigError` that names the nearest known key (`nearest_key`).

Secrets are never part of a repr, a log line or an error text: errors show values only of keys that are not secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

import msgspec

from kip848_client.common.addresses import BootstrapServer, parse_bootstrap
from kip848_client.common.model import Confidential, SecuritySettings
from kip848_client.config.assignors import (
    OWN_ASSIGNOR_KEYS,
    LocalAssignors,
    read_classic_assignors,
    read_local_assignors,
)
from kip848_client.config.keys import DATA_PLANE_KEYS, TOKEN_KEYS
from kip848_client.config.other_clients import KEYS as KEYS_OF_OTHER_CLIENTS
from kip848_client.config.reader import ConfigReader, ConfigValue
from kip848_client.config.reset import read_reset
from kip848_client.config.security import OWN_SECURITY_KEYS, read_security, security_protocol
from kip848_client.config.slots import OWN_SLOT_KEYS, SlotSettings, read_slots
from kip848_client.errors import ConfigError


class ConsumerConfig(Confidential, frozen=True):
    """The checked configuration of one consumer. Times are in ms.

    Attributes:
        auto_commit_interval_ms: None when enable.auto.commit is off.
        auto_offset_reset: ``earliest``, ``latest``, ``none``, or ``by_duration:`` with a duration (see `duration_ms`).
        auto_offset_reset_new_partitions: the same for partitions that appear while this consumer is subscribed.
        rebalance_timeout_ms: equal to max.poll.interval.ms; sent to the coordinator.
        rebootstraps: whether the control plane asks the bootstrap servers again once it knows the cluster's brokers.
        early_heartbeats: heartbeat sooner than the interval while waiting for partitions of other members.
        heartbeat_interval_max_ms: longest heartbeat interval, or None for no limit.
        data_plane: configuration for ``confluent_kafka.Consumer``; may hold secrets, so it is not in the repr.
        slots: the slots that the member may take.
        security: TLS and SASL of the control plane; made from the same keys as the data plane's.
        on_commit: called with (error or None, partitions) after a commit, as in confluent-kafka.
        local_assignors: client-side assignors; none if the coordinator assigns. On the classic protocol all that this
            consumer offers, including built-in ones.
        auto_offset_store: whether records returned by poll() count as processed; else the application calls
            store_offsets().
        errors_as_messages: whether poll() returns errors in place of records, as confluent-kafka does.
        partition_eof: whether poll() returns a message with an error() of _PARTITION_EOF at the end of a partition.
        classic_keys: keys for which the protocol is classic, sorted; none if group.protocol is given.
        protocol: ``consumer`` (KIP-848) or ``classic``.
        session_timeout_ms, heartbeat_interval_ms: of the classic protocol.
        topic_refresh_ms: how often a leader on the classic protocol looks at the group's topics; None for never.
        key_deserializer, value_deserializer: called with bytes or None and a `SerializationContext`.
        on_deserialization_error: called with a record that cannot be deserialised, and the error; None raises it.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"data_plane", "on_commit"})

    bootstrap_servers: tuple[BootstrapServer, ...]
    group_id: str
    client_id: str
    group_instance_id: str | None
    slots: SlotSettings
    client_rack: str | None
    group_remote_assignor: str | None
    auto_offset_reset: str
    auto_offset_reset_new_partitions: str
    auto_commit_interval_ms: int | None
    isolation_level: str
    max_poll_interval_ms: int
    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    connection_setup_timeout_ms: int
    rebootstraps: bool
    early_heartbeats: bool
    heartbeat_interval_max_ms: int | None
    data_plane: Mapping[str, ConfigValue]
    security: SecuritySettings = msgspec.field(default_factory=SecuritySettings)
    on_commit: Callable[..., object] | None = None
    local_assignors: LocalAssignors = msgspec.field(default_factory=LocalAssignors)
    auto_offset_store: bool = True
    errors_as_messages: bool = False
    partition_eof: bool = False
    classic_keys: tuple[str, ...] = ()
    protocol: str = "consumer"
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    topic_refresh_ms: int | None = 300_000
    key_deserializer: Callable[..., object] | None = None
    value_deserializer: Callable[..., object] | None = None
    on_deserialization_error: Callable[..., object] | None = None

    @property
    def rebalance_timeout_ms(self) -> int:
        """Time that the coordinator gives this member to revoke; equal to max.poll.interval.ms."""
        return self.max_poll_interval_ms


_INT32_MAX: Final = 2**31 - 1

_ALIASES: Final[Mapping[str, str]] = {"metadata.broker.list": "bootstrap.servers"}
"""Other name -> key."""

_TOPIC_CONFIG: Final = "default.topic.config"
"""librdkafka's old place for settings of topics: a mapping. Keys beside it win."""

CLASSIC_KEYS: Final[Mapping[str, str]] = {
    "session.timeout.ms": (
        "the coordinator decides it: set consumer.session.timeout.ms on the group (kafka-configs --entity-type groups) "
        "or group.consumer.session.timeout.ms on the broker"
    ),
    "heartbeat.interval.ms": (
        "the coordinator decides it: set consumer.heartbeat.interval.ms on the group (kafka-configs --entity-type "
        "groups) or group.consumer.heartbeat.interval.ms on the broker"
    ),
    "partition.assignment.strategy": (
        "choose a server-side assignor with group.remote.assignor (uniform or range), or give one of your own with "
        "group.local.assignors"
    ),
    "group.protocol.type": "leave it out",
}
"""Key that only the classic protocol has -> what replaces it under KIP-848."""

ONLY_OWN_KEYS: Final = frozenset(
    {
        "group.protocol",
        "group.instance.id",
        "group.remote.assignor",
        "auto.commit.interval.ms",
        "auto.offset.reset.new.partitions",
        "max.poll.interval.ms",
        "request.timeout.ms",
        "default.api.timeout.ms",
        "errors.as.messages",
        "heartbeat.early.enable",
        "heartbeat.interval.max.ms",
        "on_commit",
        "key.deserializer",
        "value.deserializer",
        "on_deserialization_error",
    }
)
"""Keys that the control plane reads and librdkafka does not get."""

_OWN_KEYS: Final = (
    ONLY_OWN_KEYS
    | OWN_SLOT_KEYS
    | {
        "bootstrap.servers",
        "group.id",
        "client.id",
        "client.rack",
        "auto.offset.reset",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "isolation.level",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "socket.connection.setup.timeout.ms",
        "metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms",
    }
)
"""Keys that the control plane reads."""

_NOT_FOR_DATA_PLANE: Final = (
    ONLY_OWN_KEYS | OWN_SLOT_KEYS | CLASSIC_KEYS.keys() | OWN_SECURITY_KEYS | OWN_ASSIGNOR_KEYS | TOKEN_KEYS
)

_DATA_PLANE_CALLBACKS: Final = ("error_cb", "stats_cb", "throttle_cb")
"""Callbacks that librdkafka calls."""


def parse_consumer_config(conf: Mapping[str, ConfigValue]) -> ConsumerConfig:
    """Check a consumer's configuration.

    Args:
        conf: Kafka property names as librdkafka spells them; values as confluent-kafka accepts them.

    Returns:
        Typed values, and the mapping for the data plane.

    Raises:
        ConfigError: keys are missing, refused or out of range. The message names all of them and the way out.
    """
    reader = ConfigReader(conf, aliases=_ALIASES)
    _spread_topic_config(reader)
    _recognise_other_clients(reader)
    servers: tuple[BootstrapServer, ...] = ()
    security, secured = SecuritySettings(), dict[str, ConfigValue]()
    protocol = security_protocol(reader)
    addresses = reader.text("bootstrap.servers", advice="give host:port of a broker")
    if isinstance(reader.conf.get("bootstrap.servers"), str):
        with reader.at_once():
            servers = parse_bootstrap(addresses, protocol=protocol)
    with reader.at_once():
        security, secured = read_security(reader, hosts=[server.host for server in servers])
    group_id = reader.text("group.id", advice="name the group that this consumer belongs to")
    if isinstance(reader.conf.get("group.id"), str) and not group_id.strip():
        reader.refuse("group.id is blank; name the group that this consumer belongs to", None)
    protocol_name, classic_keys = _read_group_protocol(reader)
    classic = protocol_name == "classic"
    instance_id = reader.not_blank("group.instance.id")
    reset = read_reset(reader, "auto.offset.reset", default="latest")
    # latest skips what was written before the group listened; a new partition has no such records.
    reset_new = "none" if reset == "none" else "earliest"
    max_poll_interval_ms = reader.integer("max.poll.interval.ms", default=300_000, low=1, high=86_400_000)
    auto_commit = reader.flag("enable.auto.commit", default=True)
    auto_commit_interval_ms = reader.integer("auto.commit.interval.ms", default=5_000, low=0, high=86_400_000)
    partition_eof = reader.flag("enable.partition.eof", default=False)
    reader.integer("metadata.recovery.rebootstrap.trigger.ms", default=300_000, low=0, high=_INT32_MAX)  # librdkafka's
    local_assignors = LocalAssignors()
    with reader.at_once():
        read = read_classic_assignors if classic else read_local_assignors
        local_assignors = read(reader, max_poll_interval_ms=max_poll_interval_ms)
    session_timeout_ms, heartbeat_interval_ms = 45_000, 3_000
    if classic:
        with reader.at_once():
            session_timeout_ms, heartbeat_interval_ms = _read_session(reader)
    parsed = ConsumerConfig(
        bootstrap_servers=servers,
        group_id=group_id,
        client_id=reader.optional_text("client.id") or "kip848-client",
        group_instance_id=instance_id,
        slots=read_slots(reader, instance_id=instance_id, classic=classic),
        client_rack=reader.not_blank("client.rack"),
        group_remote_assignor=reader.not_blank("group.remote.assignor"),
        auto_offset_reset=reset,
        auto_offset_reset_new_partitions=read_reset(reader, "auto.offset.reset.new.partitions", default=reset_new),
        auto_commit_interval_ms=auto_commit_interval_ms if auto_commit else None,
        isolation_level=reader.one_of(
            "isolation.level",
            {"read_committed": "read_committed", "read_uncommitted": "read_uncommitted"},
            default="read_committed",
        ),
        max_poll_interval_ms=max_poll_interval_ms,
        request_timeout_ms=reader.integer("request.timeout.ms", default=30_000, low=1, high=_INT32_MAX),
        default_api_timeout_ms=reader.integer("default.api.timeout.ms", default=60_000, low=1, high=_INT32_MAX),
        retry_backoff_ms=reader.integer("retry.backoff.ms", default=100, low=1, high=300_000),
        retry_backoff_max_ms=reader.integer("retry.backoff.max.ms", default=1_000, low=1, high=300_000),
        connection_setup_timeout_ms=reader.integer(
            "socket.connection.setup.timeout.ms", default=30_000, low=1_000, high=_INT32_MAX
        ),
        rebootstraps=reader.one_of(
            "metadata.recovery.strategy", {"rebootstrap": "rebootstrap", "none": "none"}, default="rebootstrap"
        )
        == "rebootstrap",
        early_heartbeats=reader.flag("heartbeat.early.enable", default=True),
        heartbeat_interval_max_ms=(
            reader.integer("heartbeat.interval.max.ms", default=_INT32_MAX, low=50, high=_INT32_MAX)
            if "heartbeat.interval.max.ms" in reader.conf
            else None
        ),
        data_plane=_data_plane(reader.conf, servers=servers, group_id=group_id) | secured,
        security=security,
        on_commit=reader.callback("on_commit", "error", "partitions"),
        local_assignors=local_assignors,
        protocol=protocol_name,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=heartbeat_interval_ms,
        topic_refresh_ms=_topic_refresh_ms(reader),
        auto_offset_store=reader.flag("enable.auto.offset.store", default=True),
        errors_as_messages=reader.flag("errors.as.messages", default=False),
        partition_eof=partition_eof,
        classic_keys=classic_keys,
        key_deserializer=_deserializer(reader, "key.deserializer"),
        value_deserializer=_deserializer(reader, "value.deserializer"),
        on_deserialization_error=reader.callback("on_deserialization_error", "record", "error"),
    )
    for key in _DATA_PLANE_CALLBACKS:
        reader.callback(key, "event")
    _name_misspelt_keys(reader)
    reader.check()
    return parsed


def _read_group_protocol(reader: ConfigReader) -> tuple[str, tuple[str, ...]]:
    """The protocol, and the keys that decided it because group.protocol is not given."""
    given = tuple(sorted(key for key in CLASSIC_KEYS if reader.conf.get(key) is not None))
    named = reader.conf.get("group.protocol") is not None
    protocol = reader.one_of(
        "group.protocol",
        {"consumer": "consumer", "classic": "classic"},
        default="classic" if given else "consumer",
    )
    if named and protocol == "consumer":
        for key in given:
            reader.refuse(
                f"{key} is a key of the classic protocol, and group.protocol is consumer: {CLASSIC_KEYS[key]}", None
            )
    elif given and not named and reader.conf.get("group.remote.assignor") is not None:
        reader.refuse(
            f"{given[0]} is a key of the classic protocol, and group.remote.assignor one of KIP-848: leave one of them "
            "out, and say which protocol you mean with group.protocol",
            None,
        )
        return "consumer", ()  # so that the second key gets no second message
    if protocol == "classic":
        reader.one_of("group.protocol.type", {"consumer": "consumer"}, default="consumer")
    return protocol, () if named else given


def _read_session(reader: ConfigReader) -> tuple[int, int]:
    """session.timeout.ms and heartbeat.interval.ms."""
    session_ms = reader.integer("session.timeout.ms", default=45_000, low=1, high=3_600_000)
    beat_ms = reader.integer(
        "heartbeat.interval.ms", default=max(1, min(3_000, session_ms // 3)), low=1, high=3_600_000
    )
    if beat_ms >= session_ms:
        raise ConfigError(
            f"heartbeat.interval.ms={beat_ms} must be below session.timeout.ms={session_ms}; a third of it is usual"
        )
    return session_ms, beat_ms


def _deserializer(reader: ConfigReader, key: str) -> Callable[..., object] | None:
    """A callable that takes data and context: kafka-python's and aiokafka's take data only."""
    hint = "; write for example lambda data, context: json.loads(data)"
    return reader.callback(key, "data", "context", hint=hint)


def _topic_refresh_ms(reader: ConfigReader) -> int | None:
    """topic.metadata.refresh.interval.ms, which the data plane reads as well; -1 turns it off."""
    refresh_ms = reader.integer("topic.metadata.refresh.interval.ms", default=300_000, low=-1, high=3_600_000)
    return refresh_ms if refresh_ms > 0 else None


def merge_settings(
    config: Mapping[str, ConfigValue] | None, settings: Mapping[str, ConfigValue]
) -> Mapping[str, ConfigValue]:
    """The mapping and the keyword arguments of a consumer as one mapping; keyword arguments win, as in confluent-kafka.

    Raises:
        ConfigError: *config* is not a mapping.
    """
    if config is None:
        return settings
    if not isinstance(config, Mapping):
        raise ConfigError(f"configuration must be a mapping of property names, got {type(config).__name__}")
    return {**config, **settings} if settings else config


def _spread_topic_config(reader: ConfigReader) -> None:
    """Merge ``default.topic.config`` into the configuration."""
    topics = reader.conf.get(_TOPIC_CONFIG)
    if isinstance(topics, Mapping):
        del reader.conf[_TOPIC_CONFIG]
        reader.conf.update({key: given for key, given in topics.items() if key not in reader.conf})


def _recognise_other_clients(reader: ConfigReader) -> None:
    """Say what to write instead of keys of kafka-python, aiokafka and Java."""
    known = _known_keys()
    for key in [key for key in reader.conf if key not in known]:
        dotted = key.replace("_", ".")
        if dotted in KEYS_OF_OTHER_CLIENTS:
            del reader.conf[key]
            reader.refuse(f"{key} is a key of other clients; {KEYS_OF_OTHER_CLIENTS[dotted]}", None)
        elif dotted != key and dotted in known:
            value = reader.conf.pop(key)
            reader.refuse(f"{key} is spelled {dotted} here", None)
            reader.conf.setdefault(dotted, value)  # so that it gets no second message


def _name_misspelt_keys(reader: ConfigReader) -> None:
    """If there are other mistakes: name the misspelt keys with them, as librdkafka will not be asked."""
    if reader.problems:
        for key in sorted(reader.conf.keys() - _known_keys()):
            nearest = nearest_key(key)
            if nearest is not None and not any(problem.startswith(f"{key} ") for problem in reader.problems):
                reader.refuse(f"{key} is not a configuration key; did you mean {nearest}?", None)


def unlisted_keys(conf: Mapping[str, ConfigValue]) -> frozenset[str]:
    """Keys that only librdkafka can tell from mistakes."""
    return frozenset(conf.keys() - _known_keys())


def _known_keys() -> frozenset[str]:
    return DATA_PLANE_KEYS | TOKEN_KEYS | _OWN_KEYS | OWN_SECURITY_KEYS | OWN_ASSIGNOR_KEYS | CLASSIC_KEYS.keys()


def nearest_key(key: str, *, cutoff: float = 0.6) -> str | None:
    """The known key most similar to *key*, or None if none is near: *cutoff* is `difflib`'s."""
    import difflib  # here: only a mistake needs it

    known = sorted(_known_keys())
    found = difflib.get_close_matches(key.lower(), known, n=1, cutoff=cutoff)
    return found[0] if found else None


def _data_plane(
    conf: Mapping[str, ConfigValue], *, servers: tuple[BootstrapServer, ...], group_id: str
) -> dict[str, ConfigValue]:
    """Build librdkafka's configuration, for reading records only; it never becomes a group member."""
    data_plane = {key: value for key, value in conf.items() if key not in _NOT_FOR_DATA_PLANE}
    data_plane.setdefault("fetch.queue.backoff.ms", 10)  # librdkafka's 1000 stalls a fast reader
    # With Nagle the second request on a connection waits up to 40 ms until the peer's kernel acknowledges the first.
    data_plane.setdefault("socket.nagle.disable", True)
    # librdkafka connects to no second broker for half of this (11 ms at least): the one that bootstrap.servers names
    # counts, so that it cost the first fetch 50 ms. With it a broker that is away is tried 72 times a second, with
    # librdkafka's 100 ms 19 times: while it looks for the cluster reconnect.backoff.max.ms does not slow it down.
    if "reconnect.backoff.ms" not in data_plane:  # else 1 s may be less than that, which librdkafka refuses
        data_plane["reconnect.backoff.ms"] = 20
        # Kafka's own. With librdkafka's 10 s a reader that knows its broker may read on 10 s after that one is back.
        data_plane.setdefault("reconnect.backoff.max.ms", 1_000)
    data_plane.update(
        {
            "bootstrap.servers": ",".join(map(str, servers)),
            "group.id": group_id,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # An offset without a record comes back to us as an error, and our own reset policy decides.
            "auto.offset.reset": "error",
        }
    )
    return data_plane
