"""Members that the coordinator no longer counts: thrown out, too slow, or vanished."""

from __future__ import annotations

import pytest

from kip848_client.errors import MaxPollExceededError
from tests.interop.conftest import CreateTopic
from tests.interop.real.administrator import Administrator
from tests.interop.real.conftest import MakeOurs
from tests.interop.real.ledger import Ledger, judge
from tests.interop.real.members import Feed, everything_is_read, is_at_the_end, settled, take_turns

pytestmark = [pytest.mark.interop, pytest.mark.kafka]


def test_a_member_thrown_out_by_an_administrator_hears_lost_rejoins_and_misses_nothing(
    kafka_topic: CreateTopic, feed: Feed, ours: MakeOurs, administrator: Administrator, ledger: Ledger, group_id: str
) -> None:
    """Operators remove members that hang; one that does not hang must come back by itself, with its old id."""
    topic = kafka_topic(partitions=4)
    feed.write(topic, 25, partitions=4)
    member = ours("a", enable_auto_commit=False).subscribe(topic)
    take_turns(member, until=everything_is_read(ledger, feed), what="all records")
    member.consumer.commit(asynchronous=False)
    member_id, everything = member.consumer.member_id, member.partitions

    code = administrator.remove(group_id, member_id)
    feed.write(topic, 25, partitions=4)
    take_turns(member, until=lambda: "lost" in member.kinds(), what="to hear of it")
    take_turns(member, until=is_at_the_end(member, feed), what="all records, some of them again")
    member.consumer.commit(asynchronous=False)

    assert code == 0
    assert member.told == [("assigned", everything), ("lost", everything), ("assigned", everything)]
    assert member.consumer.member_id == member_id
    assert administrator.committed(group_id, feed.written) == feed.written
    assert judge(ledger, written=feed.written).wrong == []


def test_when_one_of_two_is_thrown_out_again_and_again_everything_is_read(
    kafka_topic: CreateTopic, feed: Feed, ours: MakeOurs, administrator: Administrator, ledger: Ledger, group_id: str
) -> None:
    """Fencing in the middle of a rebalance is where other clients lost records or hung."""
    topic = kafka_topic(partitions=6)
    victim, other = ours("victim").subscribe(topic), ours("other").subscribe(topic)
    take_turns(victim, other, until=settled(administrator, group_id, victim, other), what="two stable members")

    for _ in range(8):
        feed.write(topic, 10, partitions=6)
        take_turns(  # as soon as it is a member again: in the middle of the rebalance
            victim,
            other,
            until=lambda: administrator.remove(group_id, victim.consumer.member_id) == 0,
            what="another removal",
        )
    feed.write(topic, 10, partitions=6)
    take_turns(victim, other, until=settled(administrator, group_id, victim, other), what="two stable members")
    take_turns(victim, other, until=everything_is_read(ledger, feed), what="all records")

    assert "lost" not in other.kinds()
    assert judge(ledger, written=feed.written, zombies=True).wrong == []


def test_a_consumer_that_does_not_poll_in_time_leaves_and_comes_back_when_it_polls(
    kafka_topic: CreateTopic, feed: Feed, ours: MakeOurs, administrator: Administrator, ledger: Ledger, group_id: str
) -> None:
    """max.poll.interval.ms: stuck work goes to others; the stuck one is told what happened and what to change."""
    topic = kafka_topic(partitions=4)
    feed.write(topic, 10, partitions=4)
    healthy = ours("healthy").subscribe(topic)
    take_turns(healthy, until=settled(administrator, group_id, healthy), what="a stable member")
    stuck = ours("stuck", max_poll_interval_ms=2_000, enable_auto_commit=False).subscribe(topic)
    take_turns(stuck, healthy, until=settled(administrator, group_id, stuck, healthy), what="two stable members")
    take_turns(stuck, healthy, until=everything_is_read(ledger, feed), what="all records")
    stuck.consumer.commit(asynchronous=False)

    take_turns(healthy, until=lambda: len(healthy.partitions) == 4, what="everything to the healthy one")
    epoch_outside, told_early = stuck.consumer.member_epoch, "lost" in stuck.kinds()
    with pytest.raises(MaxPollExceededError, match=r"max\.poll\.interval\.ms is 2000"):
        take_turns(stuck, until=lambda: False, what="the error")
    feed.write(topic, 10, partitions=4)
    take_turns(stuck, healthy, until=settled(administrator, group_id, stuck, healthy), what="two stable members again")
    take_turns(stuck, healthy, until=everything_is_read(ledger, feed), what="all records")

    assert epoch_outside == -1
    assert not told_early  # a listener never runs outside of poll()
    assert stuck.kinds() == ["assigned", "lost", "assigned"]
    assert len(stuck.partitions) == 2
    findings = judge(ledger, written=feed.written, zombies=True)
    assert (findings.wrong, findings.repeated) == ([], 0)
