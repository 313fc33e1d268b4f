"""Heartbeat (12): a member of a classic group is alive, and hears of rebalances.

3: static members. 4: flexible.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Int16, Int32, MessageSpec, Request, Response, request, response, wire


class HeartbeatRequest(Request["HeartbeatResponse"], frozen=True):
    """Which member of which generation is alive."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.HEARTBEAT, "0-4", flexible="4+")

    group_id: Annotated[str, wire("0+")] = ""
    generation_id: Annotated[Int32, wire("0+")] = 0
    member_id: Annotated[str, wire("0+")] = ""
    group_instance_id: Annotated[str | None, wire("3+", nullable="3+")] = None


class HeartbeatResponse(Response, frozen=True):
    """REBALANCE_IN_PROGRESS asks the member to join again."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.HEARTBEAT, "0-4", flexible="4+")

    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
