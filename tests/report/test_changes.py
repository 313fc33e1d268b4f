"""What is measured where groups never rest, where logs are missing, and how members are told apart."""

from __future__ import annotations

import itertools

from kip848_client.journal import JournalEvent, JsonValue
from kip848_client.tools.report import Figures, build_timelines, figures_of
from kip848_client.tools.report.figures import Percentiles
from kip848_client.tools.report.pictures.png import epoch_labels, member_look
from kip848_client.tools.report.pictures.summary import Bar, Summary, render_summary
from tests.report.logs import assigned, bumped, counted, group_became, revoked, said


def figures(*events: JournalEvent) -> Figures:
    (timeline,) = build_timelines(events)
    return figures_of(timeline)


def stable(ts_ms: int, member: str, epoch: int, *indexes: int) -> JournalEvent:
    return said(
        ts_ms,
        "member_assignment_changed",
        member,
        source="coordinator",
        member_epoch=epoch,
        group_epoch=epoch,
        state="STABLE",
        assigned={"t": list(indexes)},
        pending_revocation={},
    )


def test_each_change_of_a_group_that_never_rests_is_measured_by_itself() -> None:
    """One rebalance of two hours says nothing: how long does it take until everybody has its part?"""
    found = figures(
        *(bumped(0, 1), stable(0, "a", 1, 0, 1), group_became(0, "Stable")),
        *(bumped(100, 2), group_became(100, "Reconciling"), stable(110, "a", 2, 0)),
        *(bumped(150, 3), stable(160, "a", 3, 0), stable(180, "b", 3, 1)),
        *(bumped(170, 4), stable(200, "b", 4, 1), stable(290, "a", 4, 0)),
        group_became(300, "Stable"),
    )
    assert len(found.rebalances) == 2
    assert found.rebalance.max_ms == 200
    assert found.change == Percentiles(4, 10.0, 120.0, 120.0, 120.0)


def test_a_member_that_leaves_is_waited_for_no_longer() -> None:
    """It would keep every change open that began while it was there."""
    left = said(40, "member_left", "a", source="coordinator", reason="session_timeout")
    found = figures(
        *(bumped(0, 1), stable(0, "a", 1, 0), stable(0, "b", 1, 1)),
        *(bumped(10, 2), stable(20, "b", 2, 1), left, bumped(40, 3), stable(90, "b", 3, 0, 1), said(99, "left_group")),
    )
    assert (found.change.count, found.change.max_ms) == (3, 50.0)


def test_a_member_without_a_log_owns_what_the_coordinator_says() -> None:
    """It would leave a gap in every partition that it reads, only because its log was not collected."""
    found = figures(
        *(counted(0, "a", 0), assigned(5, "a", "t-0"), revoked(50, "a", "t-0")),
        *(counted(51, "a"), counted(60, "b", 0), counted(100, "b"), counted(101, "a", 0), assigned(110, "a", "t-0")),
        said(200, "commit_done", "a"),
    )
    assert found.moves == 2
    assert found.without_reader.max_ms == 10


def test_clients_logs_alone_tell_epochs_and_say_what_they_do_not_know() -> None:
    """On a cluster without a coordinator's log the report said "rebalances 0", and gaps that were none."""

    def state(ts_ms: int, member: str, new: str, epoch: int) -> JournalEvent:
        return said(ts_ms, "state_changed", member, member_epoch=epoch, old="", new=new, trigger="")

    found = figures(
        *(state(0, "a", "STABLE", 1), assigned(0, "a", "t-0", "t-1")),
        *(state(100, "a", "RECONCILING", 2), revoked(110, "a", "t-0"), state(120, "a", "STABLE", 2)),
        *(state(500, "a", "RECONCILING", 3), assigned(520, "a", "t-0"), state(520, "a", "STABLE", 3)),
        said(600, "commit_done", "a"),
    )
    assert [(each.first_epoch, each.start_ms, each.end_ms) for each in found.rebalances] == [
        (1, 0.0, 0.0),
        (2, 100.0, 120.0),
        (3, 500.0, 520.0),
    ]
    assert found.without_reader.count == 0
    assert "no coordinator's log" in found.notes[0]
    assert "owned by members without logs, or free: 1 partition" in found.notes[1]


def test_a_classic_rebalance_begins_when_members_are_asked_to_join_again() -> None:
    """Classic groups have no epochs, and the report showed no rebalance of them."""
    found = figures(
        *(group_became(0, "PreparingRebalance"), _generation(40, 1), group_became(50, "Stable")),
        *(group_became(90, "CompletingRebalance"), _generation(90, 2), group_became(100, "Stable")),
    )
    assert [(each.start_ms, each.end_ms) for each in found.rebalances] == [(0.0, 50.0), (90.0, 100.0)]
    assert found.rebalances[0].reasons == ["classic_rebalance"]


def _generation(ts_ms: int, generation: int) -> JournalEvent:
    members: JsonValue = ["a"]
    return said(
        ts_ms,
        "classic_generation_began",
        source="coordinator",
        group_epoch=generation,
        protocol="range",
        leader="a",
        members=members,
    )


def test_classic_members_with_one_client_id_are_told_apart() -> None:
    """Their member ids begin with the client id: both would be one line of the picture."""
    ids = ("app-1-aaaaaaaa-bbbb", "app-1-cccccccc-dddd")
    events = [
        JournalEvent(
            ts_ms=at_ms, source="client", event="commit_done", group_id="g", member_id=member_id, client_id="app-1"
        )
        for at_ms, member_id in enumerate(ids)
    ]
    (timeline,) = build_timelines(events)
    assert [lane.member for lane in timeline.members] == ["app-1 aaaaaaaa", "app-1 cccccccc"]


def test_a_picture_has_a_look_for_each_member_and_no_label_upon_another() -> None:
    """Two members of one colour are read as one, and epochs that lie upon each other not at all."""
    assert len({member_look(index) for index in range(64)}) == 64
    (timeline,) = build_timelines([*(bumped(ms, ms) for ms in range(1, 100)), said(10_000, "commit_done", "a")])
    labels = epoch_labels(timeline)
    assert labels[0] == (0.0, "1")
    assert len(labels) < 5
    assert all(later - earlier >= 0.1 for (earlier, _), (later, _) in itertools.pairwise(labels))


def test_labels_of_bars_are_not_cut_off() -> None:
    """A reader must see the whole label; a long date was cut to "26-11-21 12:00:00"."""
    label = "2026-11-21 12:00:00 and later"
    page = render_summary(
        Summary(title="t", totals={}, shares={}, spreads={}, charts={"c": [Bar(label, 3), Bar("1 s", 1)]}, tables=[])
    )
    x = float(page.split('<text x="')[1].split('"')[0])
    assert x >= len(label) * 6
