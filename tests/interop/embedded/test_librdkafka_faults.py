"""librdkafka against faults of the embedded broker: it must break things in ways that a real client understands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from kip848_client import EmbeddedBroker
from kip848_client.errors import ErrorCode
from kip848_client.testing.faults import ALWAYS, close, coordinator_not_here, cut_reply, error, lose_reply
from kip848_client.testing.faults.actions import Action
from tests.interop.embedded.clients import MemberThread, all_keys, produce
from tests.support.driving import quiet
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kip848_broker(topics={"orders": 2})]


@pytest.mark.parametrize(
    "action", [close(), close(reset=True), lose_reply(), cut_reply(9), coordinator_not_here()], ids=str
)
def test_a_member_joins_in_spite_of_it(broker: EmbeddedBroker, action: Action) -> None:
    """The broker hangs up or sends half an answer, and librdkafka tries again: the fault looks real to it."""
    produce(broker.bootstrap_servers, "orders", 20, partitions=2)
    rule = broker.faults.on("ConsumerGroupHeartbeat", action, times=2)
    with MemberThread(broker.bootstrap_servers, ["orders"]) as member:
        rule.wait(hits=2)
        wait_until(lambda: member.keys() == all_keys("orders", 20, partitions=2), what="20 records")


def test_a_fatal_error_reaches_the_application(broker: EmbeddedBroker) -> None:
    """librdkafka hands the code on, so that it can be tested what an application does with it."""
    broker.faults.on("heartbeat", error(ErrorCode.GROUP_AUTHORIZATION_FAILED), times=ALWAYS)
    with MemberThread(broker.bootstrap_servers, ["orders"]) as member:
        wait_until(lambda: member.errors, what="an error from poll")
        assert member.errors[0].code() == KafkaError._FATAL
        assert "Group authorization failed" in member.errors[0].str()


@pytest.fixture
def reader(broker: EmbeddedBroker) -> Iterator[Consumer]:
    """A member that has read the one record of each partition, and has committed nothing."""
    produce(broker.bootstrap_servers, "orders", 2, partitions=2)
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "group.protocol": "consumer"}
    consumer = Consumer(quiet({**conf, "enable.auto.commit": False, "auto.offset.reset": "earliest"}))
    consumer.subscribe(["orders"])
    assert len(consumer.consume(2, TIMEOUT_S)) == 2
    yield consumer
    consumer.close()


def test_a_commit_that_was_done_and_refused_is_tried_again(broker: EmbeddedBroker, reader: Consumer) -> None:
    """If only the answer of a commit is lost, librdkafka's next try succeeds."""
    rule = broker.faults.on("OffsetCommit", error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, applied=True))
    reader.commit(asynchronous=False)
    assert rule.hits == 1
    assert len(broker.requests.of("OffsetCommit")) == 2
    assert broker.groups.committed("g") == {("orders", 0): 1, ("orders", 1): 1}


def test_a_commit_of_one_partition_is_refused(broker: EmbeddedBroker, reader: Consumer) -> None:
    """librdkafka reads the code of each partition; the other offset is committed."""
    broker.faults.on("OffsetCommit", error(ErrorCode.TOPIC_AUTHORIZATION_FAILED), topic="orders", partition=1)
    try:
        committed = reader.commit(asynchronous=False) or []
        codes = {item.partition: item.error.code() if item.error else 0 for item in committed}
    except KafkaException as raised:
        codes = {1: raised.args[0].code()}
    assert codes[1] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert broker.groups.committed("g") == {("orders", 0): 1}
