"""ListGroups (16): the groups of one coordinator.

3: flexible. 4: states, as filter and in the answer. 5: types ("consumer", "classic"), likewise.
"""

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
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListedGroup",
]


@value
class ListGroupsRequest(Request["ListGroupsResponse"]):
    """Filters; empty lists let everything through."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.LIST_GROUPS, "0-5", flexible="3+")

    states_filter: tuple[str, ...] = wire(array(STRING), "4+")
    types_filter: tuple[str, ...] = wire(array(STRING), "5+")


@value
class ListedGroup:
    """One group."""

    group_id: str = wire(STRING, "0+")
    protocol_type: str = wire(STRING, "0+")
    group_state: str = wire(STRING, "4+", ignorable=True)
    group_type: str = wire(STRING, "5+", ignorable=True)


@value
class ListGroupsResponse(Response):
    """The groups that pass the filters."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.LIST_GROUPS, "0-5", flexible="3+")

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "0+")
    groups: tuple[ListedGroup, ...] = wire(array(ListedGroup), "0+")
