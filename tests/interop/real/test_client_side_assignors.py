"""Client-side assignors on Apache Kafka, which has none: a clear refusal, or the fallback that was asked for."""

from __future__ import annotations

import logging
import uuid

import pytest

from kip848_client import AssignmentSpec, Consumer, GroupAssignment, MemberState, PartitionAssignor, spread_evenly
from kip848_client.config import ConfigValue
from kip848_client.errors import ClientAssignorsUnsupportedError
from tests.interop.client.drive import ConsumerUnderTest, delivered_once, drive, keys_of, producer_for
from tests.interop.conftest import CreateTopic
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

Broker = KafkaBroker | ExternalKafka


class Even(PartitionAssignor):
    name = "even"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return spread_evenly(spec)


@pytest.fixture
def conf(kafka_broker: Broker) -> dict[str, ConfigValue]:
    """A consumer with a client-side assignor."""
    return {
        "bootstrap.servers": kafka_broker.bootstrap_servers,
        "group.id": f"local-{uuid.uuid4()}",
        "auto.offset.reset": "earliest",
        "group.local.assignors": Even,
    }


def test_the_first_join_fails_and_names_the_apis_that_kafka_does_not_have(
    conf: dict[str, ConfigValue], kafka_topic: CreateTopic
) -> None:
    """Kafka skips tags that it does not know: without this the group would be assigned by other rules, in silence."""
    topic = kafka_topic(partitions=2)
    with Consumer(conf) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(ClientAssignorsUnsupportedError) as info:
            consumer.poll(20)
        assert "ConsumerGroupPrepareAssignment (API key 30848)" in str(info.value)
        assert "ConsumerGroupInstallAssignment (API key 30849)" in str(info.value)
        assert consumer.state is MemberState.FATAL


def test_with_the_fallback_kafka_assigns_and_one_warning_says_so(
    conf: dict[str, ConfigValue],
    kafka_broker: Broker,
    kafka_topic: CreateTopic,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A program with an assignor of its own also runs without Prepare and Install, if that was allowed."""
    topic = kafka_topic(partitions=4)
    conf["group.local.assignors.fallback"] = "server"
    with caplog.at_level(logging.WARNING, logger="kip848_client"), Consumer(conf) as first, Consumer(conf) as second:
        members = [ConsumerUnderTest(first), ConsumerUnderTest(second)]
        with producer_for(kafka_broker.bootstrap_servers) as produce:
            produce(topic, 20)
            for member in members:
                member.subscribe(topic)
            drive(*members, until=lambda: [len(member.partitions) for member in members] == [2, 2])
            drive(*members, until=lambda: sum(len(member.delivered) for member in members) == 80)
    assert delivered_once(members) == keys_of(topic, 20)
    warnings = [record.getMessage() for record in caplog.records if "assignors_unsupported" in record.getMessage()]
    assert len(warnings) == 2, "one for each member"
