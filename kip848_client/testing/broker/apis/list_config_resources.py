"""ListConfigResources (74): the topics, nodes, groups and client metrics that have a configuration (KIP-1142).

A group is listed if it overrides a setting. Version 0 asks for client metrics.

Source:
    apache/kafka ``KafkaApis.handleListConfigResources``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

from kip848_client.errors import ErrorCode
from kip848_client.testing.broker.apis._configs import ConfigResourceType
from kip848_client.testing.broker.apis._partitions import described_topics
from kip848_client.testing.broker.apis._permissions import whole_cluster
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

API_KEY: Final = ApiKey.LIST_CONFIG_RESOURCES
VERSIONS: Final = (0, 1)

_TYPES: Final = (
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.BROKER,
    ConfigResourceType.TOPIC,
)
"""In Kafka's order."""
_TYPES_OF_VERSION_0: Final = (ConfigResourceType.CLIENT_METRICS,)

requires: Final = whole_cluster(Operation.DESCRIBE_CONFIGS)


def handle(
    broker: BrokerState, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """List the resources of the types that are asked for, or of all. An unknown type refuses the whole request."""
    served = _TYPES if context.api_version else _TYPES_OF_VERSION_0
    if not set(request.resource_types) <= set(served):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    wanted = request.resource_types or served
    return ListConfigResourcesResponse(
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in served
            if resource_type in wanted
            for name in _names(broker, resource_type)
        )
    )


def _names(broker: BrokerState, resource_type: ConfigResourceType) -> Iterable[str]:
    match resource_type:
        case ConfigResourceType.GROUP:
            return broker.groups.ids_with_overrides()
        case ConfigResourceType.CLIENT_METRICS:
            return broker.telemetry.subscriptions.names()
        case ConfigResourceType.BROKER_LOGGER | ConfigResourceType.BROKER:
            return (str(node.node_id) for node in broker.living_nodes())
        case ConfigResourceType.TOPIC:
            return [topic.name for topic in described_topics(broker)]
        case _:
            assert_never(resource_type)
