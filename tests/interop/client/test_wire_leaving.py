"""Leaving, closing and what is in the way of it, seen from the coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kip848_client import KafkaError
from kip848_client.error_codes import ErrorCode
from kip848_client.errors import IllegalStateError
from tests.interop.client.conftest import Watch
from tests.interop.client.scripted import FIND, HOLD, ScriptedCoordinator
from tests.interop.client.watched import Watched
from tests.support.waiting import SOON_S, outlast, wait_until

pytestmark = pytest.mark.interop


def seconds(call: Callable[[], object]) -> float:
    began_s = time.monotonic()
    call()
    return time.monotonic() - began_s


def test_unsubscribe_without_a_coordinator_returns(scripted: ScriptedCoordinator, member: Watched) -> None:
    scripted.always(FIND, HOLD)
    scripted.disconnect()
    wait_until(lambda: any(not one.answered for one in scripted.of(FIND)))
    assert seconds(member.consumer.unsubscribe) < SOON_S
    assert member.told[-1] == "revoked orders-0"
    assert "leave -1" not in scripted.story


def test_close_with_asynchronous_commits_and_no_coordinator(scripted: ScriptedCoordinator, member: Watched) -> None:
    from kip848_client import TopicPartition

    scripted.always(FIND, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    scripted.disconnect()
    told: list[object] = []
    wait_until(lambda: len(scripted.of(FIND)) >= 2)
    for offset in range(3):
        member.consumer.commit(
            offsets=[TopicPartition("orders", 0, offset)], on_commit=lambda error, _: told.append(error)
        )
    assert seconds(lambda: member.consumer.close(timeout_s=60)) < SOON_S
    assert len(told) == 3
    assert all(isinstance(error, KafkaError) for error in told)


def test_a_slow_revoked_callback_at_close_keeps_its_place_in_the_group(
    scripted: ScriptedCoordinator, member: Watched
) -> None:
    """Heartbeats with the epoch go on while it runs, and the leave follows, though the time of close() is over."""
    began = len(scripted.story)

    def slow(_: Any) -> None:
        outlast(0.4)
        wait_until(lambda: scripted.story[began:].count("heartbeat 1") >= 5)

    member.hooks["revoked"] = slow
    member.consumer.close(timeout_s=0.2)
    wait_until(lambda: scripted.story[-1] == "leave -1")


def test_the_longest_interval_there_is_can_still_be_left(scripted: ScriptedCoordinator, watch: Watch) -> None:
    """2**31 - 1 ms are 24 days: a timer that overflows would fire at once, or never again."""
    scripted.start_with({"orders": [0]})
    scripted.interval_ms = 2**31 - 1
    member = watch().subscribe().drive_to("report 1 orders-0").drive_for(0.2)
    member.consumer.close(timeout_s=2)
    assert scripted.story == ["join", "assigned orders-0", "report 1 orders-0", "revoked orders-0", "leave -1"]


def test_a_closed_consumer_says_that_it_is(member: Watched) -> None:
    """A call after close() that did nothing would look like an empty topic."""
    member.consumer.close()
    for call in (member.consumer.poll, lambda: member.consumer.subscribe(["x"]), member.consumer.commit):
        with pytest.raises(IllegalStateError):
            call()
