"""Requests at the edge of what an API allows, sent to both brokers: one by one, on topics that have the same content.

Not generated, and without a member: each case is one request that a comparison once found to be answered differently,
or one like it. What stays different is in docs/differences.md.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import pytest

from kip848_client.broker import EmbeddedBroker
from kip848_client.wire.record_batch import Record, build_batch
from tests.interop.differential.comparison import disagreements, shared_form
from tests.interop.differential.side import Side, rows
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.interop.kafka_wire import Json

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

NOW_MS: Final = int(time.time() * 1000)
HOUR_MS: Final = 3_600_000
NO_ID: Final = str(uuid.UUID(int=0))
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET: Final = 0

Fields: TypeAlias = dict[str, Json]
Case: TypeAlias = tuple[str, int, Callable[[Side], Fields]]
"""Api, version, and the fields for a side."""


@dataclass(frozen=True, slots=True)
class Both:
    """The two sides; on each, `full` has three records, `empty` none, `compacted` is compacted and `young` takes only
    records of the last hour.
    """

    ours: Side
    kafka: Side


@pytest.fixture(scope="module")
def both(embedded_broker: EmbeddedBroker, kafka_broker: KafkaBroker | ExternalKafka) -> Iterator[Both]:
    prefix = f"e{uuid.uuid4().hex[:8]}."
    addresses = {"ours": embedded_broker.bootstrap_servers, "Kafka": kafka_broker.bootstrap_servers}
    sides = [Side(name, address, prefix=prefix) for name, address in addresses.items()]
    for side in sides:
        for topic in ("full", "empty", "compacted", "young"):
            side.create_topic(topic, partitions=1)
        configure(side, "compacted", "cleanup.policy", "compact")
        configure(side, "young", "message.timestamp.before.max.ms", str(HOUR_MS))
        for _ in range(3):
            answer = side.ask("produce", 9, produce("full", batch(b"k"))(side))
            assert not rows(rows(answer["responses"])[0]["partition_responses"])[0]["error_code"], answer
    yield Both(*sides)
    for side in sides:
        side.clear()
        side.close()


def configure(side: Side, topic: str, name: str, value: str) -> None:
    resource = alter(TOPIC, side.topic_name(topic), {"name": name, "config_operation": SET, "value": value})
    answer = side.ask("incremental_alter_configs", 1, {"resources": [resource], "validate_only": False})
    assert not rows(answer["responses"])[0]["error_code"], answer


def batch(*keys: bytes | None, timestamp: int = NOW_MS, attributes: int = 0, base_offset: int = 0) -> bytes:
    records = [Record(b"v", key, timestamp=timestamp) for key in keys]
    return build_batch(records, attributes=attributes, base_offset=base_offset)


def produce(topic: str, records: bytes, *, producer: str | None = None) -> Callable[[Side], Fields]:
    def fields(side: Side) -> Fields:
        data: Fields = {"index": 0, "records": records.hex()}
        return {
            "transactional_id": producer,
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [{"name": side.topic_name(topic), "partition_data": [data]}],
        }

    return fields


def fetch(
    *asked: tuple[str, int, int], session: tuple[int, int] = (0, -1), epoch: int = -1, isolation: int = 0
) -> Callable[[Side], Fields]:
    """A fetch of version 12; *asked* are topic, partition and offset."""

    def partition(index: int, offset: int) -> Fields:
        return {
            "partition": index,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": epoch,
            "log_start_offset": -1,
            "partition_max_bytes": 1_000_000,
        }

    def fields(side: Side) -> Fields:
        return {
            "replica_id": -1,
            "max_wait_ms": 50,
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "isolation_level": isolation,
            "session_id": session[0],
            "session_epoch": session[1],
            "topics": [
                {"topic": side.topic_name(topic), "partitions": [partition(index, offset)]}
                for topic, index, offset in asked
            ],
            "forgotten_topics_data": [],
            "rack_id": "",
        }

    return fields


def list_offsets(topic: str, timestamp: int, *, isolation: int = 0) -> Callable[[Side], Fields]:
    def fields(side: Side) -> Fields:
        asked: Fields = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
        return {
            "replica_id": -1,
            "isolation_level": isolation,
            "topics": [{"name": side.topic_name(topic), "partitions": [asked]}],
        }

    return fields


def alter(kind: int, name: str, *configs: Fields) -> Fields:
    return {"resource_type": kind, "resource_name": name, "configs": list(configs)}


def alter_configs(kind: int, name: str, *configs: Fields) -> Callable[[Side], Fields]:
    return lambda side: {"resources": [alter(kind, own(side, name), *configs)], "validate_only": True}


def own(side: Side, name: str) -> str:
    """Names that begin with + are those of this run's topics."""
    return side.topic_name(name[1:]) if name.startswith("+") else name


