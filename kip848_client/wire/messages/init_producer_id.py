"""InitProducerId (22): an id and epoch for an idempotent or transactional producer.

2: flexible. 3: an id to renew. 4 and 5: further error codes only.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Int16, Int32, Int64, MessageSpec, Request, Response, request, response, wire


class InitProducerIdRequest(Request["InitProducerIdResponse"], frozen=True):
    """`producer_id` -1 asks for a new one."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.INIT_PRODUCER_ID, "0-5", flexible="2+")

    transactional_id: Annotated[str | None, wire("0+", nullable="0+")] = ""
    transaction_timeout_ms: Annotated[Int32, wire("0+")] = 0
    producer_id: Annotated[Int64, wire("3+")] = -1
    producer_epoch: Annotated[Int16, wire("3+")] = -1


class InitProducerIdResponse(Response, frozen=True):
    """The id and epoch to put into batches."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.INIT_PRODUCER_ID, "0-5", flexible="2+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    producer_id: Annotated[Int64, wire("0+")] = -1
    producer_epoch: Annotated[Int16, wire("0+")] = 0
