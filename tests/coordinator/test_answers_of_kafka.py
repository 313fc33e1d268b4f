"""Answers where KIP-848 leaves a choice: those of Apache Kafka 4.3, as the tests in interop/differential find them."""

from __future__ import annotations

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from kip848_client.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.support.coordinator_harness import Harness

TOO_LONG = "x" * 5000


@pytest.fixture
def h() -> Harness:
    harness = Harness()
    harness.create_topic("foo", partitions=4)
    return harness


def test_a_description_shows_partitions_until_their_holder_has_given_them_up(h: Harness) -> None:
    """An operator who asks why a partition is not consumed finds the member that still holds it."""
    h.join("a", ["foo"], assignor="range")
    h.join("b", ["foo"], assignor="range")
    h.heartbeat("a", 1)

    (a, b) = described(h).members

    assert [topic.partitions for topic in a.assignment.topic_partitions] == [(0, 1, 2, 3)]
    assert [topic.partitions for topic in a.target_assignment.topic_partitions] == [(0, 1)]
    assert b.assignment.topic_partitions == ()


def test_a_description_spells_no_pattern_as_an_empty_one(h: Harness) -> None:
    """The admin client of Java makes a pattern of what it gets, and cannot of null."""
    h.join("a", ["foo"])
    assert described(h).members[0].subscribed_topic_regex == ""


def test_a_description_says_what_the_asker_may_do_if_asked(h: Harness) -> None:
    """Tools print it; -2147483648 would read as a number of operations."""
    h.join("a", ["foo"])
    request = ConsumerGroupDescribeRequest(group_ids=("g", "none"), include_authorized_operations=True)

    response = h.send(request, version=1)

    assert [group.authorized_operations for group in response.groups] == [3400, -2147483648]
    assert described(h).authorized_operations == -2147483648

    h.group_id = "classic"
    h.commit("", -1, {"foo": {0: 1}})
    for is_asked, operations in ((True, [3400, -2147483648]), (False, [-2147483648] * 2)):
        classic = DescribeGroupsRequest(groups=("classic", "none"), include_authorized_operations=is_asked)
        assert [group.authorized_operations for group in h.send(classic, version=6).groups] == operations


def test_a_group_that_is_not_there_has_no_state(h: Harness) -> None:
    """Clients must read the error of a group that is not there, so its state is empty, as Kafka answers."""
    group = described(h)
    assert (group.error_code, group.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "")


def test_a_group_with_offsets_only_is_told_apart_from_none(h: Harness) -> None:
    """A wrong group id and a group that consumers use without membership are different mistakes."""
    assert "Consumer group g not found." in str(h.heartbeat("a", 5).error_message)
    assert "Group g not found." in str(h.heartbeat("a", -1).error_message)
    h.commit("", -1, {"foo": {0: 1}})
    assert "Group g is not a consumer group." in str(h.heartbeat("a", 5).error_message)
    assert "Group g is not a consumer group." in str(h.heartbeat("a", -1).error_message)


def test_a_group_with_offsets_only_takes_no_commit_of_a_member(h: Harness) -> None:
    """Its members are gone, and the sender does not know: it is told that it is none."""
    h.commit("", -1, {"foo": {0: 1}})
    assert h.commit("a", 3, {"foo": {0: 1}}) == {("foo", 0): ErrorCode.UNKNOWN_MEMBER_ID}


def test_a_partition_that_does_not_exist_takes_no_commit(h: Harness) -> None:
    """Its offset would stay for ever; the others of the request are stored."""
    h.join("a", ["foo"])
    assert h.commit("a", 1, {"foo": {-1: 1, 3: 1, 4: 1}}) == {
        ("foo", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("foo", 3): ErrorCode.NONE,
        ("foo", 4): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert h.commit("zombie", 9, {"foo": {4: 1}}) == {("foo", 4): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert h.results[-1].events == (), "nothing was asked of the group, so nothing is refused"


def test_metadata_that_is_too_long_is_no_claim_on_its_partition(h: Harness) -> None:
    """An older epoch is judged by the partitions that would be stored, so that the error names the cause."""
    h.join("a", ["foo"], assignor="range")
    h.join("b", ["foo"], assignor="range")
    h.heartbeat("a", 1)
    h.heartbeat("a", 1, owned={"foo": [0, 1]})

    codes = h.commit("a", 1, {"foo": {0: 1, 3: 1}}, metadata={3: TOO_LONG})
    assert list(codes.values()) == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert set(h.commit("a", 1, {"foo": {0: 1, 3: 1}}).values()) == {ErrorCode.STALE_MEMBER_EPOCH}


def test_a_topic_without_partitions_is_left_out_of_an_answer(h: Harness) -> None:
    """Kafka leaves such a topic out, and clients compare the answer with what they asked for."""
    h.commit("", -1, {"foo": {0: 1}})
    committed = h.send(OffsetCommitRequest(group_id="g", topics=(OffsetCommitRequestTopic(name="foo"),)), version=9)
    deleted = h.send(OffsetDeleteRequest(group_id="g", topics=(OffsetDeleteRequestTopic(name="foo"),)), version=0)
    assert (committed.topics, deleted.topics) == ((), ())


def test_offsets_of_partitions_that_do_not_exist_cannot_be_deleted(h: Harness) -> None:
    """A mistyped topic is told, also while the group subscribes to that name."""
    h.join("a", ["foo", "bar"])
    topics = tuple(
        OffsetDeleteRequestTopic(
            name=name, partitions=tuple(OffsetDeleteRequestPartition(partition_index=index) for index in (0, 4))
        )
        for name in ("foo", "bar")
    )

    response = h.send(OffsetDeleteRequest(group_id="g", topics=topics), version=0)

    assert [[partition.error_code for partition in topic.partitions] for topic in response.topics] == [
        [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]


def test_patterns_are_matched_again_only_some_time_after_the_last_match(h: Harness) -> None:
    """Members that change their pattern with every heartbeat cost no more than others; the next heartbeat matches."""
    joined_by_pattern(h, "foo")
    h.heartbeat("a", 2, regex="bar", owned={})
    assert h.tasks == []
    h.heartbeat("a", 2, owned={})
    assert len(h.tasks) == 1


def test_giving_up_a_pattern_is_a_change_of_its_own(h: Harness) -> None:
    """Also where the names cover all that it matched: who reads epochs sees that the subscription moved."""
    h.join("a", ["foo"], regex="foo")
    h.run_tasks()
    h.heartbeat("a", 1)
    epoch = h.group.group_epoch

    h.heartbeat("a", epoch, regex="")

    assert h.group.group_epoch == epoch + 1


def test_a_topic_without_partitions_is_still_a_topic_that_is_claimed(h: Harness) -> None:
    """A client that lists topics it has lost is fenced after a lost answer, here as there."""
    h.create_topic("bar", partitions=1)
    h.join("a", ["foo", "bar"], assignor="range")
    h.heartbeat("a", 1, topics=["foo"], owned={"foo": [0]})
    assert h.member("a").member_epoch == 2

    assert h.heartbeat("a", 1, owned={"foo": [], "bar": []}).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert h.heartbeat("a", 1, owned={"foo": []}).error_code == ErrorCode.NONE


def joined_by_pattern(h: Harness, regex: str) -> None:
    """Member a at epoch 2, with what *regex* matches."""
    h.join("a", [], regex=regex)
    h.run_tasks()
    assert h.heartbeat("a", 1).member_epoch == 2


def described(h: Harness) -> DescribedGroup:
    """The group as ConsumerGroupDescribe shows it."""
    return h.send(ConsumerGroupDescribeRequest(group_ids=("g",)), version=1).groups[0]
