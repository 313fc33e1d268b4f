"""The demo's verdict: exact, or it says what is wrong."""

from __future__ import annotations

from collections import Counter

from demo.ledger import CountedRun, Disappearance, Duplicate, Ledger, OffsetRange

TEN = Counter({"UA": 6, "B6": 4})
CARRIERS = ["UA", "B6", "UA", "B6", "UA", "B6", "UA", "B6", "UA", "UA"]


def run_of(first_offset: int, last_offset: int) -> CountedRun:
    return CountedRun(0, first_offset, CARRIERS[first_offset : last_offset + 1])


def test_each_record_once_is_exact() -> None:
    """The plain case: no process crashed, and nothing was lost or repeated."""
    ledger = Ledger()
    ledger.count("a", [run_of(0, 5)])
    ledger.count("b", [run_of(6, 9)])
    verdict = ledger.verdict(expected=TEN, produced={0: 10}, committed={0: 10})
    assert verdict.ok
    assert verdict.distinct == verdict.counted == TEN
    assert (ledger.counted, ledger.counted_by("a"), ledger.next_offset(0)) == (10, 6, 10)


def test_records_after_the_last_commit_of_a_crashed_worker_may_come_again() -> None:
    """At-least-once: calling this an error would make every crash look like a bug."""
    ledger = Ledger()
    ledger.count("a", [run_of(0, 5)])
    ledger.disappeared(Disappearance("a", {0: 3}, "was killed"))
    ledger.count("b", [run_of(3, 9)])
    verdict = ledger.verdict(expected=TEN, produced={0: 10}, committed={0: 10})
    assert verdict.ok
    assert verdict.repeated == 3
    assert verdict.counted.total() == 13
    assert verdict.distinct == TEN
    assert verdict.duplicates == (
        Duplicate(OffsetRange(0, 3, 5), first_by="a", again_by="b", reason="a was killed before it committed them"),
    )


def test_records_that_were_committed_must_not_come_again() -> None:
    """A repetition below the committed offset is a lost commit, crash or not."""
    ledger = Ledger()
    ledger.count("a", [run_of(0, 5)])
    ledger.disappeared(Disappearance("a", {0: 4}, "was killed"))
    ledger.count("b", [run_of(3, 9)])
    verdict = ledger.verdict(expected=TEN, produced={0: 10}, committed={0: 10})
    assert not verdict.ok
    assert [duplicate.where for duplicate in verdict.unexplained] == [OffsetRange(0, 3, 3)]
    assert verdict.differences() == [
        "partition 0: offsets 3..3 were counted by a and again by b, and nothing explains it"
    ]


def test_a_repetition_without_a_crash_is_an_error() -> None:
    """A worker that left in order committed what it had counted: its records must not come again, nor its own twice."""
    ledger = Ledger()
    ledger.count("a", [run_of(0, 5), run_of(5, 5)])
    ledger.count("b", [run_of(5, 9)])
    verdict = ledger.verdict(expected=TEN, produced={0: 10}, committed={0: 10})
    assert [(duplicate.first_by, duplicate.again_by) for duplicate in verdict.unexplained] == [("a", "a"), ("a", "b")]
    assert verdict.distinct == TEN
    assert not verdict.ok


def test_records_that_were_not_counted_are_named() -> None:
    """A hole must not hide behind a repetition that makes the totals fit."""
    ledger = Ledger()
    ledger.count("a", [run_of(0, 2), run_of(6, 9)])
    verdict = ledger.verdict(expected=TEN, produced={0: 10, 1: 1}, committed={0: 10, 1: 1})
    assert verdict.missing == (OffsetRange(0, 3, 5), OffsetRange(1, 0, 0))
    assert verdict.differences() == [
        "partition 0: offsets 3..5 were not counted",
        "partition 1: offsets 0..0 were not counted",
        "carrier B6: counted 2, the data set has 4",
        "carrier UA: counted 5, the data set has 6",
    ]


def test_a_group_that_did_not_commit_everything_is_an_error() -> None:
    """The next run of the group would count those records again."""
    ledger = Ledger()
    ledger.count("a", [run_of(0, 9)])
    verdict = ledger.verdict(expected=TEN, produced={0: 10}, committed={0: 7})
    assert verdict.differences() == ["partition 0: the group's committed offset is 7, which is not the end"]
