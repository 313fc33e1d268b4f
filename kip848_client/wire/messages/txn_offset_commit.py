"""TxnOffsetCommit (28): store positions as part of a transaction.

2: leader epochs. 3: flexible, and fenced by the member's epoch. 5: without AddOffsetsToTxn before it (KIP-890).
6: topics by id instead of by name, and the errors of the consumer protocol (KIP-1319).
"""

from __future__ import annotations

import uuid
from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    MessageSpec,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class TxnOffsetCommitRequestPartition(WireStruct, frozen=True):
    """The position of one partition."""

    partition_index: Annotated[Int32, wire("0+")] = 0
    committed_offset: Annotated[Int64, wire("0+")] = 0
    committed_leader_epoch: Annotated[Int32, wire("2+", ignorable=True)] = -1
    committed_metadata: Annotated[str | None, wire("0+", nullable="0+")] = ""


class TxnOffsetCommitRequestTopic(WireStruct, frozen=True):
    """A topic, by name up to version 5 and by id from 6 on."""

    name: Annotated[str, wire("0-5", ignorable=True)] = ""
    topic_id: Annotated[uuid.UUID, wire("6+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[tuple[TxnOffsetCommitRequestPartition, ...], wire("0+")] = ()


class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"], frozen=True):
    """Positions, and the member that consumed up to them. Its epoch is a generation in a classic group."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.TXN_OFFSET_COMMIT, "0-6", flexible="3+", answered_by={"topics": "topics", "partitions": "partitions"}
    )

    transactional_id: Annotated[str, wire("0+")] = ""
    group_id: Annotated[str, wire("0+")] = ""
    producer_id: Annotated[Int64, wire("0+")] = 0
    producer_epoch: Annotated[Int16, wire("0+")] = 0
    generation_id_or_member_epoch: Annotated[Int32, wire("3+")] = -1
    member_id: Annotated[str, wire("3+")] = ""
    group_instance_id: Annotated[str | None, wire("3+", nullable="3+")] = None
    topics: Annotated[tuple[TxnOffsetCommitRequestTopic, ...], wire("0+")] = ()


class TxnOffsetCommitResponsePartition(WireStruct, frozen=True):
    """Whether the position was stored."""

    partition_index: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0


class TxnOffsetCommitResponseTopic(WireStruct, frozen=True):
    """A topic, named as in the request."""

    name: Annotated[str, wire("0-5", ignorable=True)] = ""
    topic_id: Annotated[uuid.UUID, wire("6+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[tuple[TxnOffsetCommitResponsePartition, ...], wire("0+")] = ()


class TxnOffsetCommitResponse(Response, frozen=True):
    """One error code per partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.TXN_OFFSET_COMMIT, "0-6", flexible="3+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    topics: Annotated[tuple[TxnOffsetCommitResponseTopic, ...], wire("0+")] = ()
