"""ShareGroupDescribe (77): the state of share groups, with the assignment of each member."""

from __future__ import annotations

import uuid
from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    ZERO_UUID,
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


class ShareGroupDescribeRequest(Request["ShareGroupDescribeResponse"], frozen=True):
    """The groups to describe."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.SHARE_GROUP_DESCRIBE, "1", flexible="0+", answered_by={"group_ids": "groups"}
    )

    group_ids: Annotated[tuple[str, ...], wire("0+")] = ()
    include_authorized_operations: Annotated[bool, wire("0+")] = False


class TopicPartitions(WireStruct, frozen=True):
    """Partitions of one topic, which the answer names as well."""

    topic_id: Annotated[uuid.UUID, wire("0+")] = ZERO_UUID
    topic_name: Annotated[str, wire("0+")] = ""
    partitions: Annotated[tuple[Int32, ...], wire("0+")] = ()


class Assignment(WireStruct, frozen=True):
    """The partitions that a member fetches from."""

    topic_partitions: Annotated[tuple[TopicPartitions, ...], wire("0+")] = ()


class Member(WireStruct, frozen=True):
    """One member."""

    member_id: Annotated[str, wire("0+")] = ""
    rack_id: Annotated[str | None, wire("0+", nullable="0+")] = None
    member_epoch: Annotated[Int32, wire("0+")] = 0
    client_id: Annotated[str, wire("0+")] = ""
    client_host: Annotated[str, wire("0+")] = ""
    subscribed_topic_names: Annotated[tuple[str, ...], wire("0+")] = ()
    assignment: Annotated[Assignment, wire("0+")] = Assignment()


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


class ShareGroupDescribeResponse(Response, frozen=True):
    """One entry per group that was asked for, each with its own error."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.SHARE_GROUP_DESCRIBE, "1", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    groups: Annotated[tuple[DescribedGroup, ...], wire("0+")] = ()
