"""What a member counts, for metrics and for people who look at a group."""

from __future__ import annotations

from kip848_client.member.events import Tick
from tests.support.member_harness import INTERVAL_MS, MemberHarness


def test_the_view_is_the_same_object_while_nothing_changes() -> None:
    """Consumers compare its version once per batch: a new one each time would filter every batch."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    view = member.member.view()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat()
    assert member.member.view() is view
    member.assign_more({"t": [0, 1]})
    assert member.member.view().version == view.version + 1


def test_a_heartbeat_is_due_an_interval_after_the_one_before() -> None:
    """How late a heartbeat is tells an operator how near its member came to be removed."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    statistics = member.member.statistics
    acknowledged_ms = statistics.last_heartbeat_ms
    assert acknowledged_ms is not None
    member.member.step(Tick(), now_ms=acknowledged_ms + INTERVAL_MS + 300)  # the process stood still
    assert (statistics.last_heartbeat_due_ms, statistics.last_heartbeat_ms) == (
        acknowledged_ms + INTERVAL_MS,
        acknowledged_ms + INTERVAL_MS + 300,
    )


def test_a_failed_heartbeat_does_not_move_what_the_next_one_is_due_at() -> None:
    """The coordinator heard nothing: for it the member has been silent since the last answered heartbeat."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.advance(INTERVAL_MS)
    sent_ms = member.member.statistics.last_heartbeat_ms
    assert sent_ms is not None
    member.fail_heartbeat()
    member.advance(3 * INTERVAL_MS)
    assert member.member.statistics.last_heartbeat_due_ms == sent_ms + INTERVAL_MS


def test_a_join_is_due_at_no_time() -> None:
    """A member outside the group has no heartbeat that could be late."""
    member = MemberHarness()
    member.subscribe("t")
    member.poll()
    assert member.member.statistics.heartbeats == 1
    assert member.member.statistics.last_heartbeat_due_ms is None