def describe_configs(kind: int, name: str, *keys: str) -> Callable[[Side], Fields]:
    def fields(side: Side) -> Fields:
        resource: Fields = {
            "resource_type": kind,
            "resource_name": own(side, name),
            "configuration_keys": list(keys) if keys else None,
        }
        return {"resources": [resource], "include_synonyms": False, "include_documentation": False}

    return fields


def delete_topics(*names: str) -> Callable[[Side], Fields]:
    def fields(side: Side) -> Fields:
        topics: list[Json] = [{"name": side.topic_name(name), "topic_id": NO_ID} for name in names]
        return {"topics": topics, "timeout_ms": 20_000}

    return fields


def delete_by_id(topic_id: str, times: int) -> Callable[[Side], Fields]:
    topics: list[Json] = [{"name": None, "topic_id": topic_id}] * times
    return lambda side: {"topics": topics, "timeout_ms": 20_000}


def create_topics(name: str, *, validate_only: bool) -> Callable[[Side], Fields]:
    def fields(side: Side) -> Fields:
        topic: Fields = {"name": side.topic_name(name), "num_partitions": 1, "replication_factor": 1}
        return {
            "topics": [{**topic, "assignments": [], "configs": []}],
            "timeout_ms": 20_000,
            "validate_only": validate_only,
        }

    return fields


def commit_without_partitions(version: int) -> Callable[[Side], Fields]:
    def fields(side: Side) -> Fields:
        found: Fields = {
            "group_id": side.group_id("g"),
            "member_id": "",
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": side.topic_name("full"), "partitions": []}],
        }
        if version <= 4:
            found["retention_time_ms"] = -1
        if version >= 7:
            found["group_instance_id"] = None
        return found

    return fields


def commit_first(side: Side) -> None:
    partition: Fields = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
    topic: Fields = {"name": side.topic_name("full"), "partitions": [{**partition, "committed_metadata": ""}]}
    side.ask(
        "offset_commit",
        9,
        {
            "group_id": side.group_id("g"),
            "member_id": "",
            "generation_id_or_member_epoch": -1,
            "group_instance_id": None,
            "topics": [topic],
        },
    )


def delete_offsets(*partitions: int) -> Callable[[Side], Fields]:
    def fields(side: Side) -> Fields:
        commit_first(side)
        asked: list[Json] = [{"partition_index": partition} for partition in partitions]
        return {
            "group_id": side.group_id("g"),
            "topics": [{"name": side.topic_name("full"), "partitions": asked}],
        }

    return fields


def init_producer(producer_id: int, epoch: int, *, transactional_id: str | None = None) -> Callable[[Side], Fields]:
    return lambda side: {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": 60_000,
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }


