"""DescribeCluster (60): the brokers, or from 1 on the controllers, of a cluster. 2: fenced brokers."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    Int8,
    Int16,
    Int32,
    MessageSpec,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class DescribeClusterRequest(Request["DescribeClusterResponse"], frozen=True):
    """Options of the description."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.DESCRIBE_CLUSTER, "0-2", flexible="0+")

    include_cluster_authorized_operations: Annotated[bool, wire("0+")] = False
    endpoint_type: Annotated[Int8, wire("1+")] = 1
    include_fenced_brokers: Annotated[bool, wire("2+")] = False


class DescribeClusterBroker(WireStruct, frozen=True):
    """Where one node listens."""

    broker_id: Annotated[Int32, wire("0+")] = 0
    host: Annotated[str, wire("0+")] = ""
    port: Annotated[Int32, wire("0+")] = 0
    rack: Annotated[str | None, wire("0+", nullable="0+")] = None
    is_fenced: Annotated[bool, wire("2+")] = False


class DescribeClusterResponse(Response, frozen=True):
    """The nodes of the cluster."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_CLUSTER, "0-2", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
    endpoint_type: Annotated[Int8, wire("1+")] = 1
    cluster_id: Annotated[str, wire("0+")] = ""
    controller_id: Annotated[Int32, wire("0+")] = -1
    brokers: Annotated[tuple[DescribeClusterBroker, ...], wire("0+")] = ()
    cluster_authorized_operations: Annotated[Int32, wire("0+")] = -2147483648
