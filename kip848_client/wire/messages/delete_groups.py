"""DeleteGroups (42): remove empty groups with their offsets. 2: flexible."""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
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
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeletableGroupResult",
]


@value
class DeleteGroupsRequest(Request["DeleteGroupsResponse"]):
    """The groups to remove."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.DELETE_GROUPS, "0-2", flexible="2+")

    groups_names: tuple[str, ...] = wire(array(STRING), "0+")


@value
class DeletableGroupResult:
    """Whether the group was removed."""

    group_id: str = wire(STRING, "0+")
    error_code: int = wire(INT16, "0+")


@value
class DeleteGroupsResponse(Response):
    """One result per group."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DELETE_GROUPS, "0-2", flexible="2+")

    throttle_time_ms: int = wire(INT32, "0+")
    results: tuple[DeletableGroupResult, ...] = wire(array(DeletableGroupResult), "0+")
