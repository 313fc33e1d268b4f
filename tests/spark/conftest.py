"""One Spark session for all tests, because starting it takes longer than they do; a broker for those of streams."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.journal import MemoryJournal
from tests.spark.arrange import produce
from tests.spark.quick import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENT = {
    "group.consumer.session.timeout.ms": 600_000,
    "group.consumer.max.session.timeout.ms": 600_000,
}
"""A machine that is too busy for heartbeats must not look like a query that died."""


_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session that knows the source."""
    from kip848_client.spark import register, spark_session

    own = {
        "spark.sql.shuffle.partitions": "1",
        "spark.python.daemon.module": "tests.spark.daemon",
        # The default starts a process (readlink, chmod) for each step with a file of a checkpoint: ten for each batch.
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("SPARK_HOME", raising=False)  # another Spark on this machine
        session = spark_session("kip848 tests", config={**QUICK, **own})
    register(session)
    yield session
    with warnings.catch_warnings():
        # PySpark leaves its sockets to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        session.stop()


@pytest.fixture
def broker(journal: MemoryJournal) -> Iterator[EmbeddedBroker]:
    """A broker with one topic, ``orders``, of four partitions. Tests of batches have one of their own."""
    with EmbeddedBroker({"orders": 4}, config=_PATIENT, journal=journal) as broker:
        yield broker


@pytest.fixture
def address(broker: EmbeddedBroker) -> str:
    """Where `broker` listens, with a hundred records in each partition."""
    produce(broker.bootstrap_servers, "orders", 100, partitions=4)
    return broker.bootstrap_servers
