"""Members with group.instance.id on a real coordinator: restarts that move nothing, and slots that are held once."""

from __future__ import annotations

import pytest

from tests.interop.conftest import CreateTopic
from tests.interop.real.administrator import Administrator
from tests.interop.real.conftest import MakeOurs
from tests.interop.real.ledger import Ledger
from tests.interop.real.members import Feed, assert_read_once, everything_is_read, settled, take_turns

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

AWAY = -2
"""Epoch of a static member that left for a restart."""


def test_a_static_member_keeps_its_partitions_while_it_restarts(
    kafka_topic: CreateTopic, feed: Feed, ours: MakeOurs, administrator: Administrator, ledger: Ledger, group_id: str
) -> None:
    """That is what group.instance.id is for: a restart within the session timeout moves nothing at all."""
    topic = kafka_topic(partitions=4)
    feed.write(topic, 10, partitions=4)
    first, other = ours("first", group_instance_id="one").subscribe(topic), ours("other").subscribe(topic)
    take_turns(first, other, until=settled(administrator, group_id, first, other), what="two stable members")
    take_turns(first, other, until=everything_is_read(ledger, feed), what="all records")
    held, before = first.partitions, administrator.group(group_id)

    quiet_since = len(other.told)
    first.close()
    away = administrator.group(group_id)
    feed.write(topic, 10, partitions=4)
    take_turns(other, until=lambda: ledger.count() >= 40 + 20, what="the records of the other one")
    second = ours("second", group_instance_id="one").subscribe(topic)
    take_turns(second, other, until=everything_is_read(ledger, feed), what="all records")
    after = administrator.group(group_id)

    assert [(one.instance_id, one.epoch, one.assigned) for one in away.members if one.instance_id] == [
        ("one", AWAY, held)
    ]
    assert second.partitions == held
    assert (before.epoch, after.epoch) == (before.epoch, before.epoch)
    assert other.told[quiet_since:] == []
    assert_read_once(ledger, feed)


def test_a_static_member_thrown_out_by_an_administrator_comes_back_into_its_slot(
    kafka_topic: CreateTopic, feed: Feed, ours: MakeOurs, administrator: Administrator, ledger: Ledger, group_id: str
) -> None:
    """Its own former self must not stand in its way."""
    topic = kafka_topic(partitions=2)
    member = ours("a", group_instance_id="one").subscribe(topic)
    take_turns(member, until=settled(administrator, group_id, member), what="a stable member")

    administrator.remove(group_id, member.consumer.member_id)
    take_turns(member, until=lambda: member.kinds() == ["assigned", "lost", "assigned"], what="to come back")
    feed.write(topic, 10, partitions=2)
    take_turns(member, until=everything_is_read(ledger, feed), what="all records")

    assert [one.instance_id for one in administrator.group(group_id).members] == ["one"]
    assert_read_once(ledger, feed)
