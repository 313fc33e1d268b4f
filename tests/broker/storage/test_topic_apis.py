"""Metadata, DescribeCluster, CreateTopics, CreatePartitions and DeleteTopics, without a network."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from msgspec.structs import asdict

from kip848_client.common.model import ZERO_UUID
from kip848_client.errors import ErrorCode
from kip848_client.testing.broker.apis import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_topic_partitions,
    metadata,
)
from kip848_client.testing.broker.apis._partitions import TOPIC_OPERATIONS
from kip848_client.testing.broker.topics.registry import PartitionsAdded, TopicChange, TopicCreated, TopicDeleted
from kip848_client.wire.codec import encode_response
from kip848_client.wire.messages.metadata import MetadataResponse
from tests.broker.storage.harness import QuietBroker, a_broker, answer_of

# --- Metadata


def described(
    broker: QuietBroker, *names: str | uuid.UUID | None, version: int = 13, may_create: bool = True
) -> MetadataResponse:
    topics = [{"name": None, "topic_id": name} if isinstance(name, uuid.UUID) else {"name": name} for name in names]
    request = {"topics": topics, "allow_auto_topic_creation": may_create}
    response = answer_of(broker, metadata, request, version=version)
    assert isinstance(response, MetadataResponse)
    return response


def test_metadata_describes_the_one_broker_and_its_partitions() -> None:
    """Broken: no client finds the broker, or sends its requests elsewhere."""
    broker = a_broker({"orders": 2})

    response = described(broker, "orders")

    assert [(node.node_id, node.host, node.port) for node in response.brokers] == [(1, "127.0.0.1", 9092)]
    assert (response.cluster_id, response.controller_id) == ("a-cluster-of-one-node_", 1)
    (topic,) = response.topics
    assert (topic.name, topic.topic_id, topic.error_code) == ("orders", uuid.UUID(int=100), 0)
    assert [
        (p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes) for p in topic.partitions
    ] == [
        (0, 1, 0, (1,), (1,)),
        (1, 1, 0, (1,), (1,)),
    ]
    assert (topic.topic_authorized_operations, response.cluster_authorized_operations) == (-(2**31), -(2**31))


@pytest.mark.parametrize(("version", "expected"), [(0, ["a", "b"]), (1, []), (13, [])])
def test_an_empty_list_of_topics_means_none_but_in_version_0_all(version: int, expected: list[str]) -> None:
    """Broken: librdkafka, which asks for [] to learn the brokers, is sent every topic."""
    broker = a_broker({"b": 1, "a": 1})

    assert [topic.name for topic in described(broker, version=version).topics] == expected
    everything = answer_of(broker, metadata, {"topics": None}, version=max(1, version))
    assert [topic.name for topic in everything.topics] == ["a", "b"]


def test_topics_are_described_by_id_from_version_12() -> None:
    """Broken: a consumer cannot name the topic ids that its assignment consists of."""
    broker = a_broker({"orders": 1})
    known, unknown = uuid.UUID(int=100), uuid.UUID(int=5)

    found, missing = described(broker, known, unknown, version=12).topics
    (too_early,) = described(broker, known, version=11).topics

    assert (found.name, found.topic_id, found.error_code) == ("orders", known, 0)
    assert (missing.name, missing.topic_id, missing.error_code) == (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID)
    assert (too_early.name, too_early.error_code) == ("", ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize(
    ("broker_allows", "client_allows", "created"),
    [("true", True, True), ("true", False, False), ("false", True, False)],
)
def test_a_missing_topic_is_created_only_if_broker_and_client_allow_it(
    broker_allows: str, client_allows: bool, created: bool
) -> None:
    """Broken: a consumer with a typing error creates topics, or auto.create.topics.enable does nothing."""
    broker = a_broker(config={"auto.create.topics.enable": broker_allows, "num.partitions": 3})

    new, invalid = described(broker, "new", "not/valid", may_create=client_allows).topics

    assert (new.error_code, len(new.partitions)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0), "as Kafka, at first"
    (again,) = described(broker, "new", may_create=False).topics
    assert (again.error_code, len(again.partitions)) == ((0, 3) if created else (3, 0))
    assert invalid.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_that_is_asked_for_twice_is_answered_once() -> None:
    """Broken: clients meet two entries of one topic."""
    broker = a_broker({"orders": 1})

    assert len(described(broker, "orders", "orders", "x", "x").topics) == 2


# --- DescribeTopicPartitions


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 5, 100])
def test_topics_are_described_page_by_page_without_a_gap(limit: int) -> None:
    """Broken: the Java AdminClient describes some partitions twice, or never ends."""
    broker = a_broker({"b": 3, "a": 1, "d": 2})
    asked = [{"name": name} for name in ("d", "b", "a", "c")]
    seen: list[tuple[str, int]] = []
    request: dict[str, Any] = {"topics": asked, "response_partition_limit": limit, "cursor": None}

    while True:
        response = answer_of(broker, describe_topic_partitions, request)
        found = [(topic.name, part.partition_index) for topic in response.topics for part in topic.partitions]
        assert len(found) <= max(1, limit)
        seen += found
        if response.next_cursor is None:
            break
        request["cursor"] = asdict(response.next_cursor)

    assert seen == [("a", 0), ("b", 0), ("b", 1), ("b", 2), ("d", 0), ("d", 1)]


def test_all_topics_are_described_when_none_is_named_and_an_unknown_one_says_so() -> None:
    """``kafka-topics.sh --describe`` names no topic and would show nothing."""
    broker = a_broker({"a": 1})

    everything = answer_of(broker, describe_topic_partitions, {})
    asked = {"topics": [{"name": "nowhere"}, {"name": "not/valid"}]}
    missing = answer_of(broker, describe_topic_partitions, asked)

    (topic,) = everything.topics
    assert (topic.name, topic.topic_id, topic.error_code) == ("a", uuid.UUID(int=100), 0)
    assert (topic.partitions[0].leader_id, topic.partitions[0].isr_nodes) == (1, (1,))
    assert [(t.name, t.error_code) for t in missing.topics] == [
        ("not/valid", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert {t.topic_authorized_operations for t in missing.topics} == {topic.topic_authorized_operations}
    assert encode_response(everything, api_version=0, correlation_id=1)


@pytest.mark.parametrize("name", ["a", "nowhere", "not/valid"])
def test_metadata_shows_what_the_client_may_do_with_a_topic_even_one_that_is_missing(name: str) -> None:
    """A tool asks this before it offers to create or write a topic; without the answer it would offer nothing."""
    asked = {
        "topics": [{"name": name}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }

    (topic,) = answer_of(a_broker({"a": 1}), metadata, asked, version=12).topics

    assert topic.topic_authorized_operations == TOPIC_OPERATIONS


# --- DescribeCluster


def test_describe_cluster_names_the_broker_and_refuses_controllers() -> None:
    """Broken: kafka-cluster.sh and admin clients do not find the controller."""
    broker = a_broker()

    cluster = answer_of(broker, describe_cluster, {"include_cluster_authorized_operations": True})
    controllers = answer_of(broker, describe_cluster, {"endpoint_type": 2})
    nonsense = answer_of(broker, describe_cluster, {"endpoint_type": 9})

    assert [(node.broker_id, node.host, node.port) for node in cluster.brokers] == [(1, "127.0.0.1", 9092)]
    assert (cluster.controller_id, cluster.cluster_id, cluster.error_code) == (1, "a-cluster-of-one-node_", 0)
    assert cluster.cluster_authorized_operations == 8096
    assert (controllers.error_code, controllers.brokers) == (ErrorCode.MISMATCHED_ENDPOINT_TYPE, ())
    assert nonsense.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


# --- CreateTopics


def a_topic(name: str = "orders", partitions: int = 2, replicas: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas} | more


def assigned(partition: int, broker_id: int = 1) -> dict[str, Any]:
    return {"partition_index": partition, "broker_ids": [broker_id]}


def created(broker: QuietBroker, *topics: dict[str, Any], validate_only: bool = False) -> list[Any]:
    request = {"topics": topics, "validate_only": validate_only}
    return list(answer_of(broker, create_topics, request).topics)


def test_a_created_topic_is_there_with_id_partitions_and_configuration() -> None:
    """Broken: AdminClient.create_topics reports success and nothing can be produced."""
    broker = a_broker()
    changes: list[TopicChange] = []
    broker.topics.subscribe(changes.append)
    configs = [{"name": "retention.ms", "value": "1000"}]

    (result,) = created(broker, a_topic(configs=configs))

    topic = broker.topics.get("orders")
    assert topic is not None
    assert changes == [TopicCreated(topic)]
    assert (topic.partition_count, topic.configs) == (2, {"retention.ms": "1000"})
    assert (result.error_code, result.error_message, result.topic_id) == (0, None, topic.topic_id)
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    echoed = {config.name: (config.value, config.config_source) for config in result.configs}
    assert echoed["retention.ms"] == ("1000", 1)
    assert echoed["cleanup.policy"] == ("delete", 5)


def test_defaults_are_filled_in_and_a_manual_assignment_counts_partitions() -> None:
    """Broken: topics created with -1, as all admin clients do by default, get no partition."""
    broker = a_broker(config={"num.partitions": 4})
    assignments = [assigned(index) for index in range(3)]

    by_default, by_hand = created(broker, a_topic("a", -1, -1), a_topic("b", -1, -1, assignments=assignments))

    assert (by_default.num_partitions, by_hand.num_partitions) == (4, 3)


def test_validate_only_creates_nothing() -> None:
    """A dry run of an admin tool must not leave topics behind."""
    broker = a_broker({"there": 1})

    good, taken = created(broker, a_topic("new"), a_topic("there"), validate_only=True)

    assert (good.error_code, good.num_partitions, taken.error_code) == (0, 2, ErrorCode.TOPIC_ALREADY_EXISTS)
    assert broker.topics.names() == ["there"]


@pytest.mark.parametrize(
    ("topic", "error", "says"),
    [
        (a_topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS, "already exists"),
        (a_topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "empty"),
        (a_topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, r"'\.' or '\.\.'"),
        (a_topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "ASCII alphanumerics"),
        (a_topic("ä"), ErrorCode.INVALID_TOPIC_EXCEPTION, "ASCII alphanumerics"),
        (a_topic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION, "ASCII alphanumerics"),
        (a_topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "max allowed length 249"),
        (a_topic("with_dot"), ErrorCode.INVALID_TOPIC_EXCEPTION, r"collides with existing topic: with\.dot"),
        (a_topic(partitions=0), ErrorCode.INVALID_PARTITIONS, "non-positive"),
        (a_topic(partitions=-2), ErrorCode.INVALID_PARTITIONS, "non-positive"),
        (a_topic(partitions=10_001), ErrorCode.POLICY_VIOLATION, "Excessively large"),
        (a_topic(replicas=0), ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0"),
        (a_topic(replicas=3), ErrorCode.INVALID_REPLICATION_FACTOR, "only 1 broker"),
        (
            a_topic(configs=[{"name": "retention.mss", "value": "1"}]),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: retention.mss; did you mean retention.ms",
        ),
        (
            a_topic(configs=[{"name": "retention.ms", "value": "soon"}]),
            ErrorCode.INVALID_CONFIG,
            "not a whole number",
        ),
        (
            a_topic(configs=[{"name": "retention.ms", "value": None}]),
            ErrorCode.INVALID_CONFIG,
            "Null value",
        ),
        (
            a_topic(configs=[{"name": "message.timestamp.type", "value": "EventTime"}]),
            ErrorCode.INVALID_CONFIG,
            "neither CreateTime nor LogAppendTime",
        ),
        (
            a_topic(assignments=[assigned(0)]),
            ErrorCode.INVALID_REQUEST,
            "replication factor was not set to -1",
        ),
        (
            a_topic(replicas=-1, assignments=[assigned(0)]),
            ErrorCode.INVALID_REQUEST,
            "numPartitions was not set to -1",
        ),
        (
            a_topic("b", -1, -1, assignments=[assigned(1)]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "consecutive 0-based",
        ),
        (
            a_topic("b", -1, -1, assignments=[assigned(0, 2)]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "only broker 1",
        ),
    ],
)
def test_a_topic_that_kafka_would_refuse_is_refused_with_the_same_code(
    topic: dict[str, Any], error: ErrorCode, says: str
) -> None:
    """Broken: set-up code that works here fails in production."""
    broker = a_broker({"there": 1, "with.dot": 1})

    bad, good = created(broker, topic, a_topic("fine"))

    assert bad.error_code == error
    assert re.search(says, bad.error_message)
    assert (good.error_code, broker.topics.names()) == (0, ["fine", "there", "with.dot"])


def test_a_name_that_is_sent_twice_is_refused_once() -> None:
    """Broken: the second of two conflicting definitions silently wins."""
    broker = a_broker()

    results = created(broker, a_topic("a"), a_topic("b"), a_topic("a", 5))

    assert [(result.name, result.error_code) for result in results] == [("b", 0), ("a", ErrorCode.INVALID_REQUEST)]
    assert broker.topics.names() == ["b"]


# --- CreatePartitions


def grown(
    broker: QuietBroker, *topics: tuple[str, int], validate_only: bool = False, assigned: Any = None
) -> list[int]:
    asked = [{"name": name, "count": count, "assignments": assigned} for name, count in topics]
    request = {"topics": asked, "validate_only": validate_only}
    return [result.error_code for result in answer_of(broker, create_partitions, request).results]


def test_a_grown_topic_keeps_its_records_and_tells_its_listeners() -> None:
    """Broken: subscribed groups never get the new partitions."""
    broker = a_broker({"orders": 2})
    changes: list[TopicChange] = []
    end = broker.topics.subscribe(changes.append)
    topic = broker.topics.get("orders")
    assert topic is not None
    before = list(topic.partitions)

    assert grown(broker, ("orders", 5)) == [0]

    assert (topic.partition_count, topic.partitions[:2]) == (5, before)
    assert changes == [PartitionsAdded(topic)]
    end()
    assert grown(broker, ("orders", 6)) == [0]
    assert len(changes) == 1


def test_a_topic_only_grows() -> None:
    """Fewer partitions would take records away from the consumers that read them."""
    broker = a_broker({"orders": 2})
    one = [{"broker_ids": [1]}]

    assert grown(broker, ("orders", 2)) == [ErrorCode.INVALID_PARTITIONS]
    assert grown(broker, ("orders", 1)) == [ErrorCode.INVALID_PARTITIONS]
    assert grown(broker, ("orders", 20_000)) == [ErrorCode.POLICY_VIOLATION]
    assert grown(broker, ("nowhere", 3)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert grown(broker, ("orders", 3), ("orders", 4)) == [ErrorCode.INVALID_REQUEST]
    assert grown(broker, ("orders", 4), assigned=one) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    elsewhere = [{"broker_ids": [7]}]
    assert grown(broker, ("orders", 3), assigned=elsewhere) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert grown(broker, ("orders", 3), validate_only=True) == [0]
    topic = broker.topics.get("orders")
    assert topic is not None
    assert topic.partition_count == 2
    assert grown(broker, ("orders", 3), assigned=one) == [0]


# --- DeleteTopics


def deleted(broker: QuietBroker, *topics: str | uuid.UUID | dict[str, Any], version: int = 6) -> list[tuple[Any, int]]:
    """Delete topics by name, by id, or by both in the fields of the request."""
    states = [
        topic if isinstance(topic, dict) else {"name" if isinstance(topic, str) else "topic_id": topic}
        for topic in topics
    ]
    request = {"topic_names": topics} if version < 6 else {"topics": states}
    response = answer_of(broker, delete_topics, request, version=version)
    return [(result.name, result.error_code) for result in response.responses]


def test_topics_are_deleted_by_name_or_by_id() -> None:
    """Broken: current admin clients, which delete by id, cannot delete."""
    broker = a_broker({"a": 1, "b": 1, "c": 1})
    changes: list[TopicChange] = []
    broker.topics.subscribe(changes.append)
    b_id = uuid.UUID(int=101)

    assert deleted(broker, "a", version=5) == [("a", 0)]
    assert deleted(broker, b_id, "c") == [("b", 0), ("c", 0)]

    assert (len(broker.topics), broker.topics.get_by_id(b_id)) == (0, None)
    assert [type(change) for change in changes] == [TopicDeleted] * 3


def test_what_cannot_be_deleted_is_refused_by_itself() -> None:
    """Broken: a typing error in one name keeps all other topics alive."""
    broker = a_broker({"a": 1, "b": 1})
    a_id, unknown = uuid.UUID(int=100), uuid.UUID(int=5)

    both = {"name": "a", "topic_id": a_id}
    answers = deleted(broker, "nowhere", unknown, both, ZERO_UUID, a_id, "a", "b", "twice", "twice")

    assert answers == [
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("a", ErrorCode.INVALID_REQUEST),
        (None, ErrorCode.INVALID_REQUEST),
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", 0),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert broker.topics.names() == ["a"]


@pytest.mark.parametrize(("version", "error"), [(2, ErrorCode.INVALID_REQUEST), (6, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_deletion_can_be_switched_off(version: int, error: ErrorCode) -> None:
    """A user who sets ``delete.topic.enable=false`` expects that no tool deletes a topic."""
    broker = a_broker({"a": 1}, config={"delete.topic.enable": "false"})

    assert deleted(broker, "a", version=version) == [("a", error)]
    assert "a" in broker.topics
