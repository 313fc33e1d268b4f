"""`Admin` on the embedded broker and on Apache Kafka: the same questions and changes, and the same answers."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest

from kip848_client import Admin
from kip848_client.admin import GroupDescription, NamedPartition
from kip848_client.errors import GroupIdNotFoundError
from tests.interop.conftest import unique_name
from tests.interop.real.group import Group
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop


@pytest.fixture
def admin(group: Group) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": group.bootstrap_servers}) as made:
        yield made


def test_a_group_from_its_first_member_to_its_deletion(group: Group, admin: Admin) -> None:
    """What an operator does with a group on any broker that speaks KIP-848."""
    topic = group.topic(partitions=2)
    group.write(topic, 10, partitions=2)
    member = group.ours("a", group_instance_id="pod-1").subscribe(topic)
    group.settle(member)
    group.read_all(member)
    group.committed_all()
    listed = {one.group_id: one.type.lower() for one in admin.list_groups(types=["consumer"]).found}
    described = admin.describe_groups([group.group_id, "unheard-of"])
    found = described[group.group_id]
    assert isinstance(found, GroupDescription)
    assert listed[group.group_id] == "consumer"
    assert [one.assigned for one in found.members] == [(NamedPartition(topic, 0), NamedPartition(topic, 1))]
    assert [type(one) for one in described.errors.values()] == [GroupIdNotFoundError]

    member.close()
    assert admin.remove_members(group.group_id, instance_ids=["pod-1"]).values == {"pod-1": None}
    wait_until(lambda: not admin.describe_groups([group.group_id])[group.group_id].members)  # type: ignore[union-attr]
    plan = admin.plan_reset(group.group_id, "earliest", partitions=[topic])
    admin.apply_reset(plan)
    assert admin.lag([group.group_id])[group.group_id].lag == 20
    assert admin.delete_offsets(group.group_id, [(topic, 0)]).values == {NamedPartition(topic, 0): None}
    assert list(admin.committed_offsets([group.group_id])[group.group_id]) == [NamedPartition(topic, 1)]
    admin.delete_groups([group.group_id]).raise_errors()
    assert admin.features().finalized["group.version"] >= 1


def test_an_open_transaction_is_ended_in_place_of_its_producer(group: Group, admin: Admin) -> None:
    """Its producer is gone, and readers of committed records wait for it."""
    topic = group.topic()
    name = unique_name("tx")
    producer = confluent_kafka.Producer({"bootstrap.servers": group.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(30) == 0
    partition = NamedPartition(topic, 0)
    opened = admin.describe_transactions([name])[name]
    assert (opened.state, opened.partitions) == ("Ongoing", (partition,))
    assert [one.state for one in admin.list_transactions(matching=name).found] == ["Ongoing"]
    assert admin.find_hanging_transactions([topic], older_than_ms=-60_000)[partition] == ()

    admin.end_transactions([opened.opened], commit=False).raise_errors()
    wait_until(lambda: admin.list_offsets([partition], isolation_level="read_committed")[partition] == 2)


def test_a_share_group_from_its_first_worker_to_its_deletion(group: Group, admin: Admin) -> None:
    """What an operator does with a queue on any broker that has share groups."""
    topic = group.topic()
    worker = confluent_kafka.ShareConsumer({"bootstrap.servers": group.bootstrap_servers, "group.id": group.group_id})
    worker.subscribe([topic])
    wait_until(lambda: bool(written_and_taken(group, topic, worker)))
    worker.commit_sync()
    described = admin.describe_groups([group.group_id], with_progress=True)[group.group_id]
    assert isinstance(described, GroupDescription)
    assert (described.type, described.assignor) == ("share", "simple")
    assert [one.assigned for one in described.members] == [(NamedPartition(topic, 0),)]
    end = described.progress[0].end
    assert end is not None

    worker.close()
    wait_until(lambda: not admin.describe_groups([group.group_id])[group.group_id].members)  # type: ignore[union-attr]
    plan = admin.plan_reset(group.group_id, "earliest")
    assert plan.type == "share"
    admin.apply_reset(plan)
    lag = admin.lag([group.group_id])[group.group_id]
    assert (lag.progress[0].committed, lag.lag) == (0, end)
    admin.delete_groups([group.group_id]).raise_errors()
    assert admin.features().finalized["share.version"] >= 1


def written_and_taken(group: Group, topic: str, worker: confluent_kafka.ShareConsumer) -> int:
    """A share group begins at the end of the topic once a member fetches: write until it has."""
    group.write(topic, 1, partitions=1)
    return len(worker.poll(0.2))
