"""Configuration: what is accepted, what is refused, and that refusals say what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pytest

from kip848_client.assignors.library import Weighted
from kip848_client.common.addresses import BootstrapServer
from kip848_client.config import (
    CLASSIC_KEYS,
    ConfigValue,
    ConsumerConfig,
    merge_settings,
    nearest_key,
    parse_consumer_config,
)
from kip848_client.config.assignors import is_cooperative
from kip848_client.config.reset import duration_ms
from kip848_client.errors import ConfigError

BASE = {"bootstrap.servers": "localhost:9092", "group.id": "orders"}


def test_the_two_required_keys_are_enough() -> None:
    """If this fails, the quickstart of the README fails."""
    config = parse_consumer_config(BASE)
    assert config.bootstrap_servers == (BootstrapServer("localhost", 9092),)
    assert config.group_id == "orders"
    assert config.auto_offset_reset == "latest"
    assert config.auto_commit_interval_ms == 5_000
    assert config.rebalance_timeout_ms == config.max_poll_interval_ms == 300_000


@pytest.mark.parametrize("servers", ["a:9092, b c:9092", "a :9092", "a: 9092", "[:: 1]:9092"])
def test_a_blank_inside_an_address_is_refused(servers: str) -> None:
    """A forgotten comma made a host that no resolver knows, and that was tried for ever."""
    with pytest.raises(ConfigError, match="is not host:port"):
        parse_consumer_config(BASE | {"bootstrap.servers": servers})
    around = parse_consumer_config(BASE | {"bootstrap.servers": " a:9092 ,\tb:9093 , "})
    assert around.bootstrap_servers == (BootstrapServer("a", 9092), BootstrapServer("b", 9093))


@pytest.mark.parametrize("missing", ["bootstrap.servers", "group.id"])
def test_a_missing_required_key_is_named(missing: str) -> None:
    """Users see which key they forgot, not a failure of the data plane."""
    conf = {key: value for key, value in BASE.items() if key != missing}
    with pytest.raises(ConfigError, match=missing):
        parse_consumer_config(conf)


def test_a_blank_group_id_never_reaches_the_data_plane() -> None:
    """librdkafka aborts the whole process on an empty group id."""
    with pytest.raises(ConfigError, match=r"group\.id is blank"):
        parse_consumer_config({**BASE, "group.id": "  "})


@pytest.mark.parametrize("key", ["group.id", "client.id", "client.rack", "sasl.password"])
@pytest.mark.parametrize("text", ["a\0b", "a\ud800"])
def test_text_that_librdkafka_cannot_take_is_refused(key: str, text: str) -> None:
    """It aborts the whole process on a group id that is no UTF-8, and reads text up to a NUL as another name."""
    with pytest.raises(ConfigError, match=f"{key} has a NUL or half a surrogate pair") as raised:
        parse_consumer_config({**BASE, key: text})
    assert ("hidden" in str(raised.value)) == (key == "sasl.password")


CLASSIC_SETTINGS: Final[Mapping[str, object]] = {
    "partition.assignment.strategy": "range",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 2_000,
    "group.protocol.type": "consumer",
}


@pytest.mark.parametrize("key", sorted(CLASSIC_SETTINGS))
def test_a_key_that_only_the_classic_protocol_has_means_that_protocol(key: str) -> None:
    """A program that named range, and silently got uniform, joined the wrong halves of two topics."""
    given = {**BASE, key: CLASSIC_SETTINGS[key]}
    config = parse_consumer_config(given)
    assert (config.protocol, config.classic_keys) == ("classic", (key,))
    assert key not in config.data_plane, "librdkafka must not hear of it"
    assert parse_consumer_config({**given, "group.protocol": "classic"}).classic_keys == ()
    assert parse_consumer_config({**BASE, key: None}).protocol == "consumer"
    with pytest.raises(ConfigError, match=f"{re.escape(key)} is a key of the classic protocol, and"):
        parse_consumer_config({**given, "group.protocol": "consumer"})


def test_keys_of_both_protocols_exclude_each_other() -> None:
    """Either choice would drop a setting without a word."""
    with pytest.raises(ConfigError, match=r"session\.timeout\.ms is a key of the classic protocol, and group\.remote"):
        parse_consumer_config({**BASE, "session.timeout.ms": 6_000, "group.remote.assignor": "range"})


def test_every_classic_key_says_where_its_setting_lives_now() -> None:
    """Without it the warning leaves its reader where they were."""
    assert "consumer.session.timeout.ms" in CLASSIC_KEYS["session.timeout.ms"]
    assert "consumer.heartbeat.interval.ms" in CLASSIC_KEYS["heartbeat.interval.ms"]
    assert "group.remote.assignor" in CLASSIC_KEYS["partition.assignment.strategy"]


def test_all_mistakes_come_in_one_error() -> None:
    """Told one at a time, five mistakes cost five deployments."""
    with pytest.raises(ConfigError) as raised:
        parse_consumer_config(
            {
                "bootstrap.servers": "h:x",
                "max.poll.interval.ms": "soon",
                "enable.auto.commit": "perhaps",
                "security.protocol": "sasl_ssl",
                "group.local.assignors.timeout.ms": 5,
                "auto.offset.rest": "earliest",
            }
        )
    text = str(raised.value)
    assert text.startswith("the configuration has 7 mistakes: (1) bootstrap.servers")
    assert "did you mean auto.offset.reset?" in text
    for key in ("sasl.mechanism", "group.id is missing", "max.poll.interval.ms", "enable.auto.commit", "timeout.ms"):
        assert key in text


def test_keys_with_underscores_are_recognised() -> None:
    """kafka-python and aiokafka write them so; "bootstrap.servers is missing" would send their users searching."""
    with pytest.raises(ConfigError) as raised:
        parse_consumer_config({"bootstrap_servers": "h:1", "group_id": "g", "on_commit": print, "log_level": 0})
    assert "bootstrap_servers is spelled bootstrap.servers here" in str(raised.value)
    assert "group_id is spelled group.id here" in str(raised.value)
    assert "missing" not in str(raised.value)
    assert "on_commit" not in str(raised.value)


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("consumer_timeout_ms", "is a key of other clients; end the loop when"),
        ("max.poll.records", "is a key of other clients; pass a number to consume()"),
        ("rebalance_cb", "is a key of other clients; pass on_assign, on_revoke and on_lost to subscribe()"),
        ("on_delivery", "is a key of other clients; leave it out"),
        ("sasl.jaas.config", "is a key of Java's client, which only files of commands and Spark may have"),
    ],
)
def test_a_key_of_another_client_is_refused_with_what_to_do(key: str, advice: str) -> None:
    """librdkafka takes max.poll.records without effect, and the nearest key of ours would be the wrong advice."""
    with pytest.raises(ConfigError) as raised:
        parse_consumer_config({**BASE, key: "5"})
    assert str(raised.value).startswith(f"{key} {advice}")


def test_a_deserializer_that_takes_only_the_data_is_refused_at_once() -> None:
    """kafka-python's and aiokafka's do; else every record would fail, long after the start."""
    with pytest.raises(ConfigError, match=r"value.deserializer is called with \(data, context\)"):
        parse_consumer_config({**BASE, "value.deserializer": lambda data: data})
    assert parse_consumer_config({**BASE, "value.deserializer": lambda data, context: data}).value_deserializer
    assert parse_consumer_config({**BASE, "value.deserializer": max}).value_deserializer is max  # has no signature


@pytest.mark.parametrize("key", ["on_commit", "on_deserialization_error", "stats_cb", "error_cb"])
def test_a_callback_that_does_not_take_its_arguments_is_refused_at_once(key: str) -> None:
    """It would fail at each call, and librdkafka's would do so unheard."""
    with pytest.raises(ConfigError, match=f"{key} is called with"):
        parse_consumer_config({**BASE, key: lambda: None})


