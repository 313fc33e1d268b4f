"""One Spark session for all tests: starting the JVM takes longer than most of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUICK = {
    # Every query here is small and new: compiling it takes longer than running it.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    # A busy machine takes longer than the default of fifteen seconds.
    "spark.python.authenticate.socketTimeout": "600s",
    "spark.sql.streaming.stopTimeout": "240000",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session that knows the source."""
    from kip848_client.spark import register, spark_session

    session = spark_session("kip848 tests", config=_QUICK)
    register(session)
    yield session
    with warnings.catch_warnings():
        # PySpark leaves its sockets to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        session.stop()
