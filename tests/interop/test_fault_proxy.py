"""The fault proxy before a real Apache Kafka broker: our consumer and librdkafka meet faults that are not Kafka's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace

from kip848_client import Consumer, MemberState
from kip848_client.broker import FaultProxy
from kip848_client.errors import Kip848Error
from kip848_client.faults import ALWAYS, close, coordinator_not_here, cut_reply, lose_reply, rewrite
from kip848_client.faults.actions import Action
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.interop.client.conftest import QUIET
from tests.interop.client.drive import ConsumerUnderTest, Produce, delivered_once, drive, keys_of, producer_for
from tests.interop.conftest import CreateTopic
from tests.interop.embedded.clients import MemberThread, all_keys, produce
from tests.interop.embedded.holding import TIMEOUT_S
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

Broker = KafkaBroker | ExternalKafka
HEARTBEAT = ConsumerGroupHeartbeatRequest


@pytest.fixture
def proxy(kafka_broker: Broker) -> Iterator[FaultProxy]:
    """A proxy before the shared broker."""
    with FaultProxy(kafka_broker.bootstrap_servers) as running:
        yield running
        running.faults.check()


@pytest.fixture
def group_id(kafka_group: Callable[[], str]) -> str:
    """A group that no other test uses."""
    return kafka_group()


@pytest.fixture
def consumer(proxy: FaultProxy, group_id: str) -> Iterator[ConsumerUnderTest]:
    """One of ours, which knows only the proxy."""
    made = ConsumerUnderTest(
        Consumer(
            {
                **QUIET,
                "bootstrap.servers": proxy.bootstrap_servers,
                "group.id": group_id,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "request.timeout.ms": 2_000,
            }
        )
    )
    yield made
    proxy.faults.clear()
    try:
        made.raw.close(timeout_s=5)
    except Kip848Error:
        assert made.raw.state is MemberState.FATAL


@pytest.fixture
def through(proxy: FaultProxy) -> Iterator[Produce]:
    """Write records through the proxy."""
    with producer_for(proxy.bootstrap_servers) as produce:
        yield produce


def hurry(proxy: FaultProxy) -> None:
    """Let members beat every 100 ms: Kafka's own interval is five seconds. Rules that were made before this one win."""
    proxy.faults.on(HEARTBEAT, rewrite(lambda response: replace(response, heartbeat_interval_ms=100)), times=ALWAYS)


def committed(kafka_broker: Broker, group_id: str) -> dict[int, int]:
    """What Kafka itself says, asked past the proxy."""
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)]).values()
    return {item.partition: item.offset for item in future.result(TIMEOUT_S).topic_partitions}


def test_a_consumer_stays_behind_the_proxy(
    proxy: FaultProxy,
    consumer: ConsumerUnderTest,
    kafka_topic: CreateTopic,
    through: Produce,
    kafka_broker: Broker,
    group_id: str,
) -> None:
    """All that it does goes through it, joining, reading, committing and leaving: a rule would miss nothing."""
    topic = kafka_topic(partitions=4)
    through(topic, 25)
    consumer.subscribe(topic)
    drive(consumer, until=lambda: len(consumer.delivered) == 100)
    consumer.raw.commit(asynchronous=False)
    consumer.raw.close()
    assert delivered_once([consumer]) == keys_of(topic, 25)
    assert {logged.api for logged in proxy.requests} >= {
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.FIND_COORDINATOR,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.PRODUCE,
    }
    leave = proxy.requests.of(HEARTBEAT)[-1].request
    assert isinstance(leave, HEARTBEAT)
    assert leave.member_epoch == -1
    assert committed(kafka_broker, group_id) == dict.fromkeys(range(4), 25)


@pytest.mark.parametrize("action", [close(), lose_reply(), cut_reply(9), coordinator_not_here()], ids=str)
def test_a_commit_that_goes_astray_is_in_kafka_once_it_returns(
    proxy: FaultProxy,
    consumer: ConsumerUnderTest,
    kafka_topic: CreateTopic,
    through: Produce,
    kafka_broker: Broker,
    group_id: str,
    action: Action,
) -> None:
    """The promise of commit(), with Kafka's own coordinator behind a network that loses things."""
    topic = kafka_topic(partitions=2)
    through(topic, 5, partitions=[0, 1])
    consumer.subscribe(topic)
    drive(consumer, until=lambda: len(consumer.delivered) == 10)
    rule = proxy.faults.on("OffsetCommit", action, group=group_id)
    consumer.raw.commit(asynchronous=False)
    assert rule.hits == 1
    assert committed(kafka_broker, group_id) == {0: 5, 1: 5}


def test_librdkafka_reads_through_the_proxy(proxy: FaultProxy, kafka_topic: CreateTopic, group_id: str) -> None:
    """Its own versions of everything, with fetch sessions off and idempotent writes on; one of its answers is cut."""
    topic = kafka_topic(partitions=2)
    proxy.faults.on("Produce", lose_reply())
    produce(proxy.bootstrap_servers, topic, 100, partitions=2, enable_idempotence=True)
    cut = proxy.faults.on(HEARTBEAT, cut_reply(9))
    with MemberThread(proxy.bootstrap_servers, [topic], group_id=group_id) as member:
        wait_until(lambda: member.keys() == all_keys(topic, 100, partitions=2), what="100 records")
    assert cut.hits == 1
    assert len(member.delivered) == 100
