"""OffsetDelete (47): remove stored positions of topics that a group does not subscribe to. Never flexible."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import Int16, Int32, MessageSpec, Request, Response, WireStruct, request, response, wire


class OffsetDeleteRequestPartition(WireStruct, frozen=True):
    """One partition."""

    partition_index: Annotated[Int32, wire("0+")] = 0


class OffsetDeleteRequestTopic(WireStruct, frozen=True):
    """The partitions of one topic."""

    name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[OffsetDeleteRequestPartition, ...], wire("0+")] = ()


class OffsetDeleteRequest(Request["OffsetDeleteResponse"], frozen=True):
    """The positions to remove."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.OFFSET_DELETE, "0", flexible="none", answered_by={"topics": "topics", "partitions": "partitions"}
    )

    group_id: Annotated[str, wire("0+")] = ""
    topics: Annotated[tuple[OffsetDeleteRequestTopic, ...], wire("0+")] = ()


class OffsetDeleteResponsePartition(WireStruct, frozen=True):
    """Whether the position was removed."""

    partition_index: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0


class OffsetDeleteResponseTopic(WireStruct, frozen=True):
    """The partitions of one topic."""

    name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[OffsetDeleteResponsePartition, ...], wire("0+")] = ()


class OffsetDeleteResponse(Response, frozen=True):
    """One error code per partition."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.OFFSET_DELETE, "0", flexible="none")

    error_code: Annotated[Int16, wire("0+")] = 0
    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    topics: Annotated[tuple[OffsetDeleteResponseTopic, ...], wire("0+")] = ()
