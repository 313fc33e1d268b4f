"""What our members subscribe to, and how topics come, grow and go, on a real coordinator."""

from __future__ import annotations

import pytest

from kip848_client import SubscriptionPattern
from kip848_client.common.model import NamedPartition
from kip848_client.errors import InvalidRegularExpressionError
from tests.interop.conftest import unique_name
from tests.interop.real.group import Group
from tests.interop.real.members import OurMember
from tests.support.driving import drive

pytestmark = pytest.mark.interop


def topics_of(member: OurMember) -> set[str]:
    return {partition.topic for partition in member.partitions}


def test_a_pattern_finds_the_topics_of_now_and_of_later(group: Group) -> None:
    """RE2 in the coordinator: whole names, alternatives, and a topic that is created while the consumer runs."""
    stem = unique_name("pattern")
    eu, us, other = (f"{stem}-{end}" for end in ("eu", "us", "eu-backup"))
    for topic in (eu, other):
        group.topic(topic)
    member = group.ours("a").subscribe(SubscriptionPattern(f"{stem}-(eu|us)"))
    drive(member, until=lambda: topics_of(member) == {eu}, what="the topic that is there")
    group.write(eu, 10, partitions=1)

    group.topic(us)
    group.write(us, 10, partitions=1)
    # The coordinator looks for new topics every group.consumer.regex.refresh.interval.ms, 10 s at the least.
    drive(member, until=lambda: topics_of(member) == {eu, us}, what="the new topic")
    group.read_all(member)

    shown = group.shown().member(member.raw.member_id)
    assert (shown.pattern, shown.topics) == (f"{stem}-(eu|us)", frozenset())
    group.assert_read_once()


def test_a_pattern_that_is_none_is_fatal_and_quoted(group: Group) -> None:
    """The coordinator compiles patterns; its error must reach the application, with the pattern."""
    member = group.ours("a").subscribe(SubscriptionPattern("orders-(eu"))

    with pytest.raises(InvalidRegularExpressionError, match=r"missing (closing )?\).*'orders-\(eu'.*RE2"):
        drive(member, until=lambda: False, what="the error")


def test_new_partitions_of_a_topic_are_shared_out_while_the_old_ones_are_read_on(group: Group) -> None:
    """kafka-topics --alter --partitions: the first records of a new partition must not be skipped either."""
    topic = group.topic(partitions=2)
    first, second = group.ours("first").subscribe(topic), group.ours("second").subscribe(topic)
    group.settle(first, second)
    group.write(topic, 10, partitions=2)

    group.add_partitions(topic, 6)
    drive(
        first, second, until=lambda: len(first.partitions) == len(second.partitions) == 3, what="three partitions each"
    )
    group.write(topic, 10, partitions=6)
    group.read_all(first, second)

    assert "lost" not in first.kinds + second.kinds
    group.assert_read_once()


def test_a_deleted_topic_is_given_up_and_the_others_are_read_on(group: Group) -> None:
    """Deleting one topic must neither stop the consumer of another one nor make it fail."""
    kept, doomed = group.topic(), group.topic()
    member = group.ours("a").subscribe(kept, doomed)
    drive(member, until=lambda: topics_of(member) == {kept, doomed}, what="both topics")

    group.delete_topic(doomed)
    drive(member, until=lambda: topics_of(member) == {kept}, what="one topic less")
    group.write(kept, 10, partitions=1)
    group.read_all(member)

    assert member.told[-1] == ("revoked", frozenset({NamedPartition(doomed, 0)}))
    group.assert_read_once()
