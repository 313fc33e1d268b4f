"""DescribeConfigs (32): the settings of topics, this broker and groups, and where each comes from.

Version 3 adds types and documentation; both are Kafka's own (`kafka_configs`).

Source:
    apache/kafka ``ConfigHelper.describeConfigs``; KIP-848 for groups (resource type 32).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kip848_client.common.addresses import in_url
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.broker.apis._budget import DESCRIBED_MAX, Budget
from kip848_client.testing.broker.apis._configs import (
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    Described,
    broker_sources,
    check_group_name,
    check_node_id,
    inherited,
    overridden,
    topic_of,
    topic_sources,
    type_of,
    unsupported,
)
from kip848_client.testing.broker.apis._permissions import each_config
from kip848_client.testing.broker.client_telemetry import SUBSCRIPTION_DEFAULTS
from kip848_client.testing.broker.cluster.live_settings import ALL_NODES, LIVE_SETTINGS, kept_settings
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.metadata.kafka_configs import (
    KafkaConfig,
    broker_configs,
    client_metrics_configs,
    group_configs,
    topic_configs,
)
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.state import BrokerState
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

requires: Final = each_config(Operation.DESCRIBE_CONFIGS)


class _Entry(NamedTuple):
    """A setting, and how Kafka describes it; None if it is ours."""

    found: Described
    known: KafkaConfig | None
    read_only: bool = False
    unset: bool = False
    """It has neither a value nor a default."""


def handle(broker: BrokerState, request: DescribeConfigsRequest, context: RequestContext) -> Slices:
    """Describe each resource; one that cannot be described carries its own error.

    A resource that is named twice is described once, with the keys that were named last.
    """
    budget = Budget(DESCRIBED_MAX)
    wanted = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    results = []
    for resource in wanted.values():
        results.append(_describe(broker, context.node_id, resource, budget, request))
        yield
    return DescribeConfigsResponse(results=tuple(results))


def _describe(
    broker: BrokerState, node_id: int, asked: DescribeConfigsResource, budget: Budget, request: DescribeConfigsRequest
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
    keys = frozenset(asked.configuration_keys or entries)
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message="",  # not null: Kafka's word for success here
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=tuple(_result(name, entry, request) for name, entry in sorted(entries.items()) if name in keys),
    )


def _entries(broker: BrokerState, node_id: int, asked: DescribeConfigsResource) -> Mapping[str, _Entry]:
    match asked.resource_type:
        case ConfigResourceType.TOPIC:
            return _topic_entries(broker, node_id, asked.resource_name)
        case ConfigResourceType.BROKER:
            return _broker_entries(broker, node_id, asked.resource_name)
        case ConfigResourceType.BROKER_LOGGER:
            check_node_id(node_id, asked.resource_name)
            return {}
        case ConfigResourceType.CLIENT_METRICS:
            return _subscription_entries(broker, asked.resource_name)
        case ConfigResourceType.GROUP:
            return _group_entries(broker, node_id, asked.resource_name)
        case _:
            raise unsupported(asked.resource_type)


def _topic_entries(broker: BrokerState, node_id: int, name: str) -> Mapping[str, _Entry]:
    offsets = broker.offsets_topic.described
    own = (offsets if name == offsets.name else topic_of(broker.topics, name)).configs
    known = topic_configs()
    return {key: _Entry(found, known.get(key)) for key, found in topic_sources(broker, node_id, own).items()}


def _broker_entries(broker: BrokerState, node_id: int, name: str) -> Mapping[str, _Entry]:
    known = broker_configs()
    if name == ALL_NODES:
        changed = broker.settings.changed(ALL_NODES).items()
        every = [ConfigSynonym(key, value, ConfigSource.DYNAMIC_DEFAULT_BROKER) for key, value in changed]
        return {each.name: _Entry(Described(each, (each,)), known.get(each.name)) for each in every}
    check_node_id(node_id, name)
    entries = _identity(broker, node_id)
    for key in (*broker.config.properties(), *kept_settings()):
        sources = broker_sources(broker, node_id, key)
        in_force = sources[0] if sources else ConfigSynonym(key, "", ConfigSource.DEFAULT)
        read_only = key not in LIVE_SETTINGS and key not in kept_settings()
        entries[key] = _Entry(Described(in_force, sources), known.get(key), read_only, unset=not sources)
    return entries


def _identity(broker: BrokerState, node_id: int) -> dict[str, _Entry]:
    """Id and addresses of a node, which are no settings of the broker here. A listener is named by its number."""
    listeners = ",".join(
        f"CLIENTS{number or ''}://{in_url(host)}:{port}"
        for number, (host, port) in enumerate(broker.nodes[node_id].endpoints)
    )
    found = {"node.id": str(node_id), "advertised.listeners": listeners}
    static = [ConfigSynonym(name, value, ConfigSource.STATIC_BROKER) for name, value in found.items()]
    return {each.name: _Entry(Described(each, (each,)), broker_configs().get(each.name), True) for each in static}


def _group_entries(broker: BrokerState, node_id: int, group_id: str) -> Mapping[str, _Entry]:
    check_group_name(group_id)
    own = broker.groups.config_overrides(group_id)
    entries = {}
    for key, value in broker.groups.config_defaults().items():
        known = group_configs().get(key)
        found = inherited(broker, node_id, known, ConfigSynonym(key, value, ConfigSource.DEFAULT))
        if known is None and (sources := broker_sources(broker, node_id, f"group.{key}")):
            found = Described(sources[0], sources)
        entries[key] = _Entry(overridden(found, own, key, ConfigSource.DYNAMIC_GROUP), known)
    return entries


def _subscription_entries(broker: BrokerState, name: str) -> Mapping[str, _Entry]:
    if not name:
        raise BrokerError("Client metrics subscription name must not be empty", code=ErrorCode.INVALID_REQUEST)
    own = broker.telemetry.subscriptions.get(name)
    return {
        key: _Entry(
            overridden(
                Described(ConfigSynonym(key, default, ConfigSource.DEFAULT), ()),
                own,
                key,
                ConfigSource.DYNAMIC_CLIENT_METRICS,
            ),
            client_metrics_configs().get(key),
        )
        for key, default in SUBSCRIPTION_DEFAULTS.items()
    }


def _result(name: str, entry: _Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    found, known = entry.found, entry.known
    return DescribeConfigsResourceResult(
        name=name,
        value=None if entry.unset else found.in_force.value,
        read_only=entry.read_only,
        config_source=found.in_force.source,
        synonyms=tuple(
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in (found.synonyms if request.include_synonyms else ())
        ),
        config_type=type_of(known, found.in_force.value),
        documentation=known.documentation if known is not None and request.include_documentation else None,
    )
