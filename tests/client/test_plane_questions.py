"""Questions about offsets while brokers are away: they wait, and then say whose fault it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.consumer.records.data_plane import RecordConsumer, create_record_consumer, list_topics, translate
from kip848_client.consumer.records.plane_questions import ask_brokers
from kip848_client.errors import BrokerError, ConnectionLostError, ErrorCode, RequestTimeoutError
from tests.support.driving import QUIET

Ask = Callable[[Consumer, TopicPartition, float], object]

QUESTIONS = pytest.mark.parametrize(
    "ask",
    [
        lambda consumer, partition, timeout_s: consumer.get_watermark_offsets(partition, timeout_s),
        lambda consumer, partition, timeout_s: consumer.offsets_for_times([partition], timeout_s),
    ],
    ids=["watermarks", "times"],
)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """Three nodes; each partition is on one of them."""
    with EmbeddedBroker(nodes=3, config={"default.replication.factor": "1"}) as running:
        running.topics.create("orders", 3)
        yield running


@pytest.fixture
def consumer(broker: EmbeddedBroker) -> Iterator[Consumer]:
    """It knows the topic."""
    with Consumer({**QUIET, "bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition("orders", 0), 60.0) == (0, 0)
        yield consumer


@QUESTIONS
def test_a_question_waits_for_a_leader(broker: EmbeddedBroker, consumer: Consumer, ask: Ask) -> None:
    """A broker that restarts is no reason to change the program."""
    dead = broker.nodes.leader("orders", 0)
    broker.nodes.kill(dead)
    pauses: list[int] = []

    def pause() -> None:
        pauses.append(1)
        if len(pauses) == 2:
            broker.nodes.start(dead)

    consumer._core.group.thread.before_wait = pause
    ask(consumer, TopicPartition("orders", 0, 0), 60.0)

    assert len(pauses) >= 2


@QUESTIONS
def test_a_partition_without_a_leader_is_a_passing_error(broker: EmbeddedBroker, consumer: Consumer, ask: Ask) -> None:
    """librdkafka says "unknown partition", or a wrong offset with an error beside it."""
    broker.nodes.kill(broker.nodes.leader("orders", 0))

    # A node that went is also "no leader", or a time-out, by whatever librdkafka heard last.
    with pytest.raises((BrokerError, ConnectionLostError, RequestTimeoutError)):
        ask(consumer, TopicPartition("orders", 0, 7), 1.0)


@QUESTIONS
@pytest.mark.parametrize("partition", [TopicPartition("nope", 0, 0), TopicPartition("orders", 9, 0)])
def test_what_does_not_exist_is_not_waited_for(consumer: Consumer, ask: Ask, partition: TopicPartition) -> None:
    """A question about a missing partition would otherwise block for the whole time-out."""
    with pytest.raises(BrokerError, match=f"the cluster has no {partition.topic}-{partition.partition}") as told:
        ask(consumer, partition, -1)
    assert told.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@QUESTIONS
def test_an_outage_is_a_lost_connection(ask: Ask) -> None:
    """When the cluster is away the error must say so, and not that the program is wrong."""
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker({"orders": 1}))
        conf = {**QUIET, "bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        consumer = stack.enter_context(Consumer(conf))
        partition = TopicPartition("orders", 0, 0)
        ask(consumer, partition, 60.0)
        broker.stop()
        with pytest.raises((ConnectionLostError, RequestTimeoutError), match=broker.bootstrap_servers):
            ask(consumer, partition, 0.5)


def test_a_pause_can_end_the_question() -> None:
    """A cancelled task of an AsyncConsumer must not wait for brokers that never come."""

    class CutOffError(Exception):
        pass

    def cut_off() -> None:
        raise CutOffError

    def ask(_left_s: float) -> object:
        raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    plane: RecordConsumer = create_record_consumer({"group.id": "g", "bootstrap.servers": "127.0.0.1:1", **QUIET})
    with pytest.raises(CutOffError):
        ask_brokers(
            partial(list_topics, plane),
            "asking",
            ask,
            timeout_s=-1,
            before_pause=cut_off,
            between_reads=lambda work: work(),
        )
    plane.close()


def test_a_node_that_left_the_cluster_is_a_lost_connection() -> None:
    """librdkafka calls it a broker handle that was destroyed, which no handler would be written for."""
    failure = translate(KafkaError(KafkaError._DESTROY_BROKER), what="asking")
    assert isinstance(failure, ConnectionLostError)
