"""Requests at the edge of what an API allows, sent to both brokers: one by one, on topics that have the same content.

Not generated, and without a member: each case is one request that a comparison once found to be answered differently,
or one like it. What stays different is in docs/differences.md.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.testing.judge.broker.comparison import disagreements, shared_form
from kip848_client.testing.judge.broker.messages import Fields, Json
from kip848_client.testing.judge.broker.side import Side, rows
from kip848_client.wire.record_batch import Record, build_batch
from tests.interop.differential.conftest import conversing
from tests.interop.differential.conversation import Conversation
from tests.interop.kafka_broker import ExternalKafka, KafkaBroker
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.kafka]

NOW_MS: Final = int(time.time() * 1000)
HOUR_MS: Final = 3_600_000
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

RATE: Final = ("producer_byte_rate", 1000.0)

Case: TypeAlias = tuple[str, int, Fields]
"""Api, version and fields. Texts that begin with + are names of this run's topics and groups, or ids of its topics."""


@pytest.fixture(scope="module")
def both(embedded_broker: EmbeddedBroker, kafka_broker: KafkaBroker | ExternalKafka) -> Iterator[Conversation]:
    """The two sides; on each, `full` has three records, `empty` none, `compacted` is compacted and `young` takes only
    records of the last hour. The group `g` has an offset of `full`.
    """
    with conversing(embedded_broker, kafka_broker.bootstrap_servers) as conversation:
        for side in (conversation.ours, conversation.kafka):
            for topic in ("full", "empty", "compacted", "young"):
                side.create_topic(topic, partitions=1)
            configs = {
                "compacted": ("cleanup.policy", "compact"),
                "young": ("message.timestamp.before.max.ms", HOUR_MS),
            }
            for topic, (name, value) in configs.items():
                api, version, fields = alter(TOPIC, f"+{topic}", (name, str(value)))
                ask(side, (api, version, {**fields, "validate_only": False}))
            for _ in range(3):
                ask(side, produce("full", batch(b"k")))
            position = {"committed_offset": 1, "committed_metadata": ""}
            ask(side, ("offset_commit", 9, {"group_id": "+g", "topics": [{"name": "+full", "partitions": [position]}]}))
        yield conversation


def ask(side: Side, case: Case) -> dict[str, Json]:
    """The answer of one side."""
    api, version, fields = case
    return side.ask(api, version, named_for(side, fields))


def named_for(side: Side, value: Any, *, field: str = "") -> Any:
    """Fields of a request with this side's names."""
    match value:
        case dict():
            return {name: named_for(side, item, field=name) for name, item in value.items()}
        case list() | tuple():
            return [named_for(side, item, field=field) for item in value]
        case str() if value.startswith("+"):
            return uuid.UUID(side.topic_id(value[1:])) if field == "topic_id" else side.topic_name(value[1:])
        case _:
            return value


def batch(*keys: bytes | None, timestamp: int = NOW_MS, attributes: int = 0) -> bytes:
    return build_batch([Record(b"v", key, timestamp=timestamp) for key in keys], attributes=attributes)


def produce(topic: str, records: bytes) -> Case:
    topics = [{"name": f"+{topic}", "partition_data": [{"records": records}]}]
    return "produce", 9, {"acks": -1, "timeout_ms": 10_000, "topic_data": topics}


def fetch(
    *asked: tuple[str, int, int], session: tuple[int, int] = (0, -1), epoch: int = -1, isolation: int = 0
) -> Case:
    """*asked* are topic, partition and offset."""

    def partition(index: int, offset: int) -> Fields:
        limits = {"last_fetched_epoch": epoch, "partition_max_bytes": 1_000_000}
        return {"partition": index, "fetch_offset": offset, **limits}

    return (
        "fetch",
        12,
        {
            "max_wait_ms": 50,
            "min_bytes": 1,
            "isolation_level": isolation,
            "session_id": session[0],
            "session_epoch": session[1],
            "topics": [{"topic": f"+{topic}", "partitions": [partition(*place)]} for topic, *place in asked],
        },
    )


