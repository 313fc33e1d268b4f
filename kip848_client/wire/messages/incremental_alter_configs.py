"""IncrementalAlterConfigs (44): change single configuration keys.

`config_operation` is 0 set, 1 delete, 2 append, 3 subtract. 1: flexible.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.alter_configs import AlterConfigsResourceResponse
from kip848_client.wire.schema import (
    Int8,
    Int32,
    MessageSpec,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class AlterableConfig(WireStruct, frozen=True):
    """The change of one key."""

    name: Annotated[str, wire("0+")] = ""
    config_operation: Annotated[Int8, wire("0+")] = 0
    value: Annotated[str | None, wire("0+", nullable="0+")] = ""


class AlterConfigsResource(WireStruct, frozen=True):
    """The changes of one resource."""

    resource_type: Annotated[Int8, wire("0+")] = 0
    resource_name: Annotated[str, wire("0+")] = ""
    configs: Annotated[tuple[AlterableConfig, ...], wire("0+")] = ()


class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"], frozen=True):
    """The changes of each resource; with `validate_only` they are checked and not made."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, "0-1", flexible="1+", answered_by={"resources": "responses"}
    )

    resources: Annotated[tuple[AlterConfigsResource, ...], wire("0+")] = ()
    validate_only: Annotated[bool, wire("0+")] = False


class IncrementalAlterConfigsResponse(Response, frozen=True):
    """The result for each resource."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.INCREMENTAL_ALTER_CONFIGS, "0-1", flexible="1+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    responses: Annotated[tuple[AlterConfigsResourceResponse, ...], wire("0+")] = ()
