"""ShareAcknowledge (79): what a member of a share group says about the records that it has (KIP-932).

2: renewed locks (KIP-1222).
"""

from __future__ import annotations

import uuid
from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    ZERO_UUID,
    Int8,
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


class AcknowledgementBatch(WireStruct, frozen=True):
    """What the member says about some offsets: 0 gap, 1 accept, 2 release, 3 reject, 4 renew; one for all, or each."""

    first_offset: Annotated[Int64, wire("1+")] = 0
    last_offset: Annotated[Int64, wire("1+")] = 0
    acknowledge_types: Annotated[tuple[Int8, ...], wire("1+")] = ()


class AcknowledgePartition(WireStruct, frozen=True):
    """Records of one partition."""

    partition_index: Annotated[Int32, wire("1+")] = 0
    acknowledgement_batches: Annotated[tuple[AcknowledgementBatch, ...], wire("1+")] = ()


class AcknowledgeTopic(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic_id: Annotated[uuid.UUID, wire("1+")] = ZERO_UUID
    partitions: Annotated[tuple[AcknowledgePartition, ...], wire("1+")] = ()


class ShareAcknowledgeRequest(Request["ShareAcknowledgeResponse"], frozen=True):
    """Records to accept, release, reject or renew. Session epoch -1 ends the share session."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.SHARE_ACKNOWLEDGE, "1-2", flexible="1+", answered_by={"topics": "responses", "partitions": "partitions"}
    )

    group_id: Annotated[str | None, wire("1+", nullable="1+")] = None
    member_id: Annotated[str | None, wire("1+", nullable="1+")] = ""
    share_session_epoch: Annotated[Int32, wire("1+")] = 0
    is_renew_ack: Annotated[bool, wire("2+")] = False
    topics: Annotated[tuple[AcknowledgeTopic, ...], wire("1+")] = ()


class LeaderIdAndEpoch(WireStruct, frozen=True):
    """The present leader, if it is not the broker that was asked."""

    leader_id: Annotated[Int32, wire("1+")] = 0
    leader_epoch: Annotated[Int32, wire("1+")] = 0


class PartitionData(WireStruct, frozen=True):
    """What became of the acknowledgements of one partition."""

    partition_index: Annotated[Int32, wire("1+")] = 0
    error_code: Annotated[Int16, wire("1+")] = 0
    error_message: Annotated[str | None, wire("1+", nullable="1+")] = None
    current_leader: Annotated[LeaderIdAndEpoch, wire("1+")] = LeaderIdAndEpoch()


class ShareAcknowledgeTopicResponse(WireStruct, frozen=True):
    """The partitions of one topic."""

    topic_id: Annotated[uuid.UUID, wire("1+")] = ZERO_UUID
    partitions: Annotated[tuple[PartitionData, ...], wire("1+")] = ()


class NodeEndpoint(WireStruct, frozen=True):
    """The address of a leader that an error names."""

    node_id: Annotated[Int32, wire("1+")] = 0
    host: Annotated[str, wire("1+")] = ""
    port: Annotated[Int32, wire("1+")] = 0
    rack: Annotated[str | None, wire("1+", nullable="1+")] = None


class ShareAcknowledgeResponse(Response, frozen=True):
    """What became of the acknowledgements."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.SHARE_ACKNOWLEDGE, "1-2", flexible="1+")

    throttle_time_ms: Annotated[Int32, wire("1+")] = 0
    error_code: Annotated[Int16, wire("1+")] = 0
    error_message: Annotated[str | None, wire("1+", nullable="1+")] = None
    acquisition_lock_timeout_ms: Annotated[Int32, wire("2+", ignorable=True)] = 0
    responses: Annotated[tuple[ShareAcknowledgeTopicResponse, ...], wire("1+")] = ()
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], wire("1+")] = ()
