"""One well-formed request for every version of every served API: what a newcomer's client would send first.

`ROWS` has one row per API; it makes the request of a version on a `Scene`, whose topic has records and whose groups
have a member and offsets, so that the answers carry as many fields as they can. The same rows are played against the
embedded broker and against a real Kafka. Of the protocol's rules they know only what a first request needs.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from kip848_client.common.model import ZERO_UUID
from kip848_client.errors import ErrorCode
from kip848_client.testing.broker.apis import ApiTable
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.testing.judge.broker.messages import Fields, message
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kip848_client.wire.record_batch import Record, build_batch
from kip848_client.wire.schema import Request
from tests.support.waiting import wait_until

SETTLE_TIMEOUT_S: Final = 30.0
NOW_MS: Final = int(time.time() * 1000)
TOPIC_RESOURCE: Final = 2
STATIC_VERSION: Final = 5
"""The first version of JoinGroup with static members; the one before asks newcomers to come back with an id."""
PROTOCOL_VERSION: Final = 5
"""The first version of SyncGroup that names the protocol."""
BATCHED_TRANSACTIONS_VERSION: Final = 4
"""The first version of AddPartitionsToTxn that names several transactions."""
BATCH_VERSION: Final = 3
"""The first version of LeaveGroup that names several members."""
MOVED_ON: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""What a real Kafka answers for a moment after a topic was created or a coordinator was asked for the first time."""


