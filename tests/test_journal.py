"""The event log: lines read back equal, and a broken sink harms nobody."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from kip848_client.errors import ProtocolError
from kip848_client.journal import (
    JournalEvent,
    JsonLinesJournal,
    MemoryJournal,
    parse_line,
    read_journal,
    tee,
)

EVENT = JournalEvent(
    ts_ms=1_700_000_000_000,
    source="coordinator",
    event="member_joined",
    group_id="orders",
    member_id="m1",
    member_epoch=1,
    group_epoch=1,
    fields={"topics": ["orders"]},
)


def test_a_line_reads_back_as_the_event_that_was_written() -> None:
    """Analytics and tests rely on getting what the client or broker recorded."""
    assert parse_line(EVENT.to_json()) == EVENT


def test_every_line_has_every_key() -> None:
    """Table readers (Spark, pandas) need one schema for all lines."""
    line = json.loads(JournalEvent(ts_ms=1, source="client", event="left_group").to_json())
    assert list(line) == [
        "v",
        "ts_ms",
        "source",
        "event",
        "group_id",
        "member_id",
        "client_id",
        "member_epoch",
        "group_epoch",
        "fields",
    ]


@pytest.mark.parametrize(
    "line",
    [
        *("", "{", "[]", '{"v":1}', '{"v":2}', EVENT.to_json().replace("member_joined", "x")),
        *(re.sub(rf'"{key}":[^,]*', f'"{key}":[]', EVENT.to_json()) for key in ("ts_ms", "group_id", "member_epoch")),
    ],
)
def test_a_foreign_line_is_a_protocol_error(line: str) -> None:
    """A wrong file is named as such, instead of a KeyError from inside."""
    with pytest.raises(ProtocolError):
        parse_line(line)


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    """Reading the log of a living process does not fail on its last, half line."""
    path = tmp_path / "events.jsonl"
    path.write_text(EVENT.to_json() + "\n" + EVENT.to_json()[:20])
    assert list(read_journal(path)) == [EVENT]


def test_a_broken_sink_is_given_up_without_an_exception() -> None:
    """A full disk or closed pipe must not stop a consumer."""
    stream = io.StringIO()
    journal = JsonLinesJournal(stream)
    journal.write(EVENT)
    stream.close()
    journal.write(EVENT)
    assert isinstance(journal.failed, ValueError)


def test_an_event_reaches_every_journal_of_a_tee() -> None:
    """The demo watches the events that also go to a file."""
    first, second = MemoryJournal(), MemoryJournal()
    tee([first, second]).write(EVENT)
    assert first.events == second.named("member_joined") == (EVENT,)
