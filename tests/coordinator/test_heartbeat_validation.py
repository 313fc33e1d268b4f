"""What a heartbeat must look like, before any state is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tests.support.coordinator_harness import Harness

Send = Callable[[Harness], ConsumerGroupHeartbeatResponse]


def _in_group(group_id: str) -> Send:
    def send(h: Harness) -> ConsumerGroupHeartbeatResponse:
        h.group_id = group_id
        return h.join("m", ["foo"])

    return send


REFUSED: dict[str, tuple[Send, str]] = {
    "blank_group_id": (_in_group("  "), "GroupId"),
    "empty_group_id": (_in_group(""), "GroupId"),
    "join_without_rebalance_timeout": (lambda h: h.join("m", ["foo"], rebalance_timeout_ms=-1), "RebalanceTimeoutMs"),
    "join_with_rebalance_timeout_zero": (lambda h: h.join("m", ["foo"], rebalance_timeout_ms=0), "RebalanceTimeoutMs"),
    "join_without_owned_partitions": (
        lambda h: h.heartbeat("m", 0, topics=["foo"], rebalance_timeout_ms=5_000),
        "TopicPartitions",
    ),
    "join_owning_a_partition": (
        lambda h: h.heartbeat("m", 0, topics=["foo"], owned={"foo": [0]}, rebalance_timeout_ms=5_000),
        "TopicPartitions",
    ),
    "join_without_any_subscription": (lambda h: h.join("m", None), "SubscribedTopicNames"),
    "member_epoch_without_member_id": (lambda h: h.heartbeat("", 1), "MemberId"),
    "blank_member_id": (lambda h: h.heartbeat(" ", 1), "MemberId"),
    "join_v1_without_member_id": (lambda h: h.join("", ["foo"]), "MemberId"),
    "empty_instance_id": (lambda h: h.join("m", ["foo"], instance=""), "InstanceId"),
    "empty_rack_id": (lambda h: h.join("m", ["foo"], rack=""), "RackId"),
    "static_leave_without_instance_id": (lambda h: h.heartbeat("m", -2), "InstanceId"),
    "epoch_below_minus_two": (lambda h: h.heartbeat("m", -3), "MemberEpoch"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_heartbeat_that_the_protocol_does_not_allow_is_an_invalid_request(case: str) -> None:
    """A broken client is told what is wrong with its request, and the group does not see it."""
    send, field = REFUSED[case]
    h = Harness()
    h.create_topic("foo", partitions=1)
    response = send(h)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert field in cast("str", response.error_message)
    assert not h.log


def test_a_member_may_join_without_topics() -> None:
    """A consumer that subscribes to nothing yet is in the group, at a real epoch, and owns nothing."""
    h = Harness()
    response = h.join("m", [])
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, 1)
    assert h.received(response) == {}


def test_version_0_may_leave_the_member_id_to_the_coordinator() -> None:
    """The oldest clients bring no id: they are given one and are known by it."""
    h = Harness()
    response = h.join("", ["foo"], version=0)
    assert response.error_code == ErrorCode.NONE
    assert response.member_id
    assert h.heartbeat(response.member_id, response.member_epoch, version=0).error_code == ErrorCode.NONE


def test_an_unknown_assignor_is_refused_and_the_known_ones_are_named() -> None:
    """A typing error in group.remote.assignor is told together with what would be right."""
    h = Harness()
    response = h.join("m", ["foo"], assignor="bar")
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in cast("str", response.error_message)
    assert not h.log
