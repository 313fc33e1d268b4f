"""``kip848 report`` on files that are no event logs: a sentence and status 1, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kip848_client.cli import main
from kip848_client.journal import EVENTS, JournalEvent, JsonValue

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELD_NAMES = (
    *(
        "partitions",
        "assigned",
        "pending_revocation",
        "reason",
        "error",
        "duration_ms",
        "due_ms",
        "sent_ms",
        "callback",
    ),
    *("new", "state", "action", "offsets", "topics"),
)
GOOD = JournalEvent(ts_ms=1, source="client", event="partitions_assigned", group_id="g", member_id="m").to_json()


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n\x00\xff",
        b"\x89PNG\r\n\x1a\n\x00\xff\n\xfe\n",
        b"[" * 100_000 + b"]" * 100_000 + b"\n",
        GOOD.replace('"fields":{}', '"fields":{"partitions":' + "[" * 900 + "]" * 900 + "}").encode() + b"\n",
        GOOD.replace('"ts_ms":1', '"ts_ms":1' + "0" * 400).encode() + b"\n",
        b"\0" * 10_000,
        b"",
    ],
)
def test_a_file_that_is_no_event_log_is_named_in_one_line(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong file among the arguments is a mistake that everybody makes."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(content)

    assert main(["report", str(path)]) == 1

    said = capsys.readouterr().err
    assert said.startswith("kip848 report: ")
    assert said.count("\n") == 1
    assert str(path) in said


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(sorted(EVENTS)),
            st.integers(),
            st.none() | st.text(max_size=5),
            st.none() | st.integers(),
            st.dictionaries(st.sampled_from(FIELD_NAMES), JSON, max_size=4),
        ),
        max_size=5,
    )
)
def test_a_report_ends_in_order_with_any_event(
    events: list[tuple[str, int, str | None, int | None, dict[str, object]]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Logs of other versions and hand-made ones have unknown fields."""
    path = tmp_path / "events.jsonl"
    with path.open("w") as file:
        for event, ts_ms, member_id, epoch, fields in events:
            line = json.loads(GOOD) | {"event": event, "ts_ms": ts_ms, "member_id": member_id, "fields": fields}
            file.write(json.dumps(line | {"member_epoch": epoch, "group_epoch": epoch}) + "\n")

    for arguments in ((), ("--json",), ("--html", str(tmp_path / "page.html"))):
        assert main(["report", str(path), *arguments]) in (0, 1)
    capsys.readouterr()


def test_a_log_whose_times_run_backwards_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its groups looked empty, and outages of 92 s were told as 3.6 s, without a word."""
    path = tmp_path / "log.jsonl"
    for late_ms in (500, 45_200):
        offsets: dict[str, JsonValue] = {"offsets": {"t-0": 5}}
        events = [
            JournalEvent(ts_ms=ts_ms, source="coordinator", event=event, group_id="g", member_id="m", fields=fields)
            for ts_ms, event, fields in (
                (late_ms, "member_joined", {}),
                (0, "offsets_committed", offsets),
            )
        ]
        path.write_text("".join(event.to_json() + "\n" for event in events), encoding="utf-8")
        assert main(["report", str(path)]) == 0
        printed = capsys.readouterr().out
        assert ("run backwards, by up to 45.2 s" in printed) == (late_ms == 45_200)
