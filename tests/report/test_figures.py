"""What a rebalance cost, as numbers."""

from __future__ import annotations

import pytest

from kip848_client.journal import JournalEvent
from kip848_client.tools.report import Figures, build_timelines, figures_of
from kip848_client.tools.report.figures import percentiles
from tests.report.logs import assigned, bumped, counted, group_became, revoked, said


def _figures(*events: JournalEvent) -> Figures:
    (timeline,) = build_timelines(events)
    return figures_of(timeline)


def test_a_rebalance_lasts_from_the_first_bump_until_the_group_is_stable() -> None:
    """Bumps on the way belong to it: a user waits for the end, not for an epoch."""
    figures = _figures(
        bumped(100, 1), group_became(100, "Reconciling"), bumped(150, 2, "member_left"), group_became(400, "Stable")
    )
    (rebalance,) = figures.rebalances
    assert (rebalance.start_ms, rebalance.end_ms, rebalance.first_epoch, rebalance.last_epoch) == (100, 400, 1, 2)
    assert list(rebalance.reasons) == ["member_joined", "member_left"]
    assert figures.rebalance.max_ms == 300


def test_a_rebalance_of_one_decision_ends_with_it() -> None:
    """A group of one member whose topic grows is Stable before and after; its rebalance would last until the next."""
    figures = _figures(bumped(100, 1), group_became(100, "Stable"), bumped(200, 2), group_became(200, "Stable"))
    assert [(each.start_ms, each.end_ms) for each in figures.rebalances] == [(100, 100), (200, 200)]


def test_a_rebalance_that_the_log_does_not_see_the_end_of_has_no_duration() -> None:
    """A number made up for it would be the best one of all when the log is cut early."""
    figures = _figures(bumped(100, 1), group_became(100, "Reconciling"), said(900, "commit_done", "a"))
    assert [rebalance.end_ms for rebalance in figures.rebalances] == [None]
    assert figures.rebalance.count == 0


def test_time_without_a_reader_is_counted_between_two_owners_only() -> None:
    """Time before the first owner does not count; after the last one the log ends."""
    figures = _figures(
        assigned(100, "a", "t-0"), revoked(200, "a", "t-0"), assigned(260, "b", "t-0"), said(999, "commit_done", "b")
    )
    assert figures.without_reader_by_partition_ms == {"t-0": 60.0}
    assert (figures.moves, figures.bounces) == (1, 0)


def test_a_partition_that_returns_to_its_owner_was_taken_away_for_nothing() -> None:
    """Stickiness is what a cooperative protocol is for."""
    figures = _figures(assigned(1, "a", "t-0"), revoked(5, "a", "t-0"), assigned(9, "a", "t-0"))
    assert (figures.moves, figures.bounces) == (0, 1)


def test_a_partition_with_two_readers_is_named() -> None:
    """It is the one thing that must not happen inside a group."""
    figures = _figures(assigned(1, "a", "t-0", "t-1"), assigned(5, "b", "t-0"), revoked(9, "a", "t-0", "t-1"))
    assert list(figures.two_readers) == ["t-0"]


def test_without_clients_logs_owning_is_what_the_coordinator_counts() -> None:
    """A broker's log alone is enough for the numbers."""
    figures = _figures(counted(10, "a", 0), counted(40, "a"), counted(70, "b", 0))
    assert figures.without_reader.max_ms == 30
    assert figures.moves == 1


def test_what_stayed_are_the_ownerships_that_outlast_a_rebalance() -> None:
    """Two of three partitions kept their owner when a second member came: 67 %."""
    figures = _figures(
        *(assigned(10, "a", "t-0", "t-1", "t-2"), bumped(10, 1), group_became(10, "Stable")),
        *(bumped(100, 2), group_became(100, "Reconciling"), revoked(120, "a", "t-2"), assigned(130, "b", "t-2")),
        *(group_became(140, "Stable"), revoked(500, "a", "t-0"), said(900, "commit_done", "a")),
    )
    assert figures.stayed == 1 - 1 / 3


