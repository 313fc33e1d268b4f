"""librdkafka's AdminClient on the embedded broker: topics, groups, offsets."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kip848_client import EmbeddedBroker
from tests.interop.embedded.clients import MemberThread, admin_of, produce
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kip848_broker(topics={"orders": 2})]


@pytest.fixture
def admin(broker: EmbeddedBroker) -> AdminClient:
    return admin_of(broker.bootstrap_servers)


def code_of(error: pytest.ExceptionInfo[KafkaException]) -> int:
    found = error.value.args[0]
    assert isinstance(found, KafkaError)
    return found.code()


def test_topics_are_created_described_grown_and_deleted(broker: EmbeddedBroker, admin: AdminClient) -> None:
    """Deployment scripts create what they need, and depend on TOPIC_ALREADY_EXISTS and on dry runs."""
    admin.create_topics([NewTopic("users", 3, 1)], validate_only=True)["users"].result(TIMEOUT_S)
    assert broker.topics == {"orders": 2}
    admin.create_topics([NewTopic("users", 3, 1)])["users"].result(TIMEOUT_S)
    with pytest.raises(KafkaException) as error:
        admin.create_topics([NewTopic("users", 1, 1)])["users"].result(TIMEOUT_S)
    assert code_of(error) == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions("users", 5)])["users"].result(TIMEOUT_S)
    described = admin.describe_topics(TopicCollection(["users"]))["users"].result(TIMEOUT_S)
    assert [(partition.id, partition.leader.id) for partition in described.partitions] == [(n, 1) for n in range(5)]
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"orders": 2, "users": 5}
    admin.delete_topics(["users"])["users"].result(TIMEOUT_S)
    assert broker.topics == {"orders": 2}


def test_the_cluster_describes_itself(broker: EmbeddedBroker, admin: AdminClient) -> None:
    """Admin tools show nodes, controller and cluster id from this answer."""
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert [(node.id, node.port) for node in cluster.nodes] == [(1, broker.port)]
    assert (cluster.controller.id, len(cluster.cluster_id)) == (1, 22)


def test_groups_are_listed_by_state_and_type(broker: EmbeddedBroker, admin: AdminClient) -> None:
    """Dashboards list groups and filter them by state and type."""
    with MemberThread(broker.bootstrap_servers, ["orders"], group_id="busy"):
        with MemberThread(broker.bootstrap_servers, ["orders"], group_id="idle"):
            broker.wait_for_group("idle", state="Stable", members=1)
        broker.wait_for_group("busy", state="Stable", members=1)
        broker.wait_for_group("idle", state="Empty")
        everything = admin.list_consumer_groups().result(TIMEOUT_S)
        assert {(g.group_id, g.state, g.type) for g in everything.valid} == {
            ("busy", ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER),
            ("idle", ConsumerGroupState.EMPTY, ConsumerGroupType.CONSUMER),
        }
        assert not everything.errors
        empty = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(TIMEOUT_S)
        assert [group.group_id for group in empty.valid] == ["idle"]
        classic = admin.list_consumer_groups(types={ConsumerGroupType.CLASSIC}).result(TIMEOUT_S)
        assert not classic.valid


def test_a_group_that_is_not_there_is_dead(admin: AdminClient) -> None:
    """librdkafka asks for a classic group next, whose old versions know no error for it: it shows state Dead."""
    group = admin.describe_consumer_groups(["nobody"])["nobody"].result(TIMEOUT_S)
    assert group.state is ConsumerGroupState.DEAD
    assert not group.members


def test_offsets_of_a_stopped_group_are_read_and_moved(broker: EmbeddedBroker, admin: AdminClient) -> None:
    """Resetting a group: stop it, move its offsets, start it."""
    produce(broker.bootstrap_servers, "orders", 20, partitions=2)
    with MemberThread(broker.bootstrap_servers, ["orders"]) as member:
        wait_until(lambda: len(member.delivered) == 20, what="all records")
    wanted = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g", wanted)])["g"].result(TIMEOUT_S)
    assert [item.offset for item in listed.topic_partitions] == [10, 10]
    moved = ConsumerGroupTopicPartitions("g", [TopicPartition("orders", 0, 4)])
    admin.alter_consumer_group_offsets([moved])["g"].result(TIMEOUT_S)
    with MemberThread(broker.bootstrap_servers, ["orders"]) as again:
        wait_until(lambda: len(again.delivered) == 6, what="the records behind the new position")
    assert again.keys() == {("orders", 0, offset) for offset in range(4, 10)}


def test_a_group_with_members_is_neither_reset_nor_deleted(broker: EmbeddedBroker, admin: AdminClient) -> None:
    """An administrator must not overwrite what members commit, nor make them start again from the beginning."""
    with MemberThread(broker.bootstrap_servers, ["orders"]):
        broker.wait_for_group("g", state="Stable", members=1)
        moved = ConsumerGroupTopicPartitions("g", [TopicPartition("orders", 0, 4)])
        result = admin.alter_consumer_group_offsets([moved])["g"].result(TIMEOUT_S)
        refused = result.topic_partitions[0].error
        assert refused is not None
        assert refused.code() == KafkaError.UNKNOWN_MEMBER_ID
        with pytest.raises(KafkaException) as error:
            admin.delete_consumer_groups(["g"])["g"].result(TIMEOUT_S)
        assert code_of(error) == KafkaError.NON_EMPTY_GROUP
    broker.wait_for_group("g", state="Empty")  # librdkafka does not wait for the answer when it leaves
    admin.delete_consumer_groups(["g"])["g"].result(TIMEOUT_S)
    assert broker.groups.ids() == ()
    with pytest.raises(KafkaException) as error:
        admin.delete_consumer_groups(["g"])["g"].result(TIMEOUT_S)
    assert code_of(error) == KafkaError.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [
        (ConfigResource.Type.GROUP, "g", "consumer.session.timeout.ms", "700"),
        (ConfigResource.Type.TOPIC, "orders", "retention.ms", "12345"),
    ],
)
def test_settings_are_altered_and_described(admin: AdminClient, kind: Any, name: str, key: str, value: str) -> None:
    """Retention of a topic; with KIP-848 the session timeout, too, is no longer the consumer's configuration."""
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(kind, name, incremental_configs=[entry])
    admin.incremental_alter_configs([changed])[changed].result(TIMEOUT_S)
    asked = ConfigResource(kind, name)
    assert admin.describe_configs([asked])[asked].result(TIMEOUT_S)[key].value == value
