"""Runs `kip848_client.tools.report` for each group: events in, the rows of all tables out.

A task handles one group at a time. The group's log may be larger than memory, so the task keeps only the periods in
which partitions had owners (a hundred bytes each), epochs, and eight bytes for each heartbeat (forty while they are
sorted).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import functions as sf

from kip848_client.journal import JournalEvent
from kip848_client.spark.analytics.event_rows import clean
from kip848_client.spark.session.arrow_map import map_in_arrow
from kip848_client.tools.report.figures import Figures, figures_of, handovers_of, owners_of
from kip848_client.tools.report.findings import Finding, findings_of
from kip848_client.tools.report.timeline.lanes import LaneBuilder
from kip848_client.tools.report.timeline.timeline import Mark, MarkKind, Timeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT: Final = pa.string()
_COUNT: Final = pa.int64()
_MS: Final = pa.float64()
_TEXTS: Final = pa.list_(pa.string())
_TIMES: Final = pa.list_(pa.float64())
_SPREAD: Final = pa.struct([("count", _COUNT), ("p50_ms", _MS), ("p90_ms", _MS), ("p99_ms", _MS), ("max_ms", _MS)])
_COMMITS: Final = {"done": _COUNT, "failed": _COUNT, "accepted": _COUNT, "refused": _COUNT}
_MARK_KINDS: Final[tuple[MarkKind, ...]] = ("fault", "refusal", "failure", "life")

FIGURE_TABLES: Final[Mapping[str, Mapping[str, pa.DataType]]] = {
    "groups": {
        "log_ms": _MS, "members": _COUNT, "partitions": _COUNT,
        "rebalance": _SPREAD, "rebalances_open": _COUNT, "change": _SPREAD, "without_reader": _SPREAD,
        "at_most": _COUNT, "at_least": _COUNT, "empty_ms": _MS,
        "moves": _COUNT, "bounces": _COUNT, "stayed": _MS, "two_readers": _TEXTS,
        "heartbeats": _COUNT, "late": _SPREAD, **_COMMITS, **{f"{kind}_marks": _COUNT for kind in _MARK_KINDS},
    },
    "members": {
        "member": _TEXT, "host": _TEXT, "since_ms": _MS, "heartbeats": _COUNT, "late": _SPREAD, **_COMMITS,
        "gained": _COUNT, "given": _COUNT, "returned": _COUNT, "owned_ms": _MS,
    },
    "partitions": {
        "partition": _TEXT, "moves": _COUNT, "returned": _COUNT, "without_reader_ms": _MS,
        "without_reader_max_ms": _MS, "two_readers": pa.bool_(),
    },
    "rebalances": {
        "start_ms": _MS, "end_ms": _MS, "ms": _MS, "at_least": pa.bool_(), "first_epoch": _COUNT,
        "last_epoch": _COUNT, "reasons": _TEXTS,
        "moved": _COUNT, "without_reader_ms": _MS,
    },
    "findings": {
        "kind": _TEXT, "start_ms": _MS, "ms": _MS, "rests": _TEXT, "partitions": _COUNT, "why": _TEXT, "who": _TEXTS,
        "text": _TEXT, "which": _TEXTS, "least_ms": _MS, "most_ms": _MS, "records": _COUNT, "badness": _MS,
    },
    "pauses": {"first_ms": _MS, "last_ms": _MS, "starts_ms": _TIMES, "ends_ms": _TIMES},
    "states": {"state": _TEXT, "start_ms": _MS, "end_ms": _MS},
    "revocations": {"member": _TEXT, "took": _SPREAD},
    "changes": {"start_ms": _MS, "end_ms": _MS, "ms": _MS, "epoch": _COUNT, "reason": _TEXT},
    "ownership": {
        "partition": _TEXT, "owner": _TEXT, "start_ms": _MS, "end_ms": _MS, "next_owner": _TEXT, "gap_ms": _MS,
        "rests": _TEXT,
    },
    "listener_calls": {"callback": _TEXT, "took": _SPREAD},
    "commit_errors": {"member": _TEXT, "end": _TEXT, "error": _TEXT, "count": _COUNT},
    "marks": {"ts_ms": _MS, "who": _TEXT, "kind": _TEXT, "text": _TEXT},
}  # fmt: skip
"""Table -> its columns after group_id."""

_SCHEMA: Final = pa.schema(
    [("group_id", _TEXT), *((name, pa.struct(list(columns.items()))) for name, columns in FIGURE_TABLES.items())]
)
"""One row is a row of one table; the other tables are null in it."""
_READ: Final = (
    "group_id", "ts_ms", "source", "event", "member_id", "client_id", "group_epoch", "member_epoch", "fields", "who",
    "spoken_ms", "coordinated",
)  # fmt: skip
_ORDER: Final = ("ts_ms", "file", "block", "line")
_EVENTS_BETWEEN_DRAINS: Final = 1_000
_RANK: Final = 1e15
"""Distance of two kinds of findings in `badness`: more milliseconds, times partitions, than any of them lasts."""
_Row = tuple[str, str, dict[str, Any]]
"""Group, table, and the columns of one row."""

_ROWS_PER_BATCH: Final = 5_000


def with_names(events: DataFrame) -> DataFrame:
    """Events of groups with `who` they are about, named as `kip848_client.tools.report.timeline.names` does."""
    named = events.where("member_id <> '' and client_id <> ''")
    shared = (
        named.groupBy("group_id", "client_id")
        .agg(sf.count_distinct("member_id").alias("members"))
        .where("members > 1")
        .select("group_id", "client_id", sf.lit(True).alias("shared"))
    )
    names = (
        named.groupBy("group_id", "member_id")
        .agg(sf.max(sf.struct(*_ORDER, "client_id")).alias("last"))
        .select("group_id", "member_id", sf.col("last.client_id").alias("client_id"))
        .join(shared, ["group_id", "client_id"], "left")
        .select(
            "group_id",
            "member_id",
            sf.expr(
                "if(shared, concat(client_id, ' ', substring(if(startswith(member_id, concat(client_id, '-')), "
                "substring(member_id, length(client_id) + 2), member_id), 1, 8)), client_id)"
            ).alias("name"),
        )
    )
    who = (
        "case when member_id <> '' then coalesce(name, member_id) when client_id <> '' then client_id "
        "when source = 'coordinator' then 'coordinator' else source end"
    )
    return events.join(names, ["group_id", "member_id"], "left").withColumn("who", sf.expr(who)).drop("name")


def figure_rows(
    named: DataFrame, *, start_ms: int, end_ms: int, marks_of_all: Mapping[MarkKind, int] | None = None
) -> DataFrame:
    """The rows of `FIGURE_TABLES`: a column for each table.

    Args:
        named: as `with_names` makes them.
        start_ms, end_ms: first and last time of the whole log.
        marks_of_all: how many marks belong to no group; they are counted with every group.
    """
    spoken = (
        named.where("source = 'client'")
        .groupBy("group_id", "who")
        .agg(sf.max("ts_ms").alias("spoken_ms"))
    )  # fmt: skip
    # Only a removal asks whether its member speaks on.
    removals = named.where("event = 'member_left'").join(spoken, ["group_id", "who"], "left")
    others = named.where("event <> 'member_left'").withColumn("spoken_ms", sf.lit(None).cast("long"))
    columns = [*(name for name in _READ if name != "coordinated"), *(name for name in _ORDER if name not in _READ)]
    sides = named.groupBy("group_id").agg(sf.max(sf.col("source") != "client").alias("coordinated"))
    ordered = (
        others.where("fields is not null")
        .select(*columns)
        .unionByName(removals.select(*columns))
        .join(sides, "group_id")
        .repartition("group_id")
        .sortWithinPartitions("group_id", *_ORDER)
    )
    maker = _maker(start_ms=start_ms, end_ms=end_ms, marks_of_all=dict(marks_of_all or {}))
    return map_in_arrow(ordered.select(*_READ), maker, _ddl())


def _ddl() -> str:
    """`_SCHEMA` as Spark spells it."""
    return ", ".join(f"{field.name} {_spelled(field.type)}" for field in _SCHEMA)


def _spelled(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {_spelled(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{_spelled(kind.value_type)}>"
    return {_TEXT: "string", _COUNT: "bigint", _MS: "double", pa.bool_(): "boolean"}[kind]


def _maker(
    *, start_ms: int, end_ms: int, marks_of_all: Mapping[MarkKind, int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = _rows_of(batches, start_ms=float(start_ms), end_ms=max(float(end_ms), start_ms + 1.0), more=marks_of_all)
        while some := list(itertools.islice(rows, _ROWS_PER_BATCH)):
            yield pa.RecordBatch.from_pylist(
                [{"group_id": group_id, table: _cleaned(row)} for group_id, table, row in some], schema=_SCHEMA
            )

    return make


def _rows_of(
    batches: Iterator[pa.RecordBatch], *, start_ms: float, end_ms: float, more: Mapping[MarkKind, int]
) -> Iterator[_Row]:
    events = itertools.chain.from_iterable(
        zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches
    )
    for group_id, of_group in itertools.groupby(events, lambda row: row[0]):
        group: _Group | None = None
        for row in of_group:
            if group is None:
                group = _Group(group_id, start_ms=start_ms, is_coordinated=row[-1])
            yield from group.add(row)
        assert group is not None, "a group has at least one event"
        yield from group.end(end_ms=end_ms, more=more)


def _cleaned(row: dict[str, Any]) -> dict[str, Any]:
    """*row* with texts that UTF-8 can have."""
    return {
        name: clean(cell)
        if isinstance(cell, str)
        else [clean(each) if isinstance(each, str) else each for each in cell]
        if isinstance(cell, list)
        else cell
        for name, cell in row.items()
    }


class _Group:
    """The builder of one group. It also provides the names, because each row carries its member's name."""

    def __init__(self, group_id: str, *, start_ms: float, is_coordinated: bool) -> None:
        self.group_id = group_id
        self._is_coordinated = is_coordinated
        self._builder = LaneBuilder(group_id, self, start_ms=start_ms)
        self._who = ""
        self._spoken_ms: int | None = None
        self._events = 0

    def of(self, event: JournalEvent) -> str:
        return self._who

    def speaks_after(self, group_id: str | None, name: str, ts_ms: float) -> bool:
        return self._spoken_ms is not None and self._spoken_ms > ts_ms

    def is_coordinated(self, group_id: str) -> bool:
        return self._is_coordinated

    def add(self, row: tuple[object, ...]) -> Iterator[_Row]:
        _, ts_ms, source, event, member_id, client_id, group_epoch, member_epoch, fields, who, spoken_ms, _ = row
        self._who, self._spoken_ms = who, spoken_ms  # type: ignore[assignment]
        self._builder.add(
            JournalEvent(
                ts_ms=ts_ms,  # type: ignore[arg-type]
                source=source,  # type: ignore[arg-type]
                event=event,  # type: ignore[arg-type]
                group_id=self.group_id,
                member_id=member_id,  # type: ignore[arg-type]
                client_id=client_id,  # type: ignore[arg-type]
                group_epoch=group_epoch,  # type: ignore[arg-type]
                member_epoch=member_epoch,  # type: ignore[arg-type]
                fields=msgspec.json.decode(fields),  # type: ignore[call-overload]
            )
        )
        self._events += 1
        if self._events % _EVENTS_BETWEEN_DRAINS == 0:
            yield from self._marks(self._builder.drain())

    def end(self, *, end_ms: float, more: Mapping[MarkKind, int]) -> Iterator[_Row]:
        timeline = self._builder.finish(end_ms=end_ms)
        yield from self._marks(timeline.marks)
        for table, row in _tables(timeline, figures_of(timeline), more):
            yield self.group_id, table, row

    def _marks(self, marks: Iterable[Mark]) -> Iterator[_Row]:
        for mark in marks:
            yield self.group_id, "marks", {"ts_ms": mark.ts_ms, "who": mark.who, "kind": mark.kind, "text": mark.text}


