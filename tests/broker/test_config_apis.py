"""DescribeConfigs and IncrementalAlterConfigs: what is set on topics and groups, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.errors import ConfigError, ErrorCode
from kip848_client.testing.broker.apis._configs import ConfigResourceType, ConfigSource
from kip848_client.testing.broker.apis.incremental_alter_configs import ConfigOperation
from kip848_client.testing.broker.cluster.live_settings import LIVE_SETTINGS, kept_settings
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.describe_configs import (
    DescribeConfigsResult,
)
from kip848_client.wire.record_batch import Record, build_batch
from tests.support.group_requests import heartbeat, join

pytestmark = pytest.mark.kip848_broker(topics={"orders": 1})

HEARTBEAT = "consumer.heartbeat.interval.ms"
SESSION = "consumer.session.timeout.ms"


def describe(
    connection: RawConnection, kind: int, name: str, *keys: str, synonyms: bool = False
) -> DescribeConfigsResult:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    answer = connection.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=synonyms)
    result: DescribeConfigsResult = answer.results[0]
    return result


def alter(
    connection: RawConnection,
    kind: int,
    name: str,
    *changes: tuple[ConfigOperation | int, str, str | None],
    validate_only: bool = False,
) -> int:
    configs = [{"name": key, "config_operation": operation, "value": value} for operation, key, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    answer = connection.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=validate_only)
    return int(answer.responses[0].error_code)


def value_of(connection: RawConnection, kind: int, name: str, key: str) -> tuple[str | None, int]:
    """(value, source) of one setting."""
    found = describe(connection, kind, name, key).configs[0]
    return found.value, found.config_source


def test_settings_of_a_topic_are_set_taken_back_and_edited_as_lists(connection: RawConnection) -> None:
    """Admin tools change one setting without sending all others (KIP-339)."""
    topic = (ConfigResourceType.TOPIC, "orders")
    assert alter(connection, *topic, (ConfigOperation.SET, "retention.ms", "1000")) == ErrorCode.NONE
    assert value_of(connection, *topic, "retention.ms") == ("1000", ConfigSource.DYNAMIC_TOPIC)
    assert alter(connection, *topic, (ConfigOperation.APPEND, "cleanup.policy", "compact")) == ErrorCode.NONE
    assert value_of(connection, *topic, "cleanup.policy") == ("delete,compact", ConfigSource.DYNAMIC_TOPIC)
    assert alter(connection, *topic, (ConfigOperation.SUBTRACT, "cleanup.policy", "delete")) == ErrorCode.NONE
    assert value_of(connection, *topic, "cleanup.policy")[0] == "compact"
    assert alter(connection, *topic, (ConfigOperation.DELETE, "retention.ms", None)) == ErrorCode.NONE
    assert value_of(connection, *topic, "retention.ms") == ("604800000", ConfigSource.DEFAULT)


def test_a_group_is_configured_before_it_exists_and_its_members_follow(
    broker: EmbeddedBroker, connection: RawConnection
) -> None:
    """KIP-848: sessions and intervals are the group's, set on the broker, and act with the next heartbeat."""
    group = (ConfigResourceType.GROUP, "g")
    assert alter(connection, *group, (ConfigOperation.SET, HEARTBEAT, "250")) == ErrorCode.NONE
    assert connection.ask(join("m1"), version=1).heartbeat_interval_ms == 250
    assert value_of(connection, *group, HEARTBEAT) == ("250", ConfigSource.DYNAMIC_GROUP)
    assert value_of(connection, *group, SESSION) == ("10000", ConfigSource.DEFAULT)
    assert alter(connection, *group, (ConfigOperation.DELETE, HEARTBEAT, None)) == ErrorCode.NONE
    assert connection.ask(heartbeat(1, "m1"), version=1).heartbeat_interval_ms == 100


def test_a_group_shows_what_the_broker_sets_for_all_under_the_brokers_name() -> None:
    """An operator whose session is shorter than expected asks first where the value comes from."""
    with (
        EmbeddedBroker(config={"group.consumer.session.timeout.ms": 3000}) as broker,
        RawConnection(broker.bootstrap_servers) as connection,
    ):
        broker.groups.set_config("g", {SESSION: "500"})
        found = describe(connection, ConfigResourceType.GROUP, "g", SESSION, synonyms=True).configs[0]
        other = describe(connection, ConfigResourceType.GROUP, "h", SESSION).configs[0]
    assert [(synonym.name, synonym.value, synonym.source) for synonym in found.synonyms] == [
        (SESSION, "500", ConfigSource.DYNAMIC_GROUP),
        ("group.consumer.session.timeout.ms", "3000", ConfigSource.STATIC_BROKER),
        ("group.consumer.session.timeout.ms", "10000", ConfigSource.DEFAULT),
    ]
    assert (other.value, other.config_source) == ("3000", ConfigSource.STATIC_BROKER)