def list_offsets(timestamp: int, *, isolation: int = 0) -> Case:
    topics = [{"name": "+full", "partitions": [{"timestamp": timestamp}]}]
    return "list_offsets", 7, {"replica_id": -1, "isolation_level": isolation, "topics": topics}


def alter(kind: int, name: str, *configs: tuple[str, str | None], replaces: bool = False) -> Case:
    """With *replaces* by the older API, in which the configuration is replaced as a whole."""
    values = [{"name": key, "value": value} for key, value in configs]
    resource = {"resource_type": kind, "resource_name": name, "configs": values}
    api, version = ("alter_configs", 2) if replaces else ("incremental_alter_configs", 1)
    return api, version, {"resources": [resource], "validate_only": True}


def remove(kind: int, name: str, key: str) -> Case:
    resource = {"resource_type": kind, "resource_name": name, "configs": [{"name": key, "config_operation": 1}]}
    return "incremental_alter_configs", 1, {"resources": [resource], "validate_only": True}


def replace(name: str, *configs: tuple[str, str | None], kind: int = TOPIC) -> Case:
    return alter(kind, name, *configs, replaces=True)


def describe(kind: int, name: str, *keys: str) -> Case:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    return "describe_configs", 4, {"resources": [resource]}


def elect(*named: tuple[str, list[int]], kind: int = 0) -> Case:
    topics = [{"topic": topic, "partitions": partitions} for topic, partitions in named]
    fields = {"election_type": kind, "topic_partitions": topics, "timeout_ms": 10_000}
    return "elect_leaders", 2, fields


def reassign(
    *replicas: int, topic: str = "+full", partition: int = 0, cancel: bool = False, keep: bool = False
) -> Case:
    """*keep*: the number of replicas must stay."""
    asked = {"partition_index": partition, "replicas": None if cancel else list(replicas)}
    fields = {"allow_replication_factor_change": not keep, "topics": [{"name": topic, "partitions": [asked]}]}
    return "alter_partition_reassignments", 1, fields


def reassignments(*partitions: int, topic: str = "+full") -> Case:
    return "list_partition_reassignments", 0, {"topics": [{"name": topic, "partition_indexes": list(partitions)}]}


def feature(name: str, level: int, *, version: int = 2, kind: int = 1) -> Case:
    update = {"feature": name, "max_version_level": level, "upgrade_type": kind}
    return "update_features", version, {"feature_updates": [update], "validate_only": True}


def quorum(topic: str, partition: int = 0) -> Case:
    return "describe_quorum", 2, {"topics": [{"topic_name": topic, "partitions": [{"partition_index": partition}]}]}


def move_folder(path: str, topic: str = "+full") -> Case:
    return "alter_replica_log_dirs", 2, {"dirs": [{"path": path, "topics": [{"name": topic, "partitions": [0]}]}]}


def quota(entity: Mapping[str, str | None], *changes: tuple[str, float], times: int = 1) -> Case:
    """Changes of the quotas of an entity, which are named as often as *times* says."""
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": value} for key, value in changes],
    }
    return "alter_client_quotas", 1, {"entries": [entry] * times, "validate_only": True}


def quotas_of(*parts: tuple[str, int, str | None], version: int = 1) -> Case:
    """*parts* are type, how it must match, and the name."""
    asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in parts]
    return "describe_client_quotas", version, {"components": asked, "strict": True}


def scram(*upserted: tuple[str, int, int], deleted: tuple[str, int] | None = None) -> Case:
    """*upserted* are user, mechanism and iterations; all are refused."""
    salted = {"salt": b"salt", "salted_password": b"x" * 32}
    upsertions = [{"name": name, "mechanism": how, "iterations": count, **salted} for name, how, count in upserted]
    deletions = [] if deleted is None else [{"name": deleted[0], "mechanism": deleted[1]}]
    return "alter_user_scram_credentials", 0, {"upsertions": upsertions, "deletions": deletions}


def scram_of(*users: str) -> Case:
    return "describe_user_scram_credentials", 0, {"users": [{"name": name} for name in users]}


def list_resources(*kinds: int, version: int = 1) -> Case:
    return "list_config_resources", version, {"resource_types": kinds}


