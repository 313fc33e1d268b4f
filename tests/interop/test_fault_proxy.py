"""The fault proxy before a real Apache Kafka broker: our consumer and librdkafka meet faults that are not Kafka's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kip848_client.testing import FaultProxy
from kip848_client.testing.faults import close, coordinator_not_here, cut_reply, lose_reply
from kip848_client.testing.faults.actions import Action
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.interop.embedded.clients import MemberThread, all_keys, produce
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.interop.real.administrator import Administrator
from tests.interop.real.group import Group, group_of
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
def group(proxy: FaultProxy) -> Iterator[Group]:
    """A group, whose members, topics and records know only the proxy."""
    with group_of(proxy.bootstrap_servers) as made:
        yield made
        proxy.faults.clear()


@pytest.fixture
def kafka(kafka_broker: Broker, group: Group) -> Administrator:
    """What Kafka itself says about the group, asked past the proxy."""
    return Administrator(kafka_broker.bootstrap_servers, group.group_id)


def test_a_consumer_stays_behind_the_proxy(proxy: FaultProxy, group: Group, kafka: Administrator) -> None:
    """All that it does goes through it, joining, reading, committing and leaving: a rule would miss nothing."""
    topic = group.topic(partitions=4)
    group.write(topic, 25, partitions=4)
    member = group.ours("a", enable_auto_commit=False).subscribe(topic)
    group.read_all(member)
    member.raw.commit(asynchronous=False)
    member.close()
    group.assert_read_once()
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
    assert kafka.committed(group.written) == group.written


@pytest.mark.parametrize("action", [close(), lose_reply(), cut_reply(9), coordinator_not_here()], ids=str)
def test_a_commit_that_goes_astray_is_in_kafka_once_it_returns(
    proxy: FaultProxy, group: Group, kafka: Administrator, action: Action
) -> None:
    """The promise of commit(), with Kafka's own coordinator behind a network that loses things."""
    topic = group.topic(partitions=2)
    group.write(topic, 5, partitions=2)
    member = group.ours("a", enable_auto_commit=False, request_timeout_ms=2_000).subscribe(topic)
    group.read_all(member)
    rule = proxy.faults.on("OffsetCommit", action, group=group.group_id)
    member.raw.commit(asynchronous=False)
    assert rule.hits == 1
    assert kafka.committed(group.written) == group.written


def test_librdkafka_reads_through_the_proxy(proxy: FaultProxy, group: Group) -> None:
    """Its own versions of everything, with fetch sessions off and idempotent writes on; one of its answers is cut."""
    topic = group.topic(partitions=2)
    proxy.faults.on("Produce", lose_reply())
    produce(proxy.bootstrap_servers, topic, 100, partitions=2, enable_idempotence=True)
    cut = proxy.faults.on(HEARTBEAT, cut_reply(9))
    with MemberThread(proxy.bootstrap_servers, [topic], group_id=group.group_id) as member:
        wait_until(lambda: member.keys() == all_keys(topic, 100, partitions=2), what="100 records")
    assert cut.hits == 1
    assert len(member.delivered) == 100
