"""Periods of a log side by side: what counts for which, and the command that shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kip848_client.cli import main
from kip848_client.errors import ConfigError
from kip848_client.tools.report import build_timelines
from kip848_client.tools.report.periods import Period, compare_periods, equal_parts, parse_period
from kip848_client.tools.report.wording import clock
from tests.report.logs import bumped, counted, group_became

DAY_MS = 86_400_000
MONDAY_MS = 1_793_577_600_000
"""2026-11-02."""

LOG = [
    *(bumped(MONDAY_MS, 1), counted(MONDAY_MS, "a", 0, 1), group_became(MONDAY_MS, "Stable")),
    *(bumped(MONDAY_MS + 1_000, 2), group_became(MONDAY_MS + 1_000, "Reconciling")),
    *(counted(MONDAY_MS + 2_000, "a", 0), counted(MONDAY_MS + 5_000, "b", 1)),
    group_became(MONDAY_MS + 5_000, "Stable"),
    *(bumped(MONDAY_MS + DAY_MS, 3, "member_left (b)"), group_became(MONDAY_MS + DAY_MS, "Reconciling")),
    *(counted(MONDAY_MS + DAY_MS, "b"), counted(MONDAY_MS + DAY_MS + 500, "a", 0, 1)),
    group_became(MONDAY_MS + DAY_MS + 500, "Stable"),
]


def test_what_began_in_a_period_counts_for_it() -> None:
    """ "Was it better after the change?" is asked of two weeks, and each rebalance is to be in one of them."""
    comparison = compare_periods(
        build_timelines(LOG),
        [Period(MONDAY_MS, MONDAY_MS + DAY_MS), Period(MONDAY_MS + DAY_MS, MONDAY_MS + 2 * DAY_MS)],
    )
    first, second = comparison.periods
    assert (first.rebalances, first.rebalance.max_ms, first.moves, first.without_reader_ms) == (2, 4_000, 1, 3_000)
    assert (second.rebalances, second.rebalance.max_ms, second.moves, second.without_reader_ms) == (1, 500, 1, 500)
    assert (first.causes, second.causes) == ({"member joined": 2}, {"member left": 1})
    (group,) = comparison.groups
    assert (group.group_id, group.rebalances, group.without_reader_ms) == ("orders", [2, 1], [3_000, 500])


def test_equal_parts_have_the_whole_log() -> None:
    """Its last moment belongs to the last part."""
    parts = equal_parts(100, 200, 4)
    assert [part.start_ms for part in parts] == [100, 125, 150, 175]
    assert [sum(part.has(at) for part in parts) for at in (100, 125, 174, 200)] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("text", "start_ms", "end_ms"),
    [
        ("2026-11-02..2026-11-03", MONDAY_MS, MONDAY_MS + DAY_MS),
        ("2026-11-02T08:00+01:00..2026-11-02T08:00", MONDAY_MS + 25_200_000, MONDAY_MS + 28_800_000),
        ("0..60000", 0, 60_000),
    ],
)
def test_a_period_is_written_as_two_moments(text: str, start_ms: float, end_ms: float) -> None:
    """Dates of a log, or milliseconds of a simulated one."""
    assert parse_period(text) == Period(start_ms, end_ms)


@pytest.mark.parametrize("text", ["last week", "2026-11-02", "2026-11-03..2026-11-02", ".."])
def test_what_is_no_period_is_refused_with_an_example(text: str) -> None:
    """A wrong ``--period`` is answered by one sentence that shows how to write it."""
    with pytest.raises(ConfigError, match=r"--period .*(FROM\.\.TO such as 2026|ends before it begins)"):
        parse_period(text)


def test_moments_are_written_as_short_as_they_are() -> None:
    """A period of whole days reads "2026-11-02", without the hours of midnight."""
    assert [clock(ms) for ms in (MONDAY_MS, MONDAY_MS + 60_000, MONDAY_MS + 1_000, 1_500, 3e14)] == [
        "2026-11-02",
        "2026-11-02 00:01",
        "2026-11-02 00:00:01",
        "1.500 s",
        "300000000000.000 s",  # a log of nonsense must not end the report
    ]


def test_the_command_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table, as JSON, as a page and as a picture."""
    log, page, picture = tmp_path / "log.jsonl", tmp_path / "page.html", tmp_path / "periods.png"
    log.write_text("".join(event.to_json() + "\n" for event in LOG), encoding="utf-8")
    command = ["report", str(log), "--period", "2026-11-02..2026-11-03", "--period", "2026-11-03..2026-11-04"]
    assert main([*command, "--html", str(page), "--png", str(picture)]) == 0
    told = capsys.readouterr().out
    assert "2026-11-02 to 2026-11-03  2026-11-03 to 2026-11-04  change" in told
    (moved,) = (line.split() for line in told.splitlines() if line.startswith("without a reader, sum"))
    assert moved[-5:] == ["3.00", "s", "500", "ms", "-83%"]
    assert "causes, 2026-11-03 to 2026-11-04: member left 1" in told
    assert "Groups that changed most" in page.read_text(encoding="utf-8")
    assert picture.read_bytes().startswith(b"\x89PNG")

    assert main([*command, "--json"]) == 0
    periods = json.loads(capsys.readouterr().out)["periods"]
    assert [each["without_reader_ms"] for each in periods] == [3_000, 500]
