"""DescribeConfigs (32): configuration of topics (resource type 2), brokers (4) and groups (32).

1: sources and synonyms. 3: types and documentation. 4: flexible.
"""

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
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribeConfigsResource",
    "DescribeConfigsSynonym",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResult",
]


@value
class DescribeConfigsResource:
    """One resource to describe."""

    resource_type: int = wire(INT8, "1+")
    resource_name: str = wire(STRING, "1+")
    configuration_keys: tuple[str, ...] | None = wire(array(STRING), "1+", nullable="1+")


@value
class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    """The resources, and which keys (null for all)."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.DESCRIBE_CONFIGS, "1-4", flexible="4+")

    resources: tuple[DescribeConfigsResource, ...] = wire(array(DescribeConfigsResource), "1+")
    include_synonyms: bool = wire(BOOL, "1+")
    include_documentation: bool = wire(BOOL, "3+")


@value
class DescribeConfigsSynonym:
    """Another key that sets the same value, in order of precedence."""

    name: str = wire(STRING, "1+")
    value: str | None = wire(STRING, "1+", nullable="1+")
    source: int = wire(INT8, "1+")


@value
class DescribeConfigsResourceResult:
    """One key: its value, and where the value comes from."""

    name: str = wire(STRING, "1+")
    value: str | None = wire(STRING, "1+", nullable="1+")
    read_only: bool = wire(BOOL, "1+")
    config_source: int = wire(INT8, "1+", default=-1)
    is_sensitive: bool = wire(BOOL, "1+")
    synonyms: tuple[DescribeConfigsSynonym, ...] = wire(array(DescribeConfigsSynonym), "1+")
    config_type: int = wire(INT8, "3+", ignorable=True)
    documentation: str | None = wire(STRING, "3+", nullable="1+", ignorable=True)


@value
class DescribeConfigsResult:
    """The keys of one resource."""

    error_code: int = wire(INT16, "1+")
    error_message: str | None = wire(STRING, "1+", nullable="1+")
    resource_type: int = wire(INT8, "1+")
    resource_name: str = wire(STRING, "1+")
    configs: tuple[DescribeConfigsResourceResult, ...] = wire(array(DescribeConfigsResourceResult), "1+")


@value
class DescribeConfigsResponse(Response):
    """One result per resource."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_CONFIGS, "1-4", flexible="4+")

    throttle_time_ms: int = wire(INT32, "1+")
    results: tuple[DescribeConfigsResult, ...] = wire(array(DescribeConfigsResult), "1+")
