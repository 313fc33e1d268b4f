"""Resources that have a configuration, and how one entry of it is shown. No API of its own.

Source:
    apache/kafka ``ConfigResource``, ``DescribeConfigsResponse.ConfigSource`` and ``ConfigType``, ``ConfigHelper``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from kip848_client.broker.topics import Topic, TopicRegistry
from kip848_client.errors import BrokerError, ErrorCode


class ResourceType(enum.IntEnum):
    """What a configuration belongs to; those that this broker knows."""

    TOPIC = 2
    BROKER = 4
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
        return ConfigType.INT if name.startswith(("consumer.", "group.")) else ConfigType.LONG
    try:
        float(default)
    except ValueError:
        return ConfigType.STRING
    return ConfigType.DOUBLE


def topic_of(topics: TopicRegistry, name: str) -> Topic:
    """The topic whose configuration is asked for.

    Raises:
        BrokerError: UNKNOWN_TOPIC_OR_PARTITION.
    """
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


def unsupported(resource_type: int) -> BrokerError:
    """The error for a resource that has no configuration here."""
    kinds: Mapping[int, str] = {8: "broker loggers", 16: "client metrics"}
    what = kinds.get(resource_type, f"resources of type {resource_type}")
    return BrokerError(f"this broker has no configuration of {what}", code=ErrorCode.INVALID_REQUEST)
