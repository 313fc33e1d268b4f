"""How many records of ``__consumer_offsets`` a second ``kip848 report --spark --bootstrap`` replays and analyzes.

::

    python benchmarks/spark_groups.py             # 10^7 records of 2,000 groups
    python benchmarks/spark_groups.py --quick     # 10^5
    python -m benchmarks spark_groups             # kept in benchmarks/results

The records are generated and written to Parquet first, which is not counted: groups whose members join, leave and
commit as they do in a cluster with a deployment every few minutes. The ratio is to the replay of the same records
by the recorder in one process.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from report_file import keep, machine, options, table, versions

from kip848_client.spark import spark_session
from kip848_client.spark.analytics.analytics import analyze_lines, kept
from kip848_client.spark.analytics.analytics_page import summarize
from kip848_client.spark.analytics.group_records import replay_records
from kip848_client.tools.recorder import RawRecord, Recorder
from kip848_client.tools.report.pictures.summary import sentences
from kip848_client.wire.messages import group_records as wire

PARTITIONS: Final = 50
PARTITIONS_OF_A_TOPIC: Final = 12
COMMITS_BETWEEN: Final = 60
"""Commits of each member between two changes of its group."""
RUN: Final = 24
"""Records of one group in a row."""
START_MS: Final = 1_700_000_000_000
ROWS: Final = 100_000
SCHEMA: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("ts_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("leader_epoch", pa.int32()),
    ]
)


class Group:
    """A group with three to five members of which one is replaced now and then."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self.name = f"group-{number}"
        self.topic = uuid.UUID(int=number + 1)
        self.rng = rng
        self.now_ms = START_MS + rng.randrange(60_000)
        self.epoch = 1
        self.members = [f"{self.name}-member-{index}" for index in range(rng.randint(3, 5))]
        self.joined = len(self.members)
        self.offsets = 0

    def records(self) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Time, key and value of one record after the other, for ever."""
        for member in self.members:
            yield self.write(
                wire.ConsumerGroupMemberMetadataKey(self.name, member),
                wire.ConsumerGroupMemberMetadataValue(client_id=member, subscribed_topic_names=(self.name,)),
            )
        while True:
            yield from self.rebalance()
            yield from self.commits()
            self.now_ms += self.rng.randrange(30_000)
            gone = self.members.pop(0)
            for key in (
                wire.ConsumerGroupCurrentMemberAssignmentKey(self.name, gone),
                wire.ConsumerGroupTargetAssignmentMemberKey(self.name, gone),
                wire.ConsumerGroupMemberMetadataKey(self.name, gone),
            ):
                yield self.write(key, None)
            self.members.append(f"{self.name}-member-{self.joined}")
            self.joined += 1
            yield self.write(
                wire.ConsumerGroupMemberMetadataKey(self.name, self.members[-1]),
                wire.ConsumerGroupMemberMetadataValue(client_id=self.members[-1], subscribed_topic_names=(self.name,)),
            )
            self.epoch += 1

    def rebalance(self) -> Iterator[tuple[int, bytes, bytes | None]]:
        yield self.write(wire.ConsumerGroupMetadataKey(self.name), wire.ConsumerGroupMetadataValue(self.epoch))
        parts = [tuple(range(PARTITIONS_OF_A_TOPIC))[index :: len(self.members)] for index in range(len(self.members))]
        for member, part in zip(self.members, parts, strict=True):
            yield self.write(
                wire.ConsumerGroupTargetAssignmentMemberKey(self.name, member),
                wire.ConsumerGroupTargetAssignmentMemberValue((wire.TopicPartition(self.topic, part),)),
            )
        yield self.write(
            wire.ConsumerGroupTargetAssignmentMetadataKey(self.name),
            wire.ConsumerGroupTargetAssignmentMetadataValue(self.epoch),
        )
        for member, part in zip(self.members, parts, strict=True):
            self.now_ms += self.rng.randrange(1, 5_000)
            yield self.write(
                wire.ConsumerGroupCurrentMemberAssignmentKey(self.name, member),
                wire.ConsumerGroupCurrentMemberAssignmentValue(
                    self.epoch, self.epoch - 1, 0, (wire.TopicPartitions(self.topic, part),)
                ),
            )

    def commits(self) -> Iterator[tuple[int, bytes, bytes | None]]:
        for _ in range(COMMITS_BETWEEN):
            self.now_ms += self.rng.randrange(1, 10_000)
            self.offsets += 1
            for partition in range(0, PARTITIONS_OF_A_TOPIC, 3):
                yield self.write(
                    wire.OffsetCommitKey(self.name, self.name, partition), wire.OffsetCommitValue(self.offsets)
                )

    def write(self, key: Any, value: Any) -> tuple[int, bytes, bytes | None]:
        return self.now_ms, wire.encode_record_key(key), None if value is None else wire.encode_record_value(value)


def generate(folder: Path, *, records: int, groups: int) -> None:
    """Write one file a partition; the groups of a partition take turns."""
    of_each = records // PARTITIONS
    for partition in range(PARTITIONS):
        rng = random.Random(partition)
        writer: Iterator[tuple[int, bytes, bytes | None]] = iter(())
        writers = [Group(number, rng).records() for number in range(partition, groups, PARTITIONS)]
        rows = []
        with pq.ParquetWriter(folder / f"{partition}.parquet", SCHEMA) as file:
            for offset in range(of_each):
                if offset % RUN == 0:
                    writer = rng.choice(writers)
                ts_ms, key, value = next(writer)
                rows.append(
                    {"partition": partition, "offset": offset, "ts_ms": ts_ms, "key": key, "value": value}
                    | {"leader_epoch": 0}
                )
                if len(rows) == ROWS or offset == of_each - 1:
                    file.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))
                    rows = []


def alone(folder: Path) -> tuple[float, int]:
    """Seconds and records of the recorder in this process, with the first two partitions."""
    began_s, count = time.perf_counter(), 0
    for partition in range(2):
        recorder = Recorder()
        for row in pq.read_table(folder / f"{partition}.parquet").to_pylist():
            for event in recorder.add(RawRecord(partition, row["ts_ms"], row["key"], row["value"])):
                event.to_json()
            count += 1
    return time.perf_counter() - began_s, count


def main() -> int:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--records", type=int, default=10_000_000, help="records (10^7)")
    parser.add_argument("--groups", type=int, default=2_000, help="groups (2000)")
    arguments = parser.parse_args()
    records = 100_000 if arguments.quick else arguments.records
    groups = 200 if arguments.quick else arguments.groups
    cores = os.cpu_count() or 1
    found: dict[str, Any] = {
        "benchmark": "spark_groups",
        "machine": machine(),
        "versions": versions("pyspark", "pyarrow"),
    }
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), records=records, groups=groups)
        alone_s, alone_records = alone(Path(folder))
        spark = spark_session("benchmark", master=f"local[{cores}]", config={"spark.driver.memory": "2g"})
        spark.range(100).mapInArrow(lambda batches: batches, "id long").count()  # workers and imports
        began_s = time.perf_counter()
        rows = kept(replay_records(spark.read.parquet(folder)))
        replayed_s = time.perf_counter() - began_s
        lines = (
            rows.where("kind = 'event'")
            .selectExpr("text as value", "string(partition) as file", "bigint(0) as block", "seq")
            .repartition("file")
            .sortWithinPartitions("file", "seq")
            .drop("seq")
        )
        summary = summarize(analyze_lines(lines))
        all_s = time.perf_counter() - began_s
        spark.stop()
    print("\n".join(sentences(summary)))
    rate, alone_rate = records / replayed_s, alone_records / alone_s
    found |= {
        "records": records,
        "groups": groups,
        "cores": cores,
        "replay_s": round(replayed_s, 1),
        "all_s": round(all_s, 1),
        "records_per_s": round(rate),
        "ratio": round(rate / alone_rate, 2),
    }
    table(
        [
            ["", "records", "seconds", "a second"],
            ["recorder, one process", f"{alone_records:,}", f"{alone_s:.1f}", f"{alone_rate:,.0f}"],
            [f"Spark, {cores} cores", f"{records:,}", f"{replayed_s:.1f}", f"{rate:,.0f}"],
            ["with all tables and the page", f"{records:,}", f"{all_s:.1f}", f"{records / all_s:,.0f}"],
        ]
    )
    keep(found, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
