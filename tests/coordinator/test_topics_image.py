"""The image of the topics, and the digest that tells whether a group must look at them again."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kip848_client.coordinator import TopicInfo, TopicsImage

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


@given(st.permutations([FOO, BAR, TopicInfo("baz", UUID(int=9), 4)]))
def test_the_digest_does_not_depend_on_any_order(topics: list[TopicInfo]) -> None:
    """A restart, which lists topics in another order, is no change."""
    assert TopicsImage(tuple(topics), version=8).metadata_hash(t.name for t in topics) == TopicsImage(
        tuple(reversed(topics))
    ).metadata_hash({"foo", "bar", "baz"})


def test_ids_come_in_ascending_order_and_unknown_names_are_left_out() -> None:
    """Members with equal subscriptions are recognised as such."""
    assert IMAGE.ids_of(["bar", "absent", "foo"]) == (FOO.topic_id, BAR.topic_id)
