"""AddOffsetsToTxn (25): a group whose offsets a transaction will commit. 3: flexible."""

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
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
]


@value
class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"]):
    """The group to add."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.ADD_OFFSETS_TO_TXN, "0-4", flexible="3+")

    transactional_id: str = wire(STRING, "0+")
    producer_id: int = wire(INT64, "0+")
    producer_epoch: int = wire(INT16, "0+")
    group_id: str = wire(STRING, "0+")


@value
class AddOffsetsToTxnResponse(Response):
    """Whether it was added."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.ADD_OFFSETS_TO_TXN, "0-4", flexible="3+")

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