class Scene(msgspec.Struct):
    """What the requests speak of.

    Attributes:
        topic: name of a topic with one partition and two records; `topic_id` is its id.
        offsets_group: a group that has committed offset 1 of the topic, and no members.
        members_group: a group with the member `member_id`, which is subscribed to the topic.
        exists: False if nothing of that is there; see `of_nothing`.
    """

    connection: RawConnection
    prefix: str
    topic: str = ""
    topic_id: uuid.UUID = ZERO_UUID
    offsets_group: str = ""
    members_group: str = ""
    member_id: str = "member"
    exists: bool = True
    _made: int = 0

    @classmethod
    def arrange(cls, bootstrap_servers: str) -> Scene:
        """Connect, and make the topic, the records and the groups."""
        scene = cls(RawConnection(bootstrap_servers), prefix=f"s{uuid.uuid4().hex[:8]}.")
        scene.topic, scene.topic_id = scene.create_topic()
        scene.offsets_group, scene.members_group = f"{scene.prefix}offsets", f"{scene.prefix}members"
        scene.settle(ApiKey.PRODUCE, 9, _produce(scene, 9))
        for group in (scene.offsets_group, scene.members_group):
            scene.settle(ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": [group]})
        scene.settle(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 60_000})
        scene.settle(ApiKey.OFFSET_COMMIT, 9, _offset_commit(scene, scene.offsets_group))
        scene.settle(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, _heartbeat(scene, 0))
        return scene

    @classmethod
    def of_nothing(cls, bootstrap_servers: str) -> Scene:
        """A scene in which nothing of what is asked for exists."""
        prefix = f"s{uuid.uuid4().hex[:8]}."
        return cls(
            RawConnection(bootstrap_servers),
            prefix=prefix,
            topic=f"{prefix}missing",
            topic_id=uuid.uuid4(),
            offsets_group=f"{prefix}nobody",
            members_group=f"{prefix}nobody",
            exists=False,
        )

    def create_topic(self) -> tuple[str, uuid.UUID]:
        """Create a topic of its own; its name and id. Where nothing exists, those of the topic that does not."""
        if not self.exists:
            return self.topic, self.topic_id
        self._made += 1
        name = f"{self.prefix}t{self._made}"
        answer = self.settle(ApiKey.CREATE_TOPICS, 7, _create_topics(name))
        self.settle(ApiKey.METADATA, 9, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
        topic_id: uuid.UUID = answer.topics[0].topic_id
        return name, topic_id

    def group_with_offsets(self) -> str:
        """A group of its own with an offset and no members. Where nothing exists, the group that does not."""
        if not self.exists:
            return self.offsets_group
        self._made += 1
        group = f"{self.prefix}g{self._made}"
        self.settle(ApiKey.OFFSET_COMMIT, 9, _offset_commit(self, group))
        return group

    def classic_member(self) -> tuple[str, str]:
        """A classic group of its own at generation 1, and its member. Where nothing exists, a member of nothing."""
        if not self.exists:
            return self.members_group, self.member_id
        self._made += 1
        group = f"{self.prefix}c{self._made}"
        answer = self.settle(ApiKey.JOIN_GROUP, 3, _join_group(self, 3, group))
        return group, answer.member_id

    def transactional_producer(self) -> tuple[str, int, int]:
        """A transactional id of its own, its producer id and epoch. Where nothing exists, those of no producer."""
        if not self.exists:
            return f"{self.prefix}nobody", 10**9, 0
        self._made += 1
        name = f"{self.prefix}x{self._made}"
        self.settle(ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": [name], "key_type": 1})
        producer = {"transactional_id": name, "transaction_timeout_ms": 60_000}
        answer = self.settle(ApiKey.INIT_PRODUCER_ID, 4, producer)
        return name, answer.producer_id, answer.producer_epoch

    def settle(self, api_key: int, version: int, fields: Fields) -> Any:
        """The answer to a request with these *fields*, asked again while Kafka still makes what it speaks of."""
        answers: list[Any] = []
        request = message(api_key, fields)

        def is_settled() -> bool:
            answers.append(self.connection.ask(request, version=version))
            return MOVED_ON.isdisjoint(error_codes(answers[-1]))

        wait_until(is_settled, SETTLE_TIMEOUT_S, f"a settled answer to {type(request).__name__} v{version}")
        assert not error_codes(answers[-1]), answers[-1]
        return answers[-1]


Row = Callable[[Scene, int], Request[Any]]


def error_codes(message: object) -> set[int]:
    """Every error code of an answer but 0, however deep it stands."""
    return {code for code in _error_codes(message) if code}


def _error_codes(message: object) -> Iterator[int]:
    if isinstance(message, tuple):
        for item in message:
            yield from _error_codes(item)
        return
    for name in getattr(message, "__struct_fields__", ()):
        found = getattr(message, name)
        if name.endswith("error_code"):
            yield found
        else:
            yield from _error_codes(found)


def _topic(scene: Scene) -> dict[str, Any]:
    """The topic, as newer versions name it."""
    return {"name": scene.topic, "topic_id": scene.topic_id}


def _produce(scene: Scene, _: int) -> Fields:
    records = build_batch([Record(b"one", b"k", timestamp=NOW_MS), Record(b"two", b"k", timestamp=NOW_MS)])
    return {
        "acks": -1,
        "timeout_ms": 10_000,
        "topic_data": [_topic(scene) | {"partition_data": [{"records": records}]}],
    }


def _metadata(scene: Scene, version: int) -> Fields:
    return {
        "topics": [{"name": scene.topic}],
        "include_cluster_authorized_operations": 8 <= version <= 10,
        "include_topic_authorized_operations": version >= 8,
    }


def _offset_commit(scene: Scene, group: str) -> Fields:
    """A commit of offset 1 by a sender outside the group."""
    position = {"committed_offset": 1, "committed_metadata": "m"}
    return {"group_id": group, "topics": [_topic(scene) | {"partitions": [position]}]}


def _offset_fetch(scene: Scene, version: int) -> Fields:
    if version < 8:
        return {"group_id": scene.offsets_group, "topics": [{"name": scene.topic, "partition_indexes": [0]}]}
    return {"groups": [{"group_id": scene.offsets_group, "topics": [_topic(scene) | {"partition_indexes": [0]}]}]}


def _join_group(scene: Scene, version: int, group: str) -> Fields:
    """A join that is answered at once in an empty group; in version 4 that takes an id that was asked for before."""
    subscription = encode_subscription(ConsumerProtocolSubscription(topics=(scene.topic,)), version=0)
    fields = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "group_instance_id": "static" if version >= STATIC_VERSION else None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription}],
    }
    if version == STATIC_VERSION - 1:
        asked: Any = scene.connection.ask(message(ApiKey.JOIN_GROUP, fields), version=version)
        return fields | {"member_id": asked.member_id}
    return fields


def _sync_group(scene: Scene, version: int) -> Fields:
    group, member_id = scene.classic_member()
    return {
        "group_id": group,
        "generation_id": 1,
        "member_id": member_id,
        "protocol_type": "consumer" if version >= PROTOCOL_VERSION else None,
        "protocol_name": "range" if version >= PROTOCOL_VERSION else None,
        "assignments": [{"member_id": member_id, "assignment": b"given"}],
    }


def _classic_heartbeat(scene: Scene, _: int) -> Fields:
    group, member_id = scene.classic_member()
    return {"group_id": group, "generation_id": 1, "member_id": member_id}


def _leave_group(scene: Scene, version: int) -> Fields:
    group, member_id = scene.classic_member()
    named = {"member_id": member_id}
    return {"group_id": group} | (named if version < BATCH_VERSION else {"members": [named]})


