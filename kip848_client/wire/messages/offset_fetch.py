"""OffsetFetch (9): the positions that a group stored.

Up to 7 one group (`group_id`, `topics`), from 8 on several (`groups`). 2: null topics mean all. 5: leader epochs.
6: flexible. 7: whether to wait for open transactions. 9: member id and epoch, checked if the epoch is not negative.
10: topics by id instead of by name.
"""

from __future__ import annotations

import uuid
from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    BOOL,
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
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetFetchRequestTopic",
    "OffsetFetchRequestTopics",
    "OffsetFetchRequestGroup",
    "OffsetFetchResponsePartition",
    "OffsetFetchResponseTopic",
    "OffsetFetchResponsePartitions",
    "OffsetFetchResponseTopics",
    "OffsetFetchResponseGroup",
]


@value
class OffsetFetchRequestTopic:
    """A topic, in versions 1 to 7."""

    name: str = wire(STRING, "1-7")
    partition_indexes: tuple[int, ...] = wire(array(INT32), "1-7")


@value
class OffsetFetchRequestTopics:
    """A topic, from version 8 on; by id from 10 on."""

    name: str = wire(STRING, "8-9", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, "10+", ignorable=True)
    partition_indexes: tuple[int, ...] = wire(array(INT32), "8+")


@value
class OffsetFetchRequestGroup:
    """A group and, from version 9 on, the member that asks. Null topics mean all."""

    group_id: str = wire(STRING, "8+")
    member_id: str | None = wire(STRING, "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = wire(INT32, "9+", default=-1, ignorable=True)
    topics: tuple[OffsetFetchRequestTopics, ...] | None = wire(array(OffsetFetchRequestTopics), "8+", nullable="8+")


@value
class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    """One group up to version 7, several from 8 on."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.OFFSET_FETCH, "1-10", flexible="6+")

    group_id: str = wire(STRING, "1-7")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire(array(OffsetFetchRequestTopic), "1-7", nullable="2-7")
    groups: tuple[OffsetFetchRequestGroup, ...] = wire(array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = wire(BOOL, "7+")


@value
class OffsetFetchResponsePartition:
    """A stored position, in versions 1 to 7."""

    partition_index: int = wire(INT32, "1-7")
    committed_offset: int = wire(INT64, "1-7")
    committed_leader_epoch: int = wire(INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = wire(STRING, "1-7", nullable="1-7")
    error_code: int = wire(INT16, "1-7")


@value
class OffsetFetchResponseTopic:
    """A topic, in versions 1 to 7."""

    name: str = wire(STRING, "1-7")
    partitions: tuple[OffsetFetchResponsePartition, ...] = wire(array(OffsetFetchResponsePartition), "1-7")


@value
class OffsetFetchResponsePartitions:
    """A stored position, from version 8 on; `committed_offset` is -1 if there is none."""

    partition_index: int = wire(INT32, "8+")
    committed_offset: int = wire(INT64, "8+")
    committed_leader_epoch: int = wire(INT32, "8+", default=-1, ignorable=True)
    metadata: str | None = wire(STRING, "8+", nullable="8+")
    error_code: int = wire(INT16, "8+")


@value
class OffsetFetchResponseTopics:
    """A topic, from version 8 on, named as in the request."""

    name: str = wire(STRING, "8-9", ignorable=True)
    topic_id: uuid.UUID = wire(UUID, "10+", ignorable=True)
    partitions: tuple[OffsetFetchResponsePartitions, ...] = wire(array(OffsetFetchResponsePartitions), "8+")


@value
class OffsetFetchResponseGroup:
    """The positions of one group; an error here concerns the group as a whole."""

    group_id: str = wire(STRING, "8+")
    topics: tuple[OffsetFetchResponseTopics, ...] = wire(array(OffsetFetchResponseTopics), "8+")
    error_code: int = wire(INT16, "8+")


@value
class OffsetFetchResponse(Response):
    """Offsets with their metadata; -1 where nothing is stored."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.OFFSET_FETCH, "1-10", flexible="6+")

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    topics: tuple[OffsetFetchResponseTopic, ...] = wire(array(OffsetFetchResponseTopic), "1-7")
    error_code: int = wire(INT16, "2-7", ignorable=True)
    groups: tuple[OffsetFetchResponseGroup, ...] = wire(array(OffsetFetchResponseGroup), "8+")
