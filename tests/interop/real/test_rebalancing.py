"""Two of our members in one group of a real coordinator: partitions move, and administrators see it."""

from __future__ import annotations

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType

from kip848_client.common.model import NamedPartition
from tests.interop.conftest import ADMIN_TIMEOUT_S
from tests.interop.real.group import Group
from tests.interop.real.ledger import judge
from tests.support.driving import drive

pytestmark = pytest.mark.interop


def test_partitions_move_to_a_second_member_and_back_without_loss(group: Group) -> None:
    """Scaling out and in under load: every record once, and never two readers of one partition."""
    topic = group.topic(partitions=6)
    group.write(topic, 50, partitions=6)
    first = group.ours("first").subscribe(topic)
    drive(first, until=lambda: len(first.partitions) == 6, what="everything to the first")
    second = group.ours("second").subscribe(topic)

    def fed_and_stable() -> bool:
        group.write(topic, 2, partitions=6)
        return group.is_settled(first, second)

    drive(first, second, until=fed_and_stable, what="two stable members")
    shared = (len(first.partitions), len(second.partitions))
    first.close()
    drive(second, until=lambda: len(second.partitions) == 6, what="everything to the second")
    group.write(topic, 20, partitions=6)
    group.read_all(second)

    assert shared == (3, 3)
    group.assert_read_once()
    assert judge(group.ledger, written=group.written).handovers == 6
    assert "lost" not in first.kinds + second.kinds


def test_an_administrator_sees_our_members_as_what_they_are(group: Group) -> None:
    """kafka-consumer-groups and dashboards show names, hosts, assignments and targets; operators act on them."""
    topic = group.topic(partitions=4)
    first = group.ours("first").subscribe(topic)
    second = group.ours("second").subscribe(topic)
    group.settle(first, second)

    described = group.admin.describe_consumer_groups([group.group_id])[group.group_id].result(ADMIN_TIMEOUT_S)
    listed = group.admin.list_consumer_groups().result(ADMIN_TIMEOUT_S)

    assert described.state is ConsumerGroupState.STABLE
    assert described.type is ConsumerGroupType.CONSUMER
    assert described.partition_assignor == "uniform"
    shown = {member.client_id: member for member in described.members}
    assert set(shown) == {"first", "second"}
    for member in (first, second):
        row = shown[member.name]
        assert row.member_id == member.raw.member_id
        assert row.group_instance_id is None
        assert row.host == "/127.0.0.1"
        assert {NamedPartition(p.topic, p.partition) for p in row.assignment.topic_partitions} == member.partitions
        assert row.target_assignment is not None
        assert {NamedPartition(p.topic, p.partition) for p in row.target_assignment.topic_partitions} == (
            member.partitions
        )
    [row] = [one for one in listed.valid if one.group_id == group.group_id]
    assert row.type is ConsumerGroupType.CONSUMER
    assert not row.is_simple_consumer_group


def test_many_members_that_come_at_once_share_everything(group: Group) -> None:
    """A deployment starts all its processes together; the group must settle in seconds and lose nothing."""
    topic = group.topic(partitions=12)
    group.write(topic, 20, partitions=12)
    members = [group.ours(f"m{number}").subscribe(topic) for number in range(6)]

    group.settle(*members)
    group.write(topic, 20, partitions=12)
    group.read_all(*members)

    assert [len(member.partitions) for member in members] == [2] * 6
    group.assert_read_once()
