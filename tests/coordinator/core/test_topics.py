"""Topics that are created, grow and are deleted under a running group, and the digest that tells so."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kip848_client.testing.coordinator.core.topics_image import TopicInfo, TopicsImage
from tests.support.coordinator_harness import FailedAppend, Harness


def _group() -> Harness:
    h = Harness()
    h.create_topic("foo", partitions=2)
    h.join("m", ["foo", "bar"])
    return h


def test_a_subscribed_topic_that_is_created_later_is_assigned() -> None:
    """A consumer that is started before its topic exists reads it once it is created."""
    h = _group()
    h.create_topic("bar", partitions=1)
    response = h.heartbeat("m", 1)
    assert (response.member_epoch, h.received(response)) == (2, {"foo": [0, 1], "bar": [0]})


def test_a_new_topic_is_shared_out_among_all_subscribers() -> None:
    """Members that sent no heartbeat since the topic was created get their part of it, too."""
    h = _group()
    h.join("n", ["foo", "bar"])
    h.add_partitions("foo", partitions=4)
    h.heartbeat("m", h.member("m").member_epoch)
    h.create_topic("bar", partitions=2)
    h.heartbeat("m", h.member("m").member_epoch)
    assert [len(h.target(member)["bar"]) for member in ("m", "n")] == [1, 1]


def test_a_deleted_topic_is_given_up_before_the_next_target_is_there() -> None:
    """No answer names a topic that is gone while the group waits for the assignment interval."""
    h = _group()
    h.set_group_config(consumer_assignment_interval_ms="10000")
    h.create_topic("bar", partitions=1)
    h.advance(10_000)
    h.heartbeat("m", 1)
    assert h.assigned("m") == {"foo": [0, 1], "bar": [0]}
    bar = h.topic_id("bar")
    h.delete_topic("bar")
    assert h.received(h.heartbeat("m", 2)) == {"foo": [0, 1]}
    assert (set(h.member("m").pending_revocation), h.group.target_epoch) == ({bar}, 2)
    h.heartbeat("m", 2, owned={"foo": [0, 1]})
    h.advance(10_000)
    assert h.heartbeat("m", 2).member_epoch == 3


def test_a_topic_without_subscribers_disturbs_no_group() -> None:
    """In a busy cluster each new topic would otherwise rebalance every group."""
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


@pytest.mark.parametrize("how", ["leaves", "changes its names", "leaves a pattern"])
def test_what_a_member_no_longer_subscribes_to_is_forgotten_with_its_subscription(how: str) -> None:
    """Otherwise the topics look changed after a load, and the whole group rebalances once more."""
    h = _group()
    h.create_topic("own", partitions=1)
    h.join("n", ["foo", "own"], regex="o.*" if how == "leaves a pattern" else None)
    h.run_tasks()
    match how:
        case "leaves":
            h.heartbeat("n", -1)
        case "changes its names":
            h.heartbeat("n", h.member("n").member_epoch, topics=["foo"])
        case _:
            h.heartbeat("n", h.member("n").member_epoch, topics=["foo"], regex="o.*")
    h.heartbeat("m", h.member("m").member_epoch)
    epoch = h.group.group_epoch
    h.restart()
    h.heartbeat("m", h.member("m").member_epoch)
    assert h.group.group_epoch == epoch


def test_topics_that_changed_while_the_coordinator_was_down_are_noticed() -> None:
    """Partitions added during a restart would otherwise never be read."""
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


FOO, BAR = TopicInfo("foo", UUID(int=1), 3), TopicInfo("bar", UUID(int=2), 1)
IMAGE = TopicsImage((FOO, BAR), version=1)


@pytest.mark.parametrize(
    ("topics", "changed"),
    [
        ((FOO, BAR), set()),
        ((BAR, FOO), set()),
        ((FOO,), {"bar"}),
        ((FOO, replace(BAR, partition_count=2)), {"bar"}),
        ((FOO, replace(BAR, topic_id=UUID(int=3))), {"bar"}),
        ((FOO, BAR, TopicInfo("new", UUID(int=3), 1)), {"new"}),
    ],
)
def test_what_changed_is_found_by_name(topics: tuple[TopicInfo, ...], changed: set[str]) -> None:
    """Only groups that subscribe to what changed are disturbed."""
    assert TopicsImage(topics, version=2).changed_since(IMAGE) == changed


def test_the_digest_changes_with_everything_that_a_target_depends_on() -> None:
    """No growth, replacement or disappearance of a topic is overlooked."""
    names = ("foo", "bar", "absent")
    images = [
        IMAGE,
        TopicsImage((FOO,)),
        TopicsImage((FOO, replace(BAR, partition_count=2))),
        TopicsImage((FOO, replace(BAR, topic_id=UUID(int=3)))),
        TopicsImage((FOO, replace(BAR, racks=(frozenset({"a", "b"}), frozenset())))),
        TopicsImage((FOO, replace(BAR, racks=(frozenset({"a"}), frozenset({"b"}))))),
        TopicsImage((FOO, BAR, TopicInfo("absent", UUID(int=3), 1))),
        TopicsImage(()),
    ]
    digests = [image.metadata_hash(names) for image in images]
    assert len(set(digests)) == len(images)
    assert all(-(2**63) <= digest < 2**63 for digest in digests)
    assert TopicsImage(()).metadata_hash(names) == IMAGE.metadata_hash(()) == 0


def test_the_digest_is_the_same_for_ever() -> None:
    """It is on disk: another value would cause a rebalance of every group after an upgrade."""
    assert IMAGE.metadata_hash(("foo", "bar")) == -5418034534337471832
    racks = TopicsImage((FOO, replace(BAR, racks=(frozenset({"a", "b"}),))))
    assert racks.metadata_hash(("foo", "bar")) == -4757543050885807852


@given(st.permutations([FOO, BAR, TopicInfo("baz", UUID(int=9), 4)]))
def test_the_digest_does_not_depend_on_any_order(topics: list[TopicInfo]) -> None:
    """A restart, which lists topics in another order, is no change."""
    assert TopicsImage(tuple(topics), version=8).metadata_hash(t.name for t in topics) == TopicsImage(
        tuple(reversed(topics))
    ).metadata_hash({"foo", "bar", "baz"})


def test_only_topics_with_racks_have_racks() -> None:
    """A server-side assignor prefers members beside a replica, where it knows of any."""
    racks = (frozenset({"a"}), frozenset({"b"}), frozenset({"a", "b"}))
    image = TopicsImage((replace(FOO, racks=racks), BAR))
    assert image.partition_racks == {FOO.topic_id: racks}


def test_ids_come_in_ascending_order_and_unknown_names_are_left_out() -> None:
    """Members with equal subscriptions are recognised as such."""
    assert IMAGE.ids_of(["bar", "absent", "foo"]) == (FOO.topic_id, BAR.topic_id)
