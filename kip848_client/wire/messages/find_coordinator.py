"""FindCoordinator (10): which broker coordinates a group (key_type 0) or a transaction (1).

1: key type and error message. 3: flexible. 4: several keys at once, answered one by one; `key` and the top-level
answer are for 0 to 3. 5: TRANSACTION_ABORTABLE may be answered. 6: share groups.
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


class FindCoordinatorRequest(Request["FindCoordinatorResponse"], frozen=True):
    """The keys (group or transactional ids) to look up."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.FIND_COORDINATOR, "0-6", flexible="3+", answered_by={"coordinator_keys": "coordinators"}
    )

    key: Annotated[str, wire("0-3")] = ""
    key_type: Annotated[Int8, wire("1+")] = 0
    coordinator_keys: Annotated[tuple[str, ...], wire("4+")] = ()


class Coordinator(WireStruct, frozen=True):
    """The answer for one key."""

    key: Annotated[str, wire("4+")] = ""
    node_id: Annotated[Int32, wire("4+")] = 0
    host: Annotated[str, wire("4+")] = ""
    port: Annotated[Int32, wire("4+")] = 0
    error_code: Annotated[Int16, wire("4+")] = 0
    error_message: Annotated[str | None, wire("4+", nullable="4+", ignorable=True)] = ""


class FindCoordinatorResponse(Response, frozen=True):
    """Where the coordinators are, or why they are unknown."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.FIND_COORDINATOR, "0-6", flexible="3+")

    throttle_time_ms: Annotated[Int32, wire("1+", ignorable=True)] = 0
    error_code: Annotated[Int16, wire("0-3")] = 0
    error_message: Annotated[str | None, wire("1-3", nullable="1-3", ignorable=True)] = ""
    node_id: Annotated[Int32, wire("0-3")] = 0
    host: Annotated[str, wire("0-3")] = ""
    port: Annotated[Int32, wire("0-3")] = 0
    coordinators: Annotated[tuple[Coordinator, ...], wire("4+")] = ()

    def of(self, key: str) -> Coordinator:
        """The answer for *key*, in the layout of version 4; an older one answers for the only key that was asked."""
        for coordinator in self.coordinators:
            if coordinator.key == key:
                return coordinator
        return Coordinator(key, self.node_id, self.host, self.port, self.error_code, self.error_message)
