"""The page and the sentences of many groups."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kip848_client.cli import main
from kip848_client.tools.report.figures import percentiles
from kip848_client.tools.report.pictures.summary import Bar, Summary, Table, render_summary, sentences
from kip848_client.tools.report.wording import duration

SUMMARY = Summary(
    title="Groups of <b>today</b>",
    totals={"groups": 1_200, "malformed lines": 3, "partitions read by two": 0},
    shares={"stayed in a rebalance": 0.9, "nothing to tell": None},
    spreads={"rebalances": percentiles([20.0, 1_500.0]), "heartbeats late by": percentiles([])},
    charts={"How long": [Bar("0 to 1 ms", 3), Bar("1 ms to 2 ms", 6)], "Nothing": []},
    tables=[
        Table("Slowest", ("group", "took"), [("<script>alert(1)</script>", "1.50 s")]),
        Table("None such", ("group",), []),
    ],
    alarming=frozenset({"malformed lines", "partitions read by two"}),
)


def test_the_page_loads_nothing_and_a_name_cannot_become_markup() -> None:
    """Any client chooses group ids; the page is mailed around."""
    page = render_summary(SUMMARY)
    assert "<b>today" not in page
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert not re.search(r"(src|href)\s*=", page)


def test_bars_are_as_long_as_their_counts() -> None:
    """A reader compares counts by the length of bars, so twice the count is twice the length."""
    short, long = (float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', render_summary(SUMMARY)))
    assert long == pytest.approx(2 * short, rel=0.01)


def test_bad_news_is_marked_and_repeated() -> None:
    """No member reads the tenth number of a line."""
    assert '<div class="figure bad"><b>3</b>malformed lines' in render_summary(SUMMARY)
    assert list(sentences(SUMMARY)) == [
        "Groups of <b>today</b>",
        "  1,200 groups, 3 malformed lines, 0 partitions read by two",
        "  rebalances             2: median 20 ms, 90 % 1.50 s, 99 % 1.50 s, longest 1.50 s",
        "  heartbeats late by     0",
        "  stayed in a rebalance  90.0%",
        "  nothing to tell        —",
        "  MALFORMED LINES: 3",
    ]


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        *((0, "0 ms"), (999, "999 ms"), (1_000, "1.00 s"), (119_000, "119.00 s"), (330_400, "5 min 30 s")),
        *((599_800, "10 min"), (750_000, "12.5 min"), (7_200_000, "2.0 h")),
    ],
)
def test_durations_are_written_as_people_say_them(ms: float, told: str) -> None:
    """A rebalance of 7200000 ms is read wrong by a factor of ten."""
    assert duration(ms) == told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--out", "tables"], "--out, --master and --conf go with --spark"),
        (["--master", "local[2]"], "--out, --master and --conf go with --spark"),
        (["--conf", "spark.driver.memory=4g"], "--out, --master and --conf go with --spark"),
        (["--spark", "--conf", "driver.memory=4g"], "begins with spark"),
        (["--spark", "--conf", "spark.driver.memory"], "expected NAME=VALUE"),
        (["--spark", "--period", "last week"], "expected FROM..TO such as"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_anything_is_read(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong combination fails at once, and not after Spark has started and read the log."""
    assert main(["report", str(tmp_path / "log.jsonl"), *arguments]) != 0
    assert says in capsys.readouterr().err
