"""Topics that are created, grow and are deleted under a running group."""

from __future__ import annotations

import pytest

from tests.support.coordinator_harness import FailedAppend, Harness


def _group() -> Harness:
    h = Harness()
    h.create_topic("foo", partitions=2)
    h.join("m", ["foo", "bar"])
    return h


def test_a_subscribed_topic_that_is_created_later_is_assigned() -> None:
    """Consumers may be started before their topics."""
    h = _group()
    h.create_topic("bar", partitions=1)
    response = h.heartbeat("m", 1)
    assert (response.member_epoch, h.received(response)) == (2, {"foo": [0, 1], "bar": [0]})


def test_a_topic_without_subscribers_disturbs_no_group() -> None:
    """Busy clusters create topics all the time."""
    h = _group()
    h.create_topic("other", partitions=1)
    assert h.heartbeat("m", 1).member_epoch == 1
    assert h.record_names() == []


def test_the_first_heartbeat_after_a_load_with_unchanged_topics_is_no_rebalance() -> None:
    """A restart of the coordinator does not disturb its groups."""
    h = _group()
    h.restart()
    assert h.heartbeat("m", 1).member_epoch == 1
    assert h.record_names() == []


def test_topics_that_changed_while_the_coordinator_was_down_are_noticed() -> None:
    """Nothing is missed over a restart."""
    h = _group()
    h.add_partitions("foo", partitions=5)
    h.restart()
    response = h.heartbeat("m", 1)
    assert (response.member_epoch, h.received(response)) == (2, {"foo": [0, 1, 2, 3, 4]})


def test_a_bump_that_could_not_be_appended_is_tried_again() -> None:
    """A failed write loses no change of a topic."""
    h = _group()
    h.add_partitions("foo", partitions=3)
    before = h.state()
    h.fail_next_append = True
    with pytest.raises(FailedAppend):
        h.heartbeat("m", 1)
    assert h.state() == before
    response = h.heartbeat("m", 1)
    assert (response.member_epoch, h.received(response)) == (2, {"foo": [0, 1, 2]})
