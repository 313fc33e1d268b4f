"""Our members and librdkafka's in one group of a real coordinator: migrations go one process at a time."""

from __future__ import annotations

import pytest

from tests.interop.real.group import Group
from tests.interop.real.members import LibrdkafkaMember, Member, OurMember
from tests.support.driving import drive

pytestmark = pytest.mark.interop

PARTITIONS = 6


def feed_until_stable(group: Group, topic: str, *members: Member) -> None:
    """Let the members settle while records keep coming."""

    def fed_and_stable() -> bool:
        group.write(topic, 1, partitions=PARTITIONS)
        return sum(len(member.partitions) for member in members) == PARTITIONS and group.is_stable(len(members))

    drive(*members, until=fed_and_stable, what=f"{len(members)} stable members")


def test_a_group_is_ported_from_librdkafka_to_ours_member_by_member_and_back(group: Group) -> None:
    """The migration, and the way back if it fails: records keep coming, and each is read once all the way through."""
    topic = group.topic(partitions=PARTITIONS)
    members: list[OurMember | LibrdkafkaMember] = [
        group.theirs(f"old-{number}").subscribe(topic) for number in range(2)
    ]

    feed_until_stable(group, topic, *members)
    for newcomer in (group.ours("new-0"), group.ours("new-1"), group.theirs("back-0"), group.theirs("back-1")):
        members.pop(0).close()
        newcomer.subscribe(topic)
        members.append(newcomer)
        feed_until_stable(group, topic, *members)
    group.read_all(*members)

    group.assert_read_once()
