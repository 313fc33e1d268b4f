"""The columns of the tables that this package makes, for Spark and for Arrow. No rows.

The record columns are those of Spark's own Kafka source, names, types and order.
"""

from __future__ import annotations

import inspect
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

RECORDS: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
"""One row for each record, as Spark's Kafka source has it."""

_HEADERS: Final = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)

RECORDS_WITH_HEADERS: Final = StructType([*RECORDS.fields, _HEADERS])
"""The same with ``includeHeaders``; headers are null for a record without any."""

_LEADER_EPOCH: Final = StructField("leaderEpoch", IntegerType())


def record_schema(*, include_headers: bool, include_leader_epoch: bool = False) -> StructType:
    """The schema of the source."""
    schema = RECORDS_WITH_HEADERS if include_headers else RECORDS
    return StructType([*schema.fields, _LEADER_EPOCH]) if include_leader_epoch else schema


def arrow_records(*, include_headers: bool, include_leader_epoch: bool = False) -> pa.Schema:
    """The Arrow schema that Spark expects for `record_schema`; it compares for equality, metadata included."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = record_schema(include_headers=include_headers, include_leader_epoch=include_leader_epoch)
    if "timezone" not in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema)  # before Spark 4.2 it is UTC always
    return to_arrow_schema(schema, timezone="UTC")
