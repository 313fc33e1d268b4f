"""IncrementalAlterConfigs (44): change single configuration keys.

`config_operation` is 0 set, 1 delete, 2 append, 3 subtract. 1: flexible.
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
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
    "AlterableConfig",
    "AlterConfigsResource",
    "AlterConfigsResourceResponse",
]


@value
class AlterableConfig:
    """The change of one key."""

    name: str = wire(STRING, "0+")
    config_operation: int = wire(INT8, "0+")
    value: str | None = wire(STRING, "0+", nullable="0+")


@value
class AlterConfigsResource:
    """The changes of one resource."""

    resource_type: int = wire(INT8, "0+")
    resource_name: str = wire(STRING, "0+")
    configs: tuple[AlterableConfig, ...] = wire(array(AlterableConfig), "0+")


@value
class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"]):
    """The changes, or only to be checked."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.INCREMENTAL_ALTER_CONFIGS, "0-1", flexible="1+")

    resources: tuple[AlterConfigsResource, ...] = wire(array(AlterConfigsResource), "0+")
    validate_only: bool = wire(BOOL, "0+")


@value
class AlterConfigsResourceResponse:
    """Whether the resource was changed."""

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")
    resource_type: int = wire(INT8, "0+")
    resource_name: str = wire(STRING, "0+")


@value
class IncrementalAlterConfigsResponse(Response):
    """One result per resource."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.INCREMENTAL_ALTER_CONFIGS, "0-1", flexible="1+")

    throttle_time_ms: int = wire(INT32, "0+")
    responses: tuple[AlterConfigsResourceResponse, ...] = wire(array(AlterConfigsResourceResponse), "0+")
