"""FindCoordinator: the request and the response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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


@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    """FindCoordinator request."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.FIND_COORDINATOR, "0-6", flexible="3+")

    key: str = wire(STRING, "0-3")
    key_type: int = wire(INT8, "1+")
    coordinator_keys: tuple[str, ...] = wire(array(STRING), "4+")


@dataclass(frozen=True, slots=True)
class Coordinator:
    """`Coordinator` of FindCoordinator."""

    key: str = wire(STRING, "4+")
    node_id: int = wire(INT32, "4+")
    host: str = wire(STRING, "4+")
    port: int = wire(INT32, "4+")
    error_code: int = wire(INT16, "4+")
    error_message: str | None = wire(STRING, "4+", nullable="4+", ignorable=True)


@dataclass(frozen=True, slots=True)
class FindCoordinatorResponse(Response):
    """FindCoordinator response."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.FIND_COORDINATOR, "0-6", flexible="3+")

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "0-3")
    error_message: str | None = wire(STRING, "1-3", nullable="1-3", ignorable=True)
    node_id: int = wire(INT32, "0-3")
    host: str = wire(STRING, "0-3")
    port: int = wire(INT32, "0-3")
    coordinators: tuple[Coordinator, ...] = wire(array(Coordinator), "4+")
