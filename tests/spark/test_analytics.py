"""Analytics on Spark: the same figures as without Spark, whatever the log is, and what is no event."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec
import pyarrow as pa
import pytest
from pyspark import StorageLevel

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.cli import main
from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.journal import JournalEvent, JsonLinesJournal, read_journal
from kip848_client.spark.analytics.analytics import TABLES, Analysis, analyze, kept
from kip848_client.spark.analytics.analytics_periods import compare_periods
from kip848_client.spark.session.arrow_map import map_in_arrow
from kip848_client.testing.simulation.run import run
from kip848_client.testing.simulation.virtual.history import to_event_log
from kip848_client.testing.simulation.virtual.scenario import scenario_of
from kip848_client.tools.report import Figures, build_timelines, figures_of
from kip848_client.tools.report.figures import CommitFigures, Percentiles
from kip848_client.tools.report.periods import Period
from kip848_client.tools.report.periods import compare_periods as periods_of_timelines
from tests.spark.arrange import produce
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PLAYED = [("mixed", seed) for seed in range(30)] + [("storm", 5), ("churn", 7), ("quiet", 1), ("assignors", 2)]
BLOCK = 512 * 1024


def keep(path: Path, events: Iterable[JournalEvent]) -> None:
    path.write_text("".join(event.to_json() + "\n" for event in events), encoding="utf-8")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Event logs of simulated groups with all kinds of faults: all of them in one file, larger than a block.

    Every second event of the last groups is in a second file, as if another member had written it.
    """
    folder = tmp_path_factory.mktemp("logs")
    one: list[JournalEvent] = []
    two: list[JournalEvent] = []
    for scenario, seed in PLAYED:
        report = run(scenario_of(scenario, seed=seed), seed=seed)
        events = list(to_event_log(report.lines, group_id=f"{scenario}-{seed}"))
        if scenario == "mixed":
            one += events
        else:
            one += events[::2]
            two += events[1::2]
    keep(folder / "1.jsonl", one)
    keep(folder / "2.jsonl", two)
    assert (folder / "1.jsonl").stat().st_size > 2 * BLOCK
    return folder


def alone(paths: Iterable[Path]) -> dict[str, Figures]:
    """The figures as ``kip848 report`` has them."""
    events = [event for path in sorted(paths) for event in read_journal(path)]
    return {timeline.group_id: figures_of(timeline) for timeline in build_timelines(events)}


def by(table: DataFrame, *keys: str) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in table.collect():
        found.setdefault(tuple(row[key] for key in keys) if len(keys) > 1 else row[keys[0]], []).append(row)
    return found


def spread(row: Row | None) -> Percentiles:
    return Percentiles(0, None, None, None, None) if row is None else Percentiles(*row)


def commits(row: Row, errors: Mapping[str, int]) -> CommitFigures:
    return CommitFigures(row["done"], row["failed"], row["accepted"], row["refused"], dict(sorted(errors.items())))


def assert_equal(analysis: Analysis | Written, expected: Mapping[str, Figures]) -> None:
    """Every figure of every group, member, partition and rebalance."""
    groups = by(analysis.groups, "group_id")
    members, partitions = by(analysis.members, "group_id"), by(analysis.partitions, "group_id")
    rebalances, calls = by(analysis.rebalances, "group_id"), by(analysis.listener_calls, "group_id")
    errors = by(analysis.commit_errors, "group_id")
    assert groups.keys() == expected.keys()
    for group_id, figures in expected.items():
        (row,) = groups[group_id]
        assert (row["log_ms"], row["members"], row["partitions"]) == (
            figures.log_ms, figures.members, figures.partitions,
        )  # fmt: skip
        assert spread(row["rebalance"]) == figures.rebalance
        assert spread(row["change"]) == figures.change
        assert spread(row["without_reader"]) == figures.without_reader
        assert (row["moves"], row["bounces"]) == (figures.moves, figures.bounces)
        assert row["stayed"] == (None if figures.stayed is None else pytest.approx(figures.stayed))
        assert sorted(row["two_readers"] or []) == sorted(figures.two_readers)
        assert (row["heartbeats"], spread(row["late"])) == (figures.heartbeats, figures.late)
        marks = {kind: row[f"{kind}_marks"] for kind in ("fault", "refusal", "failure", "life")}
        assert {kind: count for kind, count in marks.items() if count} == figures.marks
        assert commits(row, summed(errors.get(group_id, []))) == figures.commits
        assert {each["callback"]: spread(each["took"]) for each in calls.get(group_id, [])} == figures.listener_calls
        seen = sorted(
            (each["start_ms"], each["end_ms"], each["first_epoch"], each["last_epoch"], each["reasons"])
            for each in rebalances.get(group_id, [])
        )
        assert seen == [
            (each.start_ms, each.end_ms, each.first_epoch, each.last_epoch, list(each.reasons))
            for each in figures.rebalances
        ]
        without = {each["partition"]: each["without_reader_ms"] for each in partitions.get(group_id, [])}
        assert without == pytest.approx(dict(figures.without_reader_by_partition_ms))
        told = {each["member"]: each for each in members.get(group_id, [])}
        assert told.keys() == {member.member for member in figures.by_member}
        for member in figures.by_member:
            mine = told[member.member]
            assert (mine["heartbeats"], spread(mine["late"])) == (member.heartbeats, member.late)
            assert (mine["gained"], mine["given"], mine["returned"]) == (member.gained, member.given, member.returned)
            assert mine["owned_ms"] == pytest.approx(member.owned_ms)
            own = [each for each in errors.get(group_id, []) if each["member"] == member.member]
            assert commits(mine, summed(own)) == member.commits


