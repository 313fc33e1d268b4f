"""Kafka's answers to batches of clients with a fault are those that the embedded broker is tested with."""

from __future__ import annotations

from typing import Final

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from tests.interop.conftest import CreateTopic
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.support.damaged_batches import damaged_batches, kafka_answers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

VERSION: Final = 11
CHANGED_IN_4_4: Final = (
    "gzip: the last record with a length of -1",
    "gzip: the last record with a length of 2 GiB",
)
"""Appended by older brokers."""


def test_kafka_answers_as_recorded(kafka_broker: KafkaBroker | ExternalKafka, kafka_topic: CreateTopic) -> None:
    """Broken: the table that the embedded broker is tested with (tests/golden/damaged_batches.json) is not Kafka's."""
    batches = damaged_batches()
    topic, answers = kafka_topic(partitions=len(batches)), {}
    with RawConnection(kafka_broker.bootstrap_servers) as connection:

        def produce(partition: int, records: bytes) -> int:
            data = {"name": topic, "partition_data": [{"index": partition, "records": records}]}
            answer = connection.call(ApiKey.PRODUCE, VERSION, acks=-1, timeout_ms=10_000, topic_data=[data])
            code: int = answer.responses[0].partition_responses[0].error_code
            return code

        for partition, (name, records) in enumerate(batches.items()):

            def answered(name: str = name, partition: int = partition, records: bytes = records) -> bool:
                answers[name] = produce(partition, records)
                return answers[name] != ErrorCode.NOT_LEADER_OR_FOLLOWER  # the partition is being made

            wait_until(answered)
    recorded = kafka_answers()
    for name in CHANGED_IN_4_4:
        assert answers.pop(name) in (ErrorCode.NONE, recorded.pop(name))
    assert answers == recorded
