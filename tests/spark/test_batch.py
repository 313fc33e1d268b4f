"""Batch reads without Spark: which ranges are planned, how they are cut, and which records come out of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.common.model import NamedPartition
from kip848_client.errors import ConfigError, NoOffsetForPartitionError
from kip848_client.spark.group.log_offsets import LogOffsets
from kip848_client.spark.group.places import NoRecordAtTimeError
from kip848_client.spark.source.batch import plan_batch
from kip848_client.spark.source.fetch import read_ranges
from kip848_client.spark.values.data_loss import DataLossError
from kip848_client.spark.values.options import SourceOptions, parse_options
from tests.spark.arrange import GROUP, MARCH_2026_MS, consumer, options, produce, public


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"orders": 2, "orders-old": 1}) as broker:
        produce(broker.bootstrap_servers, "orders", 50, partitions=2, timestamp_ms=MARCH_2026_MS)
        produce(broker.bootstrap_servers, "orders-old", 5)
        yield broker


def parsed(broker: EmbeddedBroker, changed: dict[str, object]) -> SourceOptions:
    return parse_options(options(broker.bootstrap_servers, changed, streaming=False), streaming=False)


def by_partition(broker: EmbeddedBroker, changed: dict[str, object]) -> dict[int, list[int]]:
    """Partition -> offsets that a batch reads."""
    chosen = parsed(broker, changed)
    found: dict[int, list[int]] = {}
    for task in plan_batch(chosen):
        for batch in read_ranges(task, chosen):
            for number, offset in zip(*batch.select(["partition", "offset"]).to_pydict().values(), strict=True):
                found.setdefault(number, []).append(offset)
    return found


def test_a_batch_reads_between_offsets(broker: EmbeddedBroker) -> None:
    """-2 and -1 are the beginning and the end."""
    changed: dict[str, object] = {
        "startingOffsets": '{"orders":{"0":40,"1":-2}}',
        "endingOffsets": '{"orders":{"0":-1,"1":3}}',
    }
    assert by_partition(broker, changed) == {0: list(range(40, 50)), 1: [0, 1, 2]}


def test_a_batch_reads_between_times(broker: EmbeddedBroker) -> None:
    """A day's records, by their timestamps; one time for all, or one for each partition."""
    for_all: dict[str, object] = {"startingTimestamp": MARCH_2026_MS + 10, "endingTimestamp": MARCH_2026_MS + 12}
    for_each: dict[str, object] = {
        "startingOffsetsByTimestamp": f'{{"orders":{{"0":{MARCH_2026_MS + 48},"1":{MARCH_2026_MS + 49}}}}}'
    }
    until_each: dict[str, object] = {
        **for_all,
        "endingOffsetsByTimestamp": f'{{"orders":{{"0":{MARCH_2026_MS + 11},"1":{MARCH_2026_MS + 13}}}}}',
    }
    del until_each["endingTimestamp"]
    assert by_partition(broker, for_all) == {0: [10, 11], 1: [10, 11]}
    assert by_partition(broker, until_each) == {0: [10], 1: [10, 11, 12]}
    assert by_partition(broker, for_each) == {0: [48, 49], 1: [49]}


def test_a_time_after_the_last_record_is_an_error_or_the_end(broker: EmbeddedBroker) -> None:
    """``startingOffsetsByTimestampStrategy`` decides, as in Spark's own Kafka source."""
    changed: dict[str, object] = {"startingTimestamp": MARCH_2026_MS + 10_000}
    with pytest.raises(NoRecordAtTimeError, match="no record at or after the given time in orders-0, orders-1"):
        by_partition(broker, changed)
    assert by_partition(broker, {**changed, "startingOffsetsByTimestampStrategy": "latest"}) == {}


def test_a_batch_begins_at_committed_offsets(broker: EmbeddedBroker) -> None:
    """A batch reads the records that the group has not processed yet, without joining it."""
    with consumer(broker.bootstrap_servers) as plain:
        plain.assign([public(0), public(1)])
        position = public(0)
        position.offset = 45
        plain.commit(offsets=[position], asynchronous=False)
    changed: dict[str, object] = {
        "startingOffsets": "committed",
        "kafka.group.id": GROUP,
        "auto.offset.reset": "earliest",
    }
    assert by_partition(broker, changed) == {0: [45, 46, 47, 48, 49], 1: list(range(50))}