def summed(rows: Sequence[Row]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for row in rows:
        counted[row["error"]] = counted.get(row["error"], 0) + row["count"]
    return counted


class Reported(msgspec.Struct, frozen=True):
    """What ``kip848 report --spark`` made of `played` and of one line that is no event."""

    tables: Path
    page: str
    printed: str
    torn: Path


@pytest.fixture(scope="module")
def reported(spark: SparkSession, played: Path, tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """The command, run once for all that is asked of it. Logs are read in blocks, as large ones are."""
    folder = tmp_path_factory.mktemp("reported")
    torn = folder / "torn.jsonl"
    torn.write_text("INFO <b>started</b>\n", encoding="utf-8")
    arguments = ["report", "--spark", str(played), str(torn), "--out", str(folder / "tables")]
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(printed):
        patched.setattr(type(spark), "stop", lambda _: None)  # the session of all tests goes on
        cut = ["spark.sql.files.openCostInBytes=0", f"spark.sql.files.maxPartitionBytes={BLOCK}"]
        conf = [part for each in cut for part in ("--conf", each)]
        pictures = ["--html", str(folder / "page.html"), "--png", str(folder / "periods.png")]
        assert main([*arguments, *conf, *pictures]) == 0
        assert (folder / "periods.png").read_bytes().startswith(b"\x89PNG")
        for each in cut:
            spark.conf.unset(each.partition("=")[0])
    return Reported(folder / "tables", (folder / "page.html").read_text(encoding="utf-8"), printed.getvalue(), torn)


class Written:
    """Tables that were written, as `Analysis` has them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def __getattr__(self, name: str) -> DataFrame:
        return self._spark.read.parquet(str(self._folder / name))


def test_simulated_groups_have_the_same_figures_on_spark(spark: SparkSession, played: Path, reported: Reported) -> None:
    """Two answers to one question would contradict each other."""
    expected = alone(played.glob("*.jsonl"))
    assert any(figures.two_readers for figures in expected.values())
    assert any(figures.commits.errors for figures in expected.values())
    assert_equal(Written(spark, reported.tables), expected)


def test_periods_have_the_same_figures_on_spark(spark: SparkSession, played: Path, reported: Reported) -> None:
    """Two weeks are compared where the log of a night fits one machine, and where it does not."""
    periods = [Period(0, 20_000), Period(10_000, 60_000), Period(10_000_000, 20_000_000)]
    events = [event for path in sorted(played.glob("*.jsonl")) for event in read_journal(path)]
    expected = periods_of_timelines(build_timelines(events), periods)
    assert expected.periods[0].rebalances > 100
    found = compare_periods(Written(spark, reported.tables), periods)  # type: ignore[arg-type]
    assert found.to_plain() == expected.to_plain()


def test_the_command_writes_tables_and_a_page(spark: SparkSession, played: Path, reported: Reported) -> None:
    """One command from a night's logs to something that can be mailed; the tables answer further questions."""
    assert f"{len(PLAYED)} groups" in reported.printed
    assert "MALFORMED LINES: 1" in reported.printed
    assert f"{reported.torn}:1: not a line of the event log: 'INFO" in reported.printed
    assert reported.page.count("<svg") >= 3
    assert "INFO &lt;b&gt;started" in reported.page
    assert not re.search(r"""(src|href)\s*=(?!"#)""", reported.page), "the page loads nothing"
    assert sorted(path.name for path in reported.tables.iterdir()) == sorted(TABLES)
    slowest = Written(spark, reported.tables).groups.orderBy("rebalance.max_ms", ascending=False).first()
    assert slowest is not None
    expected = alone(played.glob("*.jsonl"))
    assert slowest["rebalance"]["max_ms"] == max(figures.rebalance.max_ms or 0 for figures in expected.values())


def owned(member: Consumer) -> int:
    """How many partitions it has, after it has looked for records and for news of the group."""
    member.consume(10, timeout=0.02)
    return len(member.assignment())


def test_logs_of_real_members_and_their_broker_have_the_same_figures_on_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two consumers, one of which comes later and goes again, and their coordinator; one of the logs is packed."""
    paths = {name: tmp_path / f"{name}.jsonl" for name in ("broker", "one", "two")}
    journals = {name: JsonLinesJournal.open(path) for name, path in paths.items()}
    with EmbeddedBroker({"orders": 4}, journal=journals["broker"]) as broker:
        produce(broker.bootstrap_servers, "orders", 20, partitions=4)
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        with Consumer({**conf, "client.id": "c"}, journal=journals["one"]) as one:
            one.subscribe(["orders"])
            assert next(one.batches(30, timeout=60))
            with Consumer({**conf, "client.id": "c"}, journal=journals["two"]) as two:
                two.subscribe(["orders"])
                wait_until(lambda: [owned(one), owned(two)] == [2, 2])
                two.commit(asynchronous=False)
            wait_until(lambda: owned(one) == 4)
        broker.wait_for_group("g", members=0)
    for journal in journals.values():
        journal.close()
    expected = alone(paths.values())
    assert expected["g"].heartbeats >= 4
    assert expected["g"].moves >= 2
    packed = paths["two"].with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(paths["two"].read_bytes()))
    paths["two"].unlink()

    assert_equal(analyze(spark, [str(tmp_path / "*.jsonl"), packed]), expected)


def test_lines_that_are_no_events_are_named_and_the_rest_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    """A night's logs of a cluster have a torn line somewhere; file and line say where."""
    events = list(to_event_log(run(scenario_of("quiet", seed=1), seed=1).lines, group_id="g"))
    lines = [event.to_json() for event in events]
    unknown = '{"v":1,"ts_ms":1,"source":"client","event":"nonsense"}'
    bad_time = lines[0].replace('"ts_ms":', '"ts_ms":"soon","was":')
    torn = [*lines[:3], "INFO started", *lines[3:40], unknown, bad_time, *lines[40:], lines[5][:30]]
    (tmp_path / "torn.jsonl").write_text("\n".join(torn), encoding="utf-8")
    keep(tmp_path / "other.jsonl", events[:1])
    (tmp_path / "packed.parquet").write_bytes(b"PAR1\xe3\x00\xff\n")
    session = spark.newSession()
    session.conf.set("spark.sql.files.maxPartitionBytes", "65536")
    session.conf.set("spark.sql.files.openCostInBytes", "0")
    analysis = analyze(session, [tmp_path])
    assert (analysis.bounds.malformed, analysis.bounds.events) == (5, len(lines) + 1)
    found = sorted(analysis.malformed.collect(), key=lambda row: row["line"])

    assert [(Path(row["file"]).name, row["line"]) for row in found] == [
        ("packed.parquet", 1),
        *(("torn.jsonl", line) for line in (4, 42, 43, len(torn))),
    ]
    assert "INFO started" in found[1]["problem"]
    assert "event 'nonsense' is not listed" in found[2]["problem"]


def test_what_is_not_there_is_told(spark: SparkSession, played: Path, tmp_path: Path) -> None:
    """In one sentence, not in a stack of Spark's."""
    with pytest.raises(ConfigError, match="event logs cannot be read"):
        analyze(spark, [tmp_path / "missing"])
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(Kip848Error, match="no event of any group in 0 lines"):
        analyze(spark, [tmp_path])
    with pytest.raises(Kip848Error, match="no event of group 'nobody'; there is assignors-2, churn-7, quiet-1"):
        analyze(spark, [played / "2.jsonl"], group_id="nobody")


@pytest.mark.parametrize(
    ("master", "folder", "called"),
    [
        ("local[2]", None, [("localCheckpoint", None)]),
        ("spark://host:7077", None, [("localCheckpoint", StorageLevel.MEMORY_AND_DISK_2)]),
        ("local-cluster[2,1,1024]", None, [("localCheckpoint", StorageLevel.MEMORY_AND_DISK_2)]),
        ("yarn", "hdfs:///checkpoints", [("checkpoint", None)]),
    ],
)
def test_a_table_that_is_kept_outlives_an_executor(
    master: str, folder: str | None, called: list[tuple[str, StorageLevel | None]]
) -> None:
    """Its plan is cut: what went with an executor could not be computed again, and the job would fail."""
    table = mock.Mock()
    calls: list[tuple[str, object]] = []
    table.sparkSession.sparkContext.master = master
    table.sparkSession.sparkContext.getCheckpointDir.return_value = folder
    table.checkpoint.side_effect = lambda: calls.append(("checkpoint", None))
    table.localCheckpoint.side_effect = lambda **given: calls.append(("localCheckpoint", given.get("storageLevel")))
    kept(table)
    assert calls == called


def test_pandas_is_not_needed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """``pip install 'kip848_client[spark]'`` brings none, and PySpark asks for it before it knows what it is for."""
    from pyspark.sql.pandas import functions

    def nothing_there() -> None:
        raise ImportError("Pandas >= 2.2.0 must be installed")

    def double(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"twice": [2 * number for number in batch.column(0).to_pylist()]})

    monkeypatch.setattr(functions, "require_minimum_pandas_version", nothing_there)
    doubled = map_in_arrow(spark.range(3).toDF("number"), double, "twice long")
    assert [row["twice"] for row in doubled.orderBy("twice").collect()] == [0, 2, 4]
