"""AlterReplicaLogDirs (34): move partitions to another folder of their broker (KIP-113). 2: flexible."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    Int16,
    Int32,
    MessageSpec,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class AlterReplicaLogDirTopic(WireStruct, frozen=True):
    """Partitions of one topic."""

    name: Annotated[str, wire("1+")] = ""
    partitions: Annotated[tuple[Int32, ...], wire("1+")] = ()


class AlterReplicaLogDir(WireStruct, frozen=True):
    """One folder."""

    path: Annotated[str, wire("1+")] = ""
    topics: Annotated[tuple[AlterReplicaLogDirTopic, ...], wire("1+")] = ()


class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"], frozen=True):
    """The folders with the partitions that they get."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        "1-2",
        flexible="2+",
        answered_by={"dirs.topics": "results", "partitions": "partitions"},
    )

    dirs: Annotated[tuple[AlterReplicaLogDir, ...], wire("1+")] = ()


class AlterReplicaLogDirPartitionResult(WireStruct, frozen=True):
    """Whether the partition moves."""

    partition_index: Annotated[Int32, wire("1+")] = 0
    error_code: Annotated[Int16, wire("1+")] = 0


class AlterReplicaLogDirTopicResult(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic_name: Annotated[str, wire("1+")] = ""
    partitions: Annotated[tuple[AlterReplicaLogDirPartitionResult, ...], wire("1+")] = ()


class AlterReplicaLogDirsResponse(Response, frozen=True):
    """One result for each partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.ALTER_REPLICA_LOG_DIRS, "1-2", flexible="2+")

    throttle_time_ms: Annotated[Int32, wire("1+")] = 0
    results: Annotated[tuple[AlterReplicaLogDirTopicResult, ...], wire("1+")] = ()