def classic(**conf: object) -> ConsumerConfig:
    named = {key.replace("_", "."): value for key, value in conf.items()}
    return parse_consumer_config({**BASE, "group.protocol": "classic", **named})


def test_a_consumer_on_the_classic_protocol_reads_the_keys_of_other_clients() -> None:
    """A configuration of confluent-kafka is moved over as it is; nothing has to be left out, and nothing warns."""
    config = classic(
        session_timeout_ms="6000",
        partition_assignment_strategy="roundrobin, cooperative-sticky",
        enable_auto_commit=False,
    )
    assert [assignor.name for assignor in config.local_assignors.assignors] == ["roundrobin", "cooperative-sticky"]
    assert (config.session_timeout_ms, config.heartbeat_interval_ms, config.classic_keys) == (6_000, 2_000, ())
    assert not {"session.timeout.ms", "partition.assignment.strategy", "group.protocol"} & config.data_plane.keys()


def test_javas_class_names_are_taken_for_strategies() -> None:
    """A properties file of a Java application names classes."""
    package = "org.apache.kafka.clients.consumer"
    given = f"{package}.RangeAssignor, {package}.CooperativeStickyAssignor"
    config = classic(partition_assignment_strategy=given)
    assert [assignor.name for assignor in config.local_assignors.assignors] == ["range", "cooperative-sticky"]
    with pytest.raises(ConfigError, match="use cooperative-sticky"):
        classic(partition_assignment_strategy=f"{package}.StickyAssignor")


