"""Heartbeats and the connections that they travel on: late, lost and repeated answers, and what comes after them.

When a heartbeat is due, and what is in it, is proved by the rules in `tests/spec`, where the clock is the test's.
"""

from __future__ import annotations

from typing import Any

import pytest

from kip848_client import MemberState
from kip848_client.error_codes import ErrorCode
from tests.interop.client.conftest import Watch
from tests.interop.client.scripted import CLOSE, FIND, HEARTBEAT, HOLD, ScriptedCoordinator
from tests.interop.client.watched import Watched
from tests.support.waiting import assert_stays

pytestmark = pytest.mark.interop


def is_full(request: Any) -> bool:
    return (
        request.rebalance_timeout_ms != -1
        and request.subscribed_topic_names is not None
        and request.subscribed_topic_regex is not None
        and request.topic_partitions is not None
    )


def after(scripted: ScriptedCoordinator, member: Watched, count: int) -> list[Any]:
    """The next *count* heartbeats."""
    seen = len(scripted.heartbeats)
    member.drive(lambda: len(scripted.heartbeats) >= seen + count)
    return scripted.heartbeats[seen:]


def test_after_a_time_out_the_next_heartbeat_is_full_and_late_answers_count_nothing(
    scripted: ScriptedCoordinator, watch: Watch
) -> None:
    scripted.start_with({"orders": [0]})
    member = watch(request_timeout_ms=1_000).subscribe().drive_to("report 1 orders-0", "heartbeat 1")
    scripted.script(HEARTBEAT, HOLD)
    _, again = after(scripted, member, 2)
    assert is_full(again)
    assert scripted.names(again.topic_partitions) == "orders-0"
    late = scripted.held(HEARTBEAT)
    late.answer(int(ErrorCode.UNKNOWN_MEMBER_ID))
    member.drive_for(0.15)
    assert member.told == ["assigned orders-0"]
    assert member.consumer.state is MemberState.STABLE


@pytest.mark.parametrize("moment", ["heartbeat", "idle"])
def test_after_a_disconnect_the_coordinator_is_looked_up_and_told_everything(
    scripted: ScriptedCoordinator, member: Watched, moment: str
) -> None:
    lookups = len(scripted.of(FIND))
    seen = len(scripted.heartbeats)
    if moment == "idle":
        scripted.disconnect()
    else:
        scripted.script(HEARTBEAT, CLOSE)
    member.drive(lambda: len(scripted.of(FIND)) > lookups and len(scripted.heartbeats) > seen + 2)
    assert any(is_full(request) for request in scripted.heartbeats[seen:])
    assert len(scripted.of(FIND)) == lookups + 1
    assert member.told == ["assigned orders-0"]


def test_an_answer_that_comes_twice_counts_once(scripted: ScriptedCoordinator, member: Watched) -> None:
    """A duplicate is dropped; the connection, the member and its partitions are not."""
    lookups = len(scripted.of(FIND))
    scripted.script(HEARTBEAT, HOLD)
    (request,) = after(scripted, member, 1)
    held = scripted.held(HEARTBEAT)
    held.answer(scripted.heartbeat(request))
    held.answer(int(ErrorCode.UNKNOWN_MEMBER_ID))
    after(scripted, member, 3)
    assert member.told == ["assigned orders-0"]
    assert len(scripted.of(FIND)) == lookups


def test_a_member_that_is_done_uses_no_processor(scripted: ScriptedCoordinator, member: Watched) -> None:
    """FATAL, or never subscribed: nothing to send, so nothing to wake for."""
    scripted.script(HEARTBEAT, int(ErrorCode.INVALID_REQUEST))
    member.drive_to("raised InvalidGroupRequestError")
    woken = member.consumer._manager.wake_ups
    assert_stays(lambda: member.consumer._manager.wake_ups <= woken + 1, 0.3)