def _create_topics(name: str) -> Fields:
    return {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 20_000}


def _delete_topics(scene: Scene, version: int) -> Fields:
    name = scene.create_topic()[0]
    return {"timeout_ms": 20_000} | ({"topic_names": [name]} if version < 6 else {"topics": [{"name": name}]})


def _add_partitions_to_txn(scene: Scene, version: int) -> Fields:
    name, producer_id, epoch = scene.transactional_producer()
    fields = {
        "transactional_id": name,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "topics": [{"name": scene.topic, "partitions": [0]}],
    }
    if version < BATCHED_TRANSACTIONS_VERSION:
        return {f"v3_and_below_{field}": value for field, value in fields.items()}
    return {"transactions": [fields]}


def _add_offsets_to_txn(scene: Scene, _: int) -> dict[str, Any]:
    name, producer_id, epoch = scene.transactional_producer()
    producer = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
    return producer | {"group_id": scene.offsets_group}


def _in_transaction(scene: Scene) -> dict[str, Any]:
    """A transaction that the offsets group is part of; the fields of the request that made it so."""
    fields = _add_offsets_to_txn(scene, 3)
    if scene.exists:
        scene.settle(ApiKey.ADD_OFFSETS_TO_TXN, 3, fields)
    return fields


def _end_txn(scene: Scene, _: int) -> Fields:
    fields = _in_transaction(scene)
    del fields["group_id"]
    return fields | {"committed": True}


def _txn_offset_commit(scene: Scene, version: int) -> Fields:
    position = {"committed_offset": 1, "committed_metadata": "m"}
    named = {"topic_id": scene.topic_id} if version >= 6 else {"name": scene.topic}
    return _in_transaction(scene) | {"topics": [named | {"partitions": [position]}]}


def _write_txn_markers(scene: Scene, _: int) -> Fields:
    name = scene.create_topic()[0]
    return {"markers": [{"producer_id": 10**9, "topics": [{"name": name, "partition_indexes": [0]}]}]}


def _list_transactions(scene: Scene, version: int) -> Fields:
    _in_transaction(scene)
    return {
        "duration_filter": 0 if version >= 1 else -1,
        "transactional_id_pattern": ".*" if version >= 2 else None,
    }


def _describe_configs(scene: Scene, version: int) -> Fields:
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": scene.topic, "configuration_keys": None}
    return {"resources": [resource], "include_synonyms": True, "include_documentation": version >= 3}


def _alter_configs(scene: Scene, _: int) -> Fields:
    configs = [{"name": "retention.ms", "value": "3600000"}]
    return {"resources": [{"resource_type": TOPIC_RESOURCE, "resource_name": scene.topic, "configs": configs}]}


def _create_partitions(scene: Scene, _: int) -> Fields:
    name = scene.create_topic()[0]
    return {"topics": [{"name": name, "count": 3, "assignments": None}], "timeout_ms": 20_000}


def _heartbeat(scene: Scene, _: int) -> Fields:
    return {
        "group_id": scene.members_group,
        "member_id": scene.member_id,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [scene.topic],
        "topic_partitions": [],
    }


def _stranger(scene: Scene, _: int) -> dict[str, Any]:
    """Who is not in the group."""
    return {"group_id": scene.members_group, "member_id": "another", "member_epoch": 1}