def test_a_batch_without_commits_can_begin_a_duration_ago(broker: EmbeddedBroker) -> None:
    """auto.offset.reset=by_duration:PT1H reads the last hour, as Kafka's own clients do."""
    broker.topics.create("recent", 2)
    now_ms = time.time_ns() // 1_000_000
    for age_ms in (7_200_000, 1_800_000):
        broker.produce("recent", "x", partition=0, timestamp_ms=now_ms - age_ms)
    broker.produce("recent", "x", partition=1, timestamp_ms=now_ms - 7_200_000)
    changed: dict[str, object] = {
        "subscribe": "recent",
        "startingOffsets": "committed",
        "kafka.group.id": "unheard-of",
        "auto.offset.reset": "by_duration:PT1H",
    }
    assert by_partition(broker, changed) == {0: [1]}
    broker.topics.delete("recent")


def test_without_a_policy_a_missing_commit_is_an_error(broker: EmbeddedBroker) -> None:
    """auto.offset.reset=none is for those who would rather stop than guess."""
    changed = {"startingOffsets": "committed", "kafka.group.id": "unheard-of", "auto.offset.reset": "none"}
    with pytest.raises(NoOffsetForPartitionError, match="orders-0, orders-1"):
        by_partition(broker, dict(changed))


@pytest.mark.parametrize(
    "changed", [{"endingOffsets": '{"live":{"0":-1}}'}, {"endingTimestamp": MARCH_2026_MS + 10_000}]
)
def test_records_that_come_while_a_batch_is_planned_are_no_data_loss(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, changed: dict[str, object]
) -> None:
    """Producers do not wait; ends that were asked for one after the other differ."""
    broker.topics.create("live", 1)
    ends = LogOffsets.ends

    def ends_of_a_live_topic(log: LogOffsets, partitions: Iterable[NamedPartition]) -> dict[NamedPartition, int]:
        found = ends(log, partitions)
        produce(broker.bootstrap_servers, "live", 1, timestamp_ms=MARCH_2026_MS)
        return found

    monkeypatch.setattr(LogOffsets, "ends", ends_of_a_live_topic)
    (task,) = plan_batch(parsed(broker, {"subscribe": "live", **changed}))
    broker.topics.delete("live")

    assert [(each.start, each.end) for each in task] == [(0, 1)]


def test_a_pattern_does_not_mean_kafkas_own_topics(broker: EmbeddedBroker) -> None:
    """Every cluster has them, and ``.*`` means one's own."""
    broker.topics.create("__transaction_state", 1)
    produce(broker.bootstrap_servers, "__transaction_state", 1)
    everything: dict[str, object] = {"subscribe": None, "subscribePattern": ".*"}
    named: dict[str, object] = {"subscribe": "__transaction_state"}

    assert {each.partition.topic for task in plan_batch(parsed(broker, everything)) for each in task} == {
        "orders",
        "orders-old",
    }
    assert by_partition(broker, named) == {0: [0]}
    broker.topics.delete("__transaction_state")


@pytest.mark.parametrize(
    ("changed", "tasks"),
    [({}, 2), ({"minPartitions": 5}, 5), ({"maxRecordsPerPartition": 20}, 6), ({"maxTasks": 1}, 1)],
)
def test_options_decide_on_the_number_of_tasks(broker: EmbeddedBroker, changed: dict[str, object], tasks: int) -> None:
    """Every record is in exactly one of them."""
    assert len(plan_batch(parsed(broker, changed))) == tasks
    assert by_partition(broker, changed) == {0: list(range(50)), 1: list(range(50))}


def test_nothing_between_two_equal_offsets(broker: EmbeddedBroker) -> None:
    """A range may be empty; that is an answer, not an error."""
    same = '{"orders":{"0":4,"1":9}}'
    assert plan_batch(parsed(broker, {"startingOffsets": same, "endingOffsets": same})) == []


def test_offsets_that_are_not_there(broker: EmbeddedBroker) -> None:
    """failOnDataLoss decides whether a gap is told or skipped."""
    changed: dict[str, object] = {"subscribe": "orders-old", "endingOffsets": '{"orders-old":{"0":9}}'}
    with pytest.raises(DataLossError, match="orders-old-0 was to be read from 0 to 9, and holds 0 to 5"):
        plan_batch(parsed(broker, changed))
    assert by_partition(broker, {**changed, "failOnDataLoss": False}) == {0: list(range(5))}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"subscribe": "nosuch"}, "no such topic: nosuch"),
        ({"subscribe": None, "assign": '{"orders":[7]}'}, "orders-7 cannot be read: no such partition"),
        ({"subscribe": None, "subscribePattern": "("}, "is not a regular expression"),
        ({"kafka.fetch.min.byte": "5"}, "fetch.min.byte is not a configuration key; did you mean fetch.min.bytes"),
    ],
)
def test_what_does_not_exist_is_an_error(broker: EmbeddedBroker, changed: dict[str, object], told: str) -> None:
    """An empty result would look like an empty topic."""
    with pytest.raises(ConfigError, match=told):
        plan_batch(parsed(broker, changed))
