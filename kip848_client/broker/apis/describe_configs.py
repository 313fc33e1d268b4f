"""DescribeConfigs (32): the settings of topics, this broker and groups, and where each comes from.

Version 3 adds types (and documentation, which is not kept here).

Source:
    apache/kafka ``ConfigHelper.describeConfigs``; KIP-848 for groups (resource type 32).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kip848_client.broker.apis._budget import DESCRIBED_MAX, Budget
from kip848_client.broker.apis._configs import (
    ConfigResourceType,
    ConfigSource,
    check_group_name,
    check_node_id,
    topic_of,
    type_of,
    unsupported,
)
from kip848_client.broker.apis._permissions import each_config
from kip848_client.broker.config import BrokerConfig
from kip848_client.broker.metadata.acls import Operation
from kip848_client.broker.metadata.topic_configs import (
    MAX_MESSAGE_BYTES,
    TOPIC_CONFIG_DEFAULTS,
    effective_topic_configs,
)
from kip848_client.broker.net.context import RequestContext, Slices
from kip848_client.broker.state import BrokerState
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

API_KEY: Final = ApiKey.DESCRIBE_CONFIGS
VERSIONS: Final = (1, 4)

requires = each_config(Operation.DESCRIBE_CONFIGS)


class _Entry(NamedTuple):
    value: str
    source: ConfigSource
    default: str
    default_source: ConfigSource = ConfigSource.DEFAULT
    default_name: str | None = None
    """Name under which the default is set, if it is another one."""


def handle(broker: BrokerState, request: DescribeConfigsRequest, context: RequestContext) -> Slices:
    """Describe each resource; one that cannot be described carries its own error.

    A resource that is named twice is described once, with the keys that were named last.
    """
    budget = Budget(DESCRIBED_MAX)
    wanted = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    results = []
    for resource in wanted.values():
        results.append(_describe(broker, context.node_id, resource, budget, with_synonyms=request.include_synonyms))
        yield
    return DescribeConfigsResponse(results=tuple(results))


def _describe(
    broker: BrokerState, node_id: int, asked: DescribeConfigsResource, budget: Budget, *, with_synonyms: bool
) -> DescribeConfigsResult:
    try:
        budget.take()
        entries = _entries(broker, node_id, asked)
    except BrokerError as error:
        return DescribeConfigsResult(
            error_code=error.code,
            error_message=str(error),
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )
    read_only = asked.resource_type == ConfigResourceType.BROKER
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message="",  # not null: Kafka's word for success here
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=tuple(
            _result(name, entry, read_only=read_only, with_synonyms=with_synonyms)
            for name, entry in sorted(entries.items())
            if not asked.configuration_keys or name in asked.configuration_keys
        ),
    )


def _entries(broker: BrokerState, node_id: int, asked: DescribeConfigsResource) -> Mapping[str, _Entry]:
    match asked.resource_type:
        case ConfigResourceType.TOPIC:
            return _topic_entries(broker, asked.resource_name)
        case ConfigResourceType.BROKER:
            return _broker_entries(broker, node_id, asked.resource_name)
        case ConfigResourceType.BROKER_LOGGER:
            check_node_id(node_id, asked.resource_name)
            return {}
        case ConfigResourceType.CLIENT_METRICS:
            if not asked.resource_name:
                raise BrokerError("Client metrics subscription name must not be empty", code=ErrorCode.INVALID_REQUEST)
            return {}
        case ConfigResourceType.GROUP:
            return _group_entries(broker, asked.resource_name)
        case _:
            raise unsupported(asked.resource_type)


def _topic_entries(broker: BrokerState, name: str) -> Mapping[str, _Entry]:
    own = topic_of(broker.topics, name).configs
    limit = broker.topics.message_bytes_max
    inherited = effective_topic_configs({}, message_bytes_max=limit)

    def inherited_source(key: str) -> ConfigSource:
        is_set = key == MAX_MESSAGE_BYTES and inherited[key] != TOPIC_CONFIG_DEFAULTS[key]
        return ConfigSource.STATIC_BROKER if is_set else ConfigSource.DEFAULT

    return {
        key: _Entry(
            value=own.get(key, default),
            source=ConfigSource.DYNAMIC_TOPIC if key in own else inherited_source(key),
            default=default,
            default_source=inherited_source(key),
        )
        for key, default in inherited.items()
    }


def _broker_entries(broker: BrokerState, node_id: int, name: str) -> Mapping[str, _Entry]:
    if not name:
        return {}  # the defaults of all brokers that were set at run time: there are none
    check_node_id(node_id, name)
    defaults = BrokerConfig().properties()
    return {
        key: _Entry(value=value, source=_source_of_property(value, defaults[key]), default=defaults[key])
        for key, value in broker.config.properties().items()
    }


def _group_entries(broker: BrokerState, group_id: str) -> Mapping[str, _Entry]:
    check_group_name(group_id)
    own = broker.groups.config_overrides(group_id)
    properties = BrokerConfig().properties()
    entries = {}
    for key, default in broker.groups.config_defaults().items():
        property_name = f"group.{key}"
        inherited = _source_of_property(default, properties[property_name])
        entries[key] = _Entry(
            value=own.get(key, default),
            source=ConfigSource.DYNAMIC_GROUP if key in own else inherited,
            default=default,
            default_source=inherited,
            default_name=property_name,
        )
    return entries


def _source_of_property(value: str, default: str) -> ConfigSource:
    return ConfigSource.DEFAULT if value == default else ConfigSource.STATIC_BROKER


def _result(name: str, entry: _Entry, *, read_only: bool, with_synonyms: bool) -> DescribeConfigsResourceResult:
    synonyms = []
    if with_synonyms:
        if entry.source != entry.default_source:
            synonyms.append(DescribeConfigsSynonym(name=name, value=entry.value, source=entry.source))
        default_name = entry.default_name or name
        synonyms.append(DescribeConfigsSynonym(name=default_name, value=entry.default, source=entry.default_source))
    return DescribeConfigsResourceResult(
        name=name,
        value=entry.value,
        read_only=read_only,
        config_source=entry.source,
        synonyms=tuple(synonyms),
        config_type=type_of(name, entry.default),
        documentation=None,
    )
