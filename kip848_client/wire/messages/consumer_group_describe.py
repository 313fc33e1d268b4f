"""ConsumerGroupDescribe (69): the state of consumer groups, with the current and the target assignment of each member.

1: the protocol that each member speaks.
"""

from __future__ import annotations

import uuid
from typing import ClassVar

from kip848_client.values import value
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
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
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "TopicPartitions",
    "Assignment",
    "Member",
    "DescribedGroup",
]


@value
class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"]):
    """The groups to describe."""

    WIRE: ClassVar[MessageSpec] = request(ApiKey.CONSUMER_GROUP_DESCRIBE, "0-1", flexible="0+")

    group_ids: tuple[str, ...] = wire(array(STRING), "0+")
    include_authorized_operations: bool = wire(BOOL, "0+")


@value
class TopicPartitions:
    """Partitions of one topic, which the answer names as well."""

    topic_id: uuid.UUID = wire(UUID, "0+")
    topic_name: str = wire(STRING, "0+")
    partitions: tuple[int, ...] = wire(array(INT32), "0+")


@value
class Assignment:
    """What a member owns or shall own."""

    topic_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions), "0+")


@value
class Member:
    """One member. `member_type` is -1 unknown, 0 on the classic protocol, 1 on the consumer protocol."""

    member_id: str = wire(STRING, "0+")
    instance_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    rack_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    member_epoch: int = wire(INT32, "0+")
    client_id: str = wire(STRING, "0+")
    client_host: str = wire(STRING, "0+")
    subscribed_topic_names: tuple[str, ...] = wire(array(STRING), "0+")
    subscribed_topic_regex: str | None = wire(STRING, "0+", nullable="0+", default=None)
    assignment: Assignment = wire(Assignment, "0+")
    target_assignment: Assignment = wire(Assignment, "0+")
    member_type: int = wire(INT8, "1+", default=-1, ignorable=True)


@value
class DescribedGroup:
    """One group. `group_epoch` is ahead of `assignment_epoch` while a target is being computed."""

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    group_id: str = wire(STRING, "0+")
    group_state: str = wire(STRING, "0+")
    group_epoch: int = wire(INT32, "0+")
    assignment_epoch: int = wire(INT32, "0+")
    assignor_name: str = wire(STRING, "0+")
    members: tuple[Member, ...] = wire(array(Member), "0+")
    authorized_operations: int = wire(INT32, "0+", default=-2147483648)


@value
class ConsumerGroupDescribeResponse(Response):
    """One entry per group that was asked for, each with its own error."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CONSUMER_GROUP_DESCRIBE, "0-1", flexible="0+")

    throttle_time_ms: int = wire(INT32, "0+")
    groups: tuple[DescribedGroup, ...] = wire(array(DescribedGroup), "0+")
