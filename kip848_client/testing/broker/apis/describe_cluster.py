"""DescribeCluster (60): the nodes of this cluster, and which of them is the controller."""

from __future__ import annotations

from typing import Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.broker.apis._partitions import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED
from kip848_client.testing.broker.apis._permissions import with_cluster_operations
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.security.access import Narrowed, Permit
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

API_KEY: Final = ApiKey.DESCRIBE_CLUSTER
VERSIONS: Final = (0, 2)


def requires(permit: Permit, request: DescribeClusterRequest) -> Narrowed[DescribeClusterResponse]:
    """Nothing; the answer shows the operations on the cluster that the sender may do."""
    return Narrowed(request, lambda response: with_cluster_operations(permit, response))


_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(broker: BrokerState, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Describe the brokers; controllers (KIP-919) have no listener of their own here."""
    if request.endpoint_type != _BROKERS:
        known = request.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=(
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
                if known
                else f"Unsupported endpoint type {request.endpoint_type}"
            ),
            cluster_id=broker.cluster_id,
        )
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.placement.controller,
        brokers=tuple(
            DescribeClusterBroker(
                broker_id=node.node_id,
                host=node.endpoint(context.listener).host,
                port=node.endpoint(context.listener).port,
                rack=node.rack,
                is_fenced=node.node_id not in broker.placement.living,
            )
            for node in (broker.nodes if request.include_fenced_brokers else broker.living_nodes())
        ),
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
        ),
    )
