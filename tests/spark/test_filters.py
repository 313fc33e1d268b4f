"""What filters leave of a batch, without Spark: never less than they want."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from kip848_client import EmbeddedBroker
from kip848_client.common.model import OffsetRange
from kip848_client.spark.source.batch import plan_batch
from kip848_client.spark.values.filters import narrowed
from kip848_client.spark.values.options import parse_options
from tests.spark.arrange import MARCH_2026_MS, options, partition, produce

MARCH = datetime.fromtimestamp(MARCH_2026_MS / 1_000, UTC)
ALL = dict.fromkeys(range(3), (0, 50))


def column(name: str) -> tuple[str, ...]:
    return (name,)


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([], ALL),
        ([EqualTo(column("partition"), 1)], {1: (0, 50)}),
        ([In(column("partition"), (0, 2)), GreaterThan(column("partition"), 0)], {2: (0, 50)}),
        ([LessThanOrEqual(column("partition"), 0), EqualTo(column("topic"), "orders")], {0: (0, 50)}),
        ([EqualTo(column("topic"), "payments")], {}),
        ([GreaterThanOrEqual(column("offset"), 10), LessThan(column("offset"), 20)], dict.fromkeys(ALL, (10, 20))),
        ([In(column("offset"), (7, 9)), IsNotNull(column("offset"))], dict.fromkeys(ALL, (7, 10))),
        ([EqualTo(column("offset"), 50)], {}),
        ([GreaterThan(column("timestamp"), MARCH + timedelta(milliseconds=40))], dict.fromkeys(ALL, (40, 50))),
        ([GreaterThan(column("timestamp"), MARCH + timedelta(days=1))], {}),
        ([LessThan(column("timestamp"), MARCH)], ALL),  # a later record may be older
        ([Not(EqualTo(column("partition"), 1)), EqualTo(column("value"), b"x")], ALL),
        ([EqualTo(("headers", "partition"), 1)], ALL),
    ],
)
def test_filters_leave_only_the_ranges_that_can_hold_what_they_want(
    filters: list[Filter], left: dict[int, tuple[int, int]]
) -> None:
    """A look at ten records read three million."""
    with EmbeddedBroker({"orders": 3}) as broker:
        produce(broker.bootstrap_servers, "orders", 50, partitions=3, timestamp_ms=MARCH_2026_MS)
        chosen = parse_options(options(broker.bootstrap_servers, streaming=False), streaming=False)
        tasks = plan_batch(chosen, narrowed(filters))

    assert [each for task in tasks for each in task] == [
        OffsetRange(partition(number), *bounds) for number, bounds in left.items()
    ]
