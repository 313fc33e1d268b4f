"""Configuration: what is accepted, what is refused, and that refusals say what to do."""

from __future__ import annotations

import pytest

from kip848_client.config import BootstrapServer, nearest_key, parse_consumer_config
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


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("session.timeout.ms", "consumer.session.timeout.ms"),
        ("heartbeat.interval.ms", "consumer.heartbeat.interval.ms"),
        ("partition.assignment.strategy", "group.remote.assignor"),
    ],
)
def test_keys_of_the_classic_protocol_are_refused_with_the_way_out(key: str, advice: str) -> None:
    """Somebody who ports a consumer learns where the setting lives now."""
    with pytest.raises(ConfigError, match=advice):
        parse_consumer_config({**BASE, key: "1"})


def test_the_data_plane_never_commits_or_resets_by_itself() -> None:
    """If librdkafka committed or reset offsets on its own, records would be lost on a rebalance."""
    data_plane = parse_consumer_config(
        {**BASE, "enable.auto.commit": "true", "auto.offset.reset": "earliest", "group.instance.id": "i1"}
    ).data_plane
    assert data_plane["enable.auto.commit"] is False
    assert data_plane["enable.auto.offset.store"] is False
    assert data_plane["auto.offset.reset"] == "error"
    assert not {"group.instance.id", "group.protocol", "max.poll.interval.ms"} & set(data_plane)


def test_unknown_keys_are_left_to_the_data_plane() -> None:
    """Every librdkafka property works, also one that is newer than this library."""
    assert parse_consumer_config({**BASE, "fetch.min.bytes": 10}).data_plane["fetch.min.bytes"] == 10


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
    """Addresses copied from another client's configuration work."""
    assert list(parse_consumer_config({**BASE, "bootstrap.servers": servers}).bootstrap_servers) == expected


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
        ("group.protocol", "classic"),
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
    """`fetch.min.byte` is answered with a suggestion."""
    assert nearest_key("fetch.min.byte") == "fetch.min.bytes"
    assert nearest_key("zzzz") is None
