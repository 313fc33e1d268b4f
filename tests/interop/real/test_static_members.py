"""Members with group.instance.id on a real coordinator: restarts that move nothing, and slots that are held once."""

from __future__ import annotations

import pytest

from kip848_client import LeaveMode, MemberState
from kip848_client.errors import FatalGroupError, UnreleasedInstanceIdError
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


def test_a_static_member_can_be_told_to_leave_for_good(
    kafka_topic: CreateTopic, ours: MakeOurs, administrator: Administrator, group_id: str
) -> None:
    """Scaling in is no restart: its partitions must not wait for a session timeout."""
    administrator.configure(group_id, consumer_session_timeout_ms=60_000)
    topic = kafka_topic(partitions=4)
    first, other = ours("first", group_instance_id="one").subscribe(topic), ours("other").subscribe(topic)
    take_turns(first, other, until=settled(administrator, group_id, first, other), what="two stable members")

    first.consumer.close(mode=LeaveMode.LEAVE_GROUP)

    take_turns(other, until=lambda: len(other.partitions) == 4, what="everything to the other one", timeout_s=40)
    assert len(administrator.group(group_id).members) == 1


def test_a_second_holder_of_an_instance_id_is_refused_at_once_and_told_why(
    kafka_topic: CreateTopic, feed: Feed, ours: MakeOurs, administrator: Administrator, ledger: Ledger, group_id: str
) -> None:
    """Two processes that were given one id by mistake: the second one must say so, and the first must not suffer."""
    topic = kafka_topic(partitions=2)
    holder = ours("holder", group_instance_id="one").subscribe(topic)
    take_turns(holder, until=settled(administrator, group_id, holder), what="a stable member")
    intruder = ours("intruder", group_instance_id="one").subscribe(topic)

    with pytest.raises(UnreleasedInstanceIdError, match=r"owned by .*give every process its own") as caught:
        take_turns(intruder, until=lambda: False, what="the error")
    with pytest.raises(UnreleasedInstanceIdError):
        intruder.consumer.poll(0)
    intruder.close()
    feed.write(topic, 10, partitions=2)
    take_turns(holder, until=everything_is_read(ledger, feed), what="all records")

    assert isinstance(caught.value, FatalGroupError)
    assert intruder.consumer.state is MemberState.FATAL
    assert holder.consumer.state is MemberState.STABLE
    assert holder.kinds() == ["assigned"]
    assert_read_once(ledger, feed)


def test_a_static_member_that_crashed_can_come_back_after_its_session(
    kafka_topic: CreateTopic, feed: Feed, ours: MakeOurs, administrator: Administrator, ledger: Ledger, group_id: str
) -> None:
    """A crash releases nothing; when the session is over, the slot is free and the work goes on at the last commit."""
    administrator.configure(group_id, consumer_session_timeout_ms=3_000)
    topic = kafka_topic(partitions=2)
    feed.write(topic, 10, partitions=2)
    crashed = ours("crashed", group_instance_id="one").subscribe(topic)
    take_turns(crashed, until=everything_is_read(ledger, feed), what="all records")
    crashed.consumer.commit(asynchronous=False)
    gone = crashed.partitions
    crashed.vanish()
    ledger.moved("crashed", "lost", gone)

    take_turns(until=administrator.has_members(group_id, 0), what="the end of the session")
    feed.write(topic, 10, partitions=2)
    successor = ours("successor", group_instance_id="one").subscribe(topic)
    take_turns(successor, until=everything_is_read(ledger, feed), what="all records")

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
