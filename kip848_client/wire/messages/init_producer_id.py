"""InitProducerId: the request and the response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    MessageSpec,
    Request,
    Response,
    request,
    response,
    wire,
)

__all__ = [
    "InitProducerIdRequest",
    "InitProducerIdResponse",
]


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    """InitProducerId request."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.INIT_PRODUCER_ID, "0-5", flexible="2+")

    transactional_id: str | None = wire(STRING, "0+", nullable="0+")
    transaction_timeout_ms: int = wire(INT32, "0+")
    producer_id: int = wire(INT64, "3+", default=-1)
    producer_epoch: int = wire(INT16, "3+", default=-1)


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse(Response):
    """InitProducerId response."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.INIT_PRODUCER_ID, "0-5", flexible="2+")

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    producer_id: int = wire(INT64, "0+", default=-1)
    producer_epoch: int = wire(INT16, "0+")
