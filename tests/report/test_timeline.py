"""Events become lanes: who held and who read a partition, and until when."""

from __future__ import annotations

from kip848_client.journal import JournalEvent
from kip848_client.tools.report import build_timelines
from kip848_client.tools.report.timeline.timeline import Span, Timeline
from tests.report.logs import assigned, counted, revoked, said


def _one(*events: JournalEvent) -> Timeline:
    (timeline,) = build_timelines(events)
    return timeline


def _read(timeline: Timeline, partition: str) -> list[Span]:
    return next(list(lane.read) for lane in timeline.partitions if lane.partition == partition)


def _held(timeline: Timeline, partition: str) -> list[Span]:
    return next(list(lane.held) for lane in timeline.partitions if lane.partition == partition)


def test_reading_lasts_from_the_return_of_assigned_to_the_beginning_of_revoked() -> None:
    """A slow listener would otherwise look like an overlap, or hide a gap."""
    timeline = _one(
        assigned(100, "a", "t-0", took_ms=40),
        revoked(300, "a", "t-0", took_ms=50),
        assigned(320, "b", "t-0"),
        said(400, "commit_done", "b"),
    )
    assert _read(timeline, "t-0") == [Span(100.0, 250.0, "a-client"), Span(320.0, 400.0, "b-client")]


def test_what_is_pending_revocation_is_still_held() -> None:
    """The coordinator gives a partition to no other member before it is acknowledged; the picture must say the same."""
    timeline = _one(counted(10, "a", 0, 1), counted(20, "a", 0, pending=(1,)), counted(30, "a", 0), counted(30, "b", 1))
    assert _held(timeline, "t-1") == [Span(10.0, 30.0, "a-client"), Span(30.0, 30.0, "b-client")]


def test_a_member_that_is_removed_and_silent_stops_reading_then() -> None:
    """kill -9 writes no last line: the removal is the only end that a log can know."""
    timeline = _one(
        assigned(10, "a", "t-0"),
        said(500, "member_left", "a", source="coordinator", reason="session_timeout"),
        said(900, "commit_done", "b"),
    )
    assert _read(timeline, "t-0") == [Span(10.0, 500.0, "a-client")]
    assert [mark.text for mark in timeline.marks] == ["leaves the group: session timeout"]


def test_a_member_that_is_removed_and_goes_on_is_shown_to_read_on() -> None:
    """A cut-off member reads until it hears of its removal: hiding this would hide the overlap."""
    timeline = _one(
        assigned(10, "a", "t-0"),
        said(500, "member_left", "a", source="coordinator", reason="session_timeout"),
        said(800, "partitions_lost", "a", partitions=["t-0"], duration_ms=0),
    )
    assert _read(timeline, "t-0") == [Span(10.0, 800.0, "a-client")]


def test_a_static_member_that_left_for_a_while_still_holds_its_partitions() -> None:
    """Epoch -2 keeps the assignment: no other member can have it."""
    timeline = _one(
        counted(10, "a", 0),
        said(50, "member_left", "a", source="coordinator", reason="static_leave"),
        said(90, "commit_done", "b"),
    )
    assert _held(timeline, "t-0") == [Span(10.0, 90.0, "a-client")]


def test_two_members_of_one_client_id_are_told_apart() -> None:
    """Many programs leave ``client.id`` at its default; their members need lanes of their own."""
    timeline = build_timelines(
        JournalEvent(ts_ms=at, source="client", event="commit_done", group_id="g", member_id=member, client_id="app")
        for at, member in ((1, "aaaaaaaa-1"), (2, "bbbbbbbb-2"))
    )[0]
    assert [lane.member for lane in timeline.members] == ["app aaaaaaaa", "app bbbbbbbb"]


def test_workers_are_named_by_their_ids_and_plain_units_by_their_names() -> None:
    """In the log of a broker all workers have the default client id, and their units the index -1."""
    timeline = _one(
        *(said(0, "member_joined", member, source="coordinator", worker_id=f"w-{member}") for member in "ab"),
        said(1, "member_assignment_changed", "a", source="coordinator", assigned={"feed": [-1], "h": [0]}),
    )
    assert [lane.member for lane in timeline.members] == ["w-a", "w-b"]
    assert [lane.partition for lane in timeline.partitions] == ["feed", "h-0"]


def test_groups_of_one_log_are_kept_apart_and_a_fault_is_shown_with_each() -> None:
    """A broker's log has all groups; a fault belongs to the broker."""
    other = JournalEvent(ts_ms=2, source="client", event="commit_done", group_id="g2", member_id="x", client_id="x")
    fault = JournalEvent(
        ts_ms=3, source="coordinator", event="fault_injected", fields={"api": "FETCH", "action": "drop"}
    )
    timelines = build_timelines([fault, other, assigned(1, "a", "t-0")])
    assert [timeline.group_id for timeline in timelines] == ["orders", "g2"]
    assert [[mark.text for mark in timeline.marks] for timeline in timelines] == [["drop FETCH"], ["drop FETCH"]]


def test_partitions_are_listed_in_the_order_of_their_numbers() -> None:
    """A reader expects orders-10 below orders-9, and not between orders-1 and orders-2."""
    timeline = _one(assigned(1, "a", "t-10", "t-9", "t-1"))
    assert [lane.partition for lane in timeline.partitions] == ["t-1", "t-9", "t-10"]


def test_an_empty_log_has_no_groups() -> None:
    """The command then says so; it does not draw an empty page."""
    assert build_timelines([]) == []
