"""``kip848 report --spark --bootstrap``: a cluster's groups from its records, run after run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from kip848_client import EmbeddedBroker
from kip848_client.cli import main
from kip848_client.errors import Kip848Error
from kip848_client.journal import parse_line, read_journal
from kip848_client.spark.analytics.analytics import analyze_lines
from kip848_client.spark.analytics.group_records import GroupHistory, replay_records
from kip848_client.tools.groups.offsets_reader import topic_names
from kip848_client.tools.report import build_timelines, figures_of
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_assignment,
    encode_subscription,
)
from kip848_client.wire.messages.consumer_protocol import TopicPartition as AssignedTopic
from kip848_client.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    RecordKey,
    RecordValue,
    encode_record_key,
    encode_record_value,
)
from tests.recorder.test_command import member, record, settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_runs_add_up_to_what_one_recording_has(spark: SparkSession, tmp_path: Path) -> None:
    """A run takes up where the last one ended, in the middle of a group's life: nothing is missing or counted twice."""
    out = tmp_path / "groups"
    with EmbeddedBroker(topics={"orders": 6}) as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers}
        history = GroupHistory(spark, out.as_uri(), client, topic_names=topic_names(client))
        with member(broker, "one") as one:
            settle(broker, one)
            one.commit(offsets=[TopicPartition("orders", number, 1) for number in range(6)], asynchronous=False)
            first = history.update()
            with member(broker, "two") as two:
                settle(broker, one, two)
                one.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
                second = history.update()
        third = history.update()
        alone = tmp_path / "alone.jsonl"
        record(broker, alone)
        nothing_new = history.update()
    (timeline,) = build_timelines(read_journal(alone))
    figures = figures_of(timeline)
    analysis = history.analysis()

    assert (first.run, second.run, third.run) == (1, 2, 3)
    assert (nothing_new.records, nothing_new.events) == (0, 0)
    assert (first.commits, second.commits, third.commits) == (1, 1, 0)
    (group,) = analysis.groups.collect()
    assert (group["members"], group["partitions"], group["moves"]) == (2, 6, figures.moves)
    assert group["accepted"] == 2
    assert {row["accepted"] for row in analysis.members.collect()} == {None}, "by member it is not known, and not 0"
    assert [tuple(row) for row in analysis.rebalances.select("start_ms", "end_ms", "first_epoch").collect()] == [
        (each.start_ms, each.end_ms, each.first_epoch) for each in figures.rebalances
    ]
    assert sum(row["moved"] for row in analysis.rebalances.collect()) == figures.moves
    commits = history.commits().selectExpr("sum(commits)", "sum(offsets)").first()
    assert commits is not None
    assert tuple(commits) == (2, 7)

    with pytest.raises(Kip848Error, match="holds groups all"):
        GroupHistory(spark, out.as_uri(), client, groups=["orders-*"]).update()


def test_the_command_reads_a_cluster_and_writes_tables_and_a_page(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is what a platform team looks at once a week."""
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # the session is that of all tests
    out, page = tmp_path / "groups", tmp_path / "groups.html"
    with EmbeddedBroker(topics={"orders": 2}) as broker:
        with member(broker, "one") as one:
            settle(broker, one)
            one.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
            command = ["report", "--spark", "--bootstrap", broker.bootstrap_servers, "--out", str(out), "--json"]
            assert main([*command, "--html", str(page), "--group", "bill*"]) == 0
    told = capsys.readouterr()
    totals = json.loads(told.out)["totals"]
    assert (totals["groups"], totals["commits accepted"]) == (1, 1)
    assert "run 1:" in told.err
    assert {"rebalances", "commits", "revocations", "progress.json"} <= {path.name for path in out.iterdir()}
    html = page.read_text(encoding="utf-8")
    for title in ("Causes of rebalances", "Groups that commit most", "Period by period", "Groups that never rest"):
        assert title in html


def test_the_commits_beside_a_departure_are_kept(spark: SparkSession) -> None:
    """A killed member's partitions counted as read until its session ended, since commits were only counted."""
    written: list[tuple[int, int, int, bytes, bytes]] = []

    def write(ts_ms: int, key: RecordKey, value: RecordValue) -> None:
        written.append((0, len(written), ts_ms, encode_record_key(key), encode_record_value(value)))

    def generation(number: int, ts_ms: int, member_id: str) -> None:
        assigned = encode_assignment(ConsumerProtocolAssignment((AssignedTopic("orders", (0,)),)))
        wanted = encode_subscription(ConsumerProtocolSubscription(("orders",)))
        member = MemberMetadata(member_id, client_id=member_id, subscription=wanted, assignment=assigned)
        value = GroupMetadataValue(protocol_type="consumer", generation=number, protocol="range", members=(member,))
        write(ts_ms, GroupMetadataKey("billing"), value)

    generation(1, 0, "a")
    for ts_ms in (100, 200, 300):
        write(ts_ms, OffsetCommitKey("billing", "orders", 0), OffsetCommitValue(ts_ms))
    generation(2, 9_000, "b")
    for ts_ms in (9_100, 9_200):
        write(ts_ms, OffsetCommitKey("billing", "orders", 0), OffsetCommitValue(ts_ms))

    schema = "partition int, offset long, ts_ms long, key binary, value binary, leader_epoch int"
    records = spark.createDataFrame([(*row, None) for row in written], schema)
    rows = replay_records(records).where("kind = 'event'").orderBy("seq").collect()
    events = [parse_line(row["text"]) for row in rows]
    (timeline,) = build_timelines(events)
    figures = figures_of(timeline)
    lines = [(row["text"], "all", 0) for row in rows]
    (found,) = analyze_lines(spark.createDataFrame(lines, "value string, file string, block long")).findings.collect()
    assert (found["kind"], found["ms"], found["rests"]) == ("stand-still", 8_900, "at most")
    assert (found["why"], found["who"]) == ("died", ["a"])
    assert [e.ts_ms for e in events if e.event == "offsets_committed"] == [100, 200, 300, 9_100, 9_200]
    assert (figures.without_reader.max_ms, figures.bounds, figures.commits.accepted) == (8_900, {"at most": 1}, 0)
