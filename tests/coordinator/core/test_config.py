"""Broker and group settings: names, defaults, bounds."""

from __future__ import annotations

import pytest

from kip848_client.errors import ConfigError
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.coordinator.core.group_overrides import GroupConfig, resolve_group_config
from tests.support.coordinator_harness import Harness


def test_the_default_profile_is_quick() -> None:
    """Tests with the embedded broker rebalance in fractions of a second."""
    config = CoordinatorConfig.for_profile("default")
    assert (config.consumer_heartbeat_interval_ms, config.consumer_session_timeout_ms) == (100, 10_000)
    assert (config.consumer_min_heartbeat_interval_ms, config.consumer_min_session_timeout_ms) == (10, 100)
    assert config.consumer_assignment_interval_ms == 0


def test_the_kafka_profile_has_kafka_s_defaults() -> None:
    """A program tried against the embedded broker must behave as in production."""
    config = CoordinatorConfig.for_profile("kafka")
    assert (config.consumer_heartbeat_interval_ms, config.consumer_session_timeout_ms) == (5_000, 45_000)
    assert (config.consumer_min_heartbeat_interval_ms, config.consumer_max_heartbeat_interval_ms) == (5_000, 15_000)
    assert (config.consumer_min_session_timeout_ms, config.consumer_max_session_timeout_ms) == (45_000, 60_000)
    assert config.consumer_assignors == ("uniform", "range")
    assert (config.consumer_regex_refresh_interval_ms, config.consumer_assignment_interval_ms) == (600_000, 1_000)
    assert (config.consumer_max_size, config.offset_metadata_max_bytes) == (2**31 - 1, 4096)
    assert config.offsets_retention_ms == 7 * 86_400_000


def test_properties_are_read_by_kafka_s_names_over_a_profile() -> None:
    """A line of server.properties can be used as it is."""
    config = CoordinatorConfig.from_properties(
        {
            "group.consumer.session.timeout.ms": "50000",
            "group.consumer.max.size": "7",
            "group.consumer.assignors": " range , uniform ",
            "offsets.retention.minutes": "1",
            "kip848.client.assignors.enable": " True ",
            "group.coordinator.rebalance.protocols": "classic, consumer, connect",
            "group.consumer.migration.policy": " Upgrade",
        },
        profile="kafka",
    )
    assert (config.consumer_session_timeout_ms, config.consumer_max_size) == (50_000, 7)
    assert config.consumer_assignors == ("range", "uniform")
    assert config.offsets_retention_ms == 60_000
    assert config.consumer_heartbeat_interval_ms == 5_000
    assert (config.client_assignors, config.connect_groups) == (True, True)
    assert (config.may_upgrade, config.may_downgrade) == (True, False)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"group.consumer.size": "7"}, "group.consumer.max.size"),
        ({"group.consumer.max.size": "many"}, "whole number, got 'many'"),
        ({"group.consumer.max.size": "0"}, r"within \[1, 2147483647\], got 0"),
        ({"group.consumer.assignors": ""}, "one name or more"),
        ({"group.consumer.assignors": "range,range"}, "each once"),
        ({"group.consumer.session.timeout.ms": "99"}, r"within \[100, 60000\], got 99"),
        ({"group.consumer.heartbeat.interval.ms": "20000"}, r"within \[10, 15000\], got 20000"),
        (
            {"group.consumer.session.timeout.ms": "500", "group.consumer.heartbeat.interval.ms": "500"},
            "must be less than",
        ),
        (
            {"group.connect.session.timeout.ms": "500", "group.connect.heartbeat.interval.ms": "500"},
            "a ninth of it is usual",
        ),
        ({"group.min.session.timeout.ms": "501", "group.max.session.timeout.ms": "500"}, "must not be above"),
        ({"group.coordinator.rebalance.protocols": "classic"}, "consumer can't be left out here"),
        ({"group.coordinator.rebalance.protocols": "classic,consumer,share"}, "share can't be added here"),
        ({"kip848.client.assignors.enable": "yes"}, "must be true or false, got 'yes'"),
    ],
)
def test_a_wrong_property_is_refused_with_what_would_be_right(properties: dict[str, str], said: str) -> None:
    """A broker does not start with settings that mean nothing."""
    with pytest.raises(ConfigError, match=said):
        CoordinatorConfig.from_properties(properties)


def test_every_property_has_a_name_and_reads_back() -> None:
    """A value that DescribeConfigs shows can be given to --set."""
    config = CoordinatorConfig()
    assert len(CoordinatorConfig.property_names()) == len(CoordinatorConfig.__struct_fields__)
    assert CoordinatorConfig.from_properties({}) == config


def test_a_bound_itself_is_allowed() -> None:
    """Operators write the limit when they mean the limit."""
    config = CoordinatorConfig.from_properties(
        {
            "group.consumer.session.timeout.ms": "60000",
            "group.consumer.heartbeat.interval.ms": "15000",
            "group.min.session.timeout.ms": "500",
            "group.max.session.timeout.ms": "500",
        }
    )
    assert (config.consumer_session_timeout_ms, config.classic_max_session_timeout_ms) == (60_000, 500)


def test_an_assignor_that_is_not_there_stops_the_start() -> None:
    """A typing error is found at the start and not by the first consumer."""
    with pytest.raises(ConfigError, match="names sticky; known are range, uniform"):
        Harness(config=CoordinatorConfig(consumer_assignors=("uniform", "sticky")))


def test_a_group_s_overrides_are_laid_over_the_broker_s_settings() -> None:
    """One group can be slower than the others."""
    config = CoordinatorConfig()
    assert resolve_group_config({}, config=config) == GroupConfig.of(config)
    resolved = resolve_group_config({"consumer.session.timeout.ms": "20000"}, config=config)
    assert (resolved.session_timeout_ms, resolved.heartbeat_interval_ms) == (20_000, 100)
    assert resolved.properties()["consumer.session.timeout.ms"] == "20000"
    bounds = {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "10"}
    assert resolve_group_config(bounds, config=config).heartbeat_interval_ms == 10


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"session.timeout.ms": "1000"}, "unknown group config"),
        ({"consumer.session.timeout.ms": "soon"}, "whole number"),
        ({"consumer.session.timeout.ms": "99"}, r"within \[100, 60000\]"),
        ({"consumer.heartbeat.interval.ms": "9"}, r"within \[10, 15000\]"),
        ({"consumer.assignment.interval.ms": "15001"}, r"within \[0, 15000\]"),
        ({"connect.session.timeout.ms": f"{2**31}"}, r"within \[1, 2147483647\]"),
        ({"connect.heartbeat.interval.ms": f"{2**31}"}, r"within \[1, 2147483647\]"),
        ({"consumer.heartbeat.interval.ms": "10000"}, "must be less than"),
    ],
)
def test_a_wrong_group_config_is_refused(overrides: dict[str, str], said: str) -> None:
    """An alteration that would break a group is answered INVALID_CONFIG and changes nothing."""
    with pytest.raises(ConfigError, match=said):
        resolve_group_config(overrides, config=CoordinatorConfig())
