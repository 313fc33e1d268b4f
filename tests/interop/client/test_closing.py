"""Calls that end a membership: what they promise when something is odd."""

from __future__ import annotations

import time

import pytest

from kip848_client import EmbeddedBroker, MemberState
from kip848_client.errors import ErrorCode
from kip848_client.faults import ALWAYS, error
from tests.interop.client.conftest import MakeConsumer
from tests.interop.client.drive import Produce, drive, keys_of
from tests.support.waiting import SOON_S

pytestmark = pytest.mark.interop


def test_subscribing_to_nothing_is_unsubscribing(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """Programs that compute their topics end up with an empty list; the member must not stay in the group."""
    produce("orders", 1)
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 4)
    consumer.raw.subscribe([])
    assert consumer.listener.names() == ["assigned", "revoked"]
    assert consumer.raw.state is MemberState.UNJOINED
    broker.wait_for_group("g", state="Empty")


def test_a_second_close_does_nothing(make_consumer: MakeConsumer, produce: Produce) -> None:
    """`with` blocks, atexit hooks and finally clauses meet."""
    produce("orders", 1)
    consumer = make_consumer().subscribe("orders")
    drive(consumer, until=lambda: len(consumer.delivered) == 4)
    consumer.raw.close()
    consumer.raw.close()
    assert consumer.listener.names() == ["assigned", "revoked"]


def test_a_commit_that_stays_stale_does_not_keep_close(
    broker: EmbeddedBroker, make_consumer: MakeConsumer, produce: Produce
) -> None:
    """What could not be committed is read again by the next consumer; nothing hangs, nothing is skipped."""
    produce("orders", 5)
    first = make_consumer().subscribe("orders")
    drive(first, until=lambda: len(first.delivered) == 20)
    rule = broker.faults.on("OffsetCommit", error(ErrorCode.STALE_MEMBER_EPOCH), group="g", times=ALWAYS)
    began_s = time.monotonic()
    first.raw.close(timeout_s=1.0)
    assert time.monotonic() - began_s < SOON_S
    assert rule.hits
    broker.faults.clear()

    second = make_consumer().subscribe("orders")
    drive(second, until=lambda: len(second.delivered) == 20)
    assert set(second.delivered) == keys_of("orders", 5)