def _acl_filter(scene: Scene, _: int) -> Fields:
    """Everything about the topic."""
    return {
        "resource_type_filter": TOPIC_RESOURCE,
        "resource_name_filter": scene.topic,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def _share_session(scene: Scene) -> dict[str, Any]:
    """A session of a group that nobody has joined."""
    return {
        "group_id": f"{scene.prefix}sharing",
        "member_id": str(uuid.uuid4()),
        "topics": [{"topic_id": scene.topic_id, "partitions": [{}]}],
    }


def _create_acls(scene: Scene, _: int) -> Fields:
    who = {"principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3}
    return {"creations": [{"resource_type": TOPIC_RESOURCE, "resource_name": scene.topic} | who]}


_FIELDS: Final[Mapping[int, Callable[[Scene, int], Fields]]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: lambda scene, _: {
        "max_wait_ms": 100,
        "min_bytes": 1,
        "isolation_level": 1,
        "topics": [
            {"topic": scene.topic, "topic_id": scene.topic_id, "partitions": [{"partition_max_bytes": 1_000_000}]}
        ],
    },
    ApiKey.LIST_OFFSETS: lambda scene, _: {
        "replica_id": -1,
        "topics": [{"name": scene.topic, "partitions": [{"timestamp": -1}]}],
    },
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: lambda scene, _: _offset_commit(scene, scene.offsets_group),
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: lambda scene, version: (
        {"key": scene.offsets_group} if version < 4 else {"coordinator_keys": [scene.offsets_group]}
    ),
    ApiKey.JOIN_GROUP: lambda scene, version: _join_group(scene, version, f"{scene.prefix}joined-by-v{version}"),
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.HEARTBEAT: _classic_heartbeat,
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.DESCRIBE_GROUPS: lambda scene, version: {
        "groups": [scene.offsets_group],
        "include_authorized_operations": version >= 3,
    },
    ApiKey.LIST_GROUPS: lambda *_: {},
    ApiKey.SASL_HANDSHAKE: lambda *_: {"mechanism": "PLAIN"},
    ApiKey.API_VERSIONS: lambda *_: {"client_software_name": "a-client", "client_software_version": "1.0"},
    ApiKey.CREATE_TOPICS: lambda scene, version: _create_topics(f"{scene.prefix}created-by-v{version}"),
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: lambda scene, _: {
        "topics": [{"name": scene.topic, "partitions": [{}]}],
        "timeout_ms": 20_000,
    },
    ApiKey.INIT_PRODUCER_ID: lambda *_: {"transactional_id": None, "transaction_timeout_ms": 60_000},
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: _end_txn,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.DESCRIBE_PRODUCERS: lambda scene, _: {"topics": [{"name": scene.topic, "partition_indexes": [0]}]},
    ApiKey.DESCRIBE_TRANSACTIONS: lambda scene, _: {"transactional_ids": [_in_transaction(scene)["transactional_id"]]},
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda scene, _: {
        "replica_id": -1,
        "topics": [{"topic": scene.topic, "partitions": [{"leader_epoch": 0}]}],
    },
    ApiKey.DESCRIBE_ACLS: _acl_filter,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: lambda scene, version: {"filters": [_acl_filter(scene, version)]},
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.DESCRIBE_LOG_DIRS: lambda scene, _: {"topics": [{"topic": scene.topic, "partitions": [0]}]},
    ApiKey.SASL_AUTHENTICATE: lambda *_: {"auth_bytes": b"\0user\0password"},
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ELECT_LEADERS: lambda scene, _: {"topic_partitions": [{"topic": scene.topic, "partitions": [0]}]},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda scene, _: {
        "topics": [{"name": scene.topic, "partitions": [{"partition_index": 0, "replicas": None}]}]
    },
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda scene, _: {"topics": [{"name": scene.topic, "partition_indexes": [0]}]},
    ApiKey.DESCRIBE_QUORUM: lambda *_: {
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    },
    ApiKey.UPDATE_FEATURES: lambda *_: {"feature_updates": [{"feature": "group.version", "max_version_level": 1}]},
    ApiKey.ALTER_REPLICA_LOG_DIRS: lambda scene, _: {
        "dirs": [{"path": "/nowhere", "topics": [{"name": scene.topic, "partitions": [0]}]}]
    },
    ApiKey.CREATE_DELEGATION_TOKEN: lambda *_: {"max_lifetime_ms": 60_000},
    ApiKey.RENEW_DELEGATION_TOKEN: lambda *_: {"hmac": b"hmac", "renew_period_ms": 60_000},
    ApiKey.EXPIRE_DELEGATION_TOKEN: lambda *_: {"hmac": b"hmac", "expiry_time_period_ms": 60_000},
    ApiKey.DESCRIBE_DELEGATION_TOKEN: lambda *_: {"owners": None},
    ApiKey.DELETE_GROUPS: lambda scene, _: {"groups_names": [scene.group_with_offsets()]},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.OFFSET_DELETE: lambda scene, _: {
        "group_id": scene.group_with_offsets(),
        "topics": [{"name": scene.topic, "partitions": [{}]}],
    },
    ApiKey.DESCRIBE_CLUSTER: lambda *_: {"include_cluster_authorized_operations": True},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: lambda scene, _: {
        "group_ids": [scene.members_group],
        "include_authorized_operations": True,
    },
    ApiKey.SHARE_GROUP_HEARTBEAT: lambda scene, _: {
        "group_id": f"{scene.prefix}workers",
        "member_id": str(uuid.uuid4()),
        "subscribed_topic_names": [scene.topic],
    },
    ApiKey.SHARE_GROUP_DESCRIBE: lambda scene, _: {
        "group_ids": [f"{scene.prefix}no-workers"],
        "include_authorized_operations": True,
    },
    ApiKey.SHARE_FETCH: lambda scene, _: (
        _share_session(scene)
        | {"max_wait_ms": 5_000, "min_bytes": 1, "max_bytes": 1_000_000, "max_records": 500, "batch_size": 500}
    ),
    ApiKey.SHARE_ACKNOWLEDGE: lambda scene, _: _share_session(scene) | {"share_session_epoch": 1},
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: lambda scene, _: {
        "groups": [{"group_id": scene.members_group, "topics": [{"topic_name": scene.topic, "partitions": [0]}]}]
    },
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: lambda scene, _: {
        "group_id": f"{scene.prefix}moved-workers",
        "topics": [{"topic_name": scene.topic, "partitions": [{}]}],
    },
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: lambda scene, _: {
        "group_id": f"{scene.prefix}no-workers",
        "topics": [{"topic_name": scene.topic}],
    },
    ApiKey.LIST_CONFIG_RESOURCES: lambda _, version: {"resource_types": [2, 4, 8, 16, 32]} if version else {},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda scene, _: {"topics": [{"name": scene.topic}]},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda *_: {"components": [{"entity_type": "user", "match_type": 2, "match": None}]},
    ApiKey.ALTER_CLIENT_QUOTAS: lambda *_: {
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": "nobody"}],
                "ops": [{"key": "consumer_byte_rate", "value": 1e9}],
            }
        ]
    },
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda scene, _: {"users": None if scene.exists else [{"name": "alice"}]},
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda scene, _: {
        "upsertions": [
            {"name": "alice", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"x" * 32}
        ]
    },
    ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT: _stranger,
    ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT: lambda scene, version: _stranger(scene, version) | {"group_epoch": 1},
}


