"""Event logs as a table: one row per line, parsed by `kip848_client.journal`. Lines that are not events are kept.

Does not own: the meaning of events (`figure_rows`), the figures (`analytics`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from kip848_client.common.json_text import to_json
from kip848_client.errors import ConfigError, ProtocolError
from kip848_client.journal import JournalEvent, parse_line
from kip848_client.spark.session.arrow_map import map_in_arrow
from kip848_client.tools.report.timeline.lanes import HANDLERS, sent_and_late_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS_DDL: Final = (
    "file string, block long, line long, ts_ms long, source string, event string, group_id string, member_id string, "
    "client_id string, group_epoch long, member_epoch long, fields string, sent_ms double, late_ms double, "
    "problem string"
)
"""`line` counts from 1 within a block, the part of a file that one task reads. `fields` is JSON, of events that lanes
are made of. `problem` is set, and all that the line says is null, if the line is not an event."""

_SCHEMA: Final = pa.schema(
    [
        ("file", pa.string()),
        ("block", pa.int64()),
        ("line", pa.int64()),
        ("ts_ms", pa.int64()),
        ("source", pa.string()),
        ("event", pa.string()),
        ("group_id", pa.string()),
        ("member_id", pa.string()),
        ("client_id", pa.string()),
        ("group_epoch", pa.int64()),
        ("member_epoch", pa.int64()),
        ("fields", pa.string()),
        ("sent_ms", pa.float64()),
        ("late_ms", pa.float64()),
        ("problem", pa.string()),
    ]
)
_NOTHING: Final = (None,) * 11
_ROWS_PER_BATCH: Final = 5_000
_HUGE: Final = 2**53


def read_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """The lines of files, folders (with all that is below them) and patterns, on any file system that Spark knows.

    Returns:
        Columns value, file, block.

    Raises:
        ConfigError: nothing is there.
    """
    from pyspark.errors import AnalysisException

    try:
        text = spark.read.option("recursiveFileLookup", "true").text(list(paths))
        return text.select(
            "value",
            sf.col("_metadata.file_path").alias("file"),
            sf.col("_metadata.file_block_start").alias("block"),
        )
    except AnalysisException as error:
        raise ConfigError(f"the event logs cannot be read: {error.getMessage() or error}") from error


def event_rows(lines: DataFrame) -> DataFrame:
    """Parse lines (columns value, file, block) into `EVENTS_DDL`; every line becomes a row."""
    # As bytes: a file that is not an event log need not be UTF-8.
    raw = lines.select(sf.col("value").cast("binary"), "file", sf.col("block").cast("long"))
    return map_in_arrow(raw, parse_batches, EVENTS_DDL)


def malformed_lines(events: DataFrame) -> DataFrame:
    """The lines that are not events: file, line (from 1, in the whole file), problem."""
    blocks = events.groupBy("file", "block").agg(sf.max("line").alias("lines"))
    before = Window.partitionBy("file").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    offsets = blocks.select("file", "block", sf.coalesce(sf.sum("lines").over(before), sf.lit(0)).alias("before"))
    return (
        events.where("problem is not null")
        .select("file", "block", "line", "problem")
        .join(offsets, ["file", "block"])
        .select("file", (sf.col("before") + sf.col("line")).alias("line"), "problem")
    )


def parse_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function for `mapInArrow`: lines in the order of their blocks."""
    rows = ArrowRows(_SCHEMA)
    place: tuple[str, int] | None = None
    number = 0
    for batch in batches:
        values, files, blocks = (batch.column(index).to_pylist() for index in range(3))
        for value, file, block in zip(values, files, blocks, strict=True):
            number = number + 1 if (file, block) == place else 1
            place = (file, block)
            try:
                rows.add(file, block, number, *_columns(parse_line(value.decode("utf-8", "replace"))), None)
            except ProtocolError as error:
                rows.add(file, block, number, *_NOTHING, str(error))
        yield from rows.full(_ROWS_PER_BATCH)
    yield from rows.full(1)


def _columns(event: JournalEvent) -> tuple[object, ...]:
    fields = event.fields
    numbers = event.ts_ms, event.group_epoch or 0, event.member_epoch or 0
    if not all(-_HUGE < number < _HUGE for number in numbers):
        raise ProtocolError(f"event log line has a time or an epoch out of range: {numbers}")
    told = to_json(fields) if event.event in HANDLERS else None
    beat = sent_and_late_ms(event) if event.event == "heartbeat_sent" else (None, None)
    return (
        *(event.ts_ms, event.source, event.event, event.group_id, event.member_id, event.client_id),
        *(event.group_epoch, event.member_epoch, told, *beat),
    )


class ArrowRows:
    """Collects rows for record batches of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[tuple[object, ...]] = []
        self._texts = [pa.types.is_string(field.type) for field in schema]

    def add(self, *row: object) -> None:
        """Keep one row, in the order of the schema."""
        self._rows.append(row)

    def full(self, rows_min: int) -> Iterator[pa.RecordBatch]:
        """Remove and yield the rows as one record batch, if there are at least *rows_min*."""
        if len(self._rows) < rows_min:
            return
        columns = list(zip(*self._rows, strict=True))
        self._rows = []
        arrays = [
            pa.array([clean(cell) for cell in column] if text else column, field.type)
            for column, field, text in zip(columns, self._schema, self._texts, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def clean(text: Any) -> Any:
    """*text* as UTF-8 can have it: JSON may hold halves of characters."""
    return text if text is None or text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
