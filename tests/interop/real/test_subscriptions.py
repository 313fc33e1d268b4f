"""What our members subscribe to, and how topics come, grow and go, on a real coordinator."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from kip848_client import SubscriptionPattern
from kip848_client.errors import InvalidRegularExpressionError
from kip848_client.model import TopicPartition
from tests.interop.conftest import CreateTopic, create_topic, unique_name
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.interop.real.administrator import Administrator
from tests.interop.real.conftest import MakeOurs
from tests.interop.real.ledger import Ledger
from tests.interop.real.members import Feed, OurMember, assert_read_once, everything_is_read, settled, take_turns

pytestmark = [pytest.mark.interop, pytest.mark.kafka]


def topics_of(member: OurMember) -> set[str]:
    return {partition.topic for partition in member.partitions}


def test_a_pattern_finds_the_topics_of_now_and_of_later(
    kafka_broker: KafkaBroker | ExternalKafka,
    feed: Feed,
    ours: MakeOurs,
    administrator: Administrator,
    ledger: Ledger,
    group_id: str,
) -> None:
    """RE2 in the coordinator: whole names, alternatives, and a topic that is created while the consumer runs."""
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0})
    stem = unique_name("pattern")
    eu, us, other = (f"{stem}-{end}" for end in ("eu", "us", "eu-backup"))
    for topic in (eu, other):
        create_topic(admin, topic)
    member = ours("a").subscribe(SubscriptionPattern(f"{stem}-(eu|us)"))
    take_turns(member, until=lambda: topics_of(member) == {eu}, what="the topic that is there")
    feed.write(eu, 10, partitions=1)

    create_topic(admin, us)
    feed.write(us, 10, partitions=1)
    # The coordinator looks for new topics every group.consumer.regex.refresh.interval.ms, 10 s at the least.
    take_turns(member, until=lambda: topics_of(member) == {eu, us}, what="the new topic")
    take_turns(member, until=everything_is_read(ledger, feed), what="all records")

    shown = administrator.group(group_id).member(member.consumer.member_id)
    assert (shown.pattern, shown.topics) == (f"{stem}-(eu|us)", frozenset())
    assert_read_once(ledger, feed)


def test_a_pattern_that_is_none_is_fatal_and_quoted(ours: MakeOurs) -> None:
    """The coordinator compiles patterns; its error must reach the application, with the pattern."""
    member = ours("a").subscribe(SubscriptionPattern("orders-(eu"))

    with pytest.raises(InvalidRegularExpressionError, match=r"missing closing \).*'orders-\(eu'.*RE2"):
        take_turns(member, until=lambda: False, what="the error")


def test_new_partitions_of_a_topic_are_shared_out_while_the_old_ones_are_read_on(
    kafka_topic: CreateTopic, feed: Feed, ours: MakeOurs, administrator: Administrator, ledger: Ledger, group_id: str
) -> None:
    """kafka-topics --alter --partitions: the first records of a new partition must not be skipped either."""
    topic = kafka_topic(partitions=2)
    first, second = ours("first").subscribe(topic), ours("second").subscribe(topic)
    take_turns(first, second, until=settled(administrator, group_id, first, second), what="two stable members")
    feed.write(topic, 10, partitions=2)

    administrator.add_partitions(topic, 6)
    take_turns(
        first, second, until=lambda: len(first.partitions) == len(second.partitions) == 3, what="three partitions each"
    )
    feed.write(topic, 10, partitions=6)
    take_turns(first, second, until=everything_is_read(ledger, feed), what="all records")

    assert "lost" not in first.kinds() + second.kinds()
    assert_read_once(ledger, feed)


def test_a_deleted_topic_is_given_up_and_the_others_are_read_on(
    kafka_broker: KafkaBroker | ExternalKafka, kafka_topic: CreateTopic, feed: Feed, ours: MakeOurs, ledger: Ledger
) -> None:
    """Deleting one topic must neither stop the consumer of another one nor make it fail."""
    kept, doomed = kafka_topic(), unique_name("doomed")
    create_topic(AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0}), doomed)
    member = ours("a").subscribe(kept, doomed)
    take_turns(member, until=lambda: topics_of(member) == {kept, doomed}, what="both topics")

    Administrator(kafka_broker.bootstrap_servers).delete_topic(doomed)
    take_turns(member, until=lambda: topics_of(member) == {kept}, what="one topic less")
    feed.write(kept, 10, partitions=1)
    take_turns(member, until=everything_is_read(ledger, feed), what="all records")

    assert member.told[-1] == ("revoked", frozenset({TopicPartition(doomed, 0)}))
    assert_read_once(ledger, feed)
