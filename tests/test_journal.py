"""The event log: lines read back equal, and a broken sink stops no consumer."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kip848_client import journal
from kip848_client.errors import ProtocolError
from kip848_client.journal import (
    JournalEvent,
    JsonLinesJournal,
    MemoryJournal,
    parse_line,
    read_journal,
    tee,
)
from tests.support.waiting import TIMEOUT_S

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


@pytest.mark.parametrize(
    "fields",
    [
        "[" * 50 + "]" * 50,
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        "1" + "0" * 400,
        "1e400",
        "NaN",
    ],
)
def test_a_line_that_no_writer_makes_is_a_protocol_error(fields: str) -> None:
    """A user who reads a file from elsewhere gets an error of this package, not a RecursionError or OverflowError."""
    with pytest.raises(ProtocolError):
        parse_line(EVENT.to_json().replace('["orders"]', fields))
    with pytest.raises(ProtocolError):
        parse_line(fields)


def test_a_file_that_is_no_event_log_is_named_with_the_line(tmp_path: Path) -> None:
    """A picture among the logs is found by its name."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(EVENT.to_json().encode() + b"\n\x89PNG\r\n\x1a\n\x00\xff\n")

    with pytest.raises(ProtocolError, match=f"{re.escape(str(path))}, line 2: not a line of the event log"):
        list(read_journal(path))


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk image given by mistake has no line ends."""
    monkeypatch.setattr(journal, "_LINE_BYTES_MAX", 1000)
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\0" * 5000)

    with pytest.raises(ProtocolError, match="line 1: not an event log: longer than 1,000 bytes"):
        list(read_journal(path))


def test_a_journal_is_opened_by_the_name_of_its_file(tmp_path: Path) -> None:
    """The example of the documents with a plain string is the first thing that people write."""
    name = str(tmp_path / "events.jsonl")
    written = JsonLinesJournal.open(name)
    written.write(EVENT)
    written.close()

    assert list(read_journal(name)) == [EVENT]


def test_a_line_of_another_version_says_which_one_is_read() -> None:
    """A log of a newer release is told apart from a damaged one."""
    with pytest.raises(ProtocolError, match=r"Invalid value 2 - at `\$\.v`; v=1 is read"):
        parse_line(EVENT.to_json().replace('"v":1', '"v":2'))


def test_a_name_that_is_not_utf_8_is_written_all_the_same() -> None:
    """The path in an error may hold any bytes; the log must neither fail nor hold a line that no reader takes."""
    event = JournalEvent(ts_ms=1, source="client", event="error_surfaced", fields={"error": "no file caf\udce9, ü"})
    assert parse_line(event.to_json()).fields == {"error": "no file caf?, ü"}


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    """Reading the log of a living process does not fail on its last, half line."""
    path = tmp_path / "events.jsonl"
    path.write_text(EVENT.to_json() + "\n" + EVENT.to_json()[:20])
    assert list(read_journal(path)) == [EVENT]


def test_a_broken_sink_is_given_up_without_an_exception(caplog: pytest.LogCaptureFixture) -> None:
    """A full disk or closed pipe must not stop a consumer, nor end its log in silence."""
    stream = io.StringIO()
    sink = JsonLinesJournal(stream)
    sink.write(EVENT)
    stream.close()
    sink.write(EVENT)
    sink.write(EVENT)
    assert isinstance(sink.failed, ValueError)
    assert [record.getMessage().split()[0] for record in caplog.records] == ["journal.given_up"]


def test_an_event_reaches_every_journal_of_a_tee() -> None:
    """The demo watches the events that also go to a file."""
    first, second = MemoryJournal(), MemoryJournal()
    tee([first, second]).write(EVENT)
    assert first.events == second.named("member_joined") == (EVENT,)


class Interrupted(io.StringIO):
    """A stream whose first write something else happens in the middle of."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self.action: Callable[[], None] | None = action
        self.text = ""

    def write(self, text: str) -> int:
        action, self.action = self.action, None
        if action is not None:
            action()
        return super().write(text)

    def close(self) -> None:
        if not self.closed:
            self.text = self.getvalue()
        super().close()


def test_a_thread_does_not_wait_for_another_that_writes() -> None:
    """A signal handler that interrupts a write closes a consumer, whose heartbeat thread writes events as it ends."""
    ended: list[bool] = []

    def write_in_another_thread() -> None:
        thread = threading.Thread(target=sink.write, args=(EVENT,), daemon=True)
        thread.start()
        thread.join(TIMEOUT_S)
        ended.append(not thread.is_alive())

    stream = Interrupted(write_in_another_thread)
    sink = JsonLinesJournal(stream)
    sink.write(EVENT)
    assert ended == [True]
    assert stream.getvalue() == (EVENT.to_json() + "\n") * 2


def test_a_signal_handler_may_close_the_journal_in_the_middle_of_a_write() -> None:
    """It would wait for the call that it interrupts, for ever."""

    def close() -> None:
        sink.close()

    stream = Interrupted(close)
    sink = JsonLinesJournal(stream)
    sink.write(EVENT)
    assert stream.closed
    assert stream.text == EVENT.to_json() + "\n"


def test_lines_of_many_threads_are_all_written_before_the_stream_is_closed(tmp_path: Path) -> None:
    """Each leaves its lines to the thread that is writing, which must not overlook the last one."""
    path = tmp_path / "events.jsonl"
    sink = JsonLinesJournal.open(path)

    def write() -> None:
        for _ in range(200):
            sink.write(EVENT)

    threads = [threading.Thread(target=write, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.close()
    assert list(read_journal(path)) == [EVENT] * 800
