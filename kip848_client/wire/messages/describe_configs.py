"""DescribeConfigs (32): configuration of topics (resource type 2), brokers (4) and groups (32).

1: sources and synonyms. 3: types and documentation. 4: flexible.
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


class DescribeConfigsResource(WireStruct, frozen=True):
    """One resource to describe."""

    resource_type: Annotated[Int8, wire("1+")] = 0
    resource_name: Annotated[str, wire("1+")] = ""
    configuration_keys: Annotated[tuple[str, ...] | None, wire("1+", nullable="1+")] = ()


class DescribeConfigsRequest(Request["DescribeConfigsResponse"], frozen=True):
    """The resources, and which keys (null for all)."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.DESCRIBE_CONFIGS, "1-4", flexible="4+", answered_by={"resources": "results"}
    )

    resources: Annotated[tuple[DescribeConfigsResource, ...], wire("1+")] = ()
    include_synonyms: Annotated[bool, wire("1+")] = False
    include_documentation: Annotated[bool, wire("3+")] = False


class DescribeConfigsSynonym(WireStruct, frozen=True):
    """Another key that sets the same value, in order of precedence."""

    name: Annotated[str, wire("1+")] = ""
    value: Annotated[str | None, wire("1+", nullable="1+")] = ""
    source: Annotated[Int8, wire("1+")] = 0


class DescribeConfigsResourceResult(WireStruct, frozen=True):
    """One key: its value, and where the value comes from."""

    name: Annotated[str, wire("1+")] = ""
    value: Annotated[str | None, wire("1+", nullable="1+")] = ""
    read_only: Annotated[bool, wire("1+")] = False
    config_source: Annotated[Int8, wire("1+")] = -1
    is_sensitive: Annotated[bool, wire("1+")] = False
    synonyms: Annotated[tuple[DescribeConfigsSynonym, ...], wire("1+")] = ()
    config_type: Annotated[Int8, wire("3+", ignorable=True)] = 0
    documentation: Annotated[str | None, wire("3+", nullable="1+", ignorable=True)] = ""


class DescribeConfigsResult(WireStruct, frozen=True):
    """The keys of one resource."""

    error_code: Annotated[Int16, wire("1+")] = 0
    error_message: Annotated[str | None, wire("1+", nullable="1+")] = ""
    resource_type: Annotated[Int8, wire("1+")] = 0
    resource_name: Annotated[str, wire("1+")] = ""
    configs: Annotated[tuple[DescribeConfigsResourceResult, ...], wire("1+")] = ()


class DescribeConfigsResponse(Response, frozen=True):
    """One result per resource."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_CONFIGS, "1-4", flexible="4+")

    throttle_time_ms: Annotated[Int32, wire("1+")] = 0
    results: Annotated[tuple[DescribeConfigsResult, ...], wire("1+")] = ()