def delete(*topics: Fields) -> Case:
    return "delete_topics", 6, {"topics": topics, "timeout_ms": 20_000}


def init_producer(producer_id: int, epoch: int, *, transactional_id: str | None = None) -> Case:
    producer = {"producer_id": producer_id, "producer_epoch": epoch}
    return "init_producer_id", 4, {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000, **producer}


def describe_partitions(first: int, limit: int = 10) -> Case:
    cursor = {"topic_name": "+full", "partition_index": first}
    fields = {"topics": [{"name": "+full"}], "response_partition_limit": limit, "cursor": cursor}
    return "describe_topic_partitions", 0, fields


def delete_records(topic: str, partition: int, offset: int, *, version: int = 2) -> Case:
    topics = [{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}]
    return "delete_records", version, {"topics": topics, "timeout_ms": 10_000}


def metadata_by_id(version: int) -> Case:
    topics = [{"topic_id": "+full", "name": "" if version < 10 else None}]
    return "metadata", version, {"topics": topics, "allow_auto_topic_creation": False}


RETENTION: Final = ("retention.ms", "1000")
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
    *("min.cleanable.dirty.ratio", "min.compaction.lag.ms", "min.insync.replicas", "preallocate"),
    *("remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable", "retention.bytes"),
    *("retention.ms", "segment.bytes", "segment.jitter.ms", "segment.ms"),
    "unclean.leader.election.enable",
)
BROKER_KEYS: Final = (
    *("auto.create.topics.enable", "num.partitions", "delete.topic.enable", "message.max.bytes", "fetch.max.bytes"),
    *("socket.request.max.bytes", "max.connections", "connections.max.idle.ms", "sasl.server.max.receive.size"),
    *("connections.max.reauth.ms", "connection.failed.authentication.delay.ms", "offset.metadata.max.bytes"),
    *("group.consumer.session.timeout.ms", "group.consumer.assignors", "group.consumer.max.size"),
    *("offsets.retention.minutes", "offsets.retention.check.interval.ms", "advertised.listeners", "node.id"),
)


def beat(**fields: Any) -> Case:
    """The first heartbeat of a worker, but for *fields*."""
    usual = {"group_id": "+workers", "member_id": "w", "member_epoch": 0, "subscribed_topic_names": ["+full"]}
    return "share_group_heartbeat", 1, usual | fields


def alter_starts(group: str) -> Case:
    partitions = [{"partition_index": 0, "start_offset": 1}]
    topics = [{"topic_name": "+full", "partitions": partitions}]
    return "alter_share_group_offsets", 0, {"group_id": group, "topics": topics}


def forget(group: str) -> Case:
    return "delete_share_group_offsets", 0, {"group_id": group, "topics": [{"topic_name": "+full"}]}


