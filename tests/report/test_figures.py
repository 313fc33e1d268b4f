"""What a rebalance cost, as numbers."""

from __future__ import annotations

from kip848_client.journal import JournalEvent
from kip848_client.report import Figures, build_timelines, figures_of
from kip848_client.report.figures import percentiles
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


def test_a_rebalance_that_the_log_does_not_see_the_end_of_has_no_duration() -> None:
    """A number made up for it would be the best one of all when the log is cut early."""
    figures = _figures(bumped(100, 1), group_became(100, "Reconciling"), said(900, "commit_done", "a"))
    assert [rebalance.end_ms for rebalance in figures.rebalances] == [None]
    assert figures.rebalance.count == 0


def test_time_without_a_reader_is_counted_between_two_owners_only() -> None:
    """Before the first owner nobody was expected; after the last one the log ends."""
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


def test_percentiles_are_durations_that_were_seen() -> None:
    """An interpolated 99th percentile of three rebalances is a number nobody waited for."""
    found = percentiles([30.0, 10.0, 20.0])
    assert (found.count, found.p50_ms, found.p90_ms, found.p99_ms, found.max_ms) == (3, 20.0, 30.0, 30.0, 30.0)
    assert percentiles([]).max_ms is None
