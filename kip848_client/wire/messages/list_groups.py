"""ListGroups (16): the groups of one coordinator.

3: flexible. 4: states, as filter and in the answer. 5: types ("consumer", "classic"), likewise.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Int16, Int32, MessageSpec, Request, Response, WireStruct, request, response, wire


class ListGroupsRequest(Request["ListGroupsResponse"], frozen=True):
    """Filters; empty lists let everything through."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.LIST_GROUPS, "0-5", flexible="3+")

    states_filter: Annotated[tuple[str, ...], wire("4+")] = ()
    types_filter: Annotated[tuple[str, ...], wire("5+")] = ()


class ListedGroup(WireStruct, frozen=True):
    """One group."""

    group_id: Annotated[str, wire("0+")] = ""
    protocol_type: Annotated[str, wire("0+")] = ""
    group_state: Annotated[str, wire("4+", ignorable=True)] = ""
    group_type: Annotated[str, wire("5+", ignorable=True)] = ""


class ListGroupsResponse(Response, frozen=True):
    """The groups that pass the filters."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.LIST_GROUPS, "0-5", flexible="3+")

    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    groups: Annotated[tuple[ListedGroup, ...], wire("0+")] = ()
