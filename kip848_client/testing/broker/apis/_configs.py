"""Resources that have a configuration: how they are altered, and how an entry is shown. Serves no API itself.

Source:
    apache/kafka ``ConfigResource``, ``DescribeConfigsResponse.ConfigSource`` and ``ConfigType``, ``ConfigHelper``.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from kip848_client.errors import BrokerError, ConfigError, DataDirError, ErrorCode
from kip848_client.testing.broker.client_telemetry import SUBSCRIPTION_DEFAULTS
from kip848_client.testing.broker.cluster.live_settings import ALL_NODES
from kip848_client.testing.broker.metadata.kafka_configs import KafkaConfig, topic_configs
from kip848_client.testing.broker.metadata.topic_configs import (
    TOPIC_CONFIG_DEFAULTS,
    check_topic_configs,
)
from kip848_client.testing.broker.metadata.topic_name_rules import check_topic_name
from kip848_client.testing.broker.state import BrokerState
from kip848_client.testing.broker.topics.registry import STORAGE_FAILED, Topic, TopicRegistry
from kip848_client.wire.messages.alter_configs import AlterConfigsResourceResponse


class ConfigResourceType(enum.IntEnum):
    """Kinds of resources with a configuration that this broker knows."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    """This broker has no settings of this kind, and answers with an empty list."""
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(enum.IntEnum):
    """The source of a value."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


