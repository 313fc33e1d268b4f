"""ListConfigResources (74): what has a configuration of its own (KIP-1142).

0: client metrics only; its name was ListClientMetricsResources. 1: every type, as filter and in the answer.
"""

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

_CLIENT_METRICS = 16


class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"], frozen=True):
    """Types of ``ConfigResource``; an empty list means all types of the version."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.LIST_CONFIG_RESOURCES, "0-1", flexible="0+")

    resource_types: Annotated[tuple[Int8, ...], wire("1+")] = ()


class ConfigResource(WireStruct, frozen=True):
    """One resource."""

    resource_name: Annotated[str, wire("0+")] = ""
    resource_type: Annotated[Int8, wire("1+", ignorable=True)] = _CLIENT_METRICS


class ListConfigResourcesResponse(Response, frozen=True):
    """The resources, type by type."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.LIST_CONFIG_RESOURCES, "0-1", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    config_resources: Annotated[tuple[ConfigResource, ...], wire("0+")] = ()
