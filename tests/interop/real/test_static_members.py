"""Members with group.instance.id on a real coordinator: restarts that move nothing, and slots that are held once."""

from __future__ import annotations

import pytest

from tests.interop.real.group import Group
from tests.support.driving import drive

pytestmark = pytest.mark.interop

AWAY = -2
"""Epoch of a static member that left for a restart."""


def test_a_static_member_keeps_its_partitions_while_it_restarts(group: Group) -> None:
    """That is what group.instance.id is for: a restart within the session timeout moves nothing at all."""
    topic = group.topic(partitions=4)
    group.write(topic, 10, partitions=4)
    first, other = group.ours("first", group_instance_id="one").subscribe(topic), group.ours("other").subscribe(topic)
    group.settle(first, other)
    group.read_all(first, other)
    held, before = first.partitions, group.shown()

    quiet_since = len(other.told)
    first.close()
    away = group.shown()
    group.write(topic, 10, partitions=4)
    drive(other, until=lambda: group.ledger.count() >= 40 + 20, what="the records of the other one")
    second = group.ours("second", group_instance_id="one").subscribe(topic)
    group.read_all(second, other)
    after = group.shown()

    assert [(one.instance_id, one.epoch, one.assigned) for one in away.members if one.instance_id] == [
        ("one", AWAY, held)
    ]
    assert second.partitions == held
    assert (before.epoch, after.epoch) == (before.epoch, before.epoch)
    assert other.told[quiet_since:] == []
    group.assert_read_once()


def test_a_static_member_thrown_out_by_an_administrator_comes_back_into_its_slot(group: Group) -> None:
    """Its own former self must not stand in its way."""
    topic = group.topic(partitions=2)
    member = group.ours("a", group_instance_id="one").subscribe(topic)
    group.settle(member)

    group.remove(member.raw.member_id)
    drive(member, until=lambda: member.kinds == ["assigned", "lost", "assigned"], what="to come back")
    group.write(topic, 10, partitions=2)
    group.read_all(member)

    assert [one.instance_id for one in group.shown().members] == ["one"]
    group.assert_read_once()
