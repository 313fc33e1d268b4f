"""librdkafka looks for a coordinator of its own, which a member of ours does not need."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Producer

from kip848_client import Admin, Consumer, EmbeddedBroker, TopicPartition
from kip848_client.cli import main
from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import NamedPartition, OffsetRange
from kip848_client.config import parse_consumer_config
from kip848_client.consumer.records.range_reader import RangeReader
from kip848_client.errors import AuthenticationError
from kip848_client.testing import BrokerSasl
from kip848_client.testing.faults import ALWAYS, error
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


def test_assigned_partitions_are_read_without_a_right_on_any_group(
    kip848_broker: EmbeddedBroker, consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    """A program with READ on the topic that commits nothing needs no group: Java's consumer reads then, too."""
    caplog.set_level("INFO", logger="kip848_client")
    with consumer:
        consumer.assign([TopicPartition("orders", 0, 0)])
        wait_until(lambda: consumer.poll(0.05) is None and "consumer.data_plane_error" in caplog.text)
        kip848_broker.produce("orders", "milk")
        wait_until(lambda: (message := consumer.poll(0.05)) is not None and message.value() == b"milk")


def test_without_a_subscription_a_wrong_password_is_told() -> None:
    """A consumer with assigned partitions may have no coordinator, and would wait for records for ever."""
    with EmbeddedBroker({"orders": 1}, sasl=BrokerSasl({"ann": "secret"})) as broker:
        login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "ann", "sasl.password": "wrong"}
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing", **login}
        with Consumer(conf | {"security.protocol": broker.security_protocol}) as consumer:
            consumer.assign([TopicPartition("orders", 0, 0)])
            with pytest.raises(AuthenticationError):
                wait_until(lambda: consumer.poll(0.05))


@pytest.mark.parametrize(
    "command",
    [
        ("consume", "orders", "--from", "beginning", "--until", "end"),
        ("groups", "record", "--no-follow"),
        ("report",),
    ],
)
def test_commands_that_read_need_a_right_on_the_topic_only(
    kip848_broker: EmbeddedBroker, consumer: Consumer, command: tuple[str, ...]
) -> None:
    """They join no group, and their pages say that READ on the topic is enough."""
    consumer.close()
    kip848_broker.produce("orders", "milk")
    with Admin({"bootstrap.servers": kip848_broker.bootstrap_servers}) as admin:
        admin.commit_offsets("billing", {("orders", 0): 1})
    assert main([*command, "--bootstrap", kip848_broker.bootstrap_servers]) == 0


def test_ranges_are_read_without_a_right_on_any_group(kip848_broker: EmbeddedBroker, consumer: Consumer) -> None:
    """Tasks of Spark read ranges, and their account has rights on topics."""
    consumer.close()
    kip848_broker.produce("orders", "milk")
    conf = {"bootstrap.servers": kip848_broker.bootstrap_servers, "group.id": "any"}
    with closing(RangeReader(parse_consumer_config(conf).data_plane, poll_timeout_ms=60_000)) as reader:
        ((_, messages),) = reader.read([OffsetRange(NamedPartition("orders", 0), 0, 1)])
    assert [message.value() for message in messages] == [b"milk"]
