"""AddOffsetsToTxn (25): a group whose offsets a transaction will commit. 3: flexible."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Int16, Int32, Int64, MessageSpec, Request, Response, request, response, wire


class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"], frozen=True):
    """The group to add."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.ADD_OFFSETS_TO_TXN, "0-4", flexible="3+")

    transactional_id: Annotated[str, wire("0+")] = ""
    producer_id: Annotated[Int64, wire("0+")] = 0
    producer_epoch: Annotated[Int16, wire("0+")] = 0
    group_id: Annotated[str, wire("0+")] = ""


class AddOffsetsToTxnResponse(Response, frozen=True):
    """Whether it was added."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.ADD_OFFSETS_TO_TXN, "0-4", flexible="3+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
