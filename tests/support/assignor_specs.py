"""Small groups for tests of client-side assignors, and what tests ask about assignments."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from kip848_client.assignors.client.interface import AssignmentSpec, GroupAssignment, MemberSpec, TopicSpec
from kip848_client.common.model import TopicIdPartition


def topic_id(name: str) -> uuid.UUID:
    """The id of a topic, from its name."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, name)


def tip(topic: str, partition: int) -> TopicIdPartition:
    """A partition of a topic made by `group`."""
    return TopicIdPartition(topic, partition, topic_id(topic))


def group(
    members: Mapping[str, Sequence[str]],
    topics: Mapping[str, int],
    *,
    target: GroupAssignment | None = None,
    held: Mapping[str, Sequence[TopicIdPartition]] | None = None,
    metadata: Mapping[str, bytes] | None = None,
) -> AssignmentSpec:
    """A group: member id -> topics, topic -> partitions, and what the members have, as an assignment or by member."""
    now = dict(held or {})
    if target is not None:
        now = {member_id: partitions_of(target, member_id) for member_id in target.members}
    return AssignmentSpec(
        group_epoch=7,
        members={
            member_id: MemberSpec(
                member_id,
                tuple(sorted(members[member_id])),
                metadata=(metadata or {}).get(member_id, b""),
                target=tuple(now.get(member_id, ())),
            )
            for member_id in sorted(members)
        },
        topics={name: TopicSpec(topic_id(name), name, topics[name]) for name in sorted(topics)},
    )


def partitions_of(assignment: GroupAssignment, member_id: str) -> tuple[TopicIdPartition, ...]:
    """What a member is given, by an assignor that names partitions in full."""
    found = []
    for partition in assignment.members[member_id].partitions:
        assert isinstance(partition, TopicIdPartition)
        found.append(partition)
    return tuple(found)


def counts(assignment: GroupAssignment) -> dict[str, int]:
    """Member id -> number of partitions."""
    return {member_id: len(tuple(member.partitions)) for member_id, member in assignment.members.items()}


def held_after(before: GroupAssignment, after: GroupAssignment) -> int:
    """How many partitions stay with the member that had them."""
    return sum(
        len({*partitions_of(before, member_id)} & {*partitions_of(after, member_id)})
        for member_id in before.members
        if member_id in after.members
    )