def test_the_default_strategies_can_join_a_group_of_any_client() -> None:
    """All clients offer range; with it the member is eager, and alone with cooperative-sticky it is not."""
    assert [assignor.name for assignor in classic().local_assignors.assignors] == ["range", "cooperative-sticky"]
    assert not is_cooperative(classic().local_assignors.assignors)
    assert is_cooperative(classic(partition_assignment_strategy="cooperative-sticky").local_assignors.assignors)


def test_an_assignor_of_ones_own_is_offered_before_the_strategies_and_is_cooperative_alone() -> None:
    """The first name that all members offer is the group's."""
    weighted = Weighted(1)
    config = classic(group_local_assignors=weighted, partition_assignment_strategy="range")
    assert [assignor.name for assignor in config.local_assignors.assignors] == [weighted.name, "range"]
    assert is_cooperative(classic(partition_assignment_strategy=[weighted]).local_assignors.assignors)


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"partition_assignment_strategy": "rang"}, "did you mean 'range'"),
        ({"partition_assignment_strategy": "sticky"}, "use cooperative-sticky"),
        ({"group_protocol_type": "connect"}, "group.protocol.type must be one of consumer, got 'connect'"),
        ({"partition_assignment_strategy": ""}, "is empty"),
        ({"partition_assignment_strategy": "range,range"}, "the same name 'range'"),
        ({"group_remote_assignor": "uniform"}, "set group.protocol=consumer"),
        ({"group_local_assignors_fallback": "server"}, "leave it out"),
        ({"session_timeout_ms": 3_000, "heartbeat_interval_ms": 3_000}, "must be below session.timeout.ms=3000"),
    ],
)
def test_a_mistake_of_the_classic_protocol_names_the_way_out(conf: dict[str, object], words: str) -> None:
    """An error that names one line to change is mended in a minute."""
    with pytest.raises(ConfigError, match=re.escape(words)):
        classic(**conf)


