"""Resources that have a configuration, and how one entry of it is shown. No API of its own.

Source:
    apache/kafka ``ConfigResource``, ``DescribeConfigsResponse.ConfigSource`` and ``ConfigType``, ``ConfigHelper``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from kip848_client.broker.state import BrokerState
from kip848_client.broker.topic_configs import TOPIC_CONFIG_DEFAULTS, check_topic_configs
from kip848_client.broker.topic_name_rules import check_topic_name
from kip848_client.broker.topics import STORAGE_FAILED, Topic, TopicRegistry
from kip848_client.errors import BrokerError, ConfigError, DataDirError, ErrorCode


class ResourceType(enum.IntEnum):
    """What a configuration belongs to; those that this broker knows."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    """There are none here: their list is empty."""
    CLIENT_METRICS = 16
    """The same."""
    GROUP = 32


class ConfigSource(enum.IntEnum):
    """Where a value comes from."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


class ConfigType(enum.IntEnum):
    """What a value is."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


LIST_CONFIGS: Final = frozenset(
    {
        "cleanup.policy",
        "follower.replication.throttled.replicas",
        "group.consumer.assignors",
        "leader.replication.throttled.replicas",
    }
)
"""Configurations whose value is a list: only these can be appended to and subtracted from."""


_INTS: Final = frozenset(
    {
        *("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
        *("fetch.max.bytes", "index.interval.bytes", "max.connections", "max.message.bytes", "message.max.bytes"),
        *("min.insync.replicas", "num.partitions", "offset.metadata.max.bytes", "offsets.retention.minutes"),
        *("sasl.server.max.receive.size", "segment.bytes", "segment.index.bytes", "socket.request.max.bytes"),
        "connection.failed.authentication.delay.ms",
    }
)
"""Whole numbers that Kafka keeps in 32 bits, beside those of groups."""


def type_of(name: str, default: str) -> ConfigType:
    """The type of a configuration, told from its name and its default."""
    if name in LIST_CONFIGS:
        return ConfigType.LIST
    if default in ("true", "false"):
        return ConfigType.BOOLEAN
    try:
        int(default)
    except ValueError:
        pass
    else:
        return ConfigType.INT if name in _INTS or name.startswith(("consumer.", "group.")) else ConfigType.LONG
    try:
        float(default)
    except ValueError:
        return ConfigType.STRING
    return ConfigType.DOUBLE


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


class Resource(Protocol):
    """A resource that a request wants to change, and the settings that it names."""

    @property
    def resource_type(self) -> int:
        """What it is, see `ResourceType`."""

    @property
    def resource_name(self) -> str:
        """Which one it is."""

    @property
    def configs(self) -> tuple[object, ...]:
        """The settings."""


Change = Callable[[Mapping[str, str], Mapping[str, str]], dict[str, str]]
"""What a resource overrides afterwards, told from what it overrides now and from the defaults."""


def change_configs(broker: BrokerState, resource: Resource, change: Change, *, validate_only: bool) -> None:
    """Let *resource* override what *change* says, and nothing else.

    Raises:
        BrokerError: there is no such resource, it cannot be changed here, or a setting of a topic is not allowed.
        ConfigError: a setting of a group is not allowed.
        DataDirError: the change could not be kept; everything is as before.
    """
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            if not name:
                raise invalid_request("Default topic resources are not allowed.")
            configs = change(topic_of(broker.topics, name).configs, TOPIC_CONFIG_DEFAULTS)
            check_topic_configs(configs)
            if not validate_only:
                broker.topics.set_configs(name, configs)
        case ResourceType.GROUP:
            check_group_name(name)
            overrides = change(broker.groups.config_overrides(name), broker.groups.config_defaults())
            broker.groups.set_config_overrides(name, overrides, validate_only=validate_only)
        case ResourceType.BROKER:
            raise invalid_request("this broker's configuration is fixed at its start; give it there")
        case ResourceType.CLIENT_METRICS if not resource.configs:
            pass  # nothing is asked of what is not here
        case _:
            raise unsupported(resource.resource_type)


def outcome_of(change: Callable[[], None], *, is_unique: bool) -> tuple[ErrorCode, str | None]:
    """Make a change, unless its resource is named twice; the error code and text for the answer."""
    try:
        if not is_unique:
            raise invalid_request("Each resource must appear at most once.")
        change()
    except BrokerError as error:
        return ErrorCode(error.code), str(error)
    except ConfigError as error:
        return ErrorCode.INVALID_CONFIG, str(error)
    except DataDirError as error:
        return STORAGE_FAILED, str(error)
    return ErrorCode.NONE, None


def invalid_request(message: str) -> BrokerError:
    """INVALID_REQUEST."""
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)


def check_node_id(broker: BrokerState, name: str) -> None:
    """Refuse the name of another broker.

    Raises:
        BrokerError: INVALID_REQUEST.
    """
    if name != str(broker.node_id):
        raise BrokerError(
            f"Unexpected broker id, expected {broker.node_id}, but received {name}", code=ErrorCode.INVALID_REQUEST
        )


def unsupported(resource_type: int) -> BrokerError:
    """The error for a resource that has no configuration here."""
    kinds: Mapping[int, str] = {
        ResourceType.BROKER_LOGGER: "broker loggers",
        ResourceType.CLIENT_METRICS: "client metrics",
    }
    what = kinds.get(resource_type, f"resources of type {resource_type}")
    return BrokerError(f"this broker has no configuration of {what}", code=ErrorCode.INVALID_REQUEST)
