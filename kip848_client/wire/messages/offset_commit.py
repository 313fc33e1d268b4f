"""OffsetCommit (8): store the position of a group.

2 to 4: a retention time, ignored since. 6: leader epochs. 7: static members. 8: flexible. 9: the consumer protocol's
errors and member epochs. 10: topics by id instead of by name.
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


class OffsetCommitRequestPartition(WireStruct, frozen=True):
    """The position of one partition: the next offset to read."""

    partition_index: Annotated[Int32, wire("2+")] = 0
    committed_offset: Annotated[Int64, wire("2+")] = 0
    committed_leader_epoch: Annotated[Int32, wire("6+", ignorable=True)] = -1
    committed_metadata: Annotated[str | None, wire("2+", nullable="2+")] = ""


class OffsetCommitRequestTopic(WireStruct, frozen=True):
    """A topic, by name up to version 9 and by id from 10 on."""

    name: Annotated[str, wire("2-9", ignorable=True)] = ""
    topic_id: Annotated[uuid.UUID, wire("10+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[tuple[OffsetCommitRequestPartition, ...], wire("2+")] = ()


class OffsetCommitRequest(Request["OffsetCommitResponse"], frozen=True):
    """`generation_id_or_member_epoch` is the member epoch in a consumer group, -1 for a commit from outside."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.OFFSET_COMMIT, "2-10", flexible="8+", answered_by={"topics": "topics", "partitions": "partitions"}
    )

    group_id: Annotated[str, wire("2+")] = ""
    generation_id_or_member_epoch: Annotated[Int32, wire("2+")] = -1
    member_id: Annotated[str, wire("2+")] = ""
    group_instance_id: Annotated[str | None, wire("7+", nullable="7+")] = None
    retention_time_ms: Annotated[Int64, wire("2-4", ignorable=True)] = -1
    topics: Annotated[tuple[OffsetCommitRequestTopic, ...], wire("2+")] = ()


class OffsetCommitResponsePartition(WireStruct, frozen=True):
    """Whether the position was stored."""

    partition_index: Annotated[Int32, wire("2+")] = 0
    error_code: Annotated[Int16, wire("2+")] = 0


class OffsetCommitResponseTopic(WireStruct, frozen=True):
    """A topic, named as in the request."""

    name: Annotated[str, wire("2-9", ignorable=True)] = ""
    topic_id: Annotated[uuid.UUID, wire("10+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[tuple[OffsetCommitResponsePartition, ...], wire("2+")] = ()


class OffsetCommitResponse(Response, frozen=True):
    """One error code per partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.OFFSET_COMMIT, "2-10", flexible="8+")

    throttle_time_ms: Annotated[Int32, wire("3+", ignorable=True)] = 0
    topics: Annotated[tuple[OffsetCommitResponseTopic, ...], wire("2+")] = ()
