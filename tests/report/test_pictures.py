"""The page and the picture, and the command that writes them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kip848_client.cli import main
from kip848_client.journal import JournalEvent
from kip848_client.tools.report import build_timelines
from kip848_client.tools.report.pictures import png
from kip848_client.tools.report.pictures.html import render_html
from kip848_client.tools.report.pictures.png import draw_timeline
from tests.report.logs import assigned, bumped, counted, group_became, revoked, said

LOG = (
    bumped(0, 1),
    group_became(0, "Reconciling"),
    counted(5, "a", 0, 1),
    assigned(10, "a", "t-0", "t-1", took_ms=2),
    said(12, "state_changed", "a", old="RECONCILING", new="STABLE", trigger="acknowledged", member_epoch=1),
    revoked(60, "a", "t-1", took_ms=5),
    assigned(80, "b", "t-1"),
    group_became(90, "Stable"),
    said(95, "member_fenced", "b", source="coordinator", error="FENCED_MEMBER_EPOCH", sent_epoch=3),
)


def _data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found.group(1))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log as a file."""
    path = tmp_path / "log.jsonl"
    path.write_text("".join(event.to_json() + "\n" for event in LOG), encoding="utf-8")
    return path


def test_the_page_holds_all_lanes_and_loads_nothing() -> None:
    """It is mailed around and opened on machines without a network."""
    page = render_html(build_timelines(LOG))
    (group,) = _data_of(page)
    assert [lane["partition"] for lane in group["partitions"]] == ["t-0", "t-1"]
    assert group["partitions"][1]["read"] == [[10.0, 55.0, "a-client"], [80.0, 95.0, "b-client"]]
    assert group["figures"]["moves"] == 1
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)


def test_a_name_in_the_log_cannot_become_markup() -> None:
    """Any client chooses its client id, which must not run as a script in the report."""
    evil = "</script><script>alert(1)</script>"
    event = JournalEvent(ts_ms=1, source="client", event="commit_done", group_id=evil, member_id="m", client_id=evil)
    page = render_html(build_timelines([event]))
    assert "<script>alert" not in page
    assert _data_of(page)[0]["group_id"] == evil


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG\r\n"), ("svg", b"<?xml")])
def test_the_picture_is_written_as_its_file_name_says(tmp_path: Path, ending: str, begins: bytes) -> None:
    """The ending of the file name chooses the format of the picture."""
    path = tmp_path / f"timeline.{ending}"
    draw_timeline(build_timelines(LOG)[0], path)
    assert path.read_bytes().startswith(begins)
    assert path.stat().st_size > 5_000


def test_the_command_prints_the_numbers_and_writes_both_pictures(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One command leads from a log to numbers, page and picture."""
    html, png = tmp_path / "page.html", tmp_path / "page.png"
    assert main(["report", str(log), "--html", str(html), "--png", str(png)]) == 0
    printed = capsys.readouterr().out
    assert "group orders: 2 members, 2 partitions" in printed
    assert "1: median 90 ms" in printed
    assert html.exists()
    assert png.exists()


def test_the_command_prints_json_for_programs(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts follow rebalance times over releases by these JSON names."""
    assert main(["report", str(log), "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert group["rebalance"] == {"count": 1, "p50_ms": 90.0, "p90_ms": 90.0, "p99_ms": 90.0, "max_ms": 90.0}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--group", "nobody"], "no such group; it has orders"),
        (["--html", "/nowhere/at/all.html"], "cannot be written"),
        (["--png", "timeline.tulip"], "tulip"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    log: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong group name or file is answered by one line, and not by a traceback."""
    assert main(["report", str(log), *arguments]) == 1
    assert says in capsys.readouterr().err


def test_a_file_that_is_no_event_log_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Users often pass the broker's ordinary log; the error says which file is not an event log."""
    path = tmp_path / "server.log"
    path.write_text("INFO started\n", encoding="utf-8")
    assert main(["report", str(path)]) == 1
    assert "not a line of the event log: 'INFO started" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "missing.jsonl")]) == 1
    assert "missing.jsonl" in capsys.readouterr().err


def test_states_have_other_colours_than_members() -> None:
    """An orange bar was a member in one row, and a group that rebalances in another."""
    page = render_html(build_timelines(LOG))
    shades = re.findall(r"--(\w+): (#[0-9a-f]{6})", page)
    names = re.findall(r'shade\("(\w+)"\)', page.partition("MARK_COLOURS")[0])
    members = {value for name, value in shades if re.fullmatch(r"m\d", name)}
    assert len(members) >= 15, "eight for light, eight for dark; one is good for both"
    assert not {value for name, value in shades if name in names} & members
    assert not {*png._STATES.values()} & {*png._COLOURS}


def test_the_page_opens_on_the_worst_finding() -> None:
    """It opened on the first group of the log, which had no members."""
    page = render_html(build_timelines(LOG))
    assert 'const worst = FOUND.length ? linked(FOUND[0]).hash : "";' in page
    assert "new URLSearchParams((location.hash || worst).slice(1))" in page
