"""Racks in the embedded broker: partitions have some, members name theirs, and an assignor brings them together."""

from __future__ import annotations

from pathlib import Path

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import BrokerError, ErrorCode
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from tests.support.group_requests import heartbeat, join

ASSIGNORS = {"group.consumer.assignors": "uniform-rack-aware,uniform,range"}
pytestmark = pytest.mark.kip848_broker(topics={"t": 6}, config=ASSIGNORS)


def ask(broker: EmbeddedBroker, request: ConsumerGroupHeartbeatRequest) -> int:
    """The epoch that a heartbeat is answered with."""
    with RawConnection(broker.bootstrap_servers) as connection:
        response = connection.ask(request, version=1)
    assert not response.error_code, response.error_message
    return response.member_epoch


def target(broker: EmbeddedBroker, member: str) -> list[int]:
    group = broker.wait_for_group("g")
    return sorted(partition.partition for partition in group.member(member).target)


def test_a_group_follows_when_replicas_move_to_other_racks(broker: EmbeddedBroker) -> None:
    """Reassigned replicas are a change of the topic: the next heartbeat brings a new epoch, as with new partitions."""
    broker.topics.set_racks("t", ["a", "b"])
    ask(broker, join("m1", topics=("t",), rack_id="a"))
    epoch = ask(broker, join("m2", topics=("t",), rack_id="b"))
    assert (target(broker, "m1"), target(broker, "m2")) == ([0, 2, 4], [1, 3, 5])
    broker.topics.set_racks("t", ["b", "a"])
    ask(broker, heartbeat(epoch, "m2"))
    assert (target(broker, "m1"), target(broker, "m2")) == ([1, 3, 5], [0, 2, 4])


def test_other_settings_of_a_topic_move_nothing(broker: EmbeddedBroker) -> None:
    """A change of the retention is no reason for a rebalance; and racks can be forgotten again."""
    broker.topics.set_racks("t", ["a"])
    epoch = ask(broker, join("m1", topics=("t",), rack_id="a"))
    broker._on_loop(lambda state: state.topics.set_configs("t", {"retention.ms": "5", "kip848.partition.racks": "a"}))
    assert ask(broker, heartbeat(epoch, "m1")) == epoch
    broker.topics.set_racks("t", [])
    assert ask(broker, heartbeat(epoch, "m1")) == epoch + 1


@pytest.mark.parametrize("racks", [["a", ""], ["a,b"], [()], [("a/b",)]])
def test_racks_that_cannot_be_written_down_are_refused(broker: EmbeddedBroker, racks: list[str]) -> None:
    """A rack with a comma would silently become two."""
    with pytest.raises(BrokerError, match="racks of partition") as refused:
        broker.topics.set_racks("t", racks)
    assert refused.value.code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("text", ["", "a,,b", "a/ /b", " "])
def test_a_topic_with_blank_racks_is_not_created(broker: EmbeddedBroker, text: str) -> None:
    """CreateTopics and IncrementalAlterConfigs refuse blank racks, which would match no client."""
    with pytest.raises(BrokerError, match="needs racks for each partition"):
        broker.topics.create("u", 2, configs={"kip848.partition.racks": text})


def test_racks_survive_a_restart(tmp_path: Path) -> None:
    """They are part of the topic, and the group does not rebalance because the broker was away."""
    with EmbeddedBroker(config=ASSIGNORS, data_dir=tmp_path) as broker:
        broker.topics.create("t", 4, configs={"kip848.partition.racks": "a,b"})
        ask(broker, join("m1", topics=("t",), rack_id="a"))
        epoch = ask(broker, join("m2", topics=("t",), rack_id="b"))
    with EmbeddedBroker(config=ASSIGNORS, data_dir=tmp_path) as broker:
        assert ask(broker, heartbeat(epoch, "m2")) == epoch
        assert (target(broker, "m1"), target(broker, "m2")) == ([0, 2], [1, 3])


def test_kafka_s_two_assignors_are_what_is_offered_unless_told_otherwise() -> None:
    """A test that asks for the rack-aware one fails here as it would on Kafka, until the broker is told to have it."""
    with EmbeddedBroker({"t": 1}) as broker, RawConnection(broker.bootstrap_servers) as connection:
        response = connection.ask(
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                rebalance_timeout_ms=5_000,
                subscribed_topic_names=("t",),
                topic_partitions=(),
                server_assignor="uniform-rack-aware",
            ),
            version=1,
        )
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
