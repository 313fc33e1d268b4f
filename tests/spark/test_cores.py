"""How many tasks a session can run at once, by its settings; and what a batch makes of it."""

from __future__ import annotations

import pytest

from kip848_client.spark.source.cores import configured_cores
from kip848_client.spark.values.options import parse_options
from tests.spark.arrange import options


@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        ({}, None),
        ({"spark.cores.max": "12"}, 12),
        ({"spark.executor.instances": "4", "spark.executor.cores": "5"}, 20),
        ({"spark.executor.instances": "4", "spark.executor.cores": "5", "spark.task.cpus": "2"}, 10),
        ({"spark.executor.instances": "4"}, None),
        (
            {"spark.dynamicAllocation.enabled": "true", "spark.executor.instances": "1", "spark.executor.cores": "5"},
            None,
        ),
        (
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "8",
                "spark.executor.cores": "5",
            },
            40,
        ),
        ({"spark.cores.max": "1", "spark.task.cpus": "2"}, 1),
    ],
)
def test_the_settings_of_a_cluster_say_how_many_tasks_run_at_once(settings: dict[str, str], cores: int | None) -> None:
    """Too small a number would leave executors idle: where the settings do not say, nothing is assumed."""
    assert configured_cores(settings.get) == cores


@pytest.mark.parametrize(
    ("chosen", "cores", "tasks_max"),
    [
        ({}, 3, 6),
        ({}, None, None),
        ({"maxTasks": 100}, 3, 100),
        ({"minPartitions": 50}, 3, None),
        ({"maxRecordsPerPartition": 1_000}, 3, None),
    ],
)
def test_a_batch_has_two_tasks_for_each_core_unless_options_say_otherwise(
    chosen: dict[str, object], cores: int | None, tasks_max: int | None
) -> None:
    """200 partitions in 200 tasks took three times as long as in four."""
    assert parse_options(options("h:1", chosen), streaming=True, cores=cores).tasks_max == tasks_max
