"""The bytes that consumers put into JoinGroup and SyncGroup are those of other clients."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from kip848_client.errors import ProtocolError
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tests.wire.strategies import Case, messages

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas through importlib.resources.read_text
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment as TheirAssignment
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription as TheirSubscription


def _theirs(cls: Any, topics: tuple[TopicPartition, ...]) -> list[Any]:
    return [cls.TopicPartition(topic=item.topic, partitions=list(item.partitions)) for item in topics]


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_has_the_bytes_of_kafka_python(version: int) -> None:
    """A leader of any client reads what members of any other client want."""

    @settings(max_examples=30)
    @given(messages(Case(ConsumerProtocolSubscription, version)))
    def check(ours: ConsumerProtocolSubscription) -> None:
        theirs = TheirSubscription(
            version=version,
            topics=list(ours.topics),
            user_data=ours.user_data,
            owned_partitions=_theirs(TheirSubscription, ours.owned_partitions),
            generation_id=ours.generation_id,
            rack_id=ours.rack_id,
        )
        data = encode_subscription(ours, version=version)
        assert data == theirs.encode()
        assert decode_subscription(data) == ours

    check()


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_has_the_bytes_of_kafka_python(version: int) -> None:
    """A member of any client reads what a leader of any other client gave it."""

    @settings(max_examples=30)
    @given(messages(Case(ConsumerProtocolAssignment, version)))
    def check(ours: ConsumerProtocolAssignment) -> None:
        theirs = TheirAssignment(
            version=version,
            assigned_partitions=_theirs(TheirAssignment, ours.assigned_partitions),
            user_data=ours.user_data,
        )
        data = encode_assignment(ours, version=version)
        assert data == theirs.encode()
        assert decode_assignment(data) == ours

    check()


def test_a_newer_version_is_read_as_the_newest_that_is_known() -> None:
    """A client that is newer than the broker can still be described and moved to KIP-848."""
    subscription = ConsumerProtocolSubscription(("t",), b"u", (TopicPartition("t", (1,)),), 5, "r")
    data = encode_subscription(subscription)

    assert decode_subscription(b"\x00\x09" + data[2:] + b"what version 9 adds") == subscription


def test_an_older_version_can_be_asked_for() -> None:
    """Which topics a member wants is at the same place in every version."""
    data = encode_subscription(ConsumerProtocolSubscription(("t",), b"u", (), 5, "r"))[:-1]

    assert decode_subscription(data, version=0) == ConsumerProtocolSubscription(("t",), b"u")
    with pytest.raises(ProtocolError):
        decode_subscription(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Members may send what they like; the coordinator must not fail over it."""
    for decode in (decode_subscription, decode_assignment):
        with contextlib.suppress(ProtocolError):
            decode(data)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\x00\x00\x00\x00"])
def test_bytes_without_a_version_are_refused(data: bytes) -> None:
    """Guessing a version would read a wrong subscription; Kafka refuses a negative one, too."""
    with pytest.raises(ProtocolError, match="embedded consumer protocol"):
        decode_subscription(data)
