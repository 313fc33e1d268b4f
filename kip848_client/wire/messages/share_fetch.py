"""ShareFetch (78): records for a member of a share group, and what it says about those that it has (KIP-932).

2: a limit of records (KIP-1206), and renewed locks (KIP-1222). Records are bytes here; `record_batch` reads them.
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
    Records,
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


class FetchPartition(WireStruct, frozen=True):
    """A partition to read, or to acknowledge."""

    partition_index: Annotated[Int32, wire("1+")] = 0
    acknowledgement_batches: Annotated[tuple[AcknowledgementBatch, ...], wire("1+")] = ()


class FetchTopic(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic_id: Annotated[uuid.UUID, wire("1+")] = ZERO_UUID
    partitions: Annotated[tuple[FetchPartition, ...], wire("1+")] = ()


class ForgottenTopic(WireStruct, frozen=True):
    """Partitions that leave the session."""

    topic_id: Annotated[uuid.UUID, wire("1+")] = ZERO_UUID
    partitions: Annotated[tuple[Int32, ...], wire("1+")] = ()


class ShareFetchRequest(Request["ShareFetchResponse"], frozen=True):
    """What to read, and how long to wait. Session epoch 0 opens a share session, -1 ends it."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.SHARE_FETCH, "1-2", flexible="1+", answered_by={"topics": "responses", "partitions": "partitions"}
    )

    group_id: Annotated[str | None, wire("1+", nullable="1+")] = None
    member_id: Annotated[str | None, wire("1+", nullable="1+")] = ""
    share_session_epoch: Annotated[Int32, wire("1+")] = 0
    max_wait_ms: Annotated[Int32, wire("1+")] = 0
    min_bytes: Annotated[Int32, wire("1+")] = 0
    max_bytes: Annotated[Int32, wire("1+")] = 2147483647
    max_records: Annotated[Int32, wire("1+")] = 0
    batch_size: Annotated[Int32, wire("1+")] = 0
    share_acquire_mode: Annotated[Int8, wire("2+", ignorable=True)] = 0
    is_renew_ack: Annotated[bool, wire("2+")] = False
    topics: Annotated[tuple[FetchTopic, ...], wire("1+")] = ()
    forgotten_topics_data: Annotated[tuple[ForgottenTopic, ...], wire("1+")] = ()


class LeaderIdAndEpoch(WireStruct, frozen=True):
    """The present leader, if it is not the broker that was asked."""

    leader_id: Annotated[Int32, wire("1+")] = 0
    leader_epoch: Annotated[Int32, wire("1+")] = 0


class AcquiredRecords(WireStruct, frozen=True):
    """Offsets that the member has now, and which delivery this is."""

    first_offset: Annotated[Int64, wire("1+")] = 0
    last_offset: Annotated[Int64, wire("1+")] = 0
    delivery_count: Annotated[Int16, wire("1+")] = 0


class PartitionData(WireStruct, frozen=True):
    """Records of one partition, of which the member has those that were acquired."""

    partition_index: Annotated[Int32, wire("1+")] = 0
    error_code: Annotated[Int16, wire("1+")] = 0
    error_message: Annotated[str | None, wire("1+", nullable="1+")] = None
    acknowledge_error_code: Annotated[Int16, wire("1+")] = 0
    acknowledge_error_message: Annotated[str | None, wire("1+", nullable="1+")] = None
    current_leader: Annotated[LeaderIdAndEpoch, wire("1+")] = LeaderIdAndEpoch()
    records: Annotated[Records, wire("1+")] = b""
    acquired_records: Annotated[tuple[AcquiredRecords, ...], wire("1+")] = ()


class ShareFetchableTopicResponse(WireStruct, frozen=True):
    """The partitions of one topic."""

    topic_id: Annotated[uuid.UUID, wire("1+")] = ZERO_UUID
    partitions: Annotated[tuple[PartitionData, ...], wire("1+")] = ()


class NodeEndpoint(WireStruct, frozen=True):
    """The address of a leader that an error names."""

    node_id: Annotated[Int32, wire("1+")] = 0
    host: Annotated[str, wire("1+")] = ""
    port: Annotated[Int32, wire("1+")] = 0
    rack: Annotated[str | None, wire("1+", nullable="1+")] = None


class ShareFetchResponse(Response, frozen=True):
    """Records per partition, and what became of the acknowledgements."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.SHARE_FETCH, "1-2", flexible="1+")

    throttle_time_ms: Annotated[Int32, wire("1+")] = 0
    error_code: Annotated[Int16, wire("1+")] = 0
    error_message: Annotated[str | None, wire("1+", nullable="1+")] = None
    acquisition_lock_timeout_ms: Annotated[Int32, wire("1+")] = 0
    responses: Annotated[tuple[ShareFetchableTopicResponse, ...], wire("1+")] = ()
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], wire("1+")] = ()
