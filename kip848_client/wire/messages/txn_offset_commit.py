"""TxnOffsetCommit (28): store positions as part of a transaction.

2: leader epochs. 3: flexible, and fenced by the member's epoch. 5: without AddOffsetsToTxn before it (KIP-890).
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
    array,
    request,
    response,
    wire,
)

__all__ = [
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitResponse",
    "TxnOffsetCommitRequestPartition",
    "TxnOffsetCommitRequestTopic",
    "TxnOffsetCommitResponsePartition",
    "TxnOffsetCommitResponseTopic",
]


@value
class TxnOffsetCommitRequestPartition:
    """The position of one partition."""

    partition_index: int = wire(INT32, "0+")
    committed_offset: int = wire(INT64, "0+")
    committed_leader_epoch: int = wire(INT32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, "0+", nullable="0+")


@value
class TxnOffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = wire(array(TxnOffsetCommitRequestPartition), "0+")


@value
class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"]):
    """Positions, and the member that consumed up to them."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.TXN_OFFSET_COMMIT, "0-5", flexible="3+")

    transactional_id: str = wire(STRING, "0+")
    group_id: str = wire(STRING, "0+")
    producer_id: int = wire(INT64, "0+")
    producer_epoch: int = wire(INT16, "0+")
    generation_id: int = wire(INT32, "3+", default=-1)
    member_id: str = wire(STRING, "3+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = wire(array(TxnOffsetCommitRequestTopic), "0+")


@value
class TxnOffsetCommitResponsePartition:
    """Whether the position was stored."""

    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")


@value
class TxnOffsetCommitResponseTopic:
    """The partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = wire(array(TxnOffsetCommitResponsePartition), "0+")


@value
class TxnOffsetCommitResponse(Response):
    """One error code per partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.TXN_OFFSET_COMMIT, "0-5", flexible="3+")

    throttle_time_ms: int = wire(INT32, "0+")
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = wire(array(TxnOffsetCommitResponseTopic), "0+")
