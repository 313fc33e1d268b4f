"""Both ways to a report of a cluster, with Spark and without, have the same answers about the same records."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pytest

from kip848_client.spark.analytics.analytics import analyze_lines
from kip848_client.spark.analytics.group_records import replay_records
from kip848_client.tools.recorder import RawRecord, Recorder
from kip848_client.tools.report import build_timelines, figures_of
from kip848_client.tools.report.findings import findings_of, findings_of_all
from kip848_client.wire.messages import group_records as wire
from kip848_client.wire.messages import share_group_records as share
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_assignment,
    encode_subscription,
)
from kip848_client.wire.messages.consumer_protocol import TopicPartition as AssignedTopic
from kip848_client.wire.messages.group_records import RecordKey, RecordValue, encode_record_key, encode_record_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC = UUID(int=7)
LOG = "partition int, offset long, ts_ms long, key binary, value binary, leader_epoch int"


class Log:
    """Records of one partition of ``__consumer_offsets``."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, bytes, bytes | None, int]] = []
        self.leader_epoch = 3

    def write(self, ts_ms: int, key: RecordKey | bytes, value: RecordValue | bytes | None) -> None:
        key = key if isinstance(key, bytes) else encode_record_key(key)
        value = value if value is None or isinstance(value, bytes) else encode_record_value(value)
        self.rows.append((0, len(self.rows), ts_ms, key, value, self.leader_epoch))

    def joins(self, ts_ms: int, group: str, member: str) -> None:
        value = wire.ConsumerGroupMemberMetadataValue(client_id=member, client_host="/10.0.0.1")
        self.write(ts_ms, wire.ConsumerGroupMemberMetadataKey(group, member), value)

    def target(self, ts_ms: int, group: str, epoch: int, **parts: tuple[int, ...]) -> None:
        self.write(ts_ms, wire.ConsumerGroupMetadataKey(group), wire.ConsumerGroupMetadataValue(epoch))
        for member, part in parts.items():
            target = wire.ConsumerGroupTargetAssignmentMemberValue((wire.TopicPartition(TOPIC, part),))
            self.write(ts_ms, wire.ConsumerGroupTargetAssignmentMemberKey(group, member), target)
        computed = wire.ConsumerGroupTargetAssignmentMetadataValue(epoch)
        self.write(ts_ms, wire.ConsumerGroupTargetAssignmentMetadataKey(group), computed)

    def owns(self, ts_ms: int, group: str, member: str, epoch: int, *part: int) -> None:
        value = wire.ConsumerGroupCurrentMemberAssignmentValue(
            epoch, epoch - 1, 0, (wire.TopicPartitions(TOPIC, part),)
        )
        self.write(ts_ms, wire.ConsumerGroupCurrentMemberAssignmentKey(group, member), value)

    def goes(self, ts_ms: int, group: str, member: str) -> None:
        for key in (
            wire.ConsumerGroupCurrentMemberAssignmentKey(group, member),
            wire.ConsumerGroupTargetAssignmentMemberKey(group, member),
            wire.ConsumerGroupMemberMetadataKey(group, member),
        ):
            self.write(ts_ms, key, None)

    def commits(self, group: str, part: tuple[int, ...], first_ms: int, end_ms: int, every_ms: int) -> None:
        for ts_ms in range(first_ms, end_ms, every_ms):
            for partition in part:
                self.write(ts_ms, wire.OffsetCommitKey(group, "t", partition), wire.OffsetCommitValue(ts_ms))

    def generation(self, ts_ms: int, group: str, number: int, **parts: tuple[int, ...]) -> None:
        wanted = encode_subscription(ConsumerProtocolSubscription(("t",)))
        members = tuple(
            wire.MemberMetadata(
                member,
                client_id=member,
                session_timeout=6_000,
                subscription=wanted,
                assignment=encode_assignment(ConsumerProtocolAssignment((AssignedTopic("t", part),))),
            )
            for member, part in parts.items()
        )
        value = wire.GroupMetadataValue("consumer", number, "range", next(iter(parts)), ts_ms, members)
        self.write(ts_ms, wire.GroupMetadataKey(group), value)


