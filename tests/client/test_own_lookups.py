"""librdkafka looks for a coordinator of its own, which a member of ours does not need."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from kip848_client import Consumer, EmbeddedBroker, TopicPartition
from kip848_client.error_codes import ErrorCode
from kip848_client.errors import GroupAuthorizationError
from kip848_client.faults import ALWAYS, error
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.support.waiting import wait_until


def is_librdkafkas(request: object) -> bool:
    """It speaks versions in which there is one key; ours has a list of them."""
    return isinstance(request, FindCoordinatorRequest) and not request.coordinator_keys


@pytest.fixture
def consumer(kip848_broker: EmbeddedBroker) -> Consumer:
    """A consumer whose librdkafka is told that it may not look for the group's coordinator."""
    kip848_broker.topics.create("orders")
    kip848_broker.faults.on(
        "FindCoordinator", error(ErrorCode.GROUP_AUTHORIZATION_FAILED), when=is_librdkafkas, times=ALWAYS
    )
    conf = {"bootstrap.servers": kip848_broker.bootstrap_servers, "group.id": "billing"}
    return Consumer(conf | {"auto.offset.reset": "earliest"})


def test_a_member_is_not_told_of_a_look_up_that_it_does_not_need(
    kip848_broker: EmbeddedBroker, consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    """Two logins within a second end as a failed look-up of librdkafka's; an error from poll() ends programs."""
    caplog.set_level("INFO", logger="kip848_client")
    producer = Producer({"bootstrap.servers": kip848_broker.bootstrap_servers})
    with consumer:
        consumer.subscribe(["orders"])
        wait_until(lambda: consumer.poll(0.05) is None and "consumer.data_plane_error" in caplog.text)
        producer.produce("orders", b"tea")
        assert producer.flush(30) == 0
        wait_until(lambda: (message := consumer.poll(0.05)) is not None and message.value() == b"tea")


def test_without_a_subscription_it_is_all_that_tells_of_a_wrong_password(consumer: Consumer) -> None:
    """A consumer with assigned partitions may have no coordinator, and would wait for records for ever."""
    with consumer:
        consumer.assign([TopicPartition("orders", 0, 0)])
        with pytest.raises(GroupAuthorizationError, match="FindCoordinator"):
            wait_until(lambda: consumer.poll(0.05))
