"""kafka-python on the embedded broker: another implementation of every API that it shares with librdkafka."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas through importlib.resources.read_text
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
    from kafka.admin import MemberToRemove, NewPartitions, NewTopic
    from kafka.errors import NoError, TopicAlreadyExistsError, UnknownMemberIdError

from kip848_client import EmbeddedBroker
from tests.interop.embedded.clients import MemberThread, continues_a_session, produce
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.kip848_broker(topics={"orders": 2}),
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]


@pytest.fixture
def admin(broker: EmbeddedBroker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield client
    client.close()


def test_an_administrator_removes_members_of_a_group(broker: EmbeddedBroker, admin: KafkaAdminClient) -> None:
    """A static instance that will not come back is taken out by name, and its partitions move on at once."""
    with MemberThread(broker.bootstrap_servers, ["orders"]):
        broker.wait_for_group("g", members=1)
        with MemberThread(broker.bootstrap_servers, ["orders"], group_instance_id="gone"):
            broker.wait_for_group("g", state="Stable", members=2)
        named = [MemberToRemove(group_instance_id="gone"), MemberToRemove(group_instance_id="nobody")]
        assert list(admin.remove_group_members("g", named).values()) == [NoError, UnknownMemberIdError]
        broker.wait_for_group("g", state="Stable", members=1)


def test_an_idempotent_producer_writes_what_an_assigned_consumer_reads(broker: EmbeddedBroker) -> None:
    """kafka-python's producer is idempotent by default: it asks for a producer id before it writes."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=1)
    receipts = [producer.send("orders", str(n).encode(), partition=0, key=b"k") for n in range(300)]
    offsets = [receipt.get(10).offset for receipt in receipts]
    producer.close()
    assert offsets == list(range(300))
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, check_crcs=True)
    partition = TopicPartition("orders", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    values: list[bytes] = []

    def all_read() -> bool:
        for records in consumer.poll(timeout_ms=50).values():
            values.extend(record.value for record in records)
        return len(values) >= 300

    wait_until(all_read, what="300 records")
    broker.produce("orders", "300", partition=0)
    wait_until(lambda: all_read() and len(values) == 301, what="one more record")
    assert broker.requests.of("Fetch", when=continues_a_session), "records came by fetch sessions"
    consumer.close()
    assert values == [str(n).encode() for n in range(301)]


def test_a_consumer_without_a_group_membership_commits_and_resumes(broker: EmbeddedBroker) -> None:
    """Assigned consumers keep their positions in a group that has no members."""
    produce(broker.bootstrap_servers, "orders", 10)
    partition = TopicPartition("orders", 0)
    conf = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "simple", "enable_auto_commit": False}
    first = KafkaConsumer(**conf)
    first.assign([partition])
    first.commit({partition: OffsetAndMetadata(7, "seven", -1)})
    first.close()
    second = KafkaConsumer(**conf)
    second.assign([partition])
    assert second.committed(partition, metadata=True).offset == 7
    assert second.position(partition) == 7
    second.close()


def test_topics_are_created_grown_listed_and_deleted(broker: EmbeddedBroker, admin: KafkaAdminClient) -> None:
    """The administrator's daily work, through other versions of the same APIs."""
    admin.create_topics([NewTopic("users", 2, 1)])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic("users", 2, 1)])
    admin.create_partitions({"users": NewPartitions(4)})
    assert broker.topics == {"orders": 2, "users": 4}
    assert sorted(admin.list_topics()) == ["orders", "users"]
    admin.delete_topics(["users"])
    assert broker.topics == {"orders": 2}
