"""OffsetForLeaderEpoch (23): where a leader epoch ended, to find out what was truncated.

2: the current leader epoch is checked. 3: the asking replica. 4: flexible.
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
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
    "EpochEndOffset",
    "OffsetForLeaderTopicResult",
]


@value
class OffsetForLeaderPartition:
    """The epoch to look up in one partition."""

    partition: int = wire(INT32, "2+")
    current_leader_epoch: int = wire(INT32, "2+", default=-1)
    leader_epoch: int = wire(INT32, "2+")


@value
class OffsetForLeaderTopic:
    """The partitions of one topic to look up."""

    topic: str = wire(STRING, "2+")
    partitions: tuple[OffsetForLeaderPartition, ...] = wire(array(OffsetForLeaderPartition), "2+")


@value
class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    """The leader epochs to look up."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.OFFSET_FOR_LEADER_EPOCH, "2-4", flexible="4+")

    replica_id: int = wire(INT32, "3+", default=-2, ignorable=True)
    topics: tuple[OffsetForLeaderTopic, ...] = wire(array(OffsetForLeaderTopic), "2+")


@value
class EpochEndOffset:
    """The largest epoch not above the wanted one, and its end."""

    error_code: int = wire(INT16, "2+")
    partition: int = wire(INT32, "2+")
    leader_epoch: int = wire(INT32, "2+", default=-1)
    end_offset: int = wire(INT64, "2+", default=-1)


@value
class OffsetForLeaderTopicResult:
    """The partitions of one topic."""

    topic: str = wire(STRING, "2+")
    partitions: tuple[EpochEndOffset, ...] = wire(array(EpochEndOffset), "2+")


@value
class OffsetForLeaderEpochResponse(Response):
    """The end offset of each epoch."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.OFFSET_FOR_LEADER_EPOCH, "2-4", flexible="4+")

    throttle_time_ms: int = wire(INT32, "2+")
    topics: tuple[OffsetForLeaderTopicResult, ...] = wire(array(OffsetForLeaderTopicResult), "2+")
