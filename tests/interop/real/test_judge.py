"""What ``kip848 judge broker`` expects is what Apache Kafka answers."""

from __future__ import annotations

import pytest

from kip848_client.testing.judge.broker.judge import judge_broker
from kip848_client.testing.judge.verdicts import Outcome
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.judge.arrange import HELD_UP, differing

pytestmark = [pytest.mark.interop, pytest.mark.kafka]


def test_apache_kafka_keeps_every_rule(kafka_broker: KafkaBroker | ExternalKafka) -> None:
    """Authors of brokers are told what differs from Kafka, and not from what ours makes of it."""
    report = judge_broker(kafka_broker.bootstrap_servers)

    assert differing(report) == []
    untried = [one for one in report.of(Outcome.CANNOT_BE_TRIED) if HELD_UP not in one.why]
    assert {one.why for one in untried} == {"give --restart COMMAND, which restarts the broker"}
