"""Reads events and commits of a cluster's groups from its ``__consumer_offsets``, into tables that grow with each run.

::

    from kip848_client.spark.analytics.group_records import GroupHistory

    history = GroupHistory(spark_session(), "s3a://reports/groups", {"bootstrap.servers": "kafka:9092"})
    history.update()                       # reads what is new since the last run
    history.analysis().groups.show()

A partition of the topic is read in order by one task, and `kip848_client.tools.recorder` replays its records. For
the next run ``state`` keeps the last records of each group, as Kafka's own compaction would leave them. A run counts
once ``progress.json`` names it: what an interrupted run wrote is written again.

Commits are counted. Events have only those next to a departure or a new generation, which bound the time that
partitions were unread: of each partition the last one before it, the last one that moved the offset and the one before
that, and the first one after it.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec
import pyarrow as pa
from pyspark.sql import functions as sf

from kip848_client.consumer.records.data_plane import KafkaException, create_record_consumer, translate
from kip848_client.errors import Kip848Error
from kip848_client.journal import JournalEvent, JsonValue
from kip848_client.spark.analytics.analytics import Analysis, analyze_lines, kept
from kip848_client.spark.analytics.event_rows import ArrowRows
from kip848_client.spark.session.arrow_map import map_in_arrow
from kip848_client.spark.session.folder import Folder
from kip848_client.tools.recorder import RawRecord, Recorder
from kip848_client.tools.recorder.sampling import SampledCommits, rhythm_fields
from kip848_client.tools.report.pictures.summary import Table
from kip848_client.tools.report.timeline.pauses import PauseTracker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "__consumer_offsets"
COMMITS_DDL: Final = "group_id string, minute_ms long, commits long, offsets long"
"""Commits of a group in a minute: requests, and the offsets in them."""

_ROWS_DDL: Final = (
    "kind string, group_id string, partition int, seq long, ts_ms long, key binary, value binary, text string, "
    "number long, other long"
)
_ROWS: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("group_id", pa.string()),
        ("partition", pa.int32()),
        ("seq", pa.int64()),
        ("ts_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("text", pa.string()),
        ("number", pa.int64()),
        ("other", pa.int64()),
    ]
)
_ROWS_PER_BATCH: Final = 5_000
_MINUTE_MS: Final = 60_000
_BUSIEST: Final = 20
_BEGINNING: Final = -2
_ASK_TIMEOUT_S: Final = 30.0
_BEFORE_ALL: Final = -(2**40)
_OFFSET_TYPES: Final = frozenset({0, 1})
_MEMBER_TYPES: Final = frozenset({5, 7, 8})
"""Records of a member of a consumer group; tombstones of them are a departure."""
_CLASSIC_GROUP: Final = 2
_OFFSET: Final = slice(2, 10)
"""Of the value of a commit."""
_PENDING_OFFSET: Final = 30_848


class Update(msgspec.Struct, frozen=True):
    """The result of a run.

    Args:
        run: its number, from 1.
        records: how many it read.
        groups: how many of them had events.
        left_out: records by the reason why they were left out.
    """

    run: int
    records: int
    groups: int
    events: int
    commits: int
    left_out: Mapping[str, int]


class _Progress(msgspec.Struct):
    """The content of the folder: the last complete run, and the next offset of every partition."""

    run: int = 0
    groups: tuple[str, ...] = ()
    positions: dict[int, int] = msgspec.field(default_factory=dict)


class GroupHistory:
    """A folder of what happened in the groups of one cluster.

    Args:
        out: the folder, on any file system that Spark writes to.
        client: properties of a consumer, with ``bootstrap.servers``.
        groups: patterns of group ids (``*``, ``?``); all groups if there are none.
        topic_names: name of a topic by its id; of topics that are not in it the id is shown.
    """

    def __init__(
        self,
        spark: SparkSession,
        out: str,
        client: Mapping[str, str],
        *,
        groups: Sequence[str] = (),
        topic_names: Mapping[UUID, str] | None = None,
    ) -> None:
        self._spark = spark
        self._folder = Folder(spark, out)
        self._client = client
        self._groups = tuple(sorted(groups))
        self._topic_names = dict(topic_names or {})

    def update(self) -> Update:
        """Read the records written since the last run, and keep them.

        Raises:
            Kip848Error: the folder is of other groups, or the topic cannot be read.
        """
        progress = self._progress()
        run = progress.run + 1
        records = read_records(self._spark, self._client, starts=progress.positions)
        if progress.run:
            records = self._state(progress.run).unionByName(records)
        rows = kept(replay_records(records, groups=self._groups, topic_names=self._topic_names))
        events = rows.where("kind = 'event'").select(
            "group_id", sf.lit(run).alias("run"), "partition", "seq", sf.col("text").alias("value")
        )
        events.write.mode("overwrite").parquet(self._of("events", run))
        commits = rows.where("kind = 'commits'").selectExpr(
            "group_id", "ts_ms as minute_ms", "number as commits", "other as offsets"
        )
        commits.write.mode("overwrite").parquet(self._of("commits_by_run", run))
        state = rows.where("kind = 'state'").selectExpr(
            "partition", "seq", "ts_ms", "key", "value", "int(number) as leader_epoch"
        )
        state.write.mode("overwrite").parquet(self._of("state", run))
        ends = rows.where("kind = 'end'").select("partition", "number").collect()
        positions = progress.positions | {row["partition"]: row["number"] for row in ends}
        self._folder.write(
            "progress.json", msgspec.json.encode(_Progress(run, self._groups, positions)).decode("utf-8")
        )
        return _update_of(run, rows)

    def analysis(self) -> Analysis:
        """All that is in the folder, analyzed.

        Raises:
            Kip848Error: nothing is there, or no event of any group.
        """
        last = self._progress().run
        if not last:
            raise Kip848Error(f"{self._folder} holds no groups yet")
        events = self._spark.read.parquet(*(self._of("events", run) for run in range(1, last + 1)))
        lines = (
            events.select(
                "value",
                sf.format_string("run %06d, partition %d", "run", "partition").alias("file"),
                sf.lit(0).cast("long").alias("block"),
                "seq",
            )
            .repartition("file")
            .sortWithinPartitions("file", "seq")
            .drop("seq")
        )
        accepted = self.commits().groupBy("group_id").agg(sf.sum("commits").alias("accepted"))
        return analyze_lines(lines, accepted=accepted)

    def commits(self) -> DataFrame:
        """Commits by group and minute (`COMMITS_DDL`)."""
        last = self._progress().run
        paths = [self._of("commits_by_run", run) for run in range(1, last + 1)]
        return (
            self._spark.read.schema(COMMITS_DDL)
            .parquet(*paths)
            .groupBy("group_id", "minute_ms")
            .agg(sf.sum("commits").alias("commits"), sf.sum("offsets").alias("offsets"))
        )

    def commit_count(self) -> int:
        """How many commits there were in all."""
        row = self.commits().agg(sf.sum("commits").alias("commits")).first()
        return 0 if row is None else int(row["commits"] or 0)

    def busiest(self) -> Table:
        """The groups that commit most."""
        rows = (
            self.commits()
            .groupBy("group_id")
            .agg(
                sf.sum("commits").alias("commits"),
                sf.sum("offsets").alias("offsets"),
                sf.max("commits").alias("most"),
                (sf.max("minute_ms") - sf.min("minute_ms") + _MINUTE_MS).alias("lasted_ms"),
            )
            .orderBy(sf.desc("commits"), "group_id")
            .limit(_BUSIEST)
            .collect()
        )
        return Table(
            "Groups that commit most",
            ("group", "commits", "offsets", "commits/s", "in the busiest minute"),
            [
                (
                    row["group_id"],
                    f"{row['commits']:,}",
                    f"{row['offsets']:,}",
                    f"{row['commits'] * 1000 / row['lasted_ms']:,.2f}",
                    f"{row['most'] * 1000 / _MINUTE_MS:,.2f}",
                )
                for row in rows
            ],
        )

    def write(self, analysis: Analysis) -> None:
        """Write the tables of *analysis*, and `commits`, into the folder; those of the last run are replaced."""
        analysis.write(self._folder.address)
        self.commits().write.mode("overwrite").parquet(self._folder.of("commits"))

    def _of(self, name: str, run: int) -> str:
        return self._folder.of(f"{name}/run-{run:06}")

    def _state(self, run: int) -> DataFrame:
        state = self._spark.read.parquet(self._of("state", run))
        return state.selectExpr("partition", f"seq + {_BEFORE_ALL} as offset", "ts_ms", "key", "value", "leader_epoch")

    def _progress(self) -> _Progress:
        text = self._folder.read("progress.json")
        if text is None:
            return _Progress(groups=self._groups)
        progress = msgspec.json.decode(text, type=_Progress)
        if progress.groups != self._groups:
            there = ", ".join(progress.groups) or "all"
            raise Kip848Error(f"{self._folder} holds groups {there}; choose another folder, or the same --group")
        return progress


def read_records(
    spark: SparkSession, client: Mapping[str, str], *, starts: Mapping[int, int] | None = None
) -> DataFrame:
    """The records of ``__consumer_offsets`` through our own source: partition, offset, ts_ms, key, value, leader_epoch.

    Args:
        client: properties of a consumer, with ``bootstrap.servers``.
        starts: where to begin; partitions that are not in it are read from their beginnings.

    Raises:
        ConfigError: a property is refused.
    """
    from kip848_client.spark.source.source import FORMAT, register

    register(spark)
    reader = spark.read.format(FORMAT).option("subscribe", TOPIC).option("failOnDataLoss", "false")
    reader = reader.option("includeLeaderEpoch", "true")
    for name, value in client.items():
        reader = reader.option(f"kafka.{name}", value)
    if starts:
        places = {str(number): starts.get(number, _BEGINNING) for number in _partitions(client)}
        reader = reader.option("startingOffsets", json.dumps({TOPIC: places}))
    else:
        reader = reader.option("startingOffsets", "earliest")
    return reader.load().selectExpr(
        "partition", "offset", "unix_millis(timestamp) as ts_ms", "key", "value", "leaderEpoch as leader_epoch"
    )


def _partitions(client: Mapping[str, str]) -> list[int]:
    plane = create_record_consumer({"group.id": "kip848-report", "log_level": 2, **client})
    try:
        return sorted(plane.list_topics(TOPIC, timeout=_ASK_TIMEOUT_S).topics[TOPIC].partitions)
    except KafkaException as error:
        raise translate(error, what=f"reading {TOPIC}") from error
    finally:
        plane.close()


def replay_records(
    records: DataFrame, *, groups: Sequence[str] = (), topic_names: Mapping[UUID, str] | None = None
) -> DataFrame:
    """Replay records into rows of several kinds (``_ROWS_DDL``); a task handles whole partitions, in order.

    Args:
        records: as of `read_records`; those with a negative offset are of earlier runs, and silent.
    """
    ordered = (
        records.select("partition", "offset", "ts_ms", "key", "value", "leader_epoch")
        .repartition("partition")
        .sortWithinPartitions("partition", "offset")
    )
    return map_in_arrow(ordered, _replayer(tuple(groups), dict(topic_names or {})), _ROWS_DDL)


def _replayer(
    groups: tuple[str, ...], topic_names: Mapping[UUID, str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = ArrowRows(_ROWS)
        partition: _Partition | None = None
        for batch in batches:
            for number, offset, ts_ms, key, value, leader_epoch in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            ):
                if partition is None or partition.number != number:
                    if partition is not None:
                        partition.finish()
                    partition = _Partition(number, rows, groups, topic_names)
                partition.add(offset, RawRecord(number, ts_ms, key, value, leader_epoch))
            yield from rows.full(_ROWS_PER_BATCH)
        if partition is not None:
            partition.finish()
        yield from rows.full(1)

    return replay


class _Partition:
    """One partition of the topic, record by record."""

    def __init__(self, number: int, rows: ArrowRows, groups: tuple[str, ...], topic_names: Mapping[UUID, str]) -> None:
        self.number = number
        self._rows = rows
        self._wants = _filter(groups)
        self._recorder = Recorder(wants=self._wants, topic_name=topic_names.get)
        self._latest: dict[bytes, tuple[int, bytes]] = {}
        self._is_silent = False
        self._next_offset: int | None = None
        self._commits: Counter[tuple[str, int]] = Counter()
        self._offsets: Counter[tuple[str, int]] = Counter()
        self._last_commit: tuple[str, int] | None = None
        self._pauses: dict[str, PauseTracker] = {}
        self._commit: tuple[str, int, dict[str, JsonValue]] | None = None
        """Group, time and offsets of the commit that is being read."""
        self._rhythms: dict[str, dict[bytes, SampledCommits[bytes]]] = {}
        self._leader_epochs: dict[str, int] = {}
        self._told: dict[str, SampledCommits[bytes]] = {}
        """Of the last departure, by name of the partition."""
        self._records = 0
        self._events = 0

    def add(self, offset: int, record: RawRecord) -> None:
        """Take the next record."""
        key, value = record.key, record.value
        if offset < 0:
            self._is_silent = True
        else:
            if self._is_silent:
                self._keep(self._recorder.end_of_partition(self.number))
                self._is_silent = False
            self._next_offset = offset + 1
            self._records += 1
        record_type = -1 if key is None or len(key) < 2 else key[0] << 8 | key[1]
        if record_type in _OFFSET_TYPES:
            assert key is not None
            if value is not None:
                self._committed(record, key, value)
            elif self._has_moved(record, key):
                self._keep(self._recorder.add(record))
            return
        if key is not None and (record_type == _CLASSIC_GROUP or (value is None and record_type in _MEMBER_TYPES)):
            self._tell_last_commits(_group_of(key))
        if key is not None and record_type != _PENDING_OFFSET:
            self._latest.pop(key, None)
            if value is not None:
                self._latest[key] = (record.timestamp_ms, value)
        if key is not None:
            self._has_moved(record, key)
        self._keep(self._recorder.add(record))

    def finish(self) -> None:
        """The records of this run are all there."""
        self._keep(self._recorder.finish())
        self._note_commit()
        self._keep(self._summed())
        add = self._rows.add
        for order, (key, (ts_ms, value)) in enumerate(self._latest.items()):
            leader_epoch = self._leader_epochs.get(_group_of(key))
            add("state", None, self.number, order, ts_ms, key, value, None, leader_epoch, None)
        for (group_id, minute_ms), commits in self._commits.items():
            offsets = self._offsets[group_id, minute_ms]
            add("commits", group_id, self.number, None, minute_ms, None, None, None, commits, offsets)
        if self._next_offset is not None:
            add("end", None, self.number, None, None, None, None, None, self._next_offset, self._records)
        for reason, count in self._recorder.counts.skipped.items():
            add("left_out", None, self.number, None, None, None, None, reason, count, None)

    def _summed(self) -> Iterator[JournalEvent]:
        """What the commits of this run say beyond those that are events."""
        for group_id, tracker in self._pauses.items():
            found = tracker.finish()
            if found.last_ms:
                spans: list[JsonValue] = [list(span) for span in found.spans]
                fields: dict[str, JsonValue] = {"first_ms": found.first_ms, "last_ms": found.last_ms, "pauses": spans}
                yield JournalEvent(
                    ts_ms=int(found.last_ms),
                    source="coordinator",
                    event="commits_summed",
                    group_id=group_id,
                    fields=fields,
                )

    def _has_moved(self, record: RawRecord, key: bytes) -> bool:
        """Whether another coordinator wrote it than the group's last record."""
        group_id = _group_of(key)
        if record.leader_epoch is None or self._leader_epochs.get(group_id) == record.leader_epoch:
            return False
        self._leader_epochs[group_id] = record.leader_epoch
        return True

    def _committed(self, record: RawRecord, key: bytes, value: bytes) -> None:
        """A commit of several partitions is several records of one time."""
        ts_ms = record.timestamp_ms
        group_id = _group_of(key)
        if not self._wants(group_id):
            return
        rhythms = self._rhythms.setdefault(group_id, {})
        rhythm = rhythms.get(key)
        if rhythm is None:
            rhythms[key] = SampledCommits(ts_ms, value, value[_OFFSET])
        is_event = rhythm is None or rhythm.add(ts_ms, value, value[_OFFSET])
        if self._has_moved(record, key) or is_event:
            self._keep(self._recorder.add(record))
        if not self._is_silent:
            if self._commit is None or self._commit[:2] != (group_id, ts_ms):
                self._note_commit()
                self._commit = group_id, ts_ms, {}
            self._commit[2][_partition_of(key)] = int.from_bytes(value[_OFFSET], "big", signed=True)
        place = group_id, ts_ms - ts_ms % _MINUTE_MS
        self._offsets[place] += 1
        if (group_id, ts_ms) != self._last_commit:
            self._last_commit = group_id, ts_ms
            self._commits[place] += 1

    def _note_commit(self) -> None:
        """The commit that was read is complete. Groups without members commit when they like."""
        if self._commit is not None and self._recorder.members_of(self._commit[0]):
            group_id, ts_ms, offsets = self._commit
            self._pauses.setdefault(group_id, PauseTracker()).committed(offsets, float(ts_ms))
        self._commit = None

    def _tell_last_commits(self, group_id: str) -> None:
        rhythms = self._rhythms.pop(group_id, None)
        if rhythms is None:
            return
        self._keep(self._recorder.end_of_partition(self.number))
        self._told = {_partition_of(key): rhythm for key, rhythm in rhythms.items() if rhythm.count > 1}
        for key, rhythm in rhythms.items():
            for ts_ms, value in rhythm.untold():
                self._keep(self._recorder.add(RawRecord(self.number, ts_ms, key, value)))
        self._keep(self._recorder.end_of_partition(self.number))
        self._told = {}

    def _keep(self, events: Iterable[JournalEvent]) -> None:
        for event in events:
            if not self._is_silent:
                if event.event == "offsets_committed":
                    event = msgspec.structs.replace(event, fields={**event.fields, **self._sample(event)})
                self._events += 1
                line = event.to_json()
                self._rows.add(
                    "event", event.group_id, self.number, self._events, event.ts_ms, None, None, line, None, None
                )

    def _sample(self, event: JournalEvent) -> Mapping[str, JsonValue]:
        """Further fields of a commit: with what rhythm its member committed before."""
        offsets = event.fields.get("offsets")
        rhythms = [self._told[name] for name in offsets if name in self._told] if isinstance(offsets, dict) else []
        return {"sampled": True, **rhythm_fields(rhythms)}


