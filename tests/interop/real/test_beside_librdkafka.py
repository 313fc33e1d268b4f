"""Our members and librdkafka's in one group of a real coordinator: migrations go one process at a time."""

from __future__ import annotations

import pytest

from tests.interop.conftest import CreateTopic
from tests.interop.real.administrator import Administrator
from tests.interop.real.conftest import MakeOurs, MakeTheirs
from tests.interop.real.ledger import Ledger, judge
from tests.interop.real.members import (
    Feed,
    LibrdkafkaMember,
    Member,
    OurMember,
    assert_read_once,
    everything_is_read,
    take_turns,
)

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

PARTITIONS = 6


def feed_until_stable(
    *members: Member, feed: Feed, topic: str, administrator: Administrator, group_id: str, count: int
) -> None:
    """Let the members settle while records keep coming, then read everything that came."""
    stable = administrator.is_stable(group_id, count)

    def fed_and_stable() -> bool:
        feed.write(topic, 1, partitions=PARTITIONS)
        return sum(len(member.partitions) for member in members) == PARTITIONS and stable()

    take_turns(*members, until=fed_and_stable, what=f"{count} stable members")


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_members_of_both_clients_join_a_group_of_the_other_and_leave_it(
    kafka_topic: CreateTopic,
    feed: Feed,
    ours: MakeOurs,
    theirs: MakeTheirs,
    administrator: Administrator,
    ledger: Ledger,
    group_id: str,
    first: str,
) -> None:
    """A service in another language, or the first ported process, joins a running group without loss or repetition."""
    topic = kafka_topic(partitions=PARTITIONS)
    feed.write(topic, 20, partitions=PARTITIONS)
    members: list[OurMember | LibrdkafkaMember] = [ours("ours"), theirs("theirs")]
    resident, guest = members if first == "ours" else reversed(members)
    resident.subscribe(topic)
    take_turns(resident, until=everything_is_read(ledger, feed), what="all records")
    guest.subscribe(topic)
    feed_until_stable(resident, guest, feed=feed, topic=topic, administrator=administrator, group_id=group_id, count=2)
    shared = (len(resident.partitions), len(guest.partitions))
    take_turns(resident, guest, until=everything_is_read(ledger, feed), what="all records")

    guest.close()
    feed_until_stable(resident, feed=feed, topic=topic, administrator=administrator, group_id=group_id, count=1)
    take_turns(resident, until=everything_is_read(ledger, feed), what="all records")

    assert shared == (3, 3)
    assert_read_once(ledger, feed)
    assert judge(ledger, written=feed.written).handovers == 6


def test_a_group_is_ported_from_librdkafka_to_ours_member_by_member_and_back(
    kafka_topic: CreateTopic,
    feed: Feed,
    ours: MakeOurs,
    theirs: MakeTheirs,
    administrator: Administrator,
    ledger: Ledger,
    group_id: str,
) -> None:
    """The migration, and the way back if it fails: records keep coming, and each is read once all the way through."""
    topic = kafka_topic(partitions=PARTITIONS)
    members: list[OurMember | LibrdkafkaMember] = [theirs(f"old-{number}").subscribe(topic) for number in range(2)]

    def settle() -> None:
        feed_until_stable(*members, feed=feed, topic=topic, administrator=administrator, group_id=group_id, count=2)

    settle()
    for newcomer in (ours("new-0"), ours("new-1"), theirs("back-0"), theirs("back-1")):
        members.pop(0).close()
        newcomer.subscribe(topic)
        members.append(newcomer)
        settle()
    take_turns(*members, until=everything_is_read(ledger, feed), what="all records")

    assert_read_once(ledger, feed)