def _request(api_key: int, scene: Scene, version: int) -> Request[Any]:
    return message(api_key, _FIELDS[api_key](scene, version))


class _Rows(dict[int, Row]):
    def __missing__(self, api_key: int) -> Row:
        raise LookupError(f"{ApiKey(api_key).name} has no request yet: add a row to `_FIELDS` in {__file__}")


ROWS: Final[Mapping[int, Row]] = _Rows({api_key: partial(_request, api_key) for api_key in _FIELDS})
"""API key -> function that makes its request. Computed: a new API needs a row in `_FIELDS`."""

REFUSED: Final[Mapping[int, set[int]]] = {
    ApiKey.ELECT_LEADERS: {ErrorCode.ELECTION_NOT_NEEDED},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {ErrorCode.NO_REASSIGNMENT_IN_PROGRESS},
    ApiKey.ALTER_REPLICA_LOG_DIRS: {ErrorCode.LOG_DIR_NOT_FOUND},
    ApiKey.CREATE_DELEGATION_TOKEN: {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED},
    ApiKey.RENEW_DELEGATION_TOKEN: {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED},
    ApiKey.EXPIRE_DELEGATION_TOKEN: {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED},
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED},
    ApiKey.DESCRIBE_ACLS: {ErrorCode.SECURITY_DISABLED},
    ApiKey.CREATE_ACLS: {ErrorCode.SECURITY_DISABLED},
    ApiKey.DELETE_ACLS: {ErrorCode.SECURITY_DISABLED},
    ApiKey.SHARE_GROUP_DESCRIBE: {ErrorCode.GROUP_ID_NOT_FOUND},
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: {ErrorCode.GROUP_ID_NOT_FOUND},
    ApiKey.SHARE_FETCH: {ErrorCode.UNKNOWN_SERVER_ERROR},
    ApiKey.SHARE_ACKNOWLEDGE: {ErrorCode.SHARE_SESSION_NOT_FOUND},
    ApiKey.SASL_HANDSHAKE: {ErrorCode.ILLEGAL_SASL_STATE},
    ApiKey.SASL_AUTHENTICATE: {ErrorCode.ILLEGAL_SASL_STATE},
    ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT: {ErrorCode.UNKNOWN_MEMBER_ID},
    ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT: {ErrorCode.UNKNOWN_MEMBER_ID},
}
"""API key -> error codes of the answer: the preferred node leads, no reassignment is going on, there is no such folder,
the connection may not ask for tokens, the broker has no SASL and no authorizer, the
member is not in the group, or has no share session."""

ADVERTISED: Final[tuple[tuple[int, int], ...]] = tuple(
    (api.api_key, version)
    for api in ApiTable(extensions={"client_assignors"})
    for version in range(api.version_min, api.version_max + 1)
)
"""Every (API key, version) that the embedded broker advertises."""

PRIVATE: Final = frozenset({ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT})
"""APIs that Apache Kafka does not have."""
