"""Names that others chose, in what people read: commands, log lines, JSON."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.cli import main
from kip848_client.common.json_text import to_json
from kip848_client.common.logs import LogEvent, log_event
from kip848_client.common.plain_text import counted, printable
from kip848_client.journal import JournalEvent, read_journal
from kip848_client.tools.groups.watch_screen import draw
from kip848_client.tools.groups.watch_view import GroupView
from kip848_client.tools.records.spelling import for_terminal
from kip848_client.tools.report import build_timelines
from kip848_client.tools.report.pictures.png import draw_timeline
from tests.recorder.test_command import member, settle

EVIL = "c\x1b]0;x\x07\x1b[2J\x9b\u202e\nfake-line"
"""Sets a terminal's title, clears it, writes backwards, and begins a line of its own."""
SHOWN = r"c\x1b]0;x\x07\x1b[2J\x9b\u202e\nfake-line"


def test_what_a_terminal_would_obey_is_spelled_out() -> None:
    """A record must not clear the screen or move the cursor of the reader; other text is unchanged."""
    assert printable(EVIL) == SHOWN
    assert printable("Bestellungen für 東京") == "Bestellungen für 東京"
    assert for_terminal(b'{\n\t"id": "\x1b[2J\xff"\n}') == b'{\n\t"id": "\\x1b[2J\\xff"\n}'


def test_json_holds_the_same_text_without_those_characters() -> None:
    """jq and Python read what was there; a terminal sees none of it."""
    text = to_json({EVIL: "\U000e0001"})
    assert text.isprintable()
    assert json.loads(text) == {EVIL: "\U000e0001"}


def test_a_log_event_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A client id could write the line before the one of the intruder."""
    with caplog.at_level(logging.INFO, "kip848_client"):
        log_event(logging.INFO, LogEvent.NOT_CLOSED, group_id=EVIL, client_id=[EVIL])
    (record,) = caplog.records
    assert record.getMessage() == f"consumer.not_closed group_id={SHOWN} client_id={SHOWN}"
    assert record.__dict__["group_id"] == EVIL, "a JSON formatter gets it as it is"


def test_no_command_lets_an_id_control_the_terminal(
    kip848_broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anybody who may join a group chooses what an operator's screen shows."""
    kip848_broker.topics.create("orders", partitions=1)
    log = tmp_path / "groups.jsonl"
    with member(kip848_broker, EVIL, group=EVIL, group_instance_id=EVIL) as one:
        settle(kip848_broker, one, group=EVIL)
        at = ("--bootstrap", kip848_broker.bootstrap_servers)
        for action in ("list", "describe", "members", "lag"):
            named = () if action == "list" else (EVIL,)
            assert main(["groups", action, *named, *at]) == 0
            assert main(["groups", action, *named, *at, "--json"]) == 0
        assert main(["groups", "watch", EVIL, *at, "--for", "0.1"]) == 0
        assert main(["groups", "delete", EVIL, *at]) == 1
        assert main(["groups", "record", *at, "--no-follow", "--out", str(log)]) == 0
        assert main(["report", str(log)]) == 0
        shown = capsys.readouterr()
        lines = (shown.out + shown.err).split("\n")
        assert [line for line in lines if not line.isprintable() or line.startswith("fake-line")] == []
        assert shown.out.count(SHOWN) > 8

        rich = pytest.importorskip("rich.console")
        view, stream = GroupView(EVIL), io.StringIO()
        for event in read_journal(log):
            view.take(event)
        rich.Console(file=stream, width=200).print(draw(view, now_ms=0))
        assert all(line.isprintable() for line in stream.getvalue().split("\n"))
        assert SHOWN in stream.getvalue()


def test_any_name_can_be_drawn(tmp_path: Path) -> None:
    """matplotlib takes ``$...$`` for a formula, and a picture of such a group failed."""
    pytest.importorskip("matplotlib")
    timelines = build_timelines(
        JournalEvent(
            ts_ms=number,
            source="coordinator",
            event="member_joined",
            group_id=rf"{EVIL} $\frac$",
            member_id=str(number),
            client_id=rf"{EVIL} $\frac$ {number}",
            fields={"topics": ["orders"], "instance_id": None},
        )
        for number in (1, 2)
    )
    draw_timeline(timelines[0], tmp_path / "group.png")


def test_one_is_not_many() -> None:
    """A user reads "1 record" and "2,000 records", and never "1 records"."""
    assert [counted(0, "record"), counted(1, "record"), counted(2_000, "record")] == [
        "0 records",
        "1 record",
        "2,000 records",
    ]