def metadata_by_id(version: int) -> Callable[[Side], Fields]:
    def fields(side: Side) -> Fields:
        found: Fields = {
            "topics": [{"topic_id": side.topic_id("full"), "name": "" if version < 10 else None}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        if version <= 10:
            found["include_cluster_authorized_operations"] = False
        return found

    return fields


def describe_partitions(cursor_partition: int, limit: int = 10) -> Callable[[Side], Fields]:
    def fields(side: Side) -> Fields:
        name = side.topic_name("full")
        return {
            "topics": [{"name": name}],
            "response_partition_limit": limit,
            "cursor": {"topic_name": name, "partition_index": cursor_partition},
        }

    return fields


def delete_records(*asked: tuple[str, int, int]) -> Callable[[Side], Fields]:
    return lambda side: {
        "topics": [
            {"name": side.topic_name(topic), "partitions": [{"partition_index": index, "offset": offset}]}
            for topic, index, offset in asked
        ],
        "timeout_ms": 10_000,
    }


def legacy(name: str, *configs: tuple[str, str | None], kind: int = TOPIC) -> Callable[[Side], Fields]:
    values: list[Json] = [{"name": key, "value": value} for key, value in configs]
    return lambda side: {
        "resources": [{"resource_type": kind, "resource_name": own(side, name), "configs": values}],
        "validate_only": True,
    }


RETENTION: Final[Fields] = {"name": "retention.ms", "config_operation": SET, "value": "1000"}
TOPIC_KEYS: Final = (
    *(
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
    ),
    *("delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms"),
    *("follower.replication.throttled.replicas", "index.interval.bytes", "leader.replication.throttled.replicas"),
    *("local.retention.bytes", "local.retention.ms", "max.compaction.lag.ms", "max.message.bytes"),
    *("message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "message.timestamp.type"),
    *("min.cleanable.dirty.ratio", "min.compaction.lag.ms", "preallocate"),
    *("remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable", "retention.bytes"),
    *("retention.ms", "segment.bytes", "segment.jitter.ms", "segment.ms"),
    "unclean.leader.election.enable",
)
BROKER_KEYS: Final = (
    *("auto.create.topics.enable", "num.partitions", "delete.topic.enable", "message.max.bytes", "fetch.max.bytes"),
    *("socket.request.max.bytes", "max.connections", "connections.max.idle.ms", "sasl.server.max.receive.size"),
    *("connections.max.reauth.ms", "connection.failed.authentication.delay.ms", "offset.metadata.max.bytes"),
    *("group.consumer.session.timeout.ms", "group.consumer.assignors", "group.consumer.max.size"),
    *("offsets.retention.minutes", "offsets.retention.check.interval.ms"),
)

CASES: Final[dict[str, Case]] = {
    "fetch beyond the end": ("fetch", 12, fetch(("full", 0, 99))),
    "fetch beyond the end, committed only": ("fetch", 12, fetch(("full", 0, 99), isolation=1)),
    "fetch below zero": ("fetch", 12, fetch(("full", 0, -5))),
    "fetch of a partition that is not there": ("fetch", 12, fetch(("full", 7, 0))),
    "fetch of a partition twice": ("fetch", 12, fetch(("full", 0, 99), ("full", 0, 3))),
    "fetch of one topic in two parts": ("fetch", 12, fetch(("full", 0, 3), ("empty", 0, 0), ("full", 1, 0))),
    "fetch with an epoch and no session": ("fetch", 12, fetch(("full", 0, 3), session=(0, 5))),
    "fetch with a session that is not known": ("fetch", 12, fetch(("full", 0, 3), session=(77, 5))),
    "fetch with a session epoch below -1": ("fetch", 12, fetch(("full", 0, 3), session=(0, -7))),
    "fetch after an epoch that never was": ("fetch", 12, fetch(("full", 0, 1), epoch=5)),
    "fetch after the epoch there is": ("fetch", 12, fetch(("full", 0, 3), epoch=0)),
    "fetch beyond the end after the epoch there is": ("fetch", 12, fetch(("full", 0, 99), epoch=0)),
    "fetch with an isolation level that is not known": ("fetch", 12, fetch(("full", 0, 3), isolation=7)),
    "list offsets with an isolation level that is not known": (
        "list_offsets",
        7,
        list_offsets("full", -1, isolation=7),
    ),
    "list offsets of a time that is no question": ("list_offsets", 7, list_offsets("full", -9)),
    "produce without keys to a compacted topic": ("produce", 9, produce("compacted", batch(b"k", None))),
    "produce with keys to a compacted topic": ("produce", 9, produce("compacted", batch(b"k", b""))),
    "produce gzip without keys to a compacted topic": ("produce", 9, produce("compacted", batch(None, attributes=1))),
    "produce a record from the future": ("produce", 9, produce("empty", batch(b"k", timestamp=NOW_MS + 2 * HOUR_MS))),
    "produce an old record": ("produce", 9, produce("young", batch(b"k", timestamp=NOW_MS - 2 * HOUR_MS))),
    "produce a young record": ("produce", 9, produce("young", batch(b"k", timestamp=NOW_MS))),
    "produce a record without a time": ("produce", 9, produce("young", batch(b"k", timestamp=-1))),
    "produce a control batch": ("produce", 9, produce("empty", batch(b"k", attributes=0x20))),
    "produce two batches": ("produce", 9, produce("empty", batch(b"k") + batch(b"k"))),
    "produce nothing": ("produce", 9, produce("empty", b"")),
    "delete a topic named twice": ("delete_topics", 6, delete_topics("full", "full")),
    "delete a topic named three times beside one that is not there": (
        "delete_topics",
        6,
        delete_topics("full", "none", "full", "full"),
    ),
    "delete an id twice": ("delete_topics", 6, delete_by_id(str(uuid.UUID(int=77)), 2)),
    "delete no id": ("delete_topics", 6, delete_by_id(NO_ID, 1)),
    "describe the configuration of a topic with a bad name": (
        "describe_configs",
        4,
        describe_configs(TOPIC, "no such name"),
    ),
    "describe the configuration of a topic without a name": ("describe_configs", 4, describe_configs(TOPIC, "")),
    "describe the configuration of a topic that is not there": ("describe_configs", 4, describe_configs(TOPIC, "+no")),
    "describe the configuration of a topic": ("describe_configs", 4, describe_configs(TOPIC, "+full", *TOPIC_KEYS)),
    "describe the configuration of another broker": ("describe_configs", 4, describe_configs(BROKER, "9")),
    "describe loggers": ("describe_configs", 4, describe_configs(BROKER_LOGGER, "1", "none")),
    "describe loggers of another broker": ("describe_configs", 4, describe_configs(BROKER_LOGGER, "9")),
    "describe client metrics": ("describe_configs", 4, describe_configs(CLIENT_METRICS, "m", "none")),
    "describe client metrics without a name": ("describe_configs", 4, describe_configs(CLIENT_METRICS, "")),
    "describe a resource that is not known": ("describe_configs", 4, describe_configs(3, "x")),
    "alter a topic without a name": ("incremental_alter_configs", 1, alter_configs(TOPIC, "", RETENTION)),
    "alter a topic with a bad name": ("incremental_alter_configs", 1, alter_configs(TOPIC, "no such name", RETENTION)),
    "alter a topic that is not there": ("incremental_alter_configs", 1, alter_configs(TOPIC, "+no", RETENTION)),
    "alter a topic": ("incremental_alter_configs", 1, alter_configs(TOPIC, "+full", RETENTION)),
    "alter no logger": ("incremental_alter_configs", 1, alter_configs(BROKER_LOGGER, "1")),
    "alter no client metrics": ("incremental_alter_configs", 1, alter_configs(CLIENT_METRICS, "m")),
    "alter a resource that is not known": ("incremental_alter_configs", 1, alter_configs(3, "x", RETENTION)),
    "replace the configuration of a topic": ("alter_configs", 2, legacy("+full", ("retention.ms", "1000"))),
    "replace the configuration of a topic without a name": ("alter_configs", 2, legacy("", ("retention.ms", "1"))),
    "replace the configuration of a topic that is not there": (
        "alter_configs",
        2,
        legacy("+no", ("retention.ms", "1")),
    ),
    "replace a configuration by a key without a value": ("alter_configs", 2, legacy("+full", ("retention.ms", None))),
    "replace a configuration by a key twice": (
        "alter_configs",
        2,
        legacy("+full", ("retention.ms", "1"), ("retention.ms", "2")),
    ),
    "replace a configuration by a key that is not known": ("alter_configs", 2, legacy("+full", ("retention.md", "1"))),
    "replace no loggers": ("alter_configs", 2, legacy("1", kind=BROKER_LOGGER)),
    "replace client metrics": ("alter_configs", 2, legacy("m", kind=CLIENT_METRICS)),
    "replace a resource that is not known": ("alter_configs", 2, legacy("x", kind=3)),
    "a producer id without its epoch": ("init_producer_id", 4, init_producer(5, -1)),
    "a producer epoch without its id": ("init_producer_id", 4, init_producer(-1, 5)),
    "an empty transactional id": ("init_producer_id", 4, init_producer(-1, -1, transactional_id="")),
    "a page that begins below zero": ("describe_topic_partitions", 0, describe_partitions(-1)),
    "a page that begins beyond the end": ("describe_topic_partitions", 0, describe_partitions(9)),
    "a page of no partitions": ("describe_topic_partitions", 0, describe_partitions(0, limit=0)),
    **{
        f"commit of no partition in version {version}": ("offset_commit", version, commit_without_partitions(version))
        for version in range(2, 10)
    },
    "delete offsets of no partition": ("offset_delete", 0, delete_offsets()),
    "delete the offset of a partition that is not there": ("offset_delete", 0, delete_offsets(9)),
    "metadata by id in version 10": ("metadata", 10, metadata_by_id(10)),
    "metadata by id in version 11": ("metadata", 11, metadata_by_id(11)),
    "delete records beyond the end": ("delete_records", 2, delete_records(("full", 0, 99))),
    "delete records below -1": ("delete_records", 2, delete_records(("full", 0, -2))),
    "delete records of a topic that is not there": ("delete_records", 2, delete_records(("no", 0, 1))),
    "delete records of a partition that is not there": ("delete_records", 2, delete_records(("full", 9, 1))),
    "delete no records": ("delete_records", 2, delete_records(("full", 0, 0))),
    "delete records up to the end of an empty partition": ("delete_records", 0, delete_records(("empty", 0, -1))),
}

# Left out of TOPIC_KEYS: min.insync.replicas, a default of the cluster on Kafka, and segment.index.bytes, which
# the properties of the test's Kafka set.

LEFT_OUT: Final = (
    "member_id",
    "records",
    "cluster_id",
    "total_bytes",
    "usable_bytes",
    "log_dir",
    "error_message",
    "batch_index_error_message",
)
"""Fields that the two cannot share; error texts are compared in the conversations."""


def without(value: Json) -> Json:
    """An answer without `LEFT_OUT`."""
    match value:
        case dict():
            return {name: without(item) for name, item in value.items() if name not in LEFT_OUT}
        case list():
            return [without(item) for item in value]
        case _:
            return value


@pytest.mark.parametrize("name", CASES)
def test_both_brokers_answer_an_edge_case_alike(name: str, both: Both) -> None:
    """A test of a user's that passes on the embedded broker shall pass on Kafka also where its requests are odd."""
    api, version, fields = CASES[name]
    ours, kafka = (
        without(shared_form(side, side.ask(api, version, fields(side)), group="")) for side in (both.ours, both.kafka)
    )
    assert "\n".join(disagreements(ours, kafka)) == ""


def test_the_settings_of_a_broker_have_the_types_that_kafka_gives_them(both: Both) -> None:
    """Admin clients turn texts into numbers by them. Values and who may change them differ on purpose."""
    asked = describe_configs(BROKER, "1", *BROKER_KEYS)
    types = []
    for side in (both.ours, both.kafka):
        (result,) = rows(side.ask("describe_configs", 4, asked(side))["results"])
        types.append({row["name"]: row["config_type"] for row in rows(result["configs"])})
    assert types[0] == types[1]


def test_a_topic_that_is_only_validated_has_an_id_on_both(both: Both) -> None:
    """Java's admin client shows it."""
    for side in (both.ours, both.kafka):
        answer = side.ask("create_topics", 7, create_topics("planned", validate_only=True)(side))
        assert rows(answer["topics"])[0]["topic_id"] is not None
