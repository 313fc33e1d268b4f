"""ConsumerGroupDescribe (69): the state of consumer groups, with the current and the target assignment of each member.

1: the protocol that each member speaks.
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
    MessageSpec,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"], frozen=True):
    """The groups to describe."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.CONSUMER_GROUP_DESCRIBE, "0-1", flexible="0+", answered_by={"group_ids": "groups"}
    )

    group_ids: Annotated[tuple[str, ...], wire("0+")] = ()
    include_authorized_operations: Annotated[bool, wire("0+")] = False


class TopicPartitions(WireStruct, frozen=True):
    """Partitions of one topic, which the answer names as well."""

    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    topic_name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[Int32, ...], wire("0+")] = ()


class Assignment(WireStruct, frozen=True):
    """The partitions that a member owns or should own."""

    topic_partitions: Annotated[tuple[TopicPartitions, ...], wire("0+")] = ()


class Member(WireStruct, frozen=True):
    """One member. `member_type` is -1 unknown, 0 on the classic protocol, 1 on the consumer protocol."""

    member_id: Annotated[str, wire("0+")] = ""
    instance_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    rack_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    member_epoch: Annotated[Int32, wire("0+")] = 0
    client_id: Annotated[str, wire("0+")] = ""
    client_host: Annotated[str, wire("0+")] = ""
    subscribed_topic_names: Annotated[tuple[str, ...], wire("0+")] = ()
    subscribed_topic_regex: Annotated[str | None, wire("0+", nullable="0+")] = None
    assignment: Annotated[Assignment, wire("0+")] = Assignment()
    target_assignment: Annotated[Assignment, wire("0+")] = Assignment()
    member_type: Annotated[Int8, wire("1+", ignorable=True)] = -1


class DescribedGroup(WireStruct, frozen=True):
    """One group. `group_epoch` is ahead of `assignment_epoch` while a target is being computed."""

    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
    group_id: Annotated[str, wire("0+")] = ""
    group_state: Annotated[str, wire("0+")] = ""
    group_epoch: Annotated[Int32, wire("0+")] = 0
    assignment_epoch: Annotated[Int32, wire("0+")] = 0
    assignor_name: Annotated[str, wire("0+")] = ""
    members: Annotated[tuple[Member, ...], wire("0+")] = ()
    authorized_operations: Annotated[Int32, wire("0+")] = -2147483648


class ConsumerGroupDescribeResponse(Response, frozen=True):
    """One entry per group that was asked for, each with its own error."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.CONSUMER_GROUP_DESCRIBE, "0-1", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    groups: Annotated[tuple[DescribedGroup, ...], wire("0+")] = ()
