"""DescribeCluster (60): the brokers, or from 1 on the controllers, of a cluster. 2: fenced brokers."""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    MessageSpec,
    Request,
    Response,
    array,
    request,
    response,
    wire,
)

__all__ = [
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeClusterBroker",
]


@value
class DescribeClusterRequest(Request["DescribeClusterResponse"]):
    """What to describe."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.DESCRIBE_CLUSTER, "0-2", flexible="0+")

    include_cluster_authorized_operations: bool = wire(BOOL, "0+")
    endpoint_type: int = wire(INT8, "1+", default=1)
    include_fenced_brokers: bool = wire(BOOL, "2+")


@value
class DescribeClusterBroker:
    """Where one node listens."""

    broker_id: int = wire(INT32, "0+")
    host: str = wire(STRING, "0+")
    port: int = wire(INT32, "0+")
    rack: str | None = wire(STRING, "0+", nullable="0+", default=None)
    is_fenced: bool = wire(BOOL, "2+")


@value
class DescribeClusterResponse(Response):
    """The nodes of the cluster."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_CLUSTER, "0-2", flexible="0+")

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    endpoint_type: int = wire(INT8, "1+", default=1)
    cluster_id: str = wire(STRING, "0+")
    controller_id: int = wire(INT32, "0+", default=-1)
    brokers: tuple[DescribeClusterBroker, ...] = wire(array(DescribeClusterBroker), "0+")
    cluster_authorized_operations: int = wire(INT32, "0+", default=-2147483648)
