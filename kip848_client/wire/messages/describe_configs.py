"""DescribeConfigs: the request and the response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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


@dataclass(frozen=True, slots=True)
class DescribeConfigsResource:
    """`DescribeConfigsResource` of DescribeConfigs."""

    resource_type: int = wire(INT8, "1+")
    resource_name: str = wire(STRING, "1+")
    configuration_keys: tuple[str, ...] | None = wire(array(STRING), "1+", nullable="1+")


@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    """DescribeConfigs request."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.DESCRIBE_CONFIGS, "1-4", flexible="4+")

    resources: tuple[DescribeConfigsResource, ...] = wire(array(DescribeConfigsResource), "1+")
    include_synonyms: bool = wire(BOOL, "1+")
    include_documentation: bool = wire(BOOL, "3+")


@dataclass(frozen=True, slots=True)
class DescribeConfigsSynonym:
    """`DescribeConfigsSynonym` of DescribeConfigs."""

    name: str = wire(STRING, "1+")
    value: str | None = wire(STRING, "1+", nullable="1+")
    source: int = wire(INT8, "1+")


@dataclass(frozen=True, slots=True)
class DescribeConfigsResourceResult:
    """`DescribeConfigsResourceResult` of DescribeConfigs."""

    name: str = wire(STRING, "1+")
    value: str | None = wire(STRING, "1+", nullable="1+")
    read_only: bool = wire(BOOL, "1+")
    config_source: int = wire(INT8, "1+", default=-1)
    is_sensitive: bool = wire(BOOL, "1+")
    synonyms: tuple[DescribeConfigsSynonym, ...] = wire(array(DescribeConfigsSynonym), "1+")
    config_type: int = wire(INT8, "3+", ignorable=True)
    documentation: str | None = wire(STRING, "3+", nullable="1+", ignorable=True)


@dataclass(frozen=True, slots=True)
class DescribeConfigsResult:
    """`DescribeConfigsResult` of DescribeConfigs."""

    error_code: int = wire(INT16, "1+")
    error_message: str | None = wire(STRING, "1+", nullable="1+")
    resource_type: int = wire(INT8, "1+")
    resource_name: str = wire(STRING, "1+")
    configs: tuple[DescribeConfigsResourceResult, ...] = wire(array(DescribeConfigsResourceResult), "1+")


@dataclass(frozen=True, slots=True)
class DescribeConfigsResponse(Response):
    """DescribeConfigs response."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_CONFIGS, "1-4", flexible="4+")

    throttle_time_ms: int = wire(INT32, "1+")
    results: tuple[DescribeConfigsResult, ...] = wire(array(DescribeConfigsResult), "1+")
