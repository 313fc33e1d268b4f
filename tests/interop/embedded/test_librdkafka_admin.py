"""librdkafka's AdminClient on the embedded broker: topics, groups, offsets."""

from __future__ import annotations

from collections.abc import Iterator

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
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kip848_client.broker import EmbeddedBroker
from tests.interop.embedded.clients import TIMEOUT_S, MemberThread, admin_of, produce
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"orders": 2}) as running:
        yield running


@pytest.fixture
def admin(broker: EmbeddedBroker) -> AdminClient:
    return admin_of(broker.bootstrap_servers)


def code_of(error: pytest.ExceptionInfo[KafkaException]) -> int:
    found = error.value.args[0]
    assert isinstance(found, KafkaError)
    return found.code()


def test_a_topic_is_created_grown_and_deleted(broker: EmbeddedBroker, admin: AdminClient) -> None:
    """Deployments create their topics before they start."""
    admin.create_topics([NewTopic("users", 3, 1)])["users"].result(TIMEOUT_S)
    assert broker.topics() == {"orders": 2, "users": 3}
    admin.create_partitions([NewPartitions("users", 5)])["users"].result(TIMEOUT_S)
    assert len(admin.list_topics(timeout=TIMEOUT_S).topics["users"].partitions) == 5
    admin.delete_topics(["users"])["users"].result(TIMEOUT_S)
    assert broker.topics() == {"orders": 2}


def test_creating_what_is_there_is_told_apart(admin: AdminClient) -> None:
    """Idempotent deployment scripts depend on TOPIC_ALREADY_EXISTS."""
    with pytest.raises(KafkaException) as error:
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(TIMEOUT_S)
    assert code_of(error) == KafkaError.TOPIC_ALREADY_EXISTS


def test_validate_only_creates_nothing(broker: EmbeddedBroker, admin: AdminClient) -> None:
    """A dry run that creates the topic is none."""
    admin.create_topics([NewTopic("users", 1, 1)], validate_only=True)["users"].result(TIMEOUT_S)
    assert broker.topics() == {"orders": 2}


def test_the_cluster_describes_itself(broker: EmbeddedBroker, admin: AdminClient) -> None:
    """Tools show node and controller."""
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert [(node.id, node.port) for node in cluster.nodes] == [(1, broker.port)]
    assert cluster.controller.id == 1
    assert len(cluster.cluster_id) == 22


def test_a_topic_describes_itself(admin: AdminClient) -> None:
    """describe_topics asks for ids and leaders."""
    described = admin.describe_topics(TopicCollection(["orders"]))["orders"].result(TIMEOUT_S)
    assert [partition.id for partition in described.partitions] == [0, 1]
    assert {partition.leader.id for partition in described.partitions} == {1}


def test_groups_are_listed_by_state_and_type(broker: EmbeddedBroker, admin: AdminClient) -> None:
    """Dashboards list groups and filter them."""
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


def test_a_group_is_described_with_its_members_and_their_partitions(broker: EmbeddedBroker, admin: AdminClient) -> None:
    """Who reads what: the first question in every incident."""
    with MemberThread(broker.bootstrap_servers, ["orders"], client_id="reader"):
        broker.wait_for_group("g", state="Stable", members=1)
        group = admin.describe_consumer_groups(["g"])["g"].result(TIMEOUT_S)
    assert group.state is ConsumerGroupState.STABLE
    assert group.type is ConsumerGroupType.CONSUMER
    assert group.partition_assignor == "uniform"
    assert group.coordinator.port == broker.port
    member = group.members[0]
    assert (member.client_id, member.host) == ("reader", "/127.0.0.1")
    assert {(p.topic, p.partition) for p in member.assignment.topic_partitions} == {("orders", 0), ("orders", 1)}


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


def test_offsets_of_a_living_group_are_not_moved(broker: EmbeddedBroker, admin: AdminClient) -> None:
    """An administrator must not overwrite what members commit."""
    with MemberThread(broker.bootstrap_servers, ["orders"]):
        broker.wait_for_group("g", state="Stable", members=1)
        moved = ConsumerGroupTopicPartitions("g", [TopicPartition("orders", 0, 4)])
        result = admin.alter_consumer_group_offsets([moved])["g"].result(TIMEOUT_S)
        error = result.topic_partitions[0].error
        assert error is not None
        assert error.code() == KafkaError.UNKNOWN_MEMBER_ID


def test_a_group_is_deleted_only_when_it_is_empty(broker: EmbeddedBroker, admin: AdminClient) -> None:
    """Deleting a group under its members would make them start again from the beginning."""
    with MemberThread(broker.bootstrap_servers, ["orders"]):
        broker.wait_for_group("g", state="Stable", members=1)
        with pytest.raises(KafkaException) as error:
            admin.delete_consumer_groups(["g"])["g"].result(TIMEOUT_S)
        assert code_of(error) == KafkaError.NON_EMPTY_GROUP
    admin.delete_consumer_groups(["g"])["g"].result(TIMEOUT_S)
    assert broker.groups() == ()
    with pytest.raises(KafkaException) as error:
        admin.delete_consumer_groups(["g"])["g"].result(TIMEOUT_S)
    assert code_of(error) == KafkaError.GROUP_ID_NOT_FOUND


def test_first_and_last_offsets_are_listed(broker: EmbeddedBroker, admin: AdminClient) -> None:
    """Lag is the last offset minus the committed one."""
    produce(broker.bootstrap_servers, "orders", 20, partitions=2)
    first = TopicPartition("orders", 0)
    earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
    assert admin.list_offsets({first: earliest})[first].result(TIMEOUT_S).offset == 0
    assert admin.list_offsets({first: latest})[first].result(TIMEOUT_S).offset == 10


def test_the_session_timeout_of_a_group_is_set_by_an_administrator(broker: EmbeddedBroker, admin: AdminClient) -> None:
    """With KIP-848 it is no longer the consumer's configuration."""
    entry = ConfigEntry("consumer.session.timeout.ms", "700", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ConfigResource.Type.GROUP, "g", incremental_configs=[entry])
    admin.incremental_alter_configs([group])[group].result(TIMEOUT_S)
    asked = ConfigResource(ConfigResource.Type.GROUP, "g")
    found = admin.describe_configs([asked])[asked].result(TIMEOUT_S)
    assert found["consumer.session.timeout.ms"].value == "700"


def test_the_settings_of_a_topic_are_described_and_altered(admin: AdminClient) -> None:
    """Retention and its like, through librdkafka's versions of the APIs."""
    entry = ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[entry])
    admin.incremental_alter_configs([topic])[topic].result(TIMEOUT_S)
    asked = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    found = admin.describe_configs([asked])[asked].result(TIMEOUT_S)
    assert found["retention.ms"].value == "12345"
    assert found["cleanup.policy"].value == "delete"
