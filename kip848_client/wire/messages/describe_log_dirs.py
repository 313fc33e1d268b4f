"""DescribeLogDirs (35): the folders of a broker, and how many bytes each partition takes up there.

1: the first one served. 2: flexible. 3: an error for the whole answer. 4: size and free space of the volume. 5: whether
new partitions are kept away from the folder, which never happens here.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
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


class DescribableLogDirTopic(WireStruct, frozen=True):
    """Partitions of one topic."""

    topic: Annotated[str, wire("1+")] = ""
    partitions: Annotated[tuple[Int32, ...], wire("1+")] = ()


class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"], frozen=True):
    """The partitions that are asked for; None for all."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.DESCRIBE_LOG_DIRS, "1-5", flexible="2+", answered_by={"topics": "results"}
    )

    topics: Annotated[tuple[DescribableLogDirTopic, ...] | None, wire("1+", nullable="1+")] = ()


class DescribeLogDirsPartition(WireStruct, frozen=True):
    """Size and lag of one partition, in bytes and records."""

    partition_index: Annotated[Int32, wire("1+")] = 0
    partition_size: Annotated[Int64, wire("1+")] = 0
    offset_lag: Annotated[Int64, wire("1+")] = 0
    is_future_key: Annotated[bool, wire("1+")] = False


class DescribeLogDirsTopic(WireStruct, frozen=True):
    """The partitions of one topic in a folder."""

    name: Annotated[str, wire("1+")] = ""
    partitions: Annotated[tuple[DescribeLogDirsPartition, ...], wire("1+")] = ()


class DescribeLogDirsResult(WireStruct, frozen=True):
    """One folder; sizes are bytes, -1 if not known."""

    error_code: Annotated[Int16, wire("1+")] = 0
    log_dir: Annotated[str, wire("1+")] = ""
    topics: Annotated[tuple[DescribeLogDirsTopic, ...], wire("1+")] = ()
    total_bytes: Annotated[Int64, wire("4+", ignorable=True)] = -1
    usable_bytes: Annotated[Int64, wire("4+", ignorable=True)] = -1
    is_cordoned: Annotated[bool, wire("5+", ignorable=True)] = False


class DescribeLogDirsResponse(Response, frozen=True):
    """The folders of the broker."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.DESCRIBE_LOG_DIRS, "1-5", flexible="2+")

    throttle_time_ms: Annotated[Int32, wire("1+")] = 0
    error_code: Annotated[Int16, wire("3+", ignorable=True)] = 0
    results: Annotated[tuple[DescribeLogDirsResult, ...], wire("1+")] = ()
