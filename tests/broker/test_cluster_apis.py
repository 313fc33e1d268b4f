"""What an administrator asks about a cluster: reassignments, quorum, features, folders, internal topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.admin import Admin
from kip848_client.errors import ErrorCode
from kip848_client.testing import BrokerSasl
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from tests.support.group_requests import commit_offset

OFFSETS_TOPIC: Final = "__consumer_offsets"


def moved(connection: RawConnection, replicas: Sequence[int] | None, *, partition: int = 0, **fields: Any) -> int:
    """The error code of moving a partition of the topic foo."""
    topics = [{"name": "foo", "partitions": [{"partition_index": partition, "replicas": replicas}]}]
    answer = connection.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, topics=topics, **fields)
    return int(answer.responses[0].partitions[0].error_code)


def placed(connection: RawConnection) -> tuple[int, int, tuple[int, ...]]:
    """Leader, its epoch and the replicas of foo-0."""
    partition = connection.call(ApiKey.METADATA, 12, topics=[{"name": "foo"}]).topics[0].partitions[0]
    return partition.leader_id, partition.leader_epoch, partition.replica_nodes


@pytest.mark.kip848_broker(topics={"foo": 1}, nodes=3, config={"default.replication.factor": "2"})
def test_partitions_move_to_other_nodes(broker: EmbeddedBroker) -> None:
    """Nodes are emptied before they are taken away: a client must follow its partitions, and lose no record."""
    broker.produce("foo", b"before")
    with RawConnection(broker.nodes[1].bootstrap_server) as connection:
        assert placed(connection) == (1, 0, (1, 2))
        assert moved(connection, [2, 1]) == 0
        assert placed(connection) == (1, 0, (2, 1)), "a leader among the new replicas stays"
        assert moved(connection, [3, 2]) == 0
        assert placed(connection) == (3, 1, (3, 2))
        assert broker.topics.offsets("foo") == {0: (0, 1)}
        assert moved(connection, [3], allow_replication_factor_change=False) == ErrorCode.INVALID_REPLICATION_FACTOR
        assert moved(connection, [3]) == 0
        assert placed(connection) == (3, 1, (3,))
        for impossible in ([], [3, 3], [9]):
            assert moved(connection, impossible) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert moved(connection, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert moved(connection, [1], partition=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert connection.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=None).topics == ()
        broker.nodes.kill(2)
        assert moved(connection, [2]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT, "it would have no leader"
        assert placed(connection) == (3, 1, (3,))


@pytest.mark.kip848_broker(topics={"foo": 1}, nodes=3)
def test_the_nodes_are_the_quorum(broker: EmbeddedBroker) -> None:
    """Tools that watch a cluster ask who its controller is, and whether all voters keep up."""
    asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    broker.nodes.kill(1)
    with RawConnection(broker.nodes[2].bootstrap_server) as connection:
        answer = connection.call(ApiKey.DESCRIBE_QUORUM, 2, topics=asked)
        unknown = connection.call(ApiKey.DESCRIBE_QUORUM, 2, topics=[asked[0] | {"topic_name": "foo"}])
    quorum = answer.topics[0].partitions[0]
    assert quorum.leader_id == 2
    assert [voter.replica_id for voter in quorum.current_voters if voter.last_caught_up_timestamp > 0] == [2, 3]
    assert [(node.node_id, node.listeners[0].port) for node in answer.nodes] == [
        (node.node_id, node.port) for node in broker.nodes
    ]
    assert unknown.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_features_keep_their_level(connection: RawConnection) -> None:
    """A set-up script raises the features to levels that they have; a change that does not happen must be refused."""

    def updated(version: int, name: str, level: int, **fields: int) -> tuple[int, str | None]:
        update = {"feature": name, "max_version_level": level} | fields
        answer = connection.call(ApiKey.UPDATE_FEATURES, version, feature_updates=[update])
        return answer.error_code, answer.error_message

    assert updated(2, "group.version", 1) == (0, None)
    assert updated(1, "transaction.version", 2) == (0, None)
    refused = [
        updated(2, "group.version", 2),
        updated(2, "transaction.version", -1),
        updated(1, "transaction.version", 1),
        updated(2, "transaction.version", 1, upgrade_type=2),
        updated(2, "transaction.version", 2, upgrade_type=9),
        updated(2, "no.such.feature", 1),
    ]
    assert {code for code, _ in refused} == {ErrorCode.INVALID_UPDATE_VERSION}
    assert "Can't downgrade" in str(refused[2])
    assert "kip848.transaction.version" in str(refused[3])


@pytest.mark.kip848_broker(topics={"foo": 1})
def test_a_node_has_one_folder(connection: RawConnection) -> None:
    """A script that spreads partitions over disks must hear that there is no other disk."""
    here = connection.call(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None).results[0].log_dir
    topic = {"name": "foo", "partitions": [0, 1]}

    def codes(path: str) -> list[int]:
        answer = connection.call(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=[{"path": path, "topics": [topic]}])
        return [each.error_code for each in answer.results[0].partitions]

    assert codes(here) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes("/elsewhere") == [ErrorCode.LOG_DIR_NOT_FOUND] * 2


def test_a_user_who_is_logged_in_gets_no_token() -> None:
    """Otherwise a client waits for a token, or believes that its login is at fault."""
    with (
        EmbeddedBroker(sasl=BrokerSasl({"admin": "secret"}, mechanisms=("PLAIN",))) as broker,
        RawConnection(broker.bootstrap_servers) as login,
    ):
        assert login.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
        login.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0admin\0secret")
        answer = login.call(ApiKey.CREATE_DELEGATION_TOKEN, 3)
    assert (answer.error_code, answer.principal_name) == (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "admin")


def by_metadata(connection: RawConnection) -> dict[str, bool]:
    """Topic -> whether it is internal."""
    return {topic.name: topic.is_internal for topic in connection.call(ApiKey.METADATA, 12, topics=None).topics}


def by_pages(connection: RawConnection) -> dict[str, bool]:
    """The same as `by_metadata`, by DescribeTopicPartitions."""
    answer = connection.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, response_partition_limit=100)
    return {topic.name: topic.is_internal for topic in answer.topics}


@pytest.mark.kip848_broker(topics={"foo": 1})
@pytest.mark.parametrize("listed", [by_metadata, by_pages])
def test_the_topic_of_the_groups_is_listed_once_a_group_looks_for_its_coordinator(
    broker: EmbeddedBroker, connection: RawConnection, listed: Callable[[RawConnection], dict[str, bool]]
) -> None:
    """Clients have tests of internal topics; those that take all topics for their own are wrong on Kafka, too."""
    assert listed(connection) == {"foo": False}
    connection.call(ApiKey.FIND_COORDINATOR, 6, coordinator_keys=["g"])
    assert listed(connection) == {OFFSETS_TOPIC: True, "foo": False}
    resource = {"resource_type": 2, "resource_name": OFFSETS_TOPIC, "configuration_keys": ["cleanup.policy"]}
    configs = connection.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource]).results[0].configs
    assert [config.value for config in configs] == ["compact"]
    assert list(broker.topics) == ["foo"]
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        assert {name: topic.is_internal for name, topic in admin.list_topics().values.items()} == listed(connection)


def test_a_restart_lists_the_topic_of_the_groups_again(tmp_path: Path) -> None:
    """A topic that comes and goes confuses tools that watch topics."""
    broker = EmbeddedBroker({"foo": 1}, data_dir=tmp_path)
    with broker:
        with RawConnection(broker.bootstrap_servers) as connection:
            assert commit_offset(connection, 1, topic="foo") == 0
        broker.crash()
        broker.start()
        with RawConnection(broker.bootstrap_servers) as connection:
            assert by_metadata(connection) == {OFFSETS_TOPIC: True, "foo": False}
