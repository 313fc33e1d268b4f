"""Two of our members in one group of a real coordinator: partitions move, and administrators see it."""

from __future__ import annotations

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient

from kip848_client.model import TopicPartition
from tests.interop.conftest import ADMIN_TIMEOUT_S, CreateTopic
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.interop.real.administrator import Administrator
from tests.interop.real.conftest import MakeOurs
from tests.interop.real.ledger import Ledger, judge
from tests.interop.real.members import Feed, assert_read_once, everything_is_read, settled, take_turns

pytestmark = [pytest.mark.interop, pytest.mark.kafka]


def test_partitions_move_to_a_second_member_and_back_without_loss(
    kafka_topic: CreateTopic, feed: Feed, ours: MakeOurs, administrator: Administrator, ledger: Ledger, group_id: str
) -> None:
    """Scaling out and in under load: every record once, and never two readers of one partition."""
    topic = kafka_topic(partitions=6)
    feed.write(topic, 50, partitions=6)
    first = ours("first").subscribe(topic)
    take_turns(first, until=lambda: len(first.partitions) == 6, what="everything to the first")
    second = ours("second").subscribe(topic)

    def fed_and_stable() -> bool:
        feed.write(topic, 2, partitions=6)
        return settled(administrator, group_id, first, second)()

    take_turns(first, second, until=fed_and_stable, what="two stable members")
    shared = (len(first.partitions), len(second.partitions))
    first.close()
    take_turns(second, until=lambda: len(second.partitions) == 6, what="everything to the second")
    feed.write(topic, 20, partitions=6)
    take_turns(second, until=everything_is_read(ledger, feed), what="all records")

    assert shared == (3, 3)
    assert_read_once(ledger, feed)
    assert judge(ledger, written=feed.written).handovers == 6
    assert "lost" not in first.kinds() + second.kinds()


def test_an_administrator_sees_our_members_as_what_they_are(
    kafka_broker: KafkaBroker | ExternalKafka,
    kafka_topic: CreateTopic,
    ours: MakeOurs,
    administrator: Administrator,
    group_id: str,
) -> None:
    """kafka-consumer-groups and dashboards show names, hosts, assignments and targets; operators act on them."""
    topic = kafka_topic(partitions=4)
    first = ours("first").subscribe(topic)
    second = ours("second").subscribe(topic)
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0})
    take_turns(
        first,
        second,
        until=settled(administrator, group_id, first, second),
        what="two stable members",
    )

    described = admin.describe_consumer_groups([group_id], request_timeout=ADMIN_TIMEOUT_S)[group_id].result()
    listed = admin.list_consumer_groups(request_timeout=ADMIN_TIMEOUT_S).result()

    assert described.state is ConsumerGroupState.STABLE
    assert described.type is ConsumerGroupType.CONSUMER
    assert described.partition_assignor == "uniform"
    shown = {member.client_id: member for member in described.members}
    assert set(shown) == {"first", "second"}
    for member in (first, second):
        row = shown[member.name]
        assert row.member_id == member.consumer.member_id
        assert row.group_instance_id is None
        assert row.host == "/127.0.0.1"
        assert {TopicPartition(p.topic, p.partition) for p in row.assignment.topic_partitions} == member.partitions
        assert row.target_assignment is not None
        assert {TopicPartition(p.topic, p.partition) for p in row.target_assignment.topic_partitions} == (
            member.partitions
        )
    [row] = [group for group in listed.valid if group.group_id == group_id]
    assert row.type is ConsumerGroupType.CONSUMER
    assert not row.is_simple_consumer_group


def test_many_members_that_come_at_once_share_everything(
    kafka_topic: CreateTopic, feed: Feed, ours: MakeOurs, administrator: Administrator, ledger: Ledger, group_id: str
) -> None:
    """A deployment starts all its processes together; the group must settle in seconds and lose nothing."""
    topic = kafka_topic(partitions=12)
    feed.write(topic, 20, partitions=12)
    members = [ours(f"m{number}").subscribe(topic) for number in range(6)]

    take_turns(*members, until=settled(administrator, group_id, *members), what="six")
    feed.write(topic, 20, partitions=12)
    take_turns(*members, until=everything_is_read(ledger, feed), what="all records")

    assert [len(member.partitions) for member in members] == [2] * 6
    assert_read_once(ledger, feed)