def finding_row(finding: Finding) -> dict[str, Any]:
    """A row of the table of findings, and its group."""
    rank, less = finding.badness
    plain: dict[str, Any] = msgspec.to_builtins(finding)
    return {**plain, "who": list(finding.who), "which": list(finding.which), "badness": -rank * _RANK - less}


def _tables(timeline: Timeline, figures: Figures, more: Mapping[MarkKind, int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of one group."""
    plain = msgspec.to_builtins
    yield (
        "groups",
        {
            **{
                name: getattr(figures, name)
                for name in ("log_ms", "members", "partitions", "moves", "bounces", "stayed")
            },
            **{name: plain(getattr(figures, name)) for name in ("rebalance", "change", "without_reader", "late")},
            **{name.replace(" ", "_"): figures.bounds.get(name, 0) for name in ("at most", "at least")},
            "empty_ms": figures.empty_ms,
            "rebalances_open": sum(each.end_ms is None for each in figures.rebalances),
            "two_readers": list(figures.two_readers),
            "heartbeats": figures.heartbeats,
            **{end: getattr(figures.commits, end) for end in _COMMITS},
            **{f"{kind}_marks": figures.marks.get(kind, 0) + more.get(kind, 0) for kind in _MARK_KINDS},
        },
    )
    for member in figures.by_member:
        yield "members", {**plain(member), **{end: getattr(member.commits, end) for end in _COMMITS}}
        if member.revoked.count:
            yield "revocations", {"member": member.member, "took": plain(member.revoked)}
    for each in figures.rebalances:
        yield "rebalances", {**plain(each), "ms": each.ms, "at_least": each.at_least}
    changes_of_owner = handovers_of(timeline)
    for finding in findings_of(timeline, figures, changes_of_owner):
        yield "findings", finding_row(finding)
    if timeline.pauses.last_ms:
        yield (
            "pauses",
            {
                "first_ms": timeline.pauses.first_ms,
                "last_ms": timeline.pauses.last_ms,
                "starts_ms": [start_ms for start_ms, _ in timeline.pauses.spans],
                "ends_ms": [end_ms for _, end_ms in timeline.pauses.spans],
            },
        )
    for state in timeline.states:
        yield "states", {"state": state.text, "start_ms": state.start_ms, "end_ms": state.end_ms}
    for change in timeline.changes:
        took_ms = None if change.end_ms is None else change.end_ms - change.start_ms
        yield "changes", {**plain(change), "ms": took_ms}
    for callback, took in figures.listener_calls.items():
        yield "listener_calls", {"callback": callback, "took": plain(took)}
    for key, count in timeline.counts.commits.items():
        if key.error:
            yield "commit_errors", {"member": key.who, "end": key.end, "error": key.error, "count": count}
    two_readers = frozenset(figures.two_readers)
    handovers = {
        partition: list(of_partition)
        for partition, of_partition in itertools.groupby(changes_of_owner, lambda each: each.partition)
    }
    for partition, owners in owners_of(timeline).items():
        left = handovers.get(partition, [])
        gaps = [each.gap_ms for each in left if each.gap_ms is not None]
        yield (
            "partitions",
            {
                "partition": partition,
                "moves": sum(each.moved for each in left),
                "returned": sum(not each.moved for each in left),
                "without_reader_ms": sum(gaps, 0.0),
                "without_reader_max_ms": max(gaps, default=None),
                "two_readers": partition in two_readers,
            },
        )
        for owner, handover in itertools.zip_longest(owners, left):
            yield (
                "ownership",
                {
                    "partition": partition,
                    "owner": owner.text,
                    "start_ms": owner.start_ms,
                    "end_ms": owner.end_ms,
                    "next_owner": None if handover is None else handover.after,
                    "gap_ms": None if handover is None else handover.gap_ms,
                    "rests": None if handover is None else handover.rests,
                },
            )
