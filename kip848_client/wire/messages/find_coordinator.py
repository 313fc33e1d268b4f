"""FindCoordinator (10): which broker coordinates a group (key_type 0) or a transaction (1).

1: key type and error message. 3: flexible. 4: several keys at once, answered one by one; `key` and the top-level
answer are for 0 to 3. 5: TRANSACTION_ABORTABLE may be answered. 6: share groups.
"""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
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
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "Coordinator",
]


@value
class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    """The keys (group or transactional ids) to look up."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.FIND_COORDINATOR, "0-6", flexible="3+")

    key: str = wire(STRING, "0-3")
    key_type: int = wire(INT8, "1+")
    coordinator_keys: tuple[str, ...] = wire(array(STRING), "4+")


@value
class Coordinator:
    """The answer for one key."""

    key: str = wire(STRING, "4+")
    node_id: int = wire(INT32, "4+")
    host: str = wire(STRING, "4+")
    port: int = wire(INT32, "4+")
    error_code: int = wire(INT16, "4+")
    error_message: str | None = wire(STRING, "4+", nullable="4+", ignorable=True)


@value
class FindCoordinatorResponse(Response):
    """Where the coordinators are, or why they are unknown."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.FIND_COORDINATOR, "0-6", flexible="3+")

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "0-3")
    error_message: str | None = wire(STRING, "1-3", nullable="1-3", ignorable=True)
    node_id: int = wire(INT32, "0-3")
    host: str = wire(STRING, "0-3")
    port: int = wire(INT32, "0-3")
    coordinators: tuple[Coordinator, ...] = wire(array(Coordinator), "4+")