CASES: Final[dict[str, Case]] = {
    "fetch beyond the end": fetch(("full", 0, 99)),
    "fetch beyond the end, committed only": fetch(("full", 0, 99), isolation=1),
    "fetch below zero": fetch(("full", 0, -5)),
    "fetch of a partition that is not there": fetch(("full", 7, 0)),
    "fetch of a partition twice": fetch(("full", 0, 99), ("full", 0, 3)),
    "fetch of one topic in two parts": fetch(("full", 0, 3), ("empty", 0, 0), ("full", 1, 0)),
    "fetch with an epoch and no session": fetch(("full", 0, 3), session=(0, 5)),
    "fetch with a session that is not known": fetch(("full", 0, 3), session=(77, 5)),
    "fetch with a session epoch below -1": fetch(("full", 0, 3), session=(0, -7)),
    "fetch after an epoch that never was": fetch(("full", 0, 1), epoch=5),
    "fetch after the epoch there is": fetch(("full", 0, 3), epoch=0),
    "fetch beyond the end after the epoch there is": fetch(("full", 0, 99), epoch=0),
    "fetch with an isolation level that is not known": fetch(("full", 0, 3), isolation=7),
    "list offsets with an isolation level that is not known": list_offsets(-1, isolation=7),
    "list offsets of a time that is no question": list_offsets(-9),
    "produce without keys to a compacted topic": produce("compacted", batch(b"k", None)),
    "produce with keys to a compacted topic": produce("compacted", batch(b"k", b"")),
    "produce gzip without keys to a compacted topic": produce("compacted", batch(None, attributes=1)),
    "produce a record from the future": produce("empty", batch(b"k", timestamp=NOW_MS + 2 * HOUR_MS)),
    "produce an old record": produce("young", batch(b"k", timestamp=NOW_MS - 2 * HOUR_MS)),
    "produce a young record": produce("young", batch(b"k", timestamp=NOW_MS)),
    "produce a record without a time": produce("young", batch(b"k", timestamp=-1)),
    "produce a control batch": produce("empty", batch(b"k", attributes=0x20)),
    "produce two batches": produce("empty", batch(b"k") + batch(b"k")),
    "produce nothing": produce("empty", b""),
    "a worker without a member id": beat(member_id="  "),
    "a worker without topics": beat(subscribed_topic_names=[]),
    "a worker that says nothing of topics": beat(subscribed_topic_names=None),
    "a worker without a name of its rack": beat(rack_id=" "),
    "a worker without a group": beat(group_id=" "),
    "a worker with an epoch below -1": beat(member_epoch=-2),
    "a worker that was never there": beat(member_epoch=3, subscribed_topic_names=None),
    "a worker that leaves and was never there": beat(member_epoch=-1, subscribed_topic_names=None),
    "a worker in a group of consumers": beat(group_id="+g"),
    "describe share groups that are none": ("share_group_describe", 1, {"group_ids": ["", "+none", "+g"]}),
    "start offsets of topics that are none": (
        "describe_share_group_offsets",
        1,
        {"groups": [{"group_id": "+none", "topics": [{"topic_name": "+none", "partitions": [0]}]}]},
    ),
    "start offsets of partitions that are none": (
        "describe_share_group_offsets",
        1,
        {"groups": [{"group_id": "+g", "topics": [{"topic_name": "+full", "partitions": [0, 7]}]}]},
    ),
    "start offsets of all that a group has not begun": (
        "describe_share_group_offsets",
        1,
        {"groups": [{"group_id": "+none", "topics": None}]},
    ),
    "move start offsets of a group of consumers": alter_starts("+g"),
    "move start offsets of no group": alter_starts(""),
    "forget topics of a group of consumers": forget("+g"),
    "forget topics of a group that is none": forget("+none"),
    "forget topics of no group": forget(""),
    **{
        f"{name}={value} of a share group": alter(GROUP, "+sharing", (name, value))
        for name, value in (
            ("share.auto.offset.reset", "none"),
            ("share.auto.offset.reset", "EARLIEST"),
            ("share.auto.offset.reset", "by_duration:PT1H"),
            ("share.auto.offset.reset", "by_duration:P1W"),
            ("share.isolation.level", "READ_COMMITTED"),
            ("share.renew.acknowledge.enable", "TRUE"),
            ("share.renew.acknowledge.enable", "1"),
            ("share.delivery.count.limit", "11"),
            ("share.partition.max.record.locks", "99"),
            ("errors.deadletterqueue.topic.name", "__dead"),
            ("errors.deadletterqueue.topic.name", "a bad name"),
        )
    },
    "delete a topic named twice": delete(*[{"name": "+full"}] * 2),
    "delete a topic named three times beside one that is not there": delete(
        {"name": "+full"}, {"name": "+none"}, {"name": "+full"}, {"name": "+full"}
    ),
    "delete an id twice": delete(*[{"name": None, "topic_id": uuid.UUID(int=77)}] * 2),
    "delete no id": delete({"name": None, "topic_id": uuid.UUID(int=0)}),
    "describe the configuration of a topic with a bad name": describe(TOPIC, "no such name"),
    "describe the configuration of a topic without a name": describe(TOPIC, ""),
    "describe the configuration of a topic that is not there": describe(TOPIC, "+no"),
    "describe the configuration of a topic": describe(TOPIC, "+full", *TOPIC_KEYS),
    "describe the configuration of another broker": describe(BROKER, "9"),
    "describe loggers": describe(BROKER_LOGGER, "1", "none"),
    "describe loggers of another broker": describe(BROKER_LOGGER, "9"),
    "describe client metrics": describe(CLIENT_METRICS, "m", "none"),
    "describe client metrics without a name": describe(CLIENT_METRICS, ""),
    "describe a resource that is not known": describe(3, "x"),
    "a quota": quota({"user": "a", "client-id": None}, RATE),
    "a quota that is no whole number": quota({"user": "a"}, ("consumer_byte_rate", 0.5)),
    "a quota of nothing": quota({"user": "a"}, ("request_percentage", 0.0)),
    "a quota of an address": quota({"ip": "127.0.0.1"}, ("connection_creation_rate", 5.0)),
    "a quota of an address that only users have": quota({"ip": "127.0.0.1"}, RATE),
    "a quota of an address and a user": quota({"ip": "127.0.0.1", "user": "a"}, RATE),
    "a quota that is not known": quota({"user": "a"}, ("rate", 1.0)),
    "a quota of a type that is not known": quota({"group": "a"}, RATE),
    "a quota of no entity": quota({}, RATE),
    "a quota of a user without a name": quota({"user": ""}, RATE),
    "a quota twice": quota({"user": "a"}, RATE, RATE),
    "quotas of an entity twice": quota({"user": "a"}, RATE, times=2),
    "quotas of a type twice": quotas_of(("user", 0, "a"), ("user", 1, None)),
    "quotas of a type that is not known": quotas_of(("group", 0, "a")),
    "quotas of an unknown match": quotas_of(("user", 3, None), version=0),
    "quotas of a default with a name": quotas_of(("user", 1, "a")),
    "quotas of a user without a name": quotas_of(("user", 0, None)),
    "quotas of no user": quotas_of(("user", 0, "nowhere")),
    "alter what a broker cannot change": alter(BROKER, "", ("num.partitions", "3")),
    "alter a setting of a broker to no number": alter(BROKER, "1", ("message.max.bytes", "x")),
    "describe the defaults of all brokers": describe(BROKER, ""),
    "describe a default of all brokers at one": describe(BROKER, "1", "min.insync.replicas"),
    "alter a default of all brokers": alter(BROKER, "", ("min.insync.replicas", "2")),
    "alter a default of all brokers to a bad value": alter(BROKER, "", ("min.insync.replicas", "0")),
    "alter a default of all brokers at one": alter(BROKER, "1", ("min.insync.replicas", "2")),
    "replace the defaults of all brokers": alter(BROKER, "", ("message.max.bytes", "1000000"), replaces=True),
    "remove a default of all brokers": remove(BROKER, "", "min.insync.replicas"),
    "alter a setting of another broker": alter(BROKER, "9", ("message.max.bytes", "1000")),
    "alter a setting of a broker": alter(BROKER, "1", ("message.max.bytes", "1000000")),
    "alter client metrics": alter(CLIENT_METRICS, "m", ("interval.ms", "200"), ("match", "client_id=a.*")),
    "alter client metrics to too short an interval": alter(CLIENT_METRICS, "m", ("interval.ms", "99")),
    "alter client metrics by a bad pattern": alter(CLIENT_METRICS, "m", ("match", "client_id=[")),
    "alter client metrics by a key that is not known": alter(CLIENT_METRICS, "m", ("metric", "x")),
    "alter client metrics without a name": alter(CLIENT_METRICS, "", ("metrics", "x")),
    **{
        f"client metrics with {key}={value!r}": alter(CLIENT_METRICS, "m", (key, value))
        for key, values in {"metrics": ("a,,b", ",", " ", "a, b"), "match": ("client_id=a,,client_id=b", ",")}.items()
        for value in values
    },
    "describe all client metrics": describe(CLIENT_METRICS, "m"),
    "SCRAM users that are not there": scram_of("nowhere", "twice", "twice", ""),
    "a SCRAM user of too few and too many iterations": scram(("a", 1, 4095), ("b", 1, 16_385), ("", 1, 4096)),
    "a SCRAM user of an unknown mechanism": scram(("a", 3, 4096), ("b", 0, 4096)),
    "a SCRAM user twice": scram(("a", 1, 4096), ("a", 2, 4096), deleted=("nowhere", 1)),
    "elect leaders that lead": elect(("+full", [0, 7]), ("+nowhere", [0])),
    "elect leaders twice, and of an unknown kind": elect(("+full", [0, 0]), kind=3),
    "elect any leader where there is one": elect(("+full", [0]), kind=1),
    "elect leaders of no partitions": elect(("+full", []), ("+nowhere", [])),
    "reassign nothing": (
        "alter_partition_reassignments",
        1,
        {"allow_replication_factor_change": False, "topics": []},
    ),
    "give a partition the replica that it has": reassign(1),
    "give a partition a node that is not there": reassign(99),
    "give a partition a node twice": reassign(1, 1),
    "give a partition no replica": reassign(),
    "give a partition more replicas than may be": reassign(1, 2, keep=True),
    "move a partition that is not there": reassign(1, partition=7),
    "move a partition of a topic that is not there": reassign(1, topic="+nowhere"),
    "end a reassignment that is not going on": reassign(cancel=True),
    "list reassignments of a topic": reassignments(0, 7),
    "list reassignments of a topic that is not there": reassignments(0, topic="+nowhere"),
    "raise a feature to its level": feature("group.version", 1),
    "raise a feature to its level, by an older API": feature("group.version", 1, version=1),
    "raise the feature of the cluster's records to its level": feature("metadata.version", 33),
    "lower the feature of the cluster's records": feature("metadata.version", 20),
    "lower the feature of the cluster's records below all levels": feature("metadata.version", 0, kind=2),
    "raise a feature above all levels": feature("group.version", 9),
    "raise a feature that is not there": feature("no.such.feature", 1),
    "raise a feature that is not there, by an older API": feature("no.such.feature", 1, version=1),
    "lower a feature without permission": feature("transaction.version", 1),
    "a feature below zero": feature("transaction.version", -1),
    "a feature in an unknown way": feature("transaction.version", 2, kind=9),
    "describe the quorum of another topic": quorum("+full"),
    "describe another partition of the quorum": quorum("__cluster_metadata", 7),
    "move a partition to a folder that is not there": move_folder("/nowhere"),
    "move a topic that is not there to such a folder": move_folder("/nowhere", "+nowhere"),
    "create a token": ("create_delegation_token", 3, {"max_lifetime_ms": 1000}),
    "renew a token": ("renew_delegation_token", 2, {"hmac": b"h", "renew_period_ms": 1000}),
    "end a token": ("expire_delegation_token", 2, {"hmac": b"h", "expiry_time_period_ms": 1000}),
    "describe tokens": ("describe_delegation_token", 3, {"owners": None}),
    "list what has client metrics": list_resources(version=0),
    "list brokers and loggers": list_resources(BROKER, BROKER_LOGGER, BROKER),
    "list resources of a type that is not known": list_resources(TOPIC, 3),
    "alter a topic without a name": alter(TOPIC, "", RETENTION),
    "alter a topic with a bad name": alter(TOPIC, "no such name", RETENTION),
    "alter a topic that is not there": alter(TOPIC, "+no", RETENTION),
    "alter a topic": alter(TOPIC, "+full", RETENTION),
    "alter no logger": alter(BROKER_LOGGER, "1"),
    "alter no client metrics": alter(CLIENT_METRICS, "m"),
    "alter a resource that is not known": alter(3, "x", RETENTION),
    "replace the configuration of a topic": replace("+full", RETENTION),
    "replace the configuration of a topic without a name": replace("", RETENTION),
    "replace the configuration of a topic that is not there": replace("+no", RETENTION),
    "replace a configuration by a key without a value": replace("+full", ("retention.ms", None)),
    "replace a configuration by a key twice": replace("+full", RETENTION, ("retention.ms", "2")),
    "replace a configuration by a key that is not known": replace("+full", ("retention.md", "1")),
    "replace no loggers": replace("1", kind=BROKER_LOGGER),
    "replace client metrics": replace("m", kind=CLIENT_METRICS),
    "replace a resource that is not known": replace("x", kind=3),
    "a producer id without its epoch": init_producer(5, -1),
    "a producer epoch without its id": init_producer(-1, 5),
    "an empty transactional id": init_producer(-1, -1, transactional_id=""),
    "a page that begins below zero": describe_partitions(-1),
    "a page that begins beyond the end": describe_partitions(9),
    "a page of no partitions": describe_partitions(0, limit=0),
    **{
        f"commit of no partition in version {version}": (
            "offset_commit",
            version,
            {"group_id": "+g", "topics": [{"name": "+full", "partitions": []}]},
        )
        for version in range(2, 10)
    },
    "delete offsets of no partition": (
        "offset_delete",
        0,
        {"group_id": "+g", "topics": [{"name": "+full", "partitions": []}]},
    ),
    "delete the offset of a partition that is not there": (
        "offset_delete",
        0,
        {"group_id": "+g", "topics": [{"name": "+full", "partitions": [{"partition_index": 9}]}]},
    ),
    "metadata by id in version 10": metadata_by_id(10),
    "metadata by id in version 11": metadata_by_id(11),
    "delete records beyond the end": delete_records("+full", 0, 99),
    "delete records below -1": delete_records("+full", 0, -2),
    "delete records of a topic that is not there": delete_records("+no", 0, 1),
    "delete records of a partition that is not there": delete_records("+full", 9, 1),
    "delete no records": delete_records("+full", 0, 0),
    "delete records up to the end of an empty partition": delete_records("+empty", 0, -1, version=0),
}

