"""Fetch (1): records from partitions, waited for until there are enough of them or time is up.

4: isolation level. 7: sessions, which send only changes. 9: leader epochs. 11: racks. 12: flexible, divergence.
13: topics by id. 15: the replica as a tag. 16: leaders in errors. 17 and 18: tags between brokers.
Records are bytes here; `record_batch` reads them.
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


class ReplicaState(WireStruct, frozen=True):
    """The replica that fetches; -1 is a consumer."""

    replica_id: Annotated[Int32, wire("15+")] = -1
    replica_epoch: Annotated[Int64, wire("15+")] = -1


class FetchPartition(WireStruct, frozen=True):
    """Where to read in one partition, and how much at most."""

    partition: Annotated[Int32, wire("4+")] = 0
    current_leader_epoch: Annotated[Int32, wire("9+", ignorable=True)] = -1
    fetch_offset: Annotated[Int64, wire("4+")] = 0
    last_fetched_epoch: Annotated[Int32, wire("12+")] = -1
    log_start_offset: Annotated[Int64, wire("5+", ignorable=True)] = -1
    partition_max_bytes: Annotated[Int32, wire("4+")] = 0
    replica_directory_id: Annotated[uuid.UUID, wire("17+", tag=0, ignorable=True)] = ZERO_UUID
    high_watermark: Annotated[Int64, wire("18+", tag=1, ignorable=True)] = 9223372036854775807


class FetchTopic(WireStruct, frozen=True):
    """A topic, by name up to version 12 and by id from 13 on."""

    topic: Annotated[str, wire("4-12", ignorable=True)] = ""
    topic_id: Annotated[uuid.UUID, wire("13+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[tuple[FetchPartition, ...], wire("4+")] = ()


class ForgottenTopic(WireStruct, frozen=True):
    """Partitions that leave the session."""

    topic: Annotated[str, wire("7-12", ignorable=True)] = ""
    topic_id: Annotated[uuid.UUID, wire("13+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[tuple[Int32, ...], wire("7+")] = ()


class FetchRequest(Request["FetchResponse"], frozen=True):
    """Where to read from, and how long to wait."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.FETCH, "4-18", flexible="12+", answered_by={"topics": "responses", "partitions": "partitions"}
    )

    cluster_id: Annotated[str | None, wire("12+", nullable="12+", tag=0, ignorable=True)] = None
    replica_id: Annotated[Int32, wire("4-14")] = -1
    replica_state: Annotated[ReplicaState, wire("15+", tag=1)] = ReplicaState()
    max_wait_ms: Annotated[Int32, wire("4+")] = 0
    min_bytes: Annotated[Int32, wire("4+")] = 0
    max_bytes: Annotated[Int32, wire("4+")] = 2147483647
    isolation_level: Annotated[Int8, wire("4+")] = 0
    session_id: Annotated[Int32, wire("7+", ignorable=True)] = 0
    session_epoch: Annotated[Int32, wire("7+", ignorable=True)] = -1
    topics: Annotated[tuple[FetchTopic, ...], wire("4+")] = ()
    forgotten_topics_data: Annotated[tuple[ForgottenTopic, ...], wire("7+")] = ()
    rack_id: Annotated[str, wire("11+", ignorable=True)] = ""


class EpochEndOffset(WireStruct, frozen=True):
    """The point at which the logs of the fetcher and the leader diverge."""

    epoch: Annotated[Int32, wire("12+")] = -1
    end_offset: Annotated[Int64, wire("12+")] = -1


class LeaderIdAndEpoch(WireStruct, frozen=True):
    """The present leader, if it is not the broker that was asked."""

    leader_id: Annotated[Int32, wire("12+")] = -1
    leader_epoch: Annotated[Int32, wire("12+")] = -1


class SnapshotId(WireStruct, frozen=True):
    """The snapshot that a controller should fetch first."""

    end_offset: Annotated[Int64, wire("4+")] = -1
    epoch: Annotated[Int32, wire("4+")] = -1


class AbortedTransaction(WireStruct, frozen=True):
    """A producer whose records from an offset on are to be left out."""

    producer_id: Annotated[Int64, wire("4+")] = 0
    first_offset: Annotated[Int64, wire("4+")] = 0


class PartitionData(WireStruct, frozen=True):
    """Records of one partition, as whole batches that may begin before the wanted offset."""

    partition_index: Annotated[Int32, wire("4+")] = 0
    error_code: Annotated[Int16, wire("4+")] = 0
    high_watermark: Annotated[Int64, wire("4+")] = 0
    last_stable_offset: Annotated[Int64, wire("4+")] = -1
    log_start_offset: Annotated[Int64, wire("5+", ignorable=True)] = -1
    diverging_epoch: Annotated[EpochEndOffset, wire("12+", tag=0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, wire("12+", tag=1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, wire("12+", tag=2)] = SnapshotId()
    aborted_transactions: Annotated[tuple[AbortedTransaction, ...] | None, wire("4+", nullable="4+")] = ()
    preferred_read_replica: Annotated[Int32, wire("11+")] = -1
    records: Annotated[Records | None, wire("4+", nullable="4+")] = None


class FetchableTopicResponse(WireStruct, frozen=True):
    """The partitions of one topic."""

    topic: Annotated[str, wire("4-12", ignorable=True)] = ""
    topic_id: Annotated[uuid.UUID, wire("13+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[tuple[PartitionData, ...], wire("4+")] = ()


class NodeEndpoint(WireStruct, frozen=True):
    """The address of a leader that an error names."""

    node_id: Annotated[Int32, wire("16+")] = 0
    host: Annotated[str, wire("16+")] = ""
    port: Annotated[Int32, wire("16+")] = 0
    rack: Annotated[str | None, wire("16+", nullable="16+")] = None


class FetchResponse(Response, frozen=True):
    """Records per partition, and what has changed about them."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.FETCH, "4-18", flexible="12+")

    throttle_time_ms: Annotated[Int32, wire("4+")] = 0
    error_code: Annotated[Int16, wire("7+", ignorable=True)] = 0
    session_id: Annotated[Int32, wire("7+")] = 0
    responses: Annotated[tuple[FetchableTopicResponse, ...], wire("4+")] = ()
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], wire("16+", tag=0)] = ()