class ConfigType(enum.IntEnum):
    """The type of a value."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSynonym(NamedTuple):
    """A value of a setting, the name under which it is set, and where."""

    name: str
    value: str
    source: ConfigSource


class Described(NamedTuple):
    """A setting: its value in force, and the settings that it comes from, the first that counts first."""

    in_force: ConfigSynonym
    synonyms: tuple[ConfigSynonym, ...]


LIST_CONFIGS: Final = frozenset(
    {
        "cleanup.policy",
        "follower.replication.throttled.replicas",
        "group.consumer.assignors",
        "leader.replication.throttled.replicas",
        "log.cleanup.policy",
    }
)
"""Configurations whose value is a list: only these can be appended to and subtracted from."""


def type_of(known: KafkaConfig | None, value: str) -> int:
    """The type of a configuration; of one that Kafka does not have, by its value."""
    if known is not None:
        return known.type
    if value in ("true", "false"):
        return ConfigType.BOOLEAN
    try:
        int(value)
    except ValueError:
        return ConfigType.STRING
    return ConfigType.LONG


def topic_of(topics: TopicRegistry, name: str) -> Topic:
    """The topic whose configuration is asked for.

    Raises:
        BrokerError: INVALID_TOPIC_EXCEPTION: no topic can be called so; UNKNOWN_TOPIC_OR_PARTITION.
    """
    check_topic_name(name)
    topic = topics.get(name)
    if topic is None:
        raise BrokerError(f"topic '{name}' does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def check_group_name(group_id: str) -> None:
    """Refuse the empty name, which would mean the defaults of all groups: those are the broker's properties.

    Raises:
        BrokerError: INVALID_REQUEST.
    """
    if not group_id:
        raise BrokerError("Default group resources are not allowed.", code=ErrorCode.INVALID_REQUEST)


def broker_sources(broker: BrokerState, node_id: int, *names: str) -> tuple[ConfigSynonym, ...]:
    """Where a setting of a node, or what stands for it, is set: the value in force first, and defaults last."""
    settings = broker.settings
    of_node, of_all = settings.changed(str(node_id)), settings.changed(ALL_NODES)
    found: list[tuple[str, str | None, ConfigSource]] = []
    for name in names:
        static, default = settings.static_properties.get(name), settings.default_of(name)
        found += [
            (name, of_node.get(name), ConfigSource.DYNAMIC_BROKER),
            (name, of_all.get(name), ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (name, None if static == default else static, ConfigSource.STATIC_BROKER),
            (name, default, ConfigSource.DEFAULT),
        ]
    found.sort(key=lambda one: one[2])
    return tuple(ConfigSynonym(name, value, source) for name, value, source in found if value is not None)


def inherited(broker: BrokerState, node_id: int, known: KafkaConfig | None, default: ConfigSynonym) -> Described:
    """A setting that a topic or a group does not set itself: a setting of the broker, or *default*."""
    sources = broker_sources(broker, node_id, *(known.synonyms if known is not None else ()))
    if sources and sources[0].source != ConfigSource.DEFAULT:
        return Described(sources[0], sources)
    if known is not None and not known.shows_default:
        return Described(default, ())
    return Described(default, sources or (default,))


def topic_sources(broker: BrokerState, node_id: int, own: Mapping[str, str]) -> dict[str, Described]:
    """The same for each setting of a topic whose configuration is *own*."""
    described = {}
    for key, value in TOPIC_CONFIG_DEFAULTS.items():
        found = inherited(broker, node_id, topic_configs().get(key), ConfigSynonym(key, value, ConfigSource.DEFAULT))
        described[key] = overridden(found, own, key, ConfigSource.DYNAMIC_TOPIC)
    return described


def overridden(found: Described, own: Mapping[str, str], key: str, source: ConfigSource) -> Described:
    """*found*, unless the resource sets *key* itself."""
    if key not in own:
        return found
    here = ConfigSynonym(key, own[key], source)
    return Described(here, (here, *found.synonyms))


class Resource(Protocol):
    """A resource that a request wants to change, and the settings that it names."""

    @property
    def resource_type(self) -> int:
        """Its kind, see `ConfigResourceType`."""

    @property
    def resource_name(self) -> str:
        """Which one it is."""

    @property
    def configs(self) -> tuple[object, ...]:
        """The settings."""


class ConfigEntry(Protocol):
    """One setting in a request."""

    @property
    def name(self) -> str:
        """Its key."""

    @property
    def value(self) -> str | None:
        """Its value."""


ResourceT = TypeVar("ResourceT", bound=Resource)

Change = Callable[[Mapping[str, str], Mapping[str, str]], dict[str, str]]
"""Called with the present overrides of a resource and the defaults; returns the new overrides."""


def change_configs(
    broker: BrokerState, resource: Resource, change: Change, *, node_id: int, validate_only: bool
) -> None:
    """Replace the overrides of *resource* by what *change* returns.

    Args:
        node_id: the node that was asked.

    Raises:
        BrokerError: there is no such resource, it cannot be changed here, or a setting of a topic is not allowed.
        ConfigError: a setting of a group is not allowed.
        DataDirError: the change could not be kept; everything is as before.
    """
    name = resource.resource_name
    match resource.resource_type:
        case ConfigResourceType.TOPIC:
            if not name:
                raise invalid_request("Default topic resources are not allowed.")
            configs = change(topic_of(broker.topics, name).configs, TOPIC_CONFIG_DEFAULTS)
            check_topic_configs(configs)
            if not validate_only:
                broker.topics.set_configs(name, configs)
        case ConfigResourceType.GROUP:
            check_group_name(name)
            overrides = change(broker.groups.config_overrides(name), broker.groups.config_defaults())
            broker.groups.set_config_overrides(name, overrides, validate_only=validate_only)
        case ConfigResourceType.BROKER:
            if name != ALL_NODES:
                check_node_id(node_id, name)
            settings = change(broker.settings.changed(name), broker.settings.static_properties)
            broker.settings.replace(name, settings, validate_only=validate_only)
        case ConfigResourceType.CLIENT_METRICS:
            subscription = change(broker.telemetry.subscriptions.get(name), SUBSCRIPTION_DEFAULTS)
            broker.telemetry.replace(name, subscription, validate_only=validate_only)
        case _:
            raise unsupported(resource.resource_type)


def alter_each(
    resources: tuple[ResourceT, ...], alter: Callable[[ResourceT], None]
) -> Generator[None, None, tuple[AlterConfigsResourceResponse, ...]]:
    """Call *alter* with each resource, and answer for each. A resource that is named twice is refused."""
    times_named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    answers = []
    for resource in resources:
        is_unique = times_named[resource.resource_type, resource.resource_name] == 1
        code, message = _outcome_of(alter, resource, is_unique=is_unique)
        answers.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
        yield
    return tuple(answers)


def _outcome_of(
    alter: Callable[[ResourceT], None], resource: ResourceT, *, is_unique: bool
) -> tuple[ErrorCode, str | None]:
    try:
        if not is_unique:
            raise invalid_request("Each resource must appear at most once.")
        alter(resource)
    except BrokerError as error:
        return ErrorCode(error.code), str(error)
    except ConfigError as error:
        return ErrorCode.INVALID_CONFIG, str(error)
    except DataDirError as error:
        return STORAGE_FAILED, str(error)
    return ErrorCode.NONE, None


def check_distinct_keys(configs: Sequence[ConfigEntry]) -> None:
    """Refuse a resource that names one setting twice.

    Raises:
        BrokerError: INVALID_REQUEST.
    """
    if len({config.name for config in configs}) < len(configs):
        raise invalid_request("Error due to duplicate config keys")


def value_of(config: ConfigEntry) -> str:
    """The value of a setting that must have one.

    Raises:
        BrokerError: INVALID_REQUEST: it is null.
    """
    if config.value is None:
        raise invalid_request(f"Null value not supported for : {config.name}")
    return config.value


def invalid_request(message: str) -> BrokerError:
    """INVALID_REQUEST."""
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)


def check_node_id(node_id: int, name: str) -> None:
    """Refuse the name of another broker than the one that was asked.

    Raises:
        BrokerError: INVALID_REQUEST.
    """
    if not name.removeprefix("-").isdecimal():
        raise invalid_request(f"Node id must be an integer, but it is: {name}")
    if name != str(node_id):
        raise BrokerError(
            f"Unexpected broker id, expected {node_id}, but received {name}", code=ErrorCode.INVALID_REQUEST
        )


def unsupported(resource_type: int) -> BrokerError:
    """The error for a resource that has no configuration here."""
    is_logger = resource_type == ConfigResourceType.BROKER_LOGGER
    what = "broker loggers" if is_logger else f"resources of type {resource_type}"
    return BrokerError(f"this broker has no configuration of {what}", code=ErrorCode.INVALID_REQUEST)
