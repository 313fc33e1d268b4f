"""``format("kip848")``: the source as Spark calls it. Each method calls a module that does not import Spark.

Which process calls what: the user's Python only `register`s; a process per query, which lives as long as the query,
plans and is the member (`stream`, `membership`); another short-lived one makes a second reader and pickles it to the
workers that call ``read``. So nothing is joined when a reader is made, and it holds no thread until it has joined.
Each of these processes imports this module, most of them for one call: what that call needs is imported inside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn

import pyarrow as pa
import pyspark
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kip848_client.errors import ConfigError
from kip848_client.spark.source.reading import TaskPartition, read_partition
from kip848_client.spark.values.filters import EVERYTHING, narrowed
from kip848_client.spark.values.options import SourceOptions, parse_options
from kip848_client.spark.values.schema import record_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter, Filter

    from kip848_client.spark.sink.sink_options import SinkOptions

FORMAT: Final = "kip848"

_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make ``spark.readStream.format("kip848")`` and ``spark.read.format("kip848")`` known to a session."""
    from kip848_client.spark.source.cores import session_cores

    # Spark's Python processes cannot see the session, so the class that is sent to them carries these values.
    spark.conf.set(_PUSHDOWN, "true")  # off by default, and then Spark refuses readers that could filter
    knowledge = {"cores": session_cores(spark), "filters": True}
    known = type(KafkaGroupSource.__name__, (KafkaGroupSource,), knowledge)
    spark.dataSource.register(known)


class KafkaGroupSource(DataSource):
    """Records of Kafka topics, read as a member of a consumer group (stream) or between two offsets (batch)."""

    cores: ClassVar[int | None] = None
    """How many tasks the session can run at once; None if that is not known."""

    filters: ClassVar[bool] = False
    """Whether the session passes filters to batch reads."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return FORMAT

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    def schema(self) -> StructType:
        """Columns as Spark's Kafka source has them."""
        headers, leader_epoch = (
            str(self.options.get(name, "false")).strip().lower() == "true"
            for name in ("includeHeaders", "includeLeaderEpoch")
        )
        return record_schema(include_headers=headers, include_leader_epoch=leader_epoch)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        self._check_schema(schema)
        kind = FilteringReader if self.filters else KafkaBatchReader
        return kind(parse_options(dict(self.options), streaming=False, cores=self.cores))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """For ``spark.readStream``."""
        self._check_schema(schema)
        options = parse_options(dict(self.options), streaming=True, cores=self.cores)
        if find_spec("pyspark.sql.streaming.datasource") is None:
            from kip848_client.spark.source.stream_reader import EarlierStreamReader

            return EarlierStreamReader(options)
        from kip848_client.spark.source.stream_reader_of_4_2 import LimitedStreamReader

        return LimitedStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``frame.write``."""
        if overwrite:
            raise ConfigError('a topic cannot be overwritten: write with mode("append"), which Spark wants to be said')
        from kip848_client.spark.sink.sink import KafkaBatchWriter  # with librdkafka's producer, for those who write

        return KafkaBatchWriter(self._sink_options(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """For ``frame.writeStream``. With ``outputMode("complete")`` each batch appends the whole result."""
        if not hasattr(datasource, "DataSourceStreamArrowWriter"):
            _refuse_version("writing a stream", "4.1", "frame.write works here, also in foreachBatch")
        from kip848_client.spark.sink.sink_stream import KafkaStreamWriter

        return KafkaStreamWriter(self._sink_options(schema))

    def _sink_options(self, schema: StructType) -> SinkOptions:
        from kip848_client.spark.sink.sink import check_columns
        from kip848_client.spark.sink.sink_options import parse_sink_options

        options = parse_sink_options(dict(self.options))
        check_columns(schema, options)
        return options

    def _check_schema(self, wanted: StructType) -> None:
        if wanted.simpleString() != self.schema().simpleString():
            raise ConfigError(
                "the columns of this source are fixed: leave schema(...) out, and decode key and value with functions "
                "of DataFrame"
            )


class KafkaBatchReader(DataSourceReader):
    """A batch between two offsets; joins nothing."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._wanted = EVERYTHING

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the batch."""
        from kip848_client.spark.source.batch import plan_batch

        # Without any, Spark would have a task read None.
        return [TaskPartition(task) for task in plan_batch(self._options, self._wanted) or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's ranges; runs in a worker."""
        return read_partition(partition, self._options)


class FilteringReader(KafkaBatchReader):
    """A reader for a session that hands filters over."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Read less; Spark applies all of them again."""
        self._wanted = narrowed(filters)
        return filters


def _refuse_version(what: str, needed: str, instead: str) -> NoReturn:
    raise ConfigError(f"{what} needs Spark {needed} or newer, and this is {pyspark.__version__}; {instead}")
