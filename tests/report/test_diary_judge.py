"""The judge of ``make diary``, which decides whether a report agrees with what was done on a real cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.soak.diary.groups import DiaryEntry
from tests.soak.diary.judge import Gap, Verdict, judge_group

DIARY: Final = [
    DiaryEntry("g", "kill", 10_000, ["a"], 20_000, departures=1),
    DiaryEntry("g", "add", 40_000, ["b"], 42_000, joins=1),
]
GAPS: Final = [Gap("t-0", 9_900, 16_000, "a", "c"), Gap("t-1", 9_950, 16_200, "a", "c")]
TRUE: Final[Mapping[str, Any]] = {
    "kind": "stand-still",
    "group_id": "g",
    "start_ms": 9_800,
    "ms": 6_450,
    "rests": "at most",
    "why": "died",
    "who": ["a (127.0.0.1)"],
    "text": "",
    "which": ["t-1", "t-0"],
}


def _wrong(*findings: Mapping[str, Any]) -> list[str]:
    verdict = Verdict()
    judge_group(verdict, DIARY, GAPS, findings)
    return [each.partition(":")[0] for each in verdict.wrong]


def test_a_report_that_tells_what_was_done_agrees() -> None:
    """Otherwise the diary would be of no use: each run would have to be read by hand."""
    assert _wrong(TRUE) == []


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"ms": 6_200}, "not within the bound, the truth is 6250 ms"),
        ({"ms": 9_000}, "not within the bound, the truth is 6250 ms"),
        ({"rests": "exact"}, "too long, the truth is 6250 ms"),
        ({"why": "left"}, "the cause was kill of a"),
        ({"who": ["b (127.0.0.1)"]}, "it was a"),
        ({"kind": "no reader"}, "invented, it was kill of a"),
    ],
)
def test_a_finding_with_a_fault_is_refused(fault: Mapping[str, Any], told: str) -> None:
    """A judge that overlooks a bound that is too low, or another cause, lets such a report pass."""
    assert told in _wrong({**TRUE, **fault})


@pytest.mark.parametrize(
    ("invented", "told"),
    [
        ({"start_ms": 30_000}, "invented, nothing was done then"),
        ({"start_ms": 40_000, "ms": 1_600, "why": "member joined"}, "not within the bound, the truth is 0 ms"),
        ({"kind": "died", "start_ms": 40_000}, "invented, it was add of b"),
        ({"kind": "flapping"}, "invented, it did not go so often"),
        ({"kind": "many rebalances"}, "invented, so much was not done"),
    ],
)
def test_a_finding_that_is_invented_is_refused(invented: Mapping[str, Any], told: str) -> None:
    """Beside true ones it is one line among eighty."""
    assert told in _wrong(TRUE, {**TRUE, **invented})


@pytest.mark.parametrize("which", [["t-0"], []])
def test_a_partition_that_is_left_out_is_missed(which: list[str]) -> None:
    """A finding about one partition says nothing about another."""
    assert "not found" in _wrong({**TRUE, "which": which})


def test_a_member_that_was_removed_and_came_back_is_missed() -> None:
    """That it has its partitions again is no reason to overlook the minute without a reader."""
    verdict = Verdict()
    late = DiaryEntry("g", "late", 10_000, ["a"], 33_000, departures=1, joins=1)
    judge_group(verdict, [late], [Gap("t-0", 10_000, 28_000, "a", "a")], [])
    assert [each.partition(":")[0] for each in verdict.wrong] == ["not found"]
