"""``groups watch`` and ``groups record`` while members commit all the time: the records never pause."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from kip848_client import EmbeddedBroker
from kip848_client.cli import main
from kip848_client.journal import read_journal
from kip848_client.tools.groups import watch as groups_watch
from kip848_client.tools.groups.offsets_reader import OffsetsReader
from kip848_client.tools.recorder import RawRecord, Recorder
from kip848_client.wire.messages.group_records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_record_key,
    encode_record_value,
)
from tests.recorder.test_command import member, settle
from tests.support.waiting import wait_until


@pytest.fixture
def busy_broker(kip848_broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    """Its group ``billing`` has one member, which commits without a pause."""
    kip848_broker.topics.create("orders", partitions=2)
    stop, done = threading.Event(), list[int]()

    def commit() -> None:
        while not stop.is_set():
            one.commit(offsets=[TopicPartition("orders", 0, len(done))], asynchronous=False)
            done.append(0)

    with contextlib.closing(member(kip848_broker, "one")) as one:
        settle(kip848_broker, one)
        thread = threading.Thread(target=commit)
        thread.start()
        try:
            wait_until(lambda: done)
            yield kip848_broker
        finally:
            stop.set()
            thread.join()


def test_a_log_ends_where_the_topic_ended_at_the_start(busy_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """It waited for half a second without a commit, which a busy cluster never has."""
    command = ["groups", "record", "--no-follow", "--bootstrap", busy_broker.bootstrap_servers]
    for since in ("beginning", "now"):
        out = tmp_path / f"{since}.jsonl"
        assert main([*command, "--out", str(out), "--from", since]) == 0
        assert "member_joined" in [event.event for event in read_journal(out)]


def test_what_happens_while_the_history_is_read_is_later_than_the_groups_as_they_were(
    kip848_broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 45 s to read, groups had members from then on that had left before: outages of 92 s were told as 3.6 s."""
    kip848_broker.topics.create("orders", partitions=2)
    one = member(kip848_broker, "one")
    settle(kip848_broker, one)
    read_to_end, read = OffsetsReader.read_to_end, OffsetsReader.read

    def slowly(reader: OffsetsReader, *, patience_s: float) -> Iterator[RawRecord | int]:
        yield from read_to_end(reader, patience_s=patience_s)
        one.close()
        left_ms = time.time_ns() // 1_000_000
        wait_until(lambda: time.time_ns() // 1_000_000 > left_ms)

    def read_once(reader: OffsetsReader, *, wait_s: float) -> Iterator[RawRecord | int]:

        def has_come() -> bool:
            seen.extend(read(reader, wait_s=wait_s))
            return bool(seen)

        wait_until(has_come)
        yield from [each for each in seen if not isinstance(each, int)] + [0]
        raise KeyboardInterrupt

    seen: list[RawRecord | int] = []
    monkeypatch.setattr(OffsetsReader, "read_to_end", slowly)
    monkeypatch.setattr(OffsetsReader, "read", read_once)
    out = tmp_path / "now.jsonl"
    assert (
        main(["groups", "record", "--bootstrap", kip848_broker.bootstrap_servers, "--from", "now", "--out", str(out)])
        == 0
    )
    events = list(read_journal(out))
    assert "member_left" in [event.event for event in events]
    assert [event.ts_ms for event in events] == sorted(event.ts_ms for event in events)


@pytest.mark.parametrize("long_history", [False, True])
def test_a_busy_group_is_shown_at_once(
    busy_broker: EmbeddedBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    long_history: bool,
) -> None:
    """The screen stayed empty, without a word; and if there is much to read, a description is shown meanwhile."""
    if long_history:
        monkeypatch.setattr(groups_watch, "_LONG_HISTORY", 0)
    watch = ["groups", "watch", "billing", "--bootstrap", busy_broker.bootstrap_servers, "--for", "0.1"]
    assert main([*watch, "--json"]) == 0
    told = capsys.readouterr()
    shown = [json.loads(line) for line in told.out.splitlines()]
    assert [[each["owned"] for each in one["members"]] for one in shown] == [[["orders-0", "orders-1"]]] * len(shown)
    assert (len(shown) > 1) == ("reading the group's history" in told.err) == long_history
    assert main(watch) == 0
    assert capsys.readouterr().out.count("one has orders 0-1 since") == 1 + long_history


def test_a_decision_ends_with_the_next_record_of_any_group() -> None:
    """A rebalance of a watched group was shown minutes later if others committed, and it did not."""
    recorder = Recorder(wants=lambda group_id: group_id == "billing")

    def add(group_id: str, ts_ms: int) -> list[str | None]:
        key = encode_record_key(OffsetCommitKey(group_id, "orders", 0))
        record = RawRecord(0, ts_ms, key, encode_record_value(OffsetCommitValue(5)))
        return [event.group_id for event in recorder.add(record)]

    assert add("billing", 1) == []
    assert add("ledger", 1) == ["billing"]
    assert add("ledger", 2) == []


def test_another_leader_epoch_of_its_records_tells_that_the_coordinator_of_a_group_moved() -> None:
    """A stand-still after a broker's restart was blamed on the members."""
    recorder = Recorder()
    member_of = encode_record_value(ConsumerGroupMemberMetadataValue(client_id="one"))
    member_key = encode_record_key(ConsumerGroupMemberMetadataKey("billing", "m"))
    commit_key = encode_record_key(OffsetCommitKey("billing", "orders", 0))
    commit = encode_record_value(OffsetCommitValue(5))

    def told(ts_ms: int, key: bytes, value: bytes, leader_epoch: int) -> list[str]:
        return [event.event for event in recorder.add(RawRecord(0, ts_ms, key, value, leader_epoch))]

    told(1, member_key, member_of, 3)
    assert "coordinator_moved" not in told(2, commit_key, commit, 3)
    assert told(3, commit_key, commit, 4)[-1] == "coordinator_moved"
    assert "coordinator_moved" not in told(4, commit_key, commit, 4)