@pytest.mark.parametrize(
    ("conf", "reset", "reset_new"),
    [
        ({}, "latest", "earliest"),
        ({"auto.offset.reset": "end"}, "latest", "earliest"),
        ({"auto.offset.reset": "none"}, "none", "none"),
        ({"auto.offset.reset": "by_duration:PT1H"}, "by_duration:PT1H", "earliest"),
        ({"auto.offset.reset.new.partitions": "latest"}, "latest", "latest"),
    ],
)
def test_where_new_partitions_begin_follows_from_where_others_do(
    conf: dict[str, ConfigValue], reset: str, reset_new: str
) -> None:
    """latest skips history; a partition that appears later has none."""
    config = parse_consumer_config({**BASE, **conf})
    assert (config.auto_offset_reset, config.auto_offset_reset_new_partitions) == (reset, reset_new)
    assert "auto.offset.reset.new.partitions" not in config.data_plane


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("by_duration:PT1H", 3_600_000),
        ("BY_DURATION:p7d", 604_800_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:PT0S", 0),
    ],
)
def test_a_duration_is_written_as_in_java(text: str, ms: int) -> None:
    """A configuration that Java reads is read here."""
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["by_duration:", "by_duration:1h", "by_duration:P", "by_duration:PT", "by_duration:P1DT"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """The error of a wrong ``auto.offset.reset`` shows how a duration is written."""
    with pytest.raises(ConfigError, match="by_duration:PT1H is an hour"):
        parse_consumer_config({**BASE, "auto.offset.reset": text})


def test_settings_of_topics_may_be_where_librdkafka_had_them() -> None:
    """Old programs have default.topic.config; a key beside it wins."""
    nested = {"auto.offset.reset": "smallest", "isolation.level": "read_uncommitted"}
    config = parse_consumer_config({**BASE, "isolation.level": "read_committed", "default.topic.config": nested})
    assert config.auto_offset_reset == "earliest"
    assert config.isolation_level == "read_committed"
    assert "default.topic.config" not in config.data_plane


def test_keyword_arguments_win_over_the_mapping() -> None:
    """``Consumer(conf, logger=log)`` and ``Consumer(**conf)`` are how confluent-kafka is called."""
    assert merge_settings({"a": 1, "b": 2}, {"b": 3}) == {"a": 1, "b": 3}
    assert merge_settings(None, {"group.id": "g"}) == {"group.id": "g"}
    with pytest.raises(ConfigError, match="must be a mapping"):
        merge_settings("localhost:9092", {})  # type: ignore[arg-type]


def test_a_new_data_plane_need_not_wait_for_an_acknowledgement_or_a_second_connection() -> None:
    """The first record of every member came 50 ms later with librdkafka's own defaults; who sets the keys is obeyed."""
    ours = parse_consumer_config({"bootstrap.servers": "a:1", "group.id": "g"}).data_plane
    assert (ours["socket.nagle.disable"], ours["reconnect.backoff.ms"]) == (True, 20)
    theirs = {"socket.nagle.disable": False, "reconnect.backoff.ms": 500}
    assert (
        parse_consumer_config({"bootstrap.servers": "a:1", "group.id": "g", **theirs}).data_plane.items()
        >= theirs.items()
    )


@pytest.mark.parametrize(
    ("conf", "most"),
    [({}, 1_000), ({"reconnect.backoff.max.ms": 5_000}, 5_000), ({"reconnect.backoff.ms": 2_000}, None)],
)
def test_a_reader_connects_within_a_second_to_a_broker_that_is_back(conf: dict[str, int], most: int | None) -> None:
    """As Kafka's own clients do; librdkafka takes up to 10 s, and refuses less than reconnect.backoff.ms."""
    data_plane = parse_consumer_config({"bootstrap.servers": "a:1", "group.id": "g", **conf}).data_plane
    assert data_plane.get("reconnect.backoff.max.ms") == most


def test_the_data_plane_never_commits_or_resets_by_itself() -> None:
    """If librdkafka committed or reset offsets on its own, records would be lost on a rebalance."""
    data_plane = parse_consumer_config(
        {**BASE, "enable.auto.commit": "true", "auto.offset.reset": "earliest", "group.instance.id": "i1"}
    ).data_plane
    assert data_plane["enable.auto.commit"] is False
    assert data_plane["enable.auto.offset.store"] is False
    assert data_plane["auto.offset.reset"] == "error"
    assert not {"group.instance.id", "group.protocol", "max.poll.interval.ms"} & set(data_plane)


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("a", [BootstrapServer("a", 9092)]),
        ("a:1, b:2 ,", [BootstrapServer("a", 1), BootstrapServer("b", 2)]),
        ("[::1]:5", [BootstrapServer("::1", 5)]),
        ("PLAINTEXT://h:7", [BootstrapServer("h", 7)]),
    ],
)
def test_bootstrap_servers_are_read_as_kafka_writes_them(servers: str, expected: list[BootstrapServer]) -> None:
    """Addresses copied from the configuration of another client must work unchanged."""
    assert list(parse_consumer_config({**BASE, "bootstrap.servers": servers}).bootstrap_servers) == expected


@pytest.mark.parametrize(
    ("servers", "advice"),
    [
        ("kafka://h:1", "does not fit security.protocol=plaintext; write h:1"),
        ("a:1;b:2", "separate several with commas"),
    ],
)
def test_a_bad_bootstrap_server_is_told_how_to_write_it(servers: str, advice: str) -> None:
    """What was seen is not enough: the text says what to write."""
    with pytest.raises(ConfigError, match=advice):
        parse_consumer_config({**BASE, "bootstrap.servers": servers})


@pytest.mark.parametrize("servers", ["", " , ", "h:0", "h:x", "h:70000", "::1:9092", "SSL://h:1", "[::1"])
def test_a_bad_bootstrap_server_is_refused(servers: str) -> None:
    """A typing error is reported at once and not as a connection that never comes up."""
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        parse_consumer_config({**BASE, "bootstrap.servers": servers})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max.poll.interval.ms", "soon"),
        ("max.poll.interval.ms", 0),
        ("enable.auto.commit", "perhaps"),
        ("auto.offset.reset", "middle"),
        ("group.protocol", "auto"),
        ("group.instance.id", ""),
        ("retry.backoff.ms", True),
        ("client.rack", " "),
    ],
)
def test_a_bad_value_is_refused_by_name(key: str, value: object) -> None:
    """The message carries the key and what was seen."""
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        parse_consumer_config({**BASE, key: value})


def test_secrets_are_not_in_the_repr() -> None:
    """A configuration that is logged must not leak a password."""
    config = parse_consumer_config({**BASE, "security.protocol": "ssl", "ssl.key.password": "hunter2"})
    assert "hunter2" not in repr(config)


def test_a_mistyped_key_finds_its_neighbour() -> None:
    """A user who writes `fetch.min.byte` is told that the key is `fetch.min.bytes`."""
    assert nearest_key("fetch.min.byte") == "fetch.min.bytes"
    assert nearest_key("GROUP.ID") == "group.id"
    assert nearest_key("zzzz") is None
