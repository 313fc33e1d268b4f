"""InitProducerId (22): an id and epoch for an idempotent or transactional producer.

2: flexible. 3: an id to renew. 4 and 5: further error codes only.
"""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
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


@value
class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    """`producer_id` -1 asks for a new one."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.INIT_PRODUCER_ID, "0-5", flexible="2+")

    transactional_id: str | None = wire(STRING, "0+", nullable="0+")
    transaction_timeout_ms: int = wire(INT32, "0+")
    producer_id: int = wire(INT64, "3+", default=-1)
    producer_epoch: int = wire(INT16, "3+", default=-1)


@value
class InitProducerIdResponse(Response):
    """The id and epoch to put into batches."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.INIT_PRODUCER_ID, "0-5", flexible="2+")

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    producer_id: int = wire(INT64, "0+", default=-1)
    producer_epoch: int = wire(INT16, "0+")
