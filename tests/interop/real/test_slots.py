"""Slots and standbys: scenarios of a deploy, by number."""

from __future__ import annotations

import pytest

from kip848_client import SubscriptionPattern
from kip848_client.common.model import NamedPartition
from tests.interop.conftest import unique_name
from tests.interop.real.group import Group
from tests.interop.real.members import OurMember
from tests.support.driving import drive

pytestmark = pytest.mark.interop

SLOT = {"group_instance_id": "s-0", "group_instance_id_takeover": "wait"}
POOL = {"group_instance_id_pool": "s-{0..2}"}


def _standing_by(
    group: Group, name: str, topic: str | SubscriptionPattern, *others: OurMember, **conf: str
) -> OurMember:
    """A process of the next version, which is up and waits for a slot."""
    standby = group.ours(name, **conf).subscribe(topic)
    drive(standby, *others, until=lambda: standby.raw.health().standing_by, what="a standby")
    assert standby.raw.health().ready
    assert standby.raw.group_instance_id() is None
    return standby


def _hand_over(leaver: OurMember, *others: OurMember) -> None:
    leaver.raw.hand_over(timeout_s=60)
    drive(leaver, *others, until=lambda: leaver.raw.handed_over, what="the hand-over")
    leaver.close()


@pytest.mark.parametrize("how", ["hand_over", "close"])
def test_1_a_standby_takes_over_and_nobody_else_hears_of_it(group: Group, how: str) -> None:
    """Scenario 1; and rule 13: a service that only calls close() deploys without moves, too."""
    topic = group.topic(partitions=6)
    group.write(topic, 10, partitions=6)
    first, other = group.ours("first", **SLOT).subscribe(topic), group.ours("other").subscribe(topic)
    group.settle(first, other)
    group.read_all(first, other)
    held, before, quiet_since = first.partitions, group.shown(), len(other.told)
    second = _standing_by(group, "second", topic, first, other, **SLOT)

    if how == "close":
        first.close()
    else:
        _hand_over(first, second, other)

    drive(second, other, until=lambda: second.partitions == held, what="the takeover")
    group.write(topic, 10, partitions=6)
    group.read_all(second, other)
    assert group.shown().epoch == before.epoch
    assert other.told[quiet_since:] == []
    assert second.raw.group_instance_id() == "s-0"
    group.assert_read_once()


def test_2_a_pool_is_replaced_process_by_process(group: Group) -> None:
    """Scenario 2: no partition changes its slot, and the group stays in its epoch."""
    topic = group.topic(partitions=6)
    group.write(topic, 10, partitions=6)
    members = [group.ours(f"old-{number}", **POOL).subscribe(topic) for number in range(3)]
    # Apache Kafka computes a target at most once a second, so that the group may be stable before each has its share.
    drive(*members, until=lambda: all(len(one.partitions) == 2 for one in members), what="a share for each")
    group.settle(*members)
    group.read_all(*members)
    assert {one.raw.group_instance_id() for one in members} == {"s-0", "s-1", "s-2"}
    held: dict[str | None, frozenset[NamedPartition]] = {one.raw.group_instance_id(): one.partitions for one in members}
    before = group.shown()

    for number in range(3):
        standby = _standing_by(group, f"new-{number}", topic, *members, **POOL)
        group.write(topic, 5, partitions=6)
        _hand_over(members.pop(0), *members, standby)
        members.append(standby)

    group.write(topic, 5, partitions=6)
    group.read_all(*members)
    assert {one.raw.group_instance_id(): one.partitions for one in members} == held
    assert group.shown().epoch == before.epoch
    group.assert_read_once()


def test_3_of_two_standbys_one_gets_the_slot(group: Group) -> None:
    """Scenario 3: the coordinator decides, and the loser goes on standing by."""
    topic = group.topic(partitions=2)
    owner = group.ours("owner", **SLOT).subscribe(topic)
    group.settle(owner)
    standbys = [_standing_by(group, f"standby-{number}", topic, owner, **SLOT) for number in range(2)]

    _hand_over(owner, *standbys)
    drive(*standbys, until=lambda: any(one.partitions for one in standbys), what="the takeover")

    (loser,) = [one for one in standbys if not one.partitions]
    assert loser.raw.health().standing_by
    (winner,) = [one for one in standbys if one.partitions]
    _hand_over(winner, loser)
    drive(loser, until=lambda: len(loser.partitions) == 2, what="the second takeover")


@pytest.mark.parametrize("how", ["hand_over", "close"])
def test_4_without_a_standby_the_others_take_over(group: Group, how: str) -> None:
    """Scenario 4: a scale-down; the slot does not keep its partitions until its session ends."""
    topic = group.topic(partitions=6)
    group.write(topic, 10, partitions=6)
    leaver, other = group.ours("leaver", **POOL).subscribe(topic), group.ours("other", **POOL).subscribe(topic)
    group.settle(leaver, other)
    group.read_all(leaver, other)

    if how == "close":
        leaver.close()
    else:
        _hand_over(leaver, other)

    drive(other, until=lambda: len(other.partitions) == 6, what="all partitions")
    group.write(topic, 10, partitions=6)
    group.read_all(other)
    assert len(group.shown().members) == 1
    group.assert_read_once()


