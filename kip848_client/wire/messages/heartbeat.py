"""Heartbeat (12): a member of a classic group is alive, and hears of rebalances.

3: static members. 4: flexible.
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
    request,
    response,
    wire,
)

__all__ = [
    "HeartbeatRequest",
    "HeartbeatResponse",
]


@value
class HeartbeatRequest(Request["HeartbeatResponse"]):
    """Which member of which generation is alive."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.HEARTBEAT, "0-4", flexible="4+")

    group_id: str = wire(STRING, "0+")
    generation_id: int = wire(INT32, "0+")
    member_id: str = wire(STRING, "0+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)


@value
class HeartbeatResponse(Response):
    """REBALANCE_IN_PROGRESS asks the member to join again."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.HEARTBEAT, "0-4", flexible="4+")

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "0+")
