"""Settings that make no sense are refused when the member is made, not when it hangs."""

from __future__ import annotations

import pytest

from kip848_client.errors import ConfigError
from kip848_client.member.core.settings import GroupProtocol, MemberConfig, ResetPolicy
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor


def test_the_defaults_are_kafkas() -> None:
    """Users read the defaults in Kafka's documentation and expect them here."""
    config = MemberConfig(group_id="g", member_id="m")
    assert (config.max_poll_interval_ms, config.rebalance_timeout_ms) == (300_000, 300_000)
    assert (config.retry_backoff_ms, config.retry_backoff_max_ms, config.request_timeout_ms) == (100, 1000, 30_000)
    assert (config.auto_commit_interval_ms, config.auto_offset_reset) == (5000, ResetPolicy.LATEST)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"group_id": " "}, "group.id"),
        ({"member_id": ""}, "member_id"),
        ({"instance_id": ""}, "group.instance.id"),
        ({"max_poll_interval_ms": 0}, "max.poll.interval.ms"),
        ({"rebalance_timeout_ms": 0}, "rebalance timeout"),
        ({"request_timeout_ms": 0}, "request.timeout.ms"),
        ({"retry_backoff_ms": -1}, "retry.backoff.ms"),
        ({"retry_backoff_max_ms": -1}, "retry.backoff.max.ms"),
        ({"auto_commit_interval_ms": -1}, "auto.commit.interval.ms"),
        ({"unreleased_instance_retry_ms": -1}, "unreleased_instance_retry_ms"),
        ({"assignor_timeout_ms": 0}, "group.local.assignors.timeout.ms"),
        ({"heartbeat_interval_max_ms": 0}, "heartbeat.interval.max.ms"),
        ({"session_timeout_ms": 0}, "session.timeout.ms"),
        ({"heartbeat_interval_ms": 0}, "heartbeat.interval.ms"),
        ({"topic_refresh_ms": -1}, "topic.metadata.refresh.interval.ms"),
        ({"protocol": GroupProtocol.CLASSIC}, "needs an assignor that it can offer"),
        ({"server_assignor": "uniform", "client_assignors": (Assignor("mine", 0, 0),)}, "exclude each other"),
    ],
)
def test_a_senseless_setting_is_named(settings: dict[str, object], named: str) -> None:
    """The error of an impossible setting says which key to change."""
    with pytest.raises(ConfigError, match=named):
        MemberConfig(**({"group_id": "g", "member_id": "m"} | settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "least"),
    [
        ("max_poll_interval_ms", 1),
        ("rebalance_timeout_ms", 1),
        ("request_timeout_ms", 1),
        ("retry_backoff_ms", 0),
        ("retry_backoff_max_ms", 0),
        ("auto_commit_interval_ms", 0),
        ("unreleased_instance_retry_ms", 0),
        ("assignor_timeout_ms", 1),
        ("heartbeat_interval_max_ms", 1),
        ("session_timeout_ms", 1),
        ("heartbeat_interval_ms", 1),
        ("topic_refresh_ms", 1),
    ],
)
def test_the_least_value_of_a_setting_is_accepted(setting: str, least: int) -> None:
    """A test that wants no waiting can have it."""
    config = MemberConfig(**({"group_id": "g", "member_id": "m"} | {setting: least}))  # type: ignore[arg-type]
    assert getattr(config, setting) == least