def test_the_test_side_configures_groups_too(broker: EmbeddedBroker, connection: RawConnection) -> None:
    """A test shortens the session of one group without an admin client."""
    broker.groups.set_config("g", {SESSION: "500"})
    assert value_of(connection, ConfigResourceType.GROUP, "g", SESSION) == ("500", ConfigSource.DYNAMIC_GROUP)
    with pytest.raises(ConfigError, match="within"):
        broker.groups.set_config("g", {SESSION: "1"})
    assert value_of(connection, ConfigResourceType.GROUP, "g", SESSION)[0] == "500"


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "folder"])
def test_settings_survive_a_restart(tmp_path: Path, durable: bool) -> None:
    """A group that is configured once stays so."""
    broker = EmbeddedBroker({"orders": 1}, data_dir=tmp_path if durable else None)
    with broker, RawConnection(broker.bootstrap_servers) as connection:
        alter(connection, ConfigResourceType.GROUP, "g", (ConfigOperation.SET, SESSION, "700"))
        alter(connection, ConfigResourceType.GROUP, "h", (ConfigOperation.SET, SESSION, "800"))
        alter(connection, ConfigResourceType.GROUP, "h", (ConfigOperation.DELETE, SESSION, None))
        alter(connection, ConfigResourceType.TOPIC, "orders", (ConfigOperation.SET, "retention.ms", "1000"))
    with broker, RawConnection(broker.bootstrap_servers) as connection:
        assert value_of(connection, ConfigResourceType.GROUP, "g", SESSION) == ("700", ConfigSource.DYNAMIC_GROUP)
        assert value_of(connection, ConfigResourceType.GROUP, "h", SESSION)[1] == ConfigSource.DEFAULT
        assert value_of(connection, ConfigResourceType.TOPIC, "orders", "retention.ms")[0] == "1000"


