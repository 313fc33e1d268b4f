"""DeleteGroups (42): remove empty groups with their offsets. 2: flexible. 3: error texts."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Int16, Int32, MessageSpec, Request, Response, WireStruct, request, response, wire


class DeleteGroupsRequest(Request["DeleteGroupsResponse"], frozen=True):
    """The groups to remove."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.DELETE_GROUPS, "0-3", flexible="2+", answered_by={"groups_names": "results"}
    )

    groups_names: Annotated[tuple[str, ...], wire("0+")] = ()


class DeletableGroupResult(WireStruct, frozen=True):
    """Whether the group was removed."""

    group_id: Annotated[str, wire("0+")] = ""
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("3+", nullable="3+", ignorable=True)] = None


class DeleteGroupsResponse(Response, frozen=True):
    """One result per group."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DELETE_GROUPS, "0-3", flexible="2+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    results: Annotated[tuple[DeletableGroupResult, ...], wire("0+")] = ()
