"""``kip848 retries`` against the embedded broker: what has failed, and handing it in again once."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.cli import main
from kip848_client.member.processing.tiers import FailureHeaders, read_failed
from kip848_client.testing import NewRecord

HOUR_MS = 3_600_000


def run(broker: EmbeddedBroker, *arguments: str) -> int:
    return main(["retries", *arguments, "--bootstrap", broker.bootstrap_servers])


def _failed(number: int, **changes: Any) -> NewRecord:
    given: dict[str, Any] = {
        "topic": "orders",
        "partition": 1,
        "offset": number,
        "timestamp_ms": 5,
        "error": "OSError: down" if number % 2 else "ValueError: bad",
        "attempts": 4,
        "failed_ms": 1_000_000 + number,
        "group": "g",
    }
    failed = FailureHeaders(**{**given, **changes})
    return NewRecord(str(number), key=str(number), headers=[("trace", b"7"), *failed.headers()])


@pytest.fixture
def letters(kip848_broker: EmbeddedBroker) -> EmbeddedBroker:
    """Ten dead letters of orders, without retry topics."""
    kip848_broker.topics.create("orders", 2)
    kip848_broker.topics.create("dead", 2)
    kip848_broker.produce_many("dead", [_failed(number) for number in range(10)])
    return kip848_broker


def _waiting(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str], *names: str) -> dict[tuple[str, str], int]:
    capsys.readouterr()
    assert run(broker, "list", *names, "--json") == 0
    found = json.loads(capsys.readouterr().out)["waiting"]
    return {(one["topic"], one["error"]): one["records"] for one in found}


def test_dead_letters_are_counted_by_error(letters: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Which error is worth mending is the first question."""
    assert _waiting(letters, capsys, "dead") == {("dead", "OSError"): 5, ("dead", "ValueError"): 5}
    assert run(letters, "list", "dead") == 0
    header, first, _ = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["TOPIC", "GROUP", "RECORDS"]
    assert first.split()[:5] == ["dead", "g", "5", "1970-01-01", "00:16:40Z"]
    assert first.endswith("OSError: down")
    assert run(letters, "list", "nothing") == 1
    assert "neither a topic 'nothing' nor a retry topic 'nothing-1'" in capsys.readouterr().err


def test_a_replay_may_be_repeated(letters: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """After a lost connection one repeats the command, and the customer was charged twice."""
    assert run(letters, "replay", "dead", "--error", "OSError", "--dry-run") == 0
    for expected in (5, 5, 5):
        assert run(letters, "replay", "dead", "--error", "OSError") == 0
        orders = letters.records("orders")
        assert len(orders) == expected
    assert {record.partition for record in orders} == {1}, "where they came from"
    assert Counter(record.value for record in orders) == Counter(b"%d" % number for number in range(1, 10, 2))
    assert [record.headers for record in orders] == [(("trace", b"7"),)] * 5
    assert _waiting(letters, capsys, "dead") == {("dead", "ValueError"): 5}


def test_letters_are_dropped_and_moved(letters: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """What nobody needs hides what somebody does."""
    letters.topics.create("parked")
    assert run(letters, "drop", "dead", "--before", "1970-01-01T00:16:40.002+00:00") == 0
    assert _waiting(letters, capsys, "dead") == {("dead", "OSError"): 4, ("dead", "ValueError"): 4}
    assert run(letters, "move", "dead", "--to", "parked", "--limit", "3") == 0
    assert sum(_waiting(letters, capsys, "dead").values()) == 5
    assert sum(_waiting(letters, capsys, "parked").values()) == 3
    assert run(letters, "move", "dead", "--to", "dead") == 1
    assert run(letters, "drop", "dead") == 0
    assert _waiting(letters, capsys, "dead") == {}


def test_a_letter_of_a_group_with_retry_topics_goes_there(
    kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """In its first topic all other groups would handle it once more."""
    for topic in ("orders", "dead", "r-1"):
        kip848_broker.topics.create(topic)
    kip848_broker.produce_many("dead", [_failed(1, retries="r")])
    assert run(kip848_broker, "replay", "dead") == 0
    (record,) = kip848_broker.records("r-1")
    failed = read_failed(record.headers)
    assert failed is not None
    assert (failed.group, failed.attempts, failed.offset) == ("g", 0, 1)
    assert failed.due_ms is not None
    assert _waiting(kip848_broker, capsys, "r") == {("r-1", "OSError"): 1}


def test_what_waits_in_tiers_is_taken_while_the_group_has_no_members(
    kip848_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """A member would handle what was taken away from under it."""
    for topic in ("orders", "r-1", "r-2"):
        kip848_broker.topics.create(topic)
    due_ms = 2**41 + HOUR_MS
    kip848_broker.produce_many("r-2", [_failed(number, due_ms=due_ms, retries="r") for number in range(4)])
    kip848_broker.produce_many("r-2", [_failed(9, due_ms=due_ms, retries="r", group="h")])
    assert run(kip848_broker, "replay", "r") == 1
    assert "choose with --group" in capsys.readouterr().err
    assert run(kip848_broker, "replay", "r", "--group", "g", "--error", "OSError") == 0
    assert len(kip848_broker.records("r-1")) == 2
    assert kip848_broker.groups.committed("g")["r-2", 0] == 0, "the first one is left"
    assert run(kip848_broker, "drop", "r-2", "--group", "g") == 0
    assert kip848_broker.groups.committed("g")["r-2", 0] == 5
    assert ("r-2", "OSError") in _waiting(kip848_broker, capsys, "r"), "the one of the other group"