def _partition_of(key: bytes) -> str:
    """The topic and partition of the key of a commit, as events write them."""
    begin = 4 + (key[2] << 8 | key[3])
    end = begin + 2 + (key[begin] << 8 | key[begin + 1])
    return f"{key[begin + 2 : end].decode('utf-8', 'replace')}-{int.from_bytes(key[end : end + 4], 'big')}"


def _group_of(key: bytes) -> str:
    """The keys of all records of groups begin with the group's id."""
    return key[4 : 4 + int.from_bytes(key[2:4], "big")].decode("utf-8", "replace")


def _filter(groups: tuple[str, ...]) -> Callable[[str], bool]:
    @functools.cache
    def wants(group_id: str) -> bool:
        return not groups or any(fnmatchcase(group_id, pattern) for pattern in groups)

    return wants


def _update_of(run: int, rows: DataFrame) -> Update:
    found = {row["kind"]: row for row in rows.groupBy("kind").agg(
        sf.count("*").alias("rows"), sf.sum("number").alias("number"), sf.sum("other").alias("other"),
        sf.count_distinct("group_id").alias("groups"),
    ).collect()}  # fmt: skip
    left_out = rows.where("kind = 'left_out'").groupBy("text").agg(sf.sum("number").alias("count")).collect()

    def of(kind: str, column: str) -> int:
        row = found.get(kind)
        return 0 if row is None else int(row[column] or 0)

    return Update(
        run=run,
        records=of("end", "other"),
        groups=of("event", "groups"),
        events=of("event", "rows"),
        commits=of("commits", "number"),
        left_out={row["text"]: row["count"] for row in left_out},
    )
