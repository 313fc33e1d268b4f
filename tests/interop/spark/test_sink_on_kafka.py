"""The two phases of the Spark sink on a real Kafka broker: transactions that others end than have opened them."""

from __future__ import annotations

from collections import Counter

import pytest

from kip848_client.spark.sink.sink_task import BatchId, decide, write_task
from tests.interop.conftest import CreateTopic, unique_name
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.spark.sinks import BATCH, repeat_after_crash, rows, seen, transactional

pytestmark = [pytest.mark.kafka, pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.mark.parametrize("crash", ["before the decision", "after the decision", "after the ends"])
def test_a_batch_is_seen_once(kafka_broker: KafkaBroker | ExternalKafka, kafka_topic: CreateTopic, crash: str) -> None:
    """The embedded broker only imitates EndTxn and DescribeTransactions; this is Kafka itself."""
    servers, topic, transactional_id = kafka_broker.bootstrap_servers, kafka_topic(partitions=3), unique_name("sink")
    repeat_after_crash(servers, topic, transactional_id, crash=crash)
    options = transactional(servers, topic, transactional_id)
    following = BatchId(BATCH.query, BATCH.number + 1)
    decide([write_task(rows("d"), options, task=0, batch=following)], options, batch=following)

    assert seen(servers, topic) == Counter("abcd")


def test_what_an_earlier_run_has_left_is_ended(
    kafka_broker: KafkaBroker | ExternalKafka, kafka_topic: CreateTopic
) -> None:
    """Whether ListTransactions names them, and EndTxn takes them, is Kafka's own business, too."""
    servers, topic, transactional_id = kafka_broker.bootstrap_servers, kafka_topic(partitions=1), unique_name("sink")
    options = transactional(servers, topic, transactional_id)
    for task in range(3):
        write_task(rows("interrupted"), options, task=task, batch=BATCH)
    decide([write_task(rows("a"), options, task=0, batch=BATCH)], options, batch=BATCH)

    assert seen(servers, topic) == Counter("a")