@pytest.mark.parametrize("given_ms", [100, 101])
def test_what_a_rebalance_gives_at_once_was_not_there_before_it(given_ms: int) -> None:
    """A new partition would count as one that stayed if the coordinator gave it in the millisecond of the bump."""
    figures = _figures(
        *(assigned(5, "a", "t-0"), bumped(10, 1), group_became(11, "Stable")),
        *(bumped(100, 2), assigned(given_ms, "b", "t-1"), revoked(110, "a", "t-0"), group_became(140, "Stable")),
        said(900, "commit_done", "a"),
    )
    assert figures.stayed == 1 / 2


def test_heartbeats_are_late_by_what_the_coordinator_waited() -> None:
    """Early ones are not late, and no call waits for a join."""
    figures = _figures(
        said(5, "heartbeat_sent", "a", due_ms=None, sent_ms=5),
        said(900, "heartbeat_sent", "a", due_ms=1_005, sent_ms=900),
        said(2_900, "heartbeat_sent", "a", due_ms=1_900, sent_ms=2_900),
        said(2_950, "heartbeat_sent", "b", due_ms=None, sent_ms=2_950),
    )
    assert figures.heartbeats == 4
    assert (figures.late.count, figures.late.p50_ms, figures.late.max_ms) == (2, 0.0, 1_000.0)
    assert [(member.member, member.heartbeats, member.late.max_ms) for member in figures.by_member] == [
        ("a-client", 3, 1_000.0),
        ("b-client", 1, None),
    ]


def test_commits_are_counted_by_how_they_ended_and_who_says_so() -> None:
    """A client's failure and the coordinator's refusal may be one commit: adding them up would count it twice."""
    figures = _figures(
        said(1, "commit_done", "a"),
        said(2, "commit_failed", "a", error="stale"),
        said(2, "commit_refused", "a", source="coordinator", error="STALE_MEMBER_EPOCH"),
        said(3, "offsets_committed", source="coordinator"),
    )
    commits = figures.commits
    assert (commits.done, commits.failed, commits.accepted, commits.refused) == (1, 1, 1, 1)
    assert commits.errors == {"STALE_MEMBER_EPOCH": 1, "stale": 1}
    assert figures.marks == {"failure": 1, "refusal": 1}
    (member,) = figures.by_member
    assert (member.commits.failed, member.commits.accepted) == (1, 0)


def test_members_are_told_apart_by_what_they_gained_and_gave() -> None:
    """A member that always gives and takes is the one that flaps."""
    figures = _figures(
        *(assigned(0, "a", "t-0", "t-1"), revoked(10, "a", "t-0", "t-1"), assigned(20, "b", "t-0")),
        *(assigned(20, "a", "t-1"), said(100, "commit_done", "a")),
    )
    found = {member.member: member for member in figures.by_member}
    a, b = found["a-client"], found["b-client"]
    assert (a.gained, a.given, a.returned, a.owned_ms) == (0, 1, 1, 100.0)
    assert (b.gained, b.given, b.returned, b.owned_ms) == (1, 0, 0, 80.0)


def test_percentiles_are_durations_that_were_seen() -> None:
    """An interpolated 99th percentile of three rebalances is a duration that was never measured."""
    found = percentiles([30.0, 10.0, 20.0])
    assert (found.count, found.p50_ms, found.p90_ms, found.p99_ms, found.max_ms) == (3, 20.0, 30.0, 30.0, 30.0)
    assert percentiles([]).max_ms is None


