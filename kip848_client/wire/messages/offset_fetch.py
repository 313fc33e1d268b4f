"""OffsetFetch (9): the positions that a group stored.

Up to 7 one group (`group_id`, `topics`), from 8 on several (`groups`). 2: null topics mean all. 5: leader epochs.
6: flexible. 7: whether to wait for open transactions. 9: member id and epoch, checked if the epoch is not negative.
10: topics by id instead of by name.
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


class OffsetFetchRequestTopic(WireStruct, frozen=True):
    """A topic, in versions 1 to 7."""

    name: Annotated[str, wire("1-7")] = ""
    partition_indexes: Annotated[tuple[Int32, ...], wire("1-7")] = ()


class OffsetFetchRequestTopics(WireStruct, frozen=True):
    """A topic, from version 8 on; by id from 10 on."""

    name: Annotated[str, wire("8-9", ignorable=True)] = ""
    topic_id: Annotated[uuid.UUID, wire("10+", ignorable=True)] = ZERO_UUID
    partition_indexes: Annotated[tuple[Int32, ...], wire("8+")] = ()


class OffsetFetchRequestGroup(WireStruct, frozen=True):
    """A group and, from version 9 on, the member that asks. Null topics mean all."""

    group_id: Annotated[str, wire("8+")] = ""
    member_id: Annotated[str | None, wire("9+", nullable="9+", ignorable=True)] = None
    member_epoch: Annotated[Int32, wire("9+", ignorable=True)] = -1
    topics: Annotated[tuple[OffsetFetchRequestTopics, ...] | None, wire("8+", nullable="8+")] = ()


class OffsetFetchRequest(Request["OffsetFetchResponse"], frozen=True):
    """One group up to version 7, several from 8 on."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.OFFSET_FETCH,
        "1-10",
        flexible="6+",
        answered_by={"groups": "groups", "topics": "topics", "partition_indexes": "partitions"},
    )

    group_id: Annotated[str, wire("1-7")] = ""
    topics: Annotated[tuple[OffsetFetchRequestTopic, ...] | None, wire("1-7", nullable="2-7")] = ()
    groups: Annotated[tuple[OffsetFetchRequestGroup, ...], wire("8+")] = ()
    require_stable: Annotated[bool, wire("7+")] = False


class OffsetFetchResponsePartition(WireStruct, frozen=True):
    """A stored position, in versions 1 to 7."""

    partition_index: Annotated[Int32, wire("1-7")] = 0
    committed_offset: Annotated[Int64, wire("1-7")] = 0
    committed_leader_epoch: Annotated[Int32, wire("5-7", ignorable=True)] = -1
    metadata: Annotated[str | None, wire("1-7", nullable="1-7")] = ""
    error_code: Annotated[Int16, wire("1-7")] = 0


class OffsetFetchResponseTopic(WireStruct, frozen=True):
    """A topic, in versions 1 to 7."""

    name: Annotated[str, wire("1-7")] = ""
    partitions: Annotated[tuple[OffsetFetchResponsePartition, ...], wire("1-7")] = ()


class OffsetFetchResponsePartitions(WireStruct, frozen=True):
    """A stored position, from version 8 on; `committed_offset` is -1 if there is none."""

    partition_index: Annotated[Int32, wire("8+")] = 0
    committed_offset: Annotated[Int64, wire("8+")] = 0
    committed_leader_epoch: Annotated[Int32, wire("8+", ignorable=True)] = -1
    metadata: Annotated[str | None, wire("8+", nullable="8+")] = ""
    error_code: Annotated[Int16, wire("8+")] = 0


class OffsetFetchResponseTopics(WireStruct, frozen=True):
    """A topic, from version 8 on, named as in the request."""

    name: Annotated[str, wire("8-9", ignorable=True)] = ""
    topic_id: Annotated[uuid.UUID, wire("10+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[tuple[OffsetFetchResponsePartitions, ...], wire("8+")] = ()


class OffsetFetchResponseGroup(WireStruct, frozen=True):
    """The positions of one group; an error here concerns the group as a whole."""

    group_id: Annotated[str, wire("8+")] = ""
    topics: Annotated[tuple[OffsetFetchResponseTopics, ...], wire("8+")] = ()
    error_code: Annotated[Int16, wire("8+")] = 0


class OffsetFetchResponse(Response, frozen=True):
    """Offsets with their metadata; -1 where nothing is stored."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.OFFSET_FETCH, "1-10", flexible="6+")

    throttle_time_ms: Annotated[Int32, wire("3+", ignorable=True)] = 0
    topics: Annotated[tuple[OffsetFetchResponseTopic, ...], wire("1-7")] = ()
    error_code: Annotated[Int16, wire("2-7", ignorable=True)] = 0
    groups: Annotated[tuple[OffsetFetchResponseGroup, ...], wire("8+")] = ()
