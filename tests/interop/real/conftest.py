"""The group of a test, on the embedded broker and on the shared Apache Kafka broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kip848_client import EmbeddedBroker
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.interop.real.group import BOTH, Group, group_of

CONFIG = {"kip848.client.assignors.enable": "false", "group.consumer.regex.refresh.min.interval.ms": "100"}
"""No client-side assignors, as on Apache Kafka; and new topics are matched with patterns at once."""


@pytest.fixture(params=BOTH)
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker | KafkaBroker | ExternalKafka]:
    """Either broker: what a test of this folder says holds for both, unless its module runs on Kafka alone."""
    if request.param == "kafka":
        yield request.getfixturevalue("kafka_broker")
        return
    with EmbeddedBroker(config=CONFIG) as running:
        yield running


@pytest.fixture
def group(broker: EmbeddedBroker | KafkaBroker | ExternalKafka) -> Iterator[Group]:
    """A group that no other test uses, its topics and members."""
    with group_of(broker.bootstrap_servers) as made:
        yield made
