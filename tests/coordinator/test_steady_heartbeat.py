"""The shortcut for heartbeats that change nothing. The harness compares each one with the long way."""

from __future__ import annotations

import pytest

from kip848_client.coordinator import GroupState
from tests.support.coordinator_harness import Harness


@pytest.fixture
def settled() -> Harness:
    """A group of one member, ``m1``, that owns all of ``t``."""
    harness = Harness()
    harness.create_topic("t", partitions=2)
    harness.join("m1", topics=["t"])
    return harness


def _group_state(harness: Harness) -> GroupState:
    group = harness.coordinator.snapshot(harness.group_id)
    assert group is not None
    return group.state


def test_a_steady_heartbeat_takes_it_and_keeps_the_member_alive(settled: Harness) -> None:
    """All but a few heartbeats are of this kind: a broker's capacity depends on them."""
    for _ in range(5):
        settled.advance(settled.config.consumer_session_timeout_ms - 1)
        answer = settled.heartbeat("m1", 1)
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 1, None)
    assert settled.shortcuts == 5


def test_a_heartbeat_with_possible_news_takes_the_long_way(settled: Harness) -> None:
    """A shortcut that swallowed a change would leave the group as it was for ever."""
    settled.heartbeat("m1", 1, topics=["t"])
    settled.heartbeat("m1", 1, owned={"t": [0, 1]})
    settled.heartbeat("m1", 0, topics=["t"], owned={}, rebalance_timeout_ms=5_000)
    settled.create_topic("u", partitions=1)
    settled.add_partitions("t", partitions=3)
    settled.heartbeat("m1", 1)
    assert settled.shortcuts == 0
    assert _group_state(settled) is GroupState.STABLE
