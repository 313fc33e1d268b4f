"""OffsetCommit (8): store the position of a group.

2 to 4: a retention time, ignored since. 6: leader epochs. 7: static members. 8: flexible. 9: the consumer protocol's
errors and member epochs. 10: topics by id instead of by name.
"""

from __future__ import annotations

import uuid
from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    MessageSpec,
    Request,
    Response,
    array,
    request,
    response,
    wire,
)

__all__ = [
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetCommitRequestPartition",
    "OffsetCommitRequestTopic",
    "OffsetCommitResponsePartition",
    "OffsetCommitResponseTopic",
]


@value
class OffsetCommitRequestPartition:
    """The position of one partition: the next offset to read."""

    partition_index: int = wire(INT32, "2+")
    committed_offset: int = wire(INT64, "2+")
    committed_leader_epoch: int = wire(INT32, "6+", default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, "2+", nullable="2+")


@value
class OffsetCommitRequestTopic:
    """A topic, by name up to version 9 and by id from 10 on."""

    name: str = wire(STRING, "2-9", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, "10+", ignorable=True)
    partitions: tuple[OffsetCommitRequestPartition, ...] = wire(array(OffsetCommitRequestPartition), "2+")


@value
class OffsetCommitRequest(Request["OffsetCommitResponse"]):
    """`generation_id_or_member_epoch` is the member epoch in a consumer group, -1 for a commit from outside."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.OFFSET_COMMIT, "2-10", flexible="8+")

    group_id: str = wire(STRING, "2+")
    generation_id_or_member_epoch: int = wire(INT32, "2+", default=-1)
    member_id: str = wire(STRING, "2+")
    group_instance_id: str | None = wire(STRING, "7+", nullable="7+", default=None)
    retention_time_ms: int = wire(INT64, "2-4", default=-1, ignorable=True)
    topics: tuple[OffsetCommitRequestTopic, ...] = wire(array(OffsetCommitRequestTopic), "2+")


@value
class OffsetCommitResponsePartition:
    """Whether the position was stored."""

    partition_index: int = wire(INT32, "2+")
    error_code: int = wire(INT16, "2+")


@value
class OffsetCommitResponseTopic:
    """A topic, named as in the request."""

    name: str = wire(STRING, "2-9", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, "10+", ignorable=True)
    partitions: tuple[OffsetCommitResponsePartition, ...] = wire(array(OffsetCommitResponsePartition), "2+")


@value
class OffsetCommitResponse(Response):
    """One error code per partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.OFFSET_COMMIT, "2-10", flexible="8+")

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    topics: tuple[OffsetCommitResponseTopic, ...] = wire(array(OffsetCommitResponseTopic), "2+")