def _life() -> Log:
    """Groups of four kinds: members die and leave, and the coordinator moves. The oldest records are compacted away."""
    log = Log()
    log.joins(0, "new", "b")  # the join of a, and the first epochs, were compacted away
    log.target(500, "new", 7, a=(0, 1), b=(2, 3))
    log.owns(600, "new", "a", 7, 0, 1)
    log.owns(700, "new", "b", 7, 2, 3)
    log.generation(1_000, "old", 4, x=(0,), y=(1,))
    log.commits("new", (0, 1), 1_100, 20_000, 500)
    log.commits("old", (0,), 20_000, 30_000, 700)
    log.goes(30_000, "new", "a")  # it was silent for ten seconds
    log.target(30_000, "new", 8, b=(0, 1, 2, 3))
    log.owns(30_300, "new", "b", 8, 0, 1, 2, 3)
    log.commits("new", (0, 1, 2, 3), 30_700, 40_000, 400)
    log.generation(41_000, "old", 5, y=(0, 1))  # x was silent for eleven seconds, which is more than its session
    log.commits("old", (0, 1), 41_500, 50_000, 500)
    member = share.ShareGroupMemberMetadataKey("queue", "m")
    log.write(
        50_000, encode_record_key(member), encode_record_value(share.ShareGroupMemberMetadataValue(client_id="q"))
    )
    log.write(
        50_000,
        encode_record_key(share.ShareGroupMetadataKey("queue")),
        encode_record_value(share.ShareGroupMetadataValue(epoch=1)),
    )
    streams = b"\0\0" + b"\0" + b"\0" + b"\x04app" + b"\x0a/10.0.0.1" + struct.pack(">ii", 300_000, 0) + b"\x02p\0\1\0"
    log.write(50_100, struct.pack(">hh4sh1s", 19, 4, b"sums", 1, b"s"), streams)
    log.write(50_100, struct.pack(">hh4s", 17, 4, b"sums"), struct.pack(">hiqb", 0, 3, 0, 0))
    log.leader_epoch = 4  # another broker is the coordinator from here on
    log.commits("new", (0, 1, 2, 3), 52_000, 60_000, 400)
    log.joins(60_000, "new", "c")
    log.target(60_000, "new", 9, b=(0, 1), c=(2, 3))
    log.owns(60_200, "new", "b", 9, 0, 1)
    log.owns(63_000, "new", "c", 9, 2, 3)
    log.commits("new", (0, 1, 2, 3), 63_300, 70_000, 400)
    log.generation(71_000, "old", 6, y=(0,), z=(1,))
    return log


def test_spark_has_the_same_answers_as_one_process(spark: SparkSession) -> None:
    """A user who changes to Spark, because the log has grown, must not get other stand-stills or other causes."""
    log = _life()
    recorder = Recorder(topic_name={TOPIC: "t"}.get)
    records = [RawRecord(partition, ts_ms, key, value, epoch) for partition, _, ts_ms, key, value, epoch in log.rows]
    events = [event for record in records for event in recorder.add(record)]
    timelines = build_timelines([*events, *recorder.finish()])
    alone = [finding for timeline in timelines for finding in findings_of(timeline)]

    rows = replay_records(spark.createDataFrame(log.rows, LOG), topic_names={TOPIC: "t"}).where("kind = 'event'")
    lines = [(row["text"], "all", 0) for row in rows.orderBy("seq").collect()]
    analysis = analyze_lines(spark.createDataFrame(lines, "value string, file string, block long"))

    def told(finding: Any) -> Iterator[object]:
        names = ("kind", "group_id", "start_ms", "ms", "rests", "partitions", "why", "who", "which", "least_ms")
        for name in (*names, "text", "most_ms", "records"):
            if name in {"text", "most_ms", "records"} and finding["rests"] == "exact":
                continue  # how many records waited, and until when, is in commits that a table of Spark has not
            value = finding[name]
            yield tuple(value) if isinstance(value, list | tuple) else value

    found = sorted(tuple(told(each.asDict())) for each in analysis.findings.collect())
    assert found == sorted(tuple(told(msgspec.structs.asdict(each))) for each in alone)
    assert {(each[0], each[6]) for each in found} >= {("stand-still", "died"), ("switch", "coordinator moved")}
    groups = {row["group_id"]: (row["members"], row["partitions"], row["moves"]) for row in analysis.groups.collect()}
    figures = [figures_of(timeline) for timeline in timelines]
    assert groups == {each.group_id: (each.members, each.partitions, each.moves) for each in figures}
    assert groups.keys() == {"new", "old", "queue", "sums"}


def test_spark_sees_groups_that_stop_at_once(spark: SparkSession) -> None:
    """What they share is the first question then; a task of Spark sees one group."""
    log = Log()
    groups = [f"group-{number}" for number in range(4)]
    for group in groups:
        log.joins(0, group, "a")
        log.target(500, group, 1, a=(0, 1))
        log.owns(600, group, "a", 1, 0, 1)
    for ts_ms in (*range(1_000, 30_000, 500), *range(42_000, 60_000, 500)):
        for group in groups:
            for partition in (0, 1):
                log.write(ts_ms, wire.OffsetCommitKey(group, "t", partition), wire.OffsetCommitValue(ts_ms))
    recorder = Recorder(topic_name={TOPIC: "t"}.get)
    records = [RawRecord(partition, ts_ms, key, value, epoch) for partition, _, ts_ms, key, value, epoch in log.rows]
    events = [event for record in records for event in recorder.add(record)]
    (alone,) = findings_of_all(build_timelines([*events, *recorder.finish()]))
    assert (alone.kind, alone.ms) == ("all groups", 12_500)

    rows = replay_records(spark.createDataFrame(log.rows, LOG), topic_names={TOPIC: "t"}).where("kind = 'event'")
    sampled = [(row["text"], "all", 0) for row in rows.orderBy("seq").collect()]
    whole = [(event.to_json(), "all", 0) for event in events]
    for lines in (sampled, whole):
        analysis = analyze_lines(spark.createDataFrame(lines, "value string, file string, block long"))
        (found,) = analysis.findings.collect()
        assert (found["kind"], found["group_id"], found["start_ms"], found["text"]) == (
            *(alone.kind, alone.group_id, alone.start_ms, alone.text),
        )
