"""Fetch (1): records from partitions, waited for until there are enough of them or time is up.

4: isolation level. 7: sessions, which send only changes. 9: leader epochs. 11: racks. 12: flexible, divergence.
13: topics by id. 15: the replica as a tag. 16: leaders in errors. 17 and 18: tags between brokers.
Records are bytes here; `record_batch` reads them.
"""

from __future__ import annotations

import uuid
from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
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
    "FetchRequest",
    "FetchResponse",
    "ReplicaState",
    "FetchPartition",
    "FetchTopic",
    "ForgottenTopic",
    "EpochEndOffset",
    "LeaderIdAndEpoch",
    "SnapshotId",
    "AbortedTransaction",
    "PartitionData",
    "FetchableTopicResponse",
    "NodeEndpoint",
]


@value
class ReplicaState:
    """The replica that fetches; -1 is a consumer."""

    replica_id: int = wire(INT32, "15+", default=-1)
    replica_epoch: int = wire(INT64, "15+", default=-1)


@value
class FetchPartition:
    """Where to read in one partition, and how much at most."""

    partition: int = wire(INT32, "4+")
    current_leader_epoch: int = wire(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = wire(INT64, "4+")
    last_fetched_epoch: int = wire(INT32, "12+", default=-1)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = wire(INT32, "4+")
    replica_directory_id: uuid.UUID = wire(UUID, "17+", tag=0, ignorable=True)
    high_watermark: int = wire(INT64, "18+", default=9223372036854775807, tag=1, ignorable=True)


@value
class FetchTopic:
    """A topic, by name up to version 12 and by id from 13 on."""

    topic: str = wire(STRING, "4-12", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, "13+", ignorable=True)
    partitions: tuple[FetchPartition, ...] = wire(array(FetchPartition), "4+")


@value
class ForgottenTopic:
    """Partitions that leave the session."""

    topic: str = wire(STRING, "7-12", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, "13+", ignorable=True)
    partitions: tuple[int, ...] = wire(array(INT32), "7+")


@value
class FetchRequest(Request["FetchResponse"]):
    """Where to read from, and how long to wait."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.FETCH, "4-18", flexible="12+")

    cluster_id: str | None = wire(STRING, "12+", nullable="12+", default=None, tag=0, ignorable=True)
    replica_id: int = wire(INT32, "4-14", default=-1)
    replica_state: ReplicaState = wire(ReplicaState, "15+", tag=1)
    max_wait_ms: int = wire(INT32, "4+")
    min_bytes: int = wire(INT32, "4+")
    max_bytes: int = wire(INT32, "4+", default=2147483647)
    isolation_level: int = wire(INT8, "4+")
    session_id: int = wire(INT32, "7+", ignorable=True)
    session_epoch: int = wire(INT32, "7+", default=-1, ignorable=True)
    topics: tuple[FetchTopic, ...] = wire(array(FetchTopic), "4+")
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(array(ForgottenTopic), "7+")
    rack_id: str = wire(STRING, "11+", ignorable=True)


@value
class EpochEndOffset:
    """Where the fetcher's log and the leader's part."""

    epoch: int = wire(INT32, "12+", default=-1)
    end_offset: int = wire(INT64, "12+", default=-1)


@value
class LeaderIdAndEpoch:
    """Who leads now, if not the broker that was asked."""

    leader_id: int = wire(INT32, "12+", default=-1)
    leader_epoch: int = wire(INT32, "12+", default=-1)


@value
class SnapshotId:
    """The snapshot that a controller shall fetch first."""

    end_offset: int = wire(INT64, "4+", default=-1)
    epoch: int = wire(INT32, "4+", default=-1)


@value
class AbortedTransaction:
    """A producer whose records from an offset on are to be left out."""

    producer_id: int = wire(INT64, "4+")
    first_offset: int = wire(INT64, "4+")


@value
class PartitionData:
    """Records of one partition, as whole batches that may begin before the wanted offset."""

    partition_index: int = wire(INT32, "4+")
    error_code: int = wire(INT16, "4+")
    high_watermark: int = wire(INT64, "4+")
    last_stable_offset: int = wire(INT64, "4+", default=-1)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = wire(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = wire(SnapshotId, "12+", tag=2)
    aborted_transactions: tuple[AbortedTransaction, ...] | None = wire(array(AbortedTransaction), "4+", nullable="4+")
    preferred_read_replica: int = wire(INT32, "11+", default=-1)
    records: bytes | None = wire(RECORDS, "4+", nullable="4+")


@value
class FetchableTopicResponse:
    """The partitions of one topic."""

    topic: str = wire(STRING, "4-12", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, "13+", ignorable=True)
    partitions: tuple[PartitionData, ...] = wire(array(PartitionData), "4+")


@value
class NodeEndpoint:
    """Where a leader listens that is named in an error."""

    node_id: int = wire(INT32, "16+")
    host: str = wire(STRING, "16+")
    port: int = wire(INT32, "16+")
    rack: str | None = wire(STRING, "16+", nullable="16+", default=None)


@value
class FetchResponse(Response):
    """Records per partition, and what has changed about them."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.FETCH, "4-18", flexible="12+")

    throttle_time_ms: int = wire(INT32, "4+")
    error_code: int = wire(INT16, "7+", ignorable=True)
    session_id: int = wire(INT32, "7+")
    responses: tuple[FetchableTopicResponse, ...] = wire(array(FetchableTopicResponse), "4+")
    node_endpoints: tuple[NodeEndpoint, ...] = wire(array(NodeEndpoint), "16+", tag=0)