def test_the_commits_around_a_removal_bound_the_time_that_its_partitions_were_unread() -> None:
    """The coordinator counts a killed member as the owner until its session ends: 1.9 s were told in place of 11.9.

    What the last commit added was read after the commit before it. Of a single commit it is not known when.
    """
    figures = _figures(
        counted(0, "a", 0, 1),
        said(1_000, "offsets_committed", "a", source="coordinator", offsets={"t-0": 4, "t-1": 6}),
        said(1_100, "offsets_committed", "a", source="coordinator", offsets={"t-0": 5}),
        said(11_000, "member_left", "a", source="coordinator", reason="removed"),
        counted(12_500, "b", 0, 1),
        said(12_900, "offsets_committed", "b", source="coordinator", offsets={"t-0": 6, "t-1": 7}),
    )
    assert figures.without_reader_by_partition_ms == {"t-0": 11_900.0, "t-1": 1_500.0}
    assert figures.bounds == {"at most": 1, "at least": 1}


def test_a_classic_group_stops_before_its_generation_is_written() -> None:
    """Its log has no join phase, and said that nothing was unread in a rebalance of 24 ms."""
    figures = _figures(
        counted(0, "a", 0),
        *(said(at, "offsets_committed", "a", source="coordinator", offsets={"t-0": at}) for at in (900, 1_000)),
        said(9_900, "classic_generation_began", source="coordinator", group_epoch=2),
        said(9_900, "member_left", "a", source="coordinator", reason="removed"),
        counted(9_924, "b", 0),
        group_became(9_924, "Stable"),
        said(10_100, "offsets_committed", "b", source="coordinator", offsets={"t-0": 9_900}),
    )
    assert (figures.without_reader.max_ms, figures.bounds) == (9_200, {"at most": 1})
    assert [(each.ms, each.at_least) for each in figures.rebalances] == [(24, True)]


def test_a_group_without_members_is_empty_and_not_unread() -> None:
    """A group that was stopped on purpose for 13 minutes, and had nothing to read, led the list of stand-stills."""
    figures = _figures(
        *(counted(0, "a", 0), group_became(0, "Stable")),
        *(said(at, "offsets_committed", "a", source="coordinator", offsets={"t-0": at}) for at in (900, 950)),
        said(1_000, "member_left", "a", source="coordinator", reason="removed"),
        *(group_became(1_000, "Empty"), group_became(781_000, "Reconciling"), counted(781_050, "b", 0)),
        *(said(at, "offsets_committed", "b", source="coordinator", offsets={"t-0": 950}) for at in (781_200, 791_200)),
        said(801_200, "offsets_committed", "b", source="coordinator", offsets={"t-0": 960}),
    )
    assert (figures.without_reader.max_ms, figures.empty_ms) == (50, 780_000)


def test_a_group_that_had_no_members_while_records_waited_left_them_unread() -> None:
    """The largest outage there is was told as time in which nothing was to be read."""
    figures = _figures(
        *(counted(0, "a", 0, 1), group_became(0, "Stable")),
        *(
            said(at, "offsets_committed", "a", source="coordinator", offsets={"t-0": at, "t-1": 7})
            for at in range(0, 5_001, 1_000)
        ),
        *(said(5_000, "member_left", "a", source="coordinator", reason="leave"), group_became(5_000, "Empty")),
        *(group_became(45_000, "Reconciling"), counted(45_000, "b", 0, 1), group_became(45_000, "Stable")),
        said(46_000, "offsets_committed", "b", source="coordinator", offsets={"t-0": 46_000, "t-1": 7}),
    )
    assert figures.without_reader_by_partition_ms == {"t-0": 42_000, "t-1": 0}
    assert figures.empty_ms == 0


def test_members_stand_in_the_order_in_which_they_joined() -> None:
    """Rows by random ids say nothing; the address says which machine it was."""
    figures = _figures(
        said(1, "member_joined", "z", source="coordinator", client_host="/10.0.0.1"),
        said(2, "member_joined", "a", source="coordinator", client_host="/10.0.0.2"),
    )
    assert [(each.member, each.host) for each in figures.by_member] == [
        ("z-client", "10.0.0.1"),
        ("a-client", "10.0.0.2"),
    ]
