"""When heartbeats come and what is in them, seen from the coordinator: intervals, failures, repetitions.

How soon one comes, to the millisecond, is in `tests/spec/test_heartbeat_timing.py`, where the clock is the test's.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from kip848_client import MemberState
from kip848_client.error_codes import ErrorCode
from tests.interop.client.conftest import Watch
from tests.interop.client.scripted import CLOSE, FIND, HEARTBEAT, HOLD, ScriptedCoordinator
from tests.interop.client.watched import Watched
from tests.support.waiting import assert_stays, wait_until

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


def test_the_interval_runs_from_the_last_send(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.interval_ms = 200
    scripted.start_with({"orders": [0]})
    began_s = time.monotonic()
    member = watch().subscribe().drive_to("report 1 orders-0", "heartbeat 1", "heartbeat 1", "heartbeat 1")
    assert member.told == ["assigned orders-0"]
    times = [one.at_s - began_s for one in scripted.of(HEARTBEAT)][1:]
    assert all(at_s > number * 0.19 for number, at_s in enumerate(times)), times


def test_a_late_answer_does_not_delay_the_next_heartbeat(scripted: ScriptedCoordinator, member: Watched) -> None:
    """Answered after the interval: the next one is overdue, and each answer is followed by one heartbeat."""
    scripted.script(HEARTBEAT, HOLD)
    (held,) = after(scripted, member, 1)
    member.drive_for(0.1)
    seen = len(scripted.heartbeats)
    scripted.always(HEARTBEAT, HOLD)
    scripted.held(HEARTBEAT).answer(scripted.heartbeat(held))
    member.drive(lambda: len(scripted.heartbeats) > seen).drive_for(0.1)
    assert len(scripted.heartbeats) == seen + 1


def test_a_new_interval_begins_with_its_answer(scripted: ScriptedCoordinator, member: Watched) -> None:
    scripted.script(HEARTBEAT, lambda request: scripted.heartbeat(request, heartbeat_interval_ms=600_000))
    after(scripted, member, 1)
    seen = len(scripted.heartbeats)
    member.drive_for(0.3)  # seven of the intervals that were
    assert len(scripted.heartbeats) == seen


def test_an_unanswered_heartbeat_is_not_followed_by_another(scripted: ScriptedCoordinator, member: Watched) -> None:
    scripted.script(HEARTBEAT, HOLD)
    after(scripted, member, 1)
    seen = len(scripted.heartbeats)
    member.drive_for(0.3)  # seven intervals
    assert len(scripted.heartbeats) == seen


def test_an_acknowledgement_waits_for_no_interval(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.interval_ms = 600_000
    scripted.start_with({"orders": [0]})
    watch().subscribe().drive_to("report 1 orders-0")
    assert scripted.story.count("join") == 1


def test_an_acknowledgement_follows_the_answer_that_is_awaited(scripted: ScriptedCoordinator, member: Watched) -> None:
    """The callback is over while a heartbeat is under way: one at a time, and then at once."""
    inside: list[bool] = []

    def hold_the_next(_: object) -> None:
        scripted.script(HEARTBEAT, HOLD)
        seen = len(scripted.heartbeats)
        wait_until(lambda: len(scripted.heartbeats) > seen)
        inside.append(True)

    member.hooks["assigned"] = hold_the_next
    scripted.give({"orders": [0, 1]})
    member.drive_to("assigned orders-1").drive_for(0.2)
    assert inside == [True]
    assert "report 2 orders-0 orders-1" not in scripted.story
    held = scripted.held(HEARTBEAT)
    held.answer(scripted.heartbeat(held.request))
    member.drive_to("report 2 orders-0 orders-1")


def test_the_leave_goes_out_beside_a_heartbeat_under_way(scripted: ScriptedCoordinator, member: Watched) -> None:
    scripted.script(HEARTBEAT, HOLD)
    after(scripted, member, 1)
    member.consumer.close(timeout_s=60)
    seen = len(scripted.heartbeats)
    assert scripted.story[-2:] == ["revoked orders-0", "leave -1"]
    assert_stays(lambda: len(scripted.heartbeats) == seen, 0.15)


def test_backoff_doubles(scripted: ScriptedCoordinator, watch: Watch) -> None:
    """It begins with the answer, which leaves after the request was noted: a slow machine only adds to it."""
    scripted.start_with({"orders": [0]})
    scripted.interval_ms = 30
    scripted.script(HEARTBEAT, *[int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 3)
    watch(retry_backoff_ms=100, retry_backoff_max_ms=1_000).subscribe().drive(lambda: len(scripted.heartbeats) >= 4)
    times = [one.at_s for one in scripted.of(HEARTBEAT)[:4]]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    for gap, wanted in zip(gaps, (0.1, 0.2, 0.4), strict=True):
        assert gap > wanted * 0.79, gaps


def test_backoff_has_a_limit(scripted: ScriptedCoordinator, watch: Watch) -> None:
    """Without one, the last of these waits would be of two minutes."""
    scripted.script(HEARTBEAT, *[int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 15)
    watch(retry_backoff_ms=10, retry_backoff_max_ms=50).subscribe().drive(lambda: len(scripted.heartbeats) >= 16)


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


def test_not_coordinator_costs_no_backoff(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.start_with({"orders": [0]})
    member = watch(retry_backoff_ms=150_000, retry_backoff_max_ms=300_000).subscribe()
    member.drive_to("report 1 orders-0")
    lookups = len(scripted.of(FIND))
    scripted.script(HEARTBEAT, int(ErrorCode.NOT_COORDINATOR))
    first, second = after(scripted, member, 2)
    assert not is_full(first)
    assert is_full(second)
    assert len(scripted.of(FIND)) == lookups + 1


def test_a_quiet_member_says_only_who_it_is(scripted: ScriptedCoordinator, member: Watched) -> None:
    for request in after(scripted, member, 3):
        assert request.rebalance_timeout_ms == -1
        assert (request.rack_id, request.server_assignor) == (None, None)
        assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (None, None)
        assert request.topic_partitions is None


def test_an_error_makes_the_next_heartbeat_say_everything(scripted: ScriptedCoordinator, watch: Watch) -> None:
    scripted.start_with({"orders": [0]})
    member = watch(group_remote_assignor="uniform", client_rack="r").subscribe().drive_to("report 1 orders-0")
    scripted.script(HEARTBEAT, int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    _, again, quiet = after(scripted, member, 3)
    assert is_full(again)
    assert (again.server_assignor, again.rack_id, again.member_epoch) == ("uniform", "r", 1)
    assert scripted.names(again.topic_partitions) == "orders-0"
    assert quiet.topic_partitions is None


def test_a_full_heartbeat_of_a_member_without_partitions_has_an_empty_list(
    scripted: ScriptedCoordinator, watch: Watch
) -> None:
    member = watch().subscribe().drive_to("report 1 nothing")
    scripted.script(HEARTBEAT, int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    _, again = after(scripted, member, 2)
    assert again.topic_partitions == ()


def test_a_lost_acknowledgement_is_repeated(scripted: ScriptedCoordinator, member: Watched) -> None:
    scripted.give({"orders": [0, 1]})
    scripted.script_reports(CLOSE)
    member.drive_to("report 2 orders-0 orders-1", "report 2 orders-0 orders-1")
    assert member.told == ["assigned orders-0", "assigned orders-1"]


def test_a_fenced_member_reports_nothing_when_it_joins(scripted: ScriptedCoordinator, member: Watched) -> None:
    scripted.script(HEARTBEAT, int(ErrorCode.FENCED_MEMBER_EPOCH))
    member.drive_to("lost orders-0", "join")
    joins = [request for request in scripted.heartbeats if request.member_epoch == 0]
    assert joins[-1].topic_partitions == ()
    assert is_full(joins[-1])


def test_a_lost_epoch_is_no_reason_to_be_fenced(scripted: ScriptedCoordinator, member: Watched) -> None:
    """A coordinator takes the previous epoch only together with the partitions: so the repetition has them."""
    fenced: list[str] = []

    def strict(request: Any) -> Any:
        if request.member_epoch == scripted.epoch - 1 and request.topic_partitions is None:
            fenced.append("fenced")
            return int(ErrorCode.FENCED_MEMBER_EPOCH)
        return None

    def bump_and_lose(_: Any) -> Any:
        scripted.give({"orders": [0, 1]})
        return CLOSE

    scripted.always(HEARTBEAT, strict)
    scripted.script(HEARTBEAT, bump_and_lose)
    member.drive_to("assigned orders-1", "report 2 orders-0 orders-1")
    assert fenced == []
    assert member.told == ["assigned orders-0", "assigned orders-1"]


def test_a_then_b_then_a_is_acknowledged_twice(scripted: ScriptedCoordinator, member: Watched) -> None:
    """The application does not poll in between, so B is never reconciled; the coordinator still waits for a report."""
    seen = len(scripted.heartbeats)
    scripted.give({"orders": [0, 1]})
    wait_until(lambda: len(scripted.heartbeats) >= seen + 2)
    scripted.give({"orders": [0]})
    wait_until(lambda: "report 3 orders-0" in scripted.story)
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
