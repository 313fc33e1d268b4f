"""What source and sink refuse as a whole: to overwrite, and other columns. No Spark session."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kip848_client.errors import ConfigError
from kip848_client.spark.source.source import KafkaGroupSource

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "orders"}


def test_a_topic_is_not_overwritten() -> None:
    """``mode("overwrite")`` wants what Kafka cannot do; ``outputMode("complete")`` appends, as in Spark's own sink."""
    source = KafkaGroupSource({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "out"})
    schema = StructType([StructField("value", StringType())])
    assert source.writer(schema, overwrite=False) is not None
    assert source.streamWriter(schema, overwrite=False) is not None
    with pytest.raises(ConfigError, match="cannot be overwritten"):
        source.writer(schema, overwrite=True)
    assert source.streamWriter(schema, overwrite=True) is not None


def test_columns_cannot_be_chosen() -> None:
    """As in Spark's own source; else every task fails on the first record, with a message about Arrow."""
    wanted = StructType([StructField("a", LongType())])
    with pytest.raises(ConfigError, match="columns of this source are fixed"):
        KafkaGroupSource(dict(OPTIONS)).reader(wanted)
    with pytest.raises(ConfigError, match="columns of this source are fixed"):
        KafkaGroupSource(dict(OPTIONS)).streamReader(wanted)


@pytest.mark.parametrize("wanted", ["true", "false"])
@pytest.mark.parametrize(("option", "column"), [("includeHeaders", "headers"), ("includeLeaderEpoch", "leaderEpoch")])
def test_its_own_columns_are_taken(option: str, column: str, wanted: str) -> None:
    """Spark offers the source its own schema, with further columns only if the user asked for them."""
    source = KafkaGroupSource({**OPTIONS, option: wanted})
    assert source.streamReader(source.schema()) is not None
    assert (column in source.schema().fieldNames()) is (wanted == "true")
