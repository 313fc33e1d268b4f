"""EndTxn (26): commit or abort a transaction. 3: flexible. 5: the answer brings the next producer epoch (KIP-890)."""

from __future__ import annotations

from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    BOOL,
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
    "EndTxnRequest",
    "EndTxnResponse",
]


@value
class EndTxnRequest(Request["EndTxnResponse"]):
    """`committed` False aborts."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.END_TXN, "0-5", flexible="3+")

    transactional_id: str = wire(STRING, "0+")
    producer_id: int = wire(INT64, "0+")
    producer_epoch: int = wire(INT16, "0+")
    committed: bool = wire(BOOL, "0+")


@value
class EndTxnResponse(Response):
    """Whether it is done."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.END_TXN, "0-5", flexible="3+")

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    producer_id: int = wire(INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = wire(INT16, "5+", default=-1, ignorable=True)