def test_5_a_standby_that_comes_after_the_release_still_gets_the_slot(group: Group) -> None:
    """Scenario 5: SIGTERM came before the new process was up."""
    topic = group.topic(partitions=4)
    group.write(topic, 10, partitions=4)
    patient = {**POOL, "group_instance_id_takeover_wait_ms": "30000"}
    owner, other = group.ours("owner", **patient).subscribe(topic), group.ours("other", **patient).subscribe(topic)
    group.settle(owner, other)
    group.read_all(owner, other)
    held, slot, before = owner.partitions, owner.raw.group_instance_id(), group.shown()
    pool = ",".join(filter(None, [slot, other.raw.group_instance_id()]))

    owner.raw.hand_over(timeout_s=60)
    drive(owner, other, until=lambda: owner.kinds[-1] == "revoked", what="the revocation")
    late = group.ours("late", group_instance_id_pool=pool).subscribe(topic)
    drive(owner, late, other, until=lambda: owner.raw.handed_over and late.partitions == held, what="the takeover")

    group.write(topic, 10, partitions=4)
    group.read_all(late, other)
    assert group.shown().epoch == before.epoch
    group.assert_read_once()


def test_6_a_standby_that_dies_before_the_release_is_not_waited_for(group: Group) -> None:
    """Scenario 6: the owner takes its slot back, and hands over to the others."""
    topic = group.topic(partitions=4)
    group.write(topic, 10, partitions=4)
    owner, other = group.ours("owner", **SLOT).subscribe(topic), group.ours("other").subscribe(topic)
    group.settle(owner, other)
    standby = _standing_by(group, "standby", topic, owner, other, **SLOT)
    standby.close()

    _hand_over(owner, other)

    drive(other, until=lambda: len(other.partitions) == 4, what="all partitions")
    group.read_all(other)
    assert len(group.shown().members) == 1
    group.assert_read_once()


def test_7_a_standby_joins_when_the_owner_was_removed(group: Group) -> None:
    """Scenario 7: the session of a process that was killed ends, and with it the slot."""
    topic = group.topic(partitions=4)
    group.write(topic, 10, partitions=4)
    owner, other = group.ours("owner", **SLOT).subscribe(topic), group.ours("other").subscribe(topic)
    group.settle(owner, other)
    standby = _standing_by(group, "standby", topic, owner, other, **SLOT)

    group.remove(owner.raw.member_id)  # it is not driven any more, and so cannot come back

    drive(standby, other, until=lambda: len(standby.partitions) == len(other.partitions) == 2, what="its share")
    group.read_all(standby, other)
    assert standby.raw.group_instance_id() == "s-0"


def test_8_a_new_version_with_another_subscription_moves_what_it_must(group: Group) -> None:
    """Scenario 8: the only deploy in which the group's epoch moves."""
    topic, added = group.topic(partitions=4), group.topic(partitions=2)
    owner, other = group.ours("owner", **SLOT).subscribe(topic), group.ours("other").subscribe(topic)
    group.settle(owner, other)
    before = group.shown()
    standby = group.ours("standby", **SLOT).subscribe(topic, added)
    drive(standby, owner, other, until=lambda: standby.raw.health().standing_by, what="a standby")

    _hand_over(owner, standby, other)

    drive(standby, other, until=lambda: len(standby.partitions) + len(other.partitions) == 6, what="all partitions")
    assert {place.partition for place in standby.partitions if place.topic == added} == {0, 1}
    assert group.shown().epoch > before.epoch


def test_19_a_pattern_of_the_broker_moves_nothing_either(group: Group) -> None:
    """Scenario 19: the successor's pattern is resolved before its slot is told its partitions."""
    prefix = unique_name("pattern")
    topics = [group.topic(f"{prefix}-{number}", partitions=2) for number in range(2)]
    for topic in topics:
        group.write(topic, 10, partitions=2)
    pattern = SubscriptionPattern(f"{prefix}-.*")
    owner, other = group.ours("owner", **SLOT).subscribe(pattern), group.ours("other").subscribe(pattern)
    group.settle(owner, other)
    group.read_all(owner, other)
    held, before = owner.partitions, group.shown()
    standby = _standing_by(group, "standby", pattern, owner, other, **SLOT)

    _hand_over(owner, standby, other)

    drive(standby, other, until=lambda: standby.partitions == held, what="the takeover")
    for topic in topics:
        group.write(topic, 10, partitions=2)
    group.read_all(standby, other)
    assert group.shown().epoch == before.epoch
    group.assert_read_once()


def test_21_a_topic_that_grows_while_nobody_has_the_slot_is_read_whole(group: Group) -> None:
    """Scenario 21: the successor is told its old partitions and what the topic has got since."""
    topic = group.topic(partitions=2)
    group.write(topic, 10, partitions=2)
    patient = {**POOL, "group_instance_id_takeover_wait_ms": "60000"}
    owner, other = group.ours("owner", **patient).subscribe(topic), group.ours("other", **patient).subscribe(topic)
    group.settle(owner, other)
    group.read_all(owner, other)
    pool = ",".join(filter(None, [one.raw.group_instance_id() for one in (owner, other)]))
    owner.raw.hand_over(timeout_s=120)
    drive(owner, other, until=lambda: owner.kinds[-1] == "revoked", what="the release")

    group.add_partitions(topic, 6)
    late = group.ours("late", group_instance_id_pool=pool).subscribe(topic)

    drive(owner, late, other, until=lambda: owner.raw.handed_over, what="the takeover")
    drive(late, other, until=lambda: len(late.partitions) == len(other.partitions) == 3, what="the new partitions")
    group.write(topic, 10, partitions=6)
    group.read_all(late, other)
    group.assert_read_once()
