"""A log that keeps few commits must tell of the same times as one that keeps them all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kip848_client.journal import JournalEvent
from kip848_client.tools.recorder.sampling import CommitSampler, SampledCommits
from kip848_client.tools.report import build_timelines
from kip848_client.tools.report.figures import handovers_of
from kip848_client.tools.report.findings import findings_of
from tests.report.logs import bumped, counted, group_became
from tests.report.test_findings import committed, joined, left


def a_death_after(commits: int) -> list[JournalEvent]:
    """``a`` commits so often, every second, and is removed ten seconds later; ``b`` takes over."""
    last_ms = 1_000 * commits
    gone_ms, over_ms = last_ms + 10_000, last_ms + 11_000
    return [
        *(joined(0, "a"), joined(0, "b", "/10.0.0.2"), counted(0, "a", 0, 1), counted(0, "b", 2)),
        group_became(0, "Stable"),
        *(committed(at, "a", 0, 1) for at in range(1_000, last_ms + 1, 1_000)),
        *(left(gone_ms, "a"), bumped(gone_ms, 2, "member_left"), group_became(gone_ms, "Reconciling")),
        *(counted(over_ms, "b", 0, 1, 2), group_became(over_ms, "Stable")),
        *(committed(at, "b", 0, 1, 2) for at in range(over_ms + 500, over_ms + 20_000, 1_000)),
    ]


def told(events: Sequence[JournalEvent]) -> object:
    (timeline,) = build_timelines(events)
    return handovers_of(timeline), findings_of(timeline)


@pytest.mark.parametrize("commits", [*range(1, 20), 31, 32, 33, 63, 64, 65, 128])
def test_few_commits_bound_a_gap_as_all_of_them_do(commits: int) -> None:
    """Also if the last commit of a member was kept for its number: then the one before it is needed as well."""
    sampler = CommitSampler()
    events = a_death_after(commits)
    kept = [each for event in events for each in sampler.take(event)]
    assert told([*kept, *sampler.untold("orders")]) == told(events)


def test_nothing_is_told_twice_but_the_last_one() -> None:
    """It says how the others were."""
    commits = SampledCommits(0, "first", 0)
    assert commits.untold() == [(0, "first")]
    assert [commits.add(number, f"number {number}", number) for number in range(1, 8)] == [
        *(True, False, True, False, False, False, True)
    ]
    assert commits.untold() == [(6, "number 6"), (7, "number 7")]
    commits.add(8, "at rest", 7)
    assert commits.untold() == [(6, "number 6"), (8, "at rest")]


def test_how_a_member_committed_is_known_though_others_joined_just_before_its_pause() -> None:
    """A partition that waited four seconds for its next owner was found in the whole log, and not on the page: of the
    times between commits the file only knew those after a member had joined, and these were two.
    """
    events = [
        *(joined(0, "a"), counted(0, "a", 0, 1), group_became(0, "Stable")),
        *(committed(at, "a", 0, 1) for at in range(100, 30_000, 100)),
        *(joined(30_000, "b"), group_became(30_000, "Reconciling")),
        *(committed(at, "a", 0, 1) for at in (30_100, 30_200)),
        counted(30_300, "a", 0, pending=(1,)),
        *(counted(34_400, "a", 0), counted(34_500, "b", 1), group_became(34_500, "Stable")),
        *(each for at in range(34_600, 50_000, 100) for each in (committed(at, "a", 0), committed(at, "b", 1))),
    ]
    sampler = CommitSampler()
    kept = [each for event in events for each in sampler.take(event)]
    (whole,), (sample,) = build_timelines(events), build_timelines([*kept, *sampler.untold("orders")])
    (found,) = [each for each in findings_of(whole) if each.kind == "stand-still"]
    assert (found.which, found.ms) == (["t-1"], 4_500)
    assert found in findings_of(sample)