def test_overrides_that_the_bounds_no_longer_allow_are_ignored_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker must start although its limits were tightened."""
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        broker.groups.set_config("g", {SESSION: "500"})
    limits = {"group.consumer.min.session.timeout.ms": 1000}
    with EmbeddedBroker(data_dir=tmp_path, config=limits) as broker:
        assert broker.running
    assert "broker.group_config_ignored group_id=g" in caplog.text


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (
            ConfigResourceType.TOPIC,
            "users",
            (ConfigOperation.SET, "retention.ms", "1"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (ConfigResourceType.TOPIC, "orders", (ConfigOperation.SET, "retention.years", "1"), ErrorCode.INVALID_CONFIG),
        (ConfigResourceType.TOPIC, "orders", (ConfigOperation.SET, "retention.ms", "soon"), ErrorCode.INVALID_CONFIG),
        (ConfigResourceType.TOPIC, "orders", (ConfigOperation.SET, "retention.ms", None), ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.TOPIC, "orders", (ConfigOperation.APPEND, "retention.ms", "1"), ErrorCode.INVALID_CONFIG),
        (ConfigResourceType.TOPIC, "orders", (9, "retention.ms", "1"), ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.GROUP, "", (ConfigOperation.SET, SESSION, "500"), ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.GROUP, "g", (ConfigOperation.SET, SESSION, "1"), ErrorCode.INVALID_CONFIG),
        (ConfigResourceType.GROUP, "g", (ConfigOperation.SET, HEARTBEAT, "15000"), ErrorCode.INVALID_CONFIG),
        (ConfigResourceType.GROUP, "g", (ConfigOperation.SET, "session.timeout.ms", "500"), ErrorCode.INVALID_CONFIG),
        (ConfigResourceType.BROKER, "1", (ConfigOperation.SET, "num.partitions", "5"), ErrorCode.INVALID_REQUEST),
        (16, "metrics", (ConfigOperation.SET, "interval.ms", "5"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_kafka_refuses_is_refused_and_changes_nothing(
    connection: RawConnection,
    kind: int,
    name: str,
    change: tuple[ConfigOperation | int, str, str | None],
    code: ErrorCode,
) -> None:
    """A typo in a deployment must not be stored."""
    before = [describe(connection, kind, name), describe(connection, ConfigResourceType.TOPIC, "orders")]
    assert alter(connection, kind, name, change) == code
    assert [describe(connection, kind, name), describe(connection, ConfigResourceType.TOPIC, "orders")] == before


def test_one_wrong_setting_keeps_the_whole_resource_as_it_was(connection: RawConnection) -> None:
    """After a refused change the operator must not find half of it in effect."""
    changes = [(ConfigOperation.SET, "retention.ms", "1000"), (ConfigOperation.SET, "segment.ms", "-7")]
    assert alter(connection, ConfigResourceType.TOPIC, "orders", *changes) == ErrorCode.INVALID_CONFIG
    assert value_of(connection, ConfigResourceType.TOPIC, "orders", "retention.ms")[1] == ConfigSource.DEFAULT


@pytest.mark.parametrize("kind", [ConfigResourceType.TOPIC, ConfigResourceType.GROUP])
def test_validate_only_checks_and_changes_nothing(connection: RawConnection, kind: ConfigResourceType) -> None:
    """A dry run reports the error of a wrong value and leaves the right ones unset."""
    name, key = ("orders", "retention.ms") if kind is ConfigResourceType.TOPIC else ("g", SESSION)
    before = value_of(connection, kind, name, key)
    assert alter(connection, kind, name, (ConfigOperation.SET, key, "600"), validate_only=True) == ErrorCode.NONE
    refused = alter(connection, kind, name, (ConfigOperation.SET, key, "x"), validate_only=True)
    assert refused == ErrorCode.INVALID_CONFIG
    assert value_of(connection, kind, name, key) == before


@pytest.mark.kip848_broker(profile="kafka")
def test_values_of_a_profile_are_defaults(connection: RawConnection) -> None:
    """A tool that lists what an administrator has set would list dozens of defaults."""
    for kind, name in ((ConfigResourceType.BROKER, "1"), (ConfigResourceType.GROUP, "g")):
        found = describe(connection, kind, name).configs
        assert [item.name for item in found if item.config_source == ConfigSource.STATIC_BROKER] == (
            ["advertised.listeners", "node.id"] if kind is ConfigResourceType.BROKER else []
        )


def test_the_broker_shows_its_properties_and_what_was_set() -> None:
    """A bug report says with which settings it was found."""
    with EmbeddedBroker(config={"num.partitions": 7}) as broker:
        with RawConnection(broker.bootstrap_servers) as connection:
            found = {item.name: item for item in describe(connection, ConfigResourceType.BROKER, "1").configs}
            assert (found["num.partitions"].value, found["num.partitions"].config_source) == (
                "7",
                ConfigSource.STATIC_BROKER,
            )
            assert found["max.connections"].config_source == ConfigSource.DEFAULT
            assert {
                name for name, item in found.items() if not item.read_only
            } == LIVE_SETTINGS | kept_settings().keys()
            everywhere = {item.name: item.value for item in describe(connection, ConfigResourceType.BROKER, "").configs}
            assert everywhere == {"min.insync.replicas": "1"}
            assert describe(connection, ConfigResourceType.BROKER, "2").error_code == ErrorCode.INVALID_REQUEST


def refusal_of_large_record(connection: RawConnection) -> int:
    """The error code for a record of 2,000 bytes."""
    data = [{"index": 0, "records": build_batch([Record(bytes(2_000), None)])}]
    topic = {"name": "orders", "partition_data": data}
    answer = connection.call(ApiKey.PRODUCE, 9, acks=1, timeout_ms=1000, topic_data=[topic])
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "folder"])
def test_settings_of_a_broker_change_at_once_and_outlive_it(tmp_path: Path, durable: bool) -> None:
    """An operator lowers a limit in an incident; a restart must not bring the old one back."""
    key, node, everywhere = "message.max.bytes", (ConfigResourceType.BROKER, "1"), (ConfigResourceType.BROKER, "")
    running = EmbeddedBroker({"orders": 1}, data_dir=tmp_path if durable else None)
    with running, RawConnection(running.bootstrap_servers) as connection:
        assert alter(connection, *everywhere, (ConfigOperation.SET, key, "1000")) == ErrorCode.NONE
        assert refusal_of_large_record(connection) == ErrorCode.MESSAGE_TOO_LARGE
        assert alter(connection, *node, (ConfigOperation.SET, key, "5000")) == ErrorCode.NONE
        assert refusal_of_large_record(connection) == ErrorCode.NONE
        assert alter(connection, *node, (ConfigOperation.DELETE, key, None)) == ErrorCode.NONE
    again = EmbeddedBroker({"orders": 1}, data_dir=tmp_path) if durable else running
    with again, RawConnection(again.bootstrap_servers) as connection:
        assert refusal_of_large_record(connection) == ErrorCode.MESSAGE_TOO_LARGE
        shown = describe(connection, *node, key, synonyms=True).configs[0]
        assert [(each.value, each.source) for each in shown.synonyms] == [
            ("1000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
            ("1048588", ConfigSource.DEFAULT),
        ]
        topic = (ConfigResourceType.TOPIC, "orders")
        assert value_of(connection, *topic, "max.message.bytes") == ("1000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
        assert [item.name for item in describe(connection, *everywhere).configs] == [key, "min.insync.replicas"]


def test_a_setting_changes_for_one_node_of_a_cluster() -> None:
    """A node that is flooded is relieved alone; each shows its own settings."""
    with EmbeddedBroker(nodes=2) as broker:
        first, second = (RawConnection(each) for each in broker.bootstrap_servers.split(","))
        with first, second:
            node = (ConfigResourceType.BROKER, "1")
            assert alter(first, *node, (ConfigOperation.SET, "max.connections", "1")) == ErrorCode.NONE
            assert alter(first, *node, (ConfigOperation.SET, "num.io.threads", "4")) == ErrorCode.NONE
            shown = [value_of(each, 4, name, "num.io.threads") for each, name in ((first, "1"), (second, "2"))]
            assert shown == [("4", ConfigSource.DYNAMIC_BROKER), ("8", ConfigSource.DEFAULT)]
            assert alter(second, *node, (ConfigOperation.SET, "max.connections", "5")) == ErrorCode.INVALID_REQUEST
            servers = broker.bootstrap_servers.split(",")
            with RawConnection(servers[0]) as refused, RawConnection(servers[1]) as served:
                assert refused.is_closed_by_peer()
                assert describe(served, ConfigResourceType.BROKER, "2").error_code == ErrorCode.NONE


def test_the_interval_between_targets_changes_for_groups_that_are_there(
    broker: EmbeddedBroker, connection: RawConnection
) -> None:
    """An operator calms a group that rebalances all the time, also if it overrides other settings."""
    everywhere, key = (ConfigResourceType.BROKER, ""), "group.consumer.assignment.interval.ms"
    broker.groups.set_config("g", {SESSION: "500"})
    assert connection.ask(join("m1"), version=1).error_code == ErrorCode.NONE
    assert alter(connection, *everywhere, (ConfigOperation.SET, key, "15000")) == ErrorCode.NONE
    inherited = value_of(connection, ConfigResourceType.GROUP, "g", "consumer.assignment.interval.ms")
    assert inherited == ("15000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    before = broker.wait_for_group("g", members=1).assignment_epoch
    assert connection.ask(join("m2"), version=1).error_code == ErrorCode.NONE
    group = broker.wait_for_group("g", members=2)
    assert (group.group_epoch > before, group.assignment_epoch) == (True, before)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num.partitions", "3"),
        ("no.such.setting", "1"),
        ("message.max.bytes", "many"),
        ("message.max.bytes", "-1"),
        ("log.retention.ms", "-5"),
        ("log.message.timestamp.type", "Yesterday"),
        ("num.io.threads", "many"),
        ("transaction.partition.verification.enable", "perhaps"),
        ("log.cleaner.io.buffer.load.factor", "high"),
    ],
)
def test_what_a_broker_cannot_change_is_refused(connection: RawConnection, key: str, value: str) -> None:
    """A change that is accepted and does nothing costs the next incident."""
    kind = ConfigResourceType.BROKER
    assert alter(connection, kind, "", (ConfigOperation.SET, key, value)) == ErrorCode.INVALID_REQUEST
    assert [item.name for item in describe(connection, kind, "").configs] == ["min.insync.replicas"]


def listed(broker: EmbeddedBroker, *types: int, version: int = 1) -> list[tuple[int, str]]:
    """(type, name) of each listed resource, in order."""
    with RawConnection(broker.bootstrap_servers.partition(",")[0]) as connection:
        answer = connection.call(ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=types)
    assert answer.error_code == ErrorCode.NONE
    return [(resource.resource_type, resource.resource_name) for resource in answer.config_resources]


def test_resources_with_a_configuration_are_listed_by_type() -> None:
    """An audit reads the configuration of everything: what is not listed it never asks about (KIP-1142)."""
    with EmbeddedBroker({"orders": 1, "bills": 1}, nodes=2) as broker:
        broker.groups.set_config("h", {SESSION: "500"})
        broker.groups.set_config("g", {SESSION: "500"})
        broker.groups.set_config("h", {})
        groups, topics = [(32, "g")], [(2, "bills"), (2, "orders")]
        assert listed(broker, ConfigResourceType.TOPIC, ConfigResourceType.GROUP) == [*groups, *topics]
        nodes = [(8, "1"), (8, "2"), (4, "1"), (4, "2")]
        assert listed(broker) == [*groups, *nodes, *topics]
        assert listed(broker, version=0) == []


def test_an_unknown_type_of_resource_is_refused(connection: RawConnection) -> None:
    """An answer without it would read as "there are none"."""
    answer = connection.call(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=(ConfigResourceType.TOPIC, 3))
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, ())


def test_a_broker_tells_its_id_and_addresses(broker: EmbeddedBroker, connection: RawConnection) -> None:
    """Tools read from its configuration where a broker can be reached."""
    asked = {
        "resource_type": ConfigResourceType.BROKER,
        "resource_name": "1",
        "configuration_keys": ["advertised.listeners", "node.id"],
    }
    (result,) = connection.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[asked]).results
    assert {(each.name, each.value, each.config_source, each.read_only) for each in result.configs} == {
        ("advertised.listeners", f"CLIENTS://{broker.bootstrap_servers}", ConfigSource.STATIC_BROKER, True),
        ("node.id", "1", ConfigSource.STATIC_BROKER, True),
    }


@pytest.mark.parametrize(
    ("kind", "name", "key", "text", "synonyms"),
    [
        (ConfigResourceType.TOPIC, "orders", "cleanup.policy", "retention policy", ["log.cleanup.policy"]),
        (ConfigResourceType.TOPIC, "orders", "retention.ms", "maximum time", []),
        (ConfigResourceType.BROKER, "1", "num.partitions", "default number of log partitions", ["num.partitions"]),
        (ConfigResourceType.GROUP, "g", SESSION, "failures", ["group.consumer.session.timeout.ms"]),
        (ConfigResourceType.CLIENT_METRICS, "m", "interval.ms", "push interval", []),
    ],
)
def test_settings_are_described_as_on_kafka(
    connection: RawConnection, kind: int, name: str, key: str, text: str, synonyms: list[str]
) -> None:
    """Consoles show what a setting means, and from where it is inherited."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
    answer = connection.call(
        ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True, include_documentation=True
    )
    (found,) = answer.results[0].configs
    assert text in found.documentation
    assert [each.name for each in found.synonyms] == synonyms
    assert describe(connection, kind, name, key).configs[0].documentation is None


def test_topics_inherit_what_is_changed_for_the_brokers(broker: EmbeddedBroker, connection: RawConnection) -> None:
    """An operator shortens the retention of all topics that have none of their own."""
    everywhere, topic = (ConfigResourceType.BROKER, ""), (ConfigResourceType.TOPIC, "orders")
    changes = [
        (ConfigOperation.SET, "log.retention.ms", "1000"),
        (ConfigOperation.SET, "log.message.timestamp.type", "LogAppendTime"),
    ]
    assert alter(connection, *everywhere, *changes) == ErrorCode.NONE
    shown = describe(connection, *topic, "retention.ms", synonyms=True).configs[0]
    assert (shown.value, shown.config_source) == ("1000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert [(each.name, each.value) for each in shown.synonyms] == [
        ("log.retention.ms", "1000"),
        ("log.retention.hours", "168"),
    ]
    broker.produce("orders", "x", timestamp_ms=1)
    assert broker.records("orders")[-1].timestamp_ms > 1, "the broker's clock gave it"
    assert alter(connection, *topic, (ConfigOperation.SET, "retention.ms", "5")) == ErrorCode.NONE
    assert value_of(connection, *topic, "retention.ms") == ("5", ConfigSource.DYNAMIC_TOPIC)
