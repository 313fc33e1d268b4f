"""EndTxn (26): commit or abort a transaction. 3: flexible. 5: the answer brings the next producer epoch (KIP-890)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Int16, Int32, Int64, MessageSpec, Request, Response, request, response, wire


class EndTxnRequest(Request["EndTxnResponse"], frozen=True):
    """`committed` False aborts."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.END_TXN, "0-5", flexible="3+")

    transactional_id: Annotated[str, wire("0+")] = ""
    producer_id: Annotated[Int64, wire("0+")] = 0
    producer_epoch: Annotated[Int16, wire("0+")] = 0
    committed: Annotated[bool, wire("0+")] = False


class EndTxnResponse(Response, frozen=True):
    """Whether it is done."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.END_TXN, "0-5", flexible="3+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    producer_id: Annotated[Int64, wire("5+", ignorable=True)] = -1
    producer_epoch: Annotated[Int16, wire("5+", ignorable=True)] = -1
