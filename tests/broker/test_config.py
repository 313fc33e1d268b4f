"""The broker's properties: Kafka's names and rules, with the way out of each mistake."""

from __future__ import annotations

import pytest

from kip848_client.errors import ConfigError
from kip848_client.testing.broker.config import PROPERTY_NAMES, BrokerConfig, Profile


def test_values_are_read_as_text_and_as_python_values() -> None:
    """The command line has only text; a test writes ints, bools and lists."""
    as_text = BrokerConfig.parse(
        {"num.partitions": "3", "auto.create.topics.enable": "TRUE", "group.consumer.assignors": "range, uniform"}
    )
    as_values = BrokerConfig.parse(
        {"num.partitions": 3, "auto.create.topics.enable": True, "group.consumer.assignors": ["range", "uniform"]}
    )
    assert as_text == as_values
    assert as_text.coordinator.consumer_assignors == ("range", "uniform")


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    """A misspelt property that is ignored makes a test prove something else than it says."""
    with pytest.raises(ConfigError, match=r"did you mean 'group\.consumer\.session\.timeout\.ms'"):
        BrokerConfig.parse({"group.consumer.session.timeout": "1000"})
    with pytest.raises(ConfigError, match=r"is Apache Kafka's, and the embedded broker does not have it; leave it out"):
        BrokerConfig.parse({"offsets.topic.num.partitions": "1"})


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"num.partitions": "many"}, "not a whole number"),
        ({"num.partitions": "0"}, "not between 1 and 100000"),
        ({"auto.create.topics.enable": "yes"}, "not true or false"),
        ({"group.consumer.assignors": " , "}, "needs one name"),
        ({"group.consumer.session.timeout.ms": "99"}, r"within \[100, 60000\]"),
        (
            {"group.consumer.session.timeout.ms": "200", "group.consumer.heartbeat.interval.ms": "200"},
            "must be less than",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_and_range(properties: dict[str, str], message: str) -> None:
    """The message is all that a user has to correct the value."""
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.parse(properties)


def test_an_unknown_profile_is_refused() -> None:
    """A misspelt profile must not silently be the fast one."""
    with pytest.raises(ConfigError, match="profile 'Kafka' is unknown"):
        BrokerConfig.parse({}, profile="Kafka")  # type: ignore[arg-type]


@pytest.mark.parametrize("profile", ["default", "kafka"])
def test_the_properties_of_a_configuration_parse_to_the_same_configuration(profile: Profile) -> None:
    """A value that DescribeConfigs shows must be accepted by ``--set``."""
    config = BrokerConfig.parse({}, profile=profile)
    assert BrokerConfig.parse(config.properties(), profile=profile) == config
    assert config.properties().keys() == PROPERTY_NAMES