# Left out of TOPIC_KEYS: segment.index.bytes, which the properties of the test's Kafka set.

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
def test_both_brokers_answer_an_edge_case_alike(name: str, both: Conversation) -> None:
    """A test of a user's that passes on the embedded broker shall pass on Kafka also where its requests are odd."""
    ours, kafka = (without(shared_form(side, ask(side, CASES[name]), group="")) for side in (both.ours, both.kafka))
    assert "\n".join(disagreements(ours, kafka)) == ""


def test_the_settings_of_a_broker_have_the_types_that_kafka_gives_them(both: Conversation) -> None:
    """Admin clients turn texts into numbers by them. Values and who may change them differ on purpose."""
    types = []
    for side in (both.ours, both.kafka):
        (result,) = rows(ask(side, describe(BROKER, "1", *BROKER_KEYS))["results"])
        types.append({row["name"]: row["config_type"] for row in rows(result["configs"])})
    assert types[0] == types[1]


def test_topics_and_groups_with_overrides_are_listed_on_both(both: Conversation) -> None:
    """Tools that copy a configuration ask for these; a group is listed only while it overrides something."""
    for side in (both.ours, both.kafka):
        for group, value in (("set", "50000"), ("unset", "50000"), ("unset", None)):
            operation = {"name": "consumer.session.timeout.ms", "config_operation": int(value is None), "value": value}
            resource = {"resource_type": GROUP, "resource_name": f"+{group}", "configs": [operation]}
            ask(side, ("incremental_alter_configs", 1, {"resources": [resource]}))
    for side in (both.ours, both.kafka):  # Kafka answers before its brokers have heard of a change
        wait_until(functools.partial(_lists_only_what_is_set, side))


def _lists_only_what_is_set(side: Side) -> bool:
    own = {(GROUP, side.topic_name(name)) for name in ("set", "unset")} | {(TOPIC, side.topic_name("full"))}
    resources = rows(ask(side, list_resources(GROUP, TOPIC))["config_resources"])
    listed = [(row["resource_type"], row["resource_name"]) for row in resources]
    return [kind for kind, name in listed if (kind, name) in own] == [GROUP, TOPIC]


def test_a_topic_that_is_only_validated_has_an_id_on_both(both: Conversation) -> None:
    """Java's admin client shows the topic id of a dry run, so it must not be zero."""
    topics = [{"name": "+planned", "num_partitions": 1, "replication_factor": 1}]
    for side in (both.ours, both.kafka):
        answer = ask(side, ("create_topics", 7, {"topics": topics, "timeout_ms": 20_000, "validate_only": True}))
        assert rows(answer["topics"])[0]["topic_id"] != str(uuid.UUID(int=0))
