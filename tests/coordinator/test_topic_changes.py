"""Topics that are created, grow and are deleted under a running group."""

from __future__ import annotations

import pytest

from kip848_client.coordinator import GroupState
from tests.support.coordinator_harness import FailedAppend, Harness


def _group() -> Harness:
    h = Harness()
    h.create_topic("foo", partitions=2)
    h.join("m", ["foo", "bar"])
    return h


def test_new_partitions_are_seen_by_the_next_heartbeat_of_any_member() -> None:
    """A topic that grows is read whole; the coordinator does nothing in the background."""
    h = _group()
    h.add_partitions("foo", partitions=3)
    assert h.record_names() == []
    assert (h.group.group_epoch, h.group.state) == (1, GroupState.STABLE)
    response = h.heartbeat("m", 1)
    assert (response.member_epoch, h.received(response)) == (2, {"foo": [0, 1, 2]})
    assert h.record_names() == ["epoch", "target", "target_epoch", "current"]


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


def test_a_deleted_topic_is_revoked() -> None:
    """Members stop asking for partitions that are gone."""
    h = _group()
    h.create_topic("bar", partitions=1)
    h.heartbeat("m", 1)
    h.delete_topic("bar")
    response = h.heartbeat("m", 2)
    assert (response.member_epoch, h.received(response)) == (2, {"foo": [0, 1]})
    response = h.heartbeat("m", 2, owned={"foo": [0, 1]})
    assert response.member_epoch == 3
    assert h.group.state is GroupState.STABLE


def test_a_topic_that_is_created_again_is_another_topic() -> None:
    """The old partitions are revoked, the new ones assigned under their own id."""
    h = _group()
    old = h.topic_id("foo")
    h.delete_topic("foo")
    new = h.create_topic("foo", partitions=2)
    h.heartbeat("m", 1)
    response = h.heartbeat("m", 1, owned={})
    assert response.member_epoch == 2
    assert old not in h.member("m").assigned
    assert h.member("m").assigned_partitions == {(new, 0), (new, 1)}


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


def test_an_unknown_state_of_topics_is_no_surprise_to_an_idle_group() -> None:
    """Only the groups that subscribe to a topic look again when it changes."""
    h = _group()
    h.create_topic("bar", partitions=1)
    h.heartbeat("m", 1)
    h.heartbeat("m", 2)
    assert h.record_names() == []
