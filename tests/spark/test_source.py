"""What the source refuses as a whole: to write, and other columns. No Spark session; queries are in `test_queries`."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from kip848_client.errors import ConfigError
from kip848_client.spark.schema import record_schema
from kip848_client.spark.source import KafkaGroupSource

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "orders"}


def test_there_is_no_sink_and_the_message_names_those_that_there_are() -> None:
    """PySpark would say that a writer is not implemented, as if it were to come."""
    source = KafkaGroupSource(dict(OPTIONS))
    with pytest.raises(ConfigError, match=r"only reads: write with Spark's own format"):
        source.writer(record_schema(include_headers=False), overwrite=False)
    with pytest.raises(ConfigError, match="only reads"):
        source.streamWriter(record_schema(include_headers=False), overwrite=False)


def test_columns_cannot_be_chosen() -> None:
    """As in Spark's own source; else every task fails on the first record, with a message about Arrow."""
    wanted = StructType([StructField("a", LongType())])
    with pytest.raises(ConfigError, match="columns of this source are fixed"):
        KafkaGroupSource(dict(OPTIONS)).reader(wanted)
    with pytest.raises(ConfigError, match="columns of this source are fixed"):
        KafkaGroupSource(dict(OPTIONS)).streamReader(wanted)


@pytest.mark.parametrize("headers", ["true", "false"])
def test_its_own_columns_are_taken(headers: str) -> None:
    """With headers if they were asked for."""
    source = KafkaGroupSource({**OPTIONS, "includeHeaders": headers})
    assert source.streamReader(source.schema()) is not None
    assert ("headers" in source.schema().fieldNames()) is (headers == "true")
