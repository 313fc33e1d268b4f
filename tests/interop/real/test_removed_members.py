"""Members that the coordinator no longer counts: thrown out, too slow, or vanished."""

from __future__ import annotations

import pytest

from kip848_client.errors import CommitFailedError, MaxPollExceededError
from tests.interop.conftest import CreateTopic
from tests.interop.real.administrator import Administrator
from tests.interop.real.conftest import MakeOurs
from tests.interop.real.ledger import Ledger, judge
from tests.interop.real.members import Feed, assert_read_once, everything_is_read, is_at_the_end, settled, take_turns

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


def test_commits_of_a_member_thrown_out_are_refused_and_said_so(
    kafka_topic: CreateTopic, feed: Feed, ours: MakeOurs, administrator: Administrator, ledger: Ledger, group_id: str
) -> None:
    """Otherwise it would overwrite the offsets of the partitions' present owner."""
    topic = kafka_topic(partitions=1)
    feed.write(topic, 10, partitions=1)
    member = ours("a", enable_auto_commit=False).subscribe(topic)
    take_turns(member, until=everything_is_read(ledger, feed), what="all records")

    administrator.remove(group_id, member.consumer.member_id)
    with pytest.raises(CommitFailedError, match="read again"):
        member.consumer.commit(asynchronous=False)

    assert administrator.committed(group_id, feed.written) == {}


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


def test_a_vanished_member_costs_the_group_one_session_timeout_and_no_record(
    kafka_topic: CreateTopic, feed: Feed, ours: MakeOurs, administrator: Administrator, ledger: Ledger, group_id: str
) -> None:
    """A machine that loses power sends no leave; the others go on at its last commit."""
    administrator.configure(group_id, consumer_session_timeout_ms=3_000)
    topic = kafka_topic(partitions=4)
    feed.write(topic, 20, partitions=4)
    vanishing = ours("vanishing", auto_commit_interval_ms=100).subscribe(topic)
    staying = ours("staying").subscribe(topic)
    take_turns(vanishing, staying, until=settled(administrator, group_id, vanishing, staying), what="two")
    take_turns(vanishing, staying, until=everything_is_read(ledger, feed), what="all records")
    vanishing.consumer.commit(asynchronous=False)
    gone = vanishing.partitions

    vanishing.vanish()
    ledger.moved("vanishing", "lost", gone)
    feed.write(topic, 20, partitions=4)
    take_turns(staying, until=lambda: len(staying.partitions) == 4, what="everything to the one that stayed")
    take_turns(staying, until=everything_is_read(ledger, feed), what="all records")

    assert_read_once(ledger, feed)


def test_the_rebalance_timeout_ends_a_revocation_that_never_ends(
    kafka_topic: CreateTopic, feed: Feed, ours: MakeOurs, administrator: Administrator, ledger: Ledger, group_id: str
) -> None:
    """A member that stays in its listener for ever must not keep a newcomer waiting for ever."""
    topic = kafka_topic(partitions=2)
    slow = ours("slow", max_poll_interval_ms=2_000).subscribe(topic)
    take_turns(slow, until=lambda: len(slow.partitions) == 2, what="everything to the slow one")
    newcomer = ours("newcomer").subscribe(topic)

    # The slow one does not poll at all: its heartbeats go on, but its revocation does not begin.
    take_turns(newcomer, until=lambda: len(newcomer.partitions) == 2, what="everything to the newcomer")
    with pytest.raises(MaxPollExceededError):
        take_turns(slow, until=lambda: False, what="the error")
    take_turns(slow, newcomer, until=settled(administrator, group_id, slow, newcomer), what="two stable members")

    assert slow.kinds() == ["assigned", "lost", "assigned"]
