"""One Spark session for all tests: starting the JVM takes longer than most of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.quick import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session that knows the source."""
    from kip848_client.spark import register, spark_session

    session = spark_session("kip848 tests", config={**QUICK, "spark.sql.shuffle.partitions": "1"})
    register(session)
    yield session
    with warnings.catch_warnings():
        # PySpark leaves its sockets to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        session.stop()
