"""Turns event rows into the lanes of each group: spans of owning and reading, epochs, calls and marks.

A task handles one group. It keeps open spans and no events, because a group's log may be larger than memory.
`kip848_client.report.lanes` makes the spans; this module passes it the events and collects the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from pyspark.sql import functions as sf

from kip848_client.journal import JournalEvent
from kip848_client.report.lanes import LaneBuilder, Piece
from kip848_client.spark.arrow_map import map_in_arrow
from kip848_client.spark.event_rows import ArrowRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PIECES_DDL", "lane_rows", "with_names"]

PIECES_DDL: Final = (
    "group_id string, seq long, kind string, lane string, text string, start_ms double, end_ms double, number long, "
    "mark string"
)
"""`kip848_client.report.lanes.Piece` of a group; `seq` is the order in which they ended."""

_SCHEMA: Final = pa.schema(
    [
        ("group_id", pa.string()),
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("lane", pa.string()),
        ("text", pa.string()),
        ("start_ms", pa.float64()),
        ("end_ms", pa.float64()),
        ("number", pa.int64()),
        ("mark", pa.string()),
    ]
)
_READ: Final = (
    "group_id", "ts_ms", "source", "event", "member_id", "client_id", "group_epoch", "member_epoch", "fields", "who",
    "spoken_ms", "coordinated",
)  # fmt: skip
_ORDER: Final = ("ts_ms", "file", "block", "line")
_EVENTS_BETWEEN_DRAINS: Final = 1_000
_ROWS_PER_BATCH: Final = 5_000


def with_names(events: DataFrame) -> DataFrame:
    """Events of groups with `who` they are about, named as `kip848_client.report.names` does."""
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


def lane_rows(named: DataFrame, *, start_ms: int, end_ms: int) -> DataFrame:
    """Pieces of all groups.

    Args:
        named: as `with_names` makes them.
        start_ms, end_ms: first and last time of the whole log.
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
    return map_in_arrow(ordered.select(*_READ), _maker(start_ms=start_ms, end_ms=end_ms), PIECES_DDL)


def _maker(*, start_ms: int, end_ms: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = ArrowRows(_SCHEMA)
        group: _Group | None = None
        for batch in batches:
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if group is None or group.group_id != row[0]:
                    if group is not None:
                        group.end(rows, end_ms=max(float(end_ms), start_ms + 1))
                    group = _Group(row[0], start_ms=start_ms, is_coordinated=row[-1])
                group.add(row, rows)
                yield from rows.full(_ROWS_PER_BATCH)
        if group is not None:
            group.end(rows, end_ms=max(float(end_ms), start_ms + 1))
        yield from rows.full(1)

    return make


class _Group:
    """The builder of one group. It also provides the names, because each row carries its member's name."""

    def __init__(self, group_id: str, *, start_ms: int, is_coordinated: bool) -> None:
        self.group_id = group_id
        self._is_coordinated = is_coordinated
        self._builder = LaneBuilder(group_id, self, start_ms=float(start_ms))
        self._who = ""
        self._spoken_ms: int | None = None
        self._events = 0
        self._seq = 0

    def of(self, event: JournalEvent) -> str:
        return self._who

    def speaks_after(self, group_id: str | None, name: str, ts_ms: float) -> bool:
        return self._spoken_ms is not None and self._spoken_ms > ts_ms

    def is_coordinated(self, group_id: str) -> bool:
        return self._is_coordinated

    def add(self, row: tuple[object, ...], rows: ArrowRows) -> None:
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
            self._keep(self._builder.drain(), rows)

    def end(self, rows: ArrowRows, *, end_ms: float) -> None:
        self._keep(self._builder.last(end_ms=end_ms), rows)

    def _keep(self, pieces: Iterator[Piece], rows: ArrowRows) -> None:
        for piece in pieces:
            self._seq += 1
            kind, lane, text, start_ms, end_ms, number, mark = piece
            rows.add(self.group_id, self._seq, kind, lane, text, start_ms, end_ms, number, mark)
