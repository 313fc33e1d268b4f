"""Members that the coordinator no longer counts: thrown out, too slow, or vanished."""

from __future__ import annotations

import pytest

from tests.interop.real.group import Group
from tests.interop.real.ledger import judge
from tests.support.driving import drive

pytestmark = pytest.mark.interop


def test_a_member_thrown_out_by_an_administrator_hears_lost_rejoins_and_misses_nothing(group: Group) -> None:
    """Operators remove members that hang; one that does not hang must come back by itself, with its old id."""
    topic = group.topic(partitions=4)
    group.write(topic, 25, partitions=4)
    member = group.ours("a", enable_auto_commit=False).subscribe(topic)
    group.read_all(member)
    member.raw.commit(asynchronous=False)
    member_id, everything = member.raw.member_id, member.partitions

    code = group.remove(member_id)
    group.write(topic, 25, partitions=4)
    drive(member, until=lambda: "lost" in member.kinds, what="to hear of it")
    drive(member, until=lambda: group.is_at_the_end(member), what="all records, some of them again")
    member.raw.commit(asynchronous=False)

    assert code == 0
    assert member.told == [("assigned", everything), ("lost", everything), ("assigned", everything)]
    assert member.raw.member_id == member_id
    assert group.committed_all()
    assert judge(group.ledger, written=group.written).wrong == []


def test_when_one_of_two_is_thrown_out_again_and_again_everything_is_read(group: Group) -> None:
    """Fencing in the middle of a rebalance is where other clients lost records or hung."""
    topic = group.topic(partitions=6)
    victim, other = group.ours("victim").subscribe(topic), group.ours("other").subscribe(topic)
    group.settle(victim, other)

    for _ in range(8):
        group.write(topic, 10, partitions=6)
        drive(  # as soon as it is a member again: in the middle of the rebalance
            victim,
            other,
            until=lambda: group.remove(victim.raw.member_id) == 0,
            what="another removal",
        )
    group.write(topic, 10, partitions=6)
    group.settle(victim, other)
    group.read_all(victim, other)

    assert "lost" not in other.kinds
    assert judge(group.ledger, written=group.written, zombies=True).wrong == []
