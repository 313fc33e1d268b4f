"""Start offsets of share groups: where each partition begins, and how many records are left; and moving them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kip848_client.admin.cluster import AdminCall, AskedBroker, by_topic, refusal
from kip848_client.admin.results import GroupDescription, MemberDescription, split
from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import NamedPartition
from kip848_client.errors import Kip848Error
from kip848_client.wire.messages import share_group_describe
from kip848_client.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    RequestPartition,
    RequestTopic,
)
from kip848_client.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest, RequestGroup

Starts = Mapping[NamedPartition, tuple[int | None, int | None]]
"""Partition -> its start offset (None: not begun), and the records that are left (None: not known)."""


async def starts_of(call: AdminCall, group_ids: Iterable[str]) -> dict[str, Starts | Kip848Error]:
    """The start offsets of share groups, in all partitions that they have begun."""

    async def ask(node: AskedBroker, ids: Sequence[str]) -> Mapping[str, Starts | Kip848Error]:
        asked = tuple(RequestGroup(group_id=group_id, topics=None) for group_id in ids)
        answer = await node.send(DescribeShareGroupOffsetsRequest(groups=asked))
        found: dict[str, Starts | Kip848Error] = {}
        for group in answer.groups:
            if group.error_code:
                found[group.group_id] = refusal(group.error_code, f"start offsets of share group {group.group_id!r}")
                continue
            found[group.group_id] = {
                NamedPartition(topic.topic_name, one.partition_index): (
                    None if one.start_offset < 0 else one.start_offset,
                    None if one.lag < 0 else one.lag,
                )
                for topic in group.topics
                for one in topic.partitions
            }
        return found

    return await call.at_coordinators(group_ids, ask)


async def alter_starts(call: AdminCall, group_id: str, starts: Mapping[NamedPartition, int]) -> None:
    """Let a share group without members begin at these offsets.

    Raises:
        BrokerError: it has members, or may not be changed. The message says for which partitions nothing changed.
        Kip848Error: no broker answers.
    """
    topics = tuple(
        RequestTopic(
            topic_name=name,
            partitions=tuple(RequestPartition(one.partition, starts[one]) for one in partitions),
        )
        for name, partitions in by_topic(starts).items()
    )

    async def ask(node: AskedBroker, ids: Sequence[str]) -> Mapping[str, Kip848Error | None]:
        del ids
        answer = await node.send(AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics))
        what = f"start offsets of share group {group_id!r} were not moved"
        if answer.error_code:
            return {group_id: refusal(answer.error_code, what)}
        refused = {
            NamedPartition(topic.topic_name, one.partition_index): one.error_code
            for topic in answer.responses
            for one in topic.partitions
            if one.error_code
        }
        where = ", ".join(map(str, refused))
        return {group_id: refusal(next(iter(refused.values())), f"{what} of {where}") if refused else None}

    split(await call.at_coordinators([group_id], ask))[group_id]


def share_group(group: share_group_describe.DescribedGroup) -> GroupDescription | Kip848Error:
    """A share group of an answer."""
    if group.error_code:
        why = group.error_message or "cannot be described"
        return refusal(ErrorCode(group.error_code), f"group {group.group_id!r}: {why}")
    members = [_member(member) for member in group.members]
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor_name,
        members=tuple(sorted(members, key=lambda member: (member.client_id, member.member_id))),
        type="share",
    )


def _member(member: share_group_describe.Member) -> MemberDescription:
    assigned = tuple(
        sorted(
            NamedPartition(topic.topic_name, partition)
            for topic in member.assignment.topic_partitions
            for partition in topic.partitions
        )
    )
    return MemberDescription(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=None,
        member_epoch=member.member_epoch,
        subscription=",".join(member.subscribed_topic_names),
        assigned=assigned,
        target=assigned,
        protocol="share",
    )
