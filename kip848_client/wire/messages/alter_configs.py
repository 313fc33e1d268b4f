"""AlterConfigs (33): replace the whole configuration of resources. Newer clients send IncrementalAlterConfigs.

0 to 1: the same. 2: flexible.
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


class AlterableConfig(WireStruct, frozen=True):
    """One setting."""

    name: Annotated[str, wire("0+")] = ""
    value: Annotated[str | None, wire("0+", nullable="0+")] = ""


class AlterConfigsResource(WireStruct, frozen=True):
    """All overrides of a topic, a group or a broker; other settings go back to their defaults."""

    resource_type: Annotated[Int8, wire("0+")] = 0
    resource_name: Annotated[str, wire("0+")] = ""
    configs: Annotated[tuple[AlterableConfig, ...], wire("0+")] = ()


class AlterConfigsRequest(Request["AlterConfigsResponse"], frozen=True):
    """The resources to configure."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.ALTER_CONFIGS, "0-2", flexible="2+", answered_by={"resources": "responses"}
    )

    resources: Annotated[tuple[AlterConfigsResource, ...], wire("0+")] = ()
    validate_only: Annotated[bool, wire("0+")] = False


class AlterConfigsResourceResponse(WireStruct, frozen=True):
    """Whether one resource was changed. IncrementalAlterConfigs answers with the same fields."""

    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = ""
    resource_type: Annotated[Int8, wire("0+")] = 0
    resource_name: Annotated[str, wire("0+")] = ""


class AlterConfigsResponse(Response, frozen=True):
    """The result for each resource."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.ALTER_CONFIGS, "0-2", flexible="2+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    responses: Annotated[tuple[AlterConfigsResourceResponse, ...], wire("0+")] = ()
