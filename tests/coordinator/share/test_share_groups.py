"""Share groups in the coordinator: members, epochs, sessions, the partitions that a group has begun, and replay."""

from __future__ import annotations

from typing import Any

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.coordinator.core.result import DeleteShareState, InitializeShareState
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from kip848_client.wire.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest
from kip848_client.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.support.coordinator_harness import Harness

CONFIG = CoordinatorConfig(
    share_session_timeout_ms=45_000, share_heartbeat_interval_ms=5_000, share_max_size=3, consumer_max_size=10
)


class Shared(Harness):
    """Topic "foo" has two partitions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.create_topic("foo", partitions=2)

    def beat(self, member_id: str, epoch: int, *topics: str, **fields: Any) -> ShareGroupHeartbeatResponse:
        asked = {"group_id": self.group_id, "subscribed_topic_names": topics or None} | fields
        message = build(ShareGroupHeartbeatRequest, member_id=member_id, member_epoch=epoch, **asked)
        return self.send(message, version=1)

    def settled(self, *member_ids: str, topics: tuple[str, ...] = ("foo",)) -> None:
        """Let members join, and then send a heartbeat each."""
        for member_id in member_ids:
            assert not self.beat(member_id, 0, *topics).error_code
        for _ in range(2):
            for member_id in member_ids:
                self.beat(member_id, self.epoch(member_id))

    def told(self) -> InitializeShareState | DeleteShareState:
        """What the share partitions were told last."""
        return self.share_state[-1]

    def described(self) -> DescribedGroup:
        (group,) = self.send(ShareGroupDescribeRequest(group_ids=(self.group_id,)), version=1).groups
        return group

    def epoch(self, member_id: str) -> int:
        return next(each.member_epoch for each in self.described().members if each.member_id == member_id)

    def has(self) -> dict[str, list[str]]:
        """Member -> the partitions that it fetches from."""
        return {
            member.member_id: [
                f"{topic.topic_name}-{number}"
                for topic in member.assignment.topic_partitions
                for number in topic.partitions
            ]
            for member in self.described().members
        }

    def alter(self, **offsets: int) -> Any:
        """Begin partitions of "foo" at offsets: ``p0=7``."""
        partitions = [{"partition_index": int(name[1:]), "start_offset": offset} for name, offset in offsets.items()]
        topics = [{"topic_name": "foo", "partitions": partitions}]
        return self.send(build(AlterShareGroupOffsetsRequest, group_id=self.group_id, topics=topics), version=0)


@pytest.fixture
def h() -> Shared:
    return Shared(config=CONFIG)


def test_a_new_topic_is_assigned_once_its_state_is_there(h: Shared) -> None:
    """A member that fetched a partition without state would be refused, so the first answer has none."""
    first = h.beat("m", 0, "foo")
    assert (first.member_id, first.member_epoch, first.heartbeat_interval_ms) == ("m", 2, 5_000)
    assert first.assignment is not None
    assert not first.assignment.topic_partitions
    foo = h.topic_id("foo")
    assert h.share_state == [InitializeShareState("g", state_epoch=2, starts={(foo, 0): -1, (foo, 1): -1})]

    second = h.beat("m", 2)
    assert second.member_epoch == 3
    assert second.assignment is not None
    assert [(topic.topic_id, topic.partitions) for topic in second.assignment.topic_partitions] == [(foo, (0, 1))]
    assert h.beat("m", 3).assignment is None
    h.verify_log()


def test_members_beyond_the_partitions_share_them(h: Shared) -> None:
    """That is what share groups are for: ten workers may read a topic of one partition."""
    h.settled("a", "b", "c")
    partitions = [partition for held in h.has().values() for partition in held]
    assert len(partitions) == 4
    assert set(partitions) == {"foo-0", "foo-1"}
    assert h.described().group_state == "Stable"
    assert h.described().assignor_name == "simple"
    h.verify_log()


def test_partitions_that_a_topic_gets_later_begin_at_their_first_record(h: Shared) -> None:
    """With "latest" records would be lost that were produced before the next heartbeat."""
    h.settled("a")
    h.add_partitions("foo", partitions=3)
    h.beat("a", h.epoch("a"))
    assert h.told() == InitializeShareState("g", state_epoch=4, starts={(h.topic_id("foo"), 2): 0})
    h.settled("a")
    assert h.has() == {"a": ["foo-0", "foo-1", "foo-2"]}


@pytest.mark.parametrize(
    ("member_id", "epoch", "topics", "fields", "code"),
    [
        ("", 0, ("foo",), {}, ErrorCode.INVALID_REQUEST),
        ("x" * 37, 0, ("foo",), {}, ErrorCode.INVALID_REQUEST),
        ("m", 0, (), {}, ErrorCode.INVALID_REQUEST),
        ("m", 0, ("foo",), {"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ("m", -2, (), {}, ErrorCode.INVALID_REQUEST),
        ("m", 0, ("foo",), {"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ("m", 1, (), {"group_id": "other"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ("m", -1, (), {"group_id": "other"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ("m", 2, (), {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m", -1, (), {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 4, (), {}, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_a_wrong_heartbeat_is_refused_and_changes_nothing(
    h: Shared, member_id: str, epoch: int, topics: tuple[str, ...], fields: dict[str, Any], code: ErrorCode
) -> None:
    """A client that is told Kafka's error does the right thing: correct itself, or join again."""
    h.settled("a")
    before = h.described()
    answer = h.beat(member_id, epoch, *topics, **fields)
    assert answer.error_code == code
    assert answer.error_message
    assert h.described() == before


def test_an_answer_that_was_lost_does_not_fence_its_member(h: Shared) -> None:
    """The member still sends the epoch before."""
    h.settled("a")
    assert h.beat("a", 2).member_epoch == 3
    h.settled("b")
    h.beat("a", 3)
    assert h.beat("a", 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_full_group_takes_no_more_members(h: Shared) -> None:
    """``group.share.max.size`` is the operator's limit."""
    h.settled("a", "b", "c")
    assert h.beat("d", 0, "foo").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not h.beat("a", 0, "foo").error_code


def test_a_member_that_is_silent_loses_its_place(h: Shared) -> None:
    """Its partitions go to the others at their next heartbeat."""
    h.settled("a", "b")
    h.advance(44_000)
    h.beat("b", h.epoch("b"))
    h.advance(1_000)
    h.beat("b", h.epoch("b"))
    assert h.has() == {"b": ["foo-0", "foo-1"]}
    h.verify_log()


def test_the_sessions_begin_again_after_a_load(h: Shared) -> None:
    """A member must not stay for ever because its coordinator died before it did."""
    h.settled("a")
    h.restart()
    assert h.has() == {"a": ["foo-0", "foo-1"]}
    h.advance(44_999)
    assert h.described().members
    h.advance(1)
    assert h.described().group_state == "Empty"


def test_the_last_member_that_leaves_empties_the_group(h: Shared) -> None:
    """An empty group may be deleted, and with it the state of its partitions."""
    h.settled("a")
    left = h.beat("a", -1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    group = h.described()
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Empty", 4, 4)
    (listed,) = h.send(ListGroupsRequest(types_filter=("share",)), version=5).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state) == ("g", "share", "Empty")

    assert [one.error_code for one in h.send(DeleteGroupsRequest(groups_names=("g",)), version=2).results] == [0]
    foo = h.topic_id("foo")
    assert h.told() == DeleteShareState("g", ((foo, 0), (foo, 1)))
    assert h.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    h.verify_log()


def test_a_group_with_members_is_not_deleted_and_its_members_leave_by_themselves(h: Shared) -> None:
    """As in Kafka: LeaveGroup knows no member of a share group."""
    h.settled("a")
    assert [one.error_code for one in h.send(DeleteGroupsRequest(groups_names=("g",)), version=2).results] == [
        ErrorCode.NON_EMPTY_GROUP
    ]
    leaving = LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id="a"),))
    assert [one.error_code for one in h.send(leaving, version=5).members] == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert h.has()


def test_consumers_and_workers_do_not_take_each_other_s_group(h: Shared) -> None:
    """Records of a queue would otherwise be read twice without a word."""
    h.settled("a")
    assert h.join("c", ["foo"]).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    h.group_id = "other"
    h.join("c", ["foo"])
    assert h.beat("a", 0, "foo").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_members_with_different_topics_share_each_topic_among_its_subscribers(h: Shared) -> None:
    """A member must not fetch a topic that it did not ask for."""
    h.create_topic("bar", partitions=1)
    h.settled("a", "b", topics=("bar", "foo"))
    h.beat("b", h.epoch("b"), "bar")
    for _ in range(2):
        for member_id in ("a", "b"):
            h.beat(member_id, h.epoch(member_id))
    assert h.has() == {"a": ["foo-0", "foo-1", "bar-0"], "b": ["bar-0"]}


def test_a_deleted_topic_is_forgotten(h: Shared) -> None:
    """A topic of the same name is another one, and begins where ``share.auto.offset.reset`` says."""
    h.settled("a")
    before = h.topic_id("foo")
    h.delete_topic("foo")
    assert h.told() == DeleteShareState("g", ((before, 0), (before, 1)))
    h.beat("a", h.epoch("a"))
    assert h.has() == {"a": []}
    h.create_topic("foo", partitions=1)
    h.beat("a", h.epoch("a"))
    assert h.told() == InitializeShareState("g", state_epoch=5, starts={(h.topic_id("foo"), 0): -1})
    h.beat("a", h.epoch("a"))
    assert h.has() == {"a": ["foo-0"]}
    h.verify_log()


def test_offsets_are_altered_while_the_group_has_no_members(h: Shared) -> None:
    """So a queue is read again from somewhere; a group that is not there yet begins there."""
    answer = h.alter(p0=7, p5=1)
    codes = [(each.partition_index, each.error_code) for each in answer.responses[0].partitions]
    assert codes == [(0, 0), (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert h.share_state == [InitializeShareState("g", state_epoch=1, starts={(h.topic_id("foo"), 0): 7})]
    assert h.described().group_state == "Empty"
    h.settled("a")
    assert h.has() == {"a": ["foo-0", "foo-1"]}
    assert h.alter(p0=8).error_code == ErrorCode.NON_EMPTY_GROUP
    h.verify_log()


def test_offsets_of_a_topic_are_deleted_while_the_group_has_no_members(h: Shared) -> None:
    """The group begins the topic anew."""
    h.settled("a")
    topics = [{"topic_name": "foo"}, {"topic_name": "bar"}]
    request = build(DeleteShareGroupOffsetsRequest, group_id="g", topics=topics)
    assert h.send(request, version=0).error_code == ErrorCode.NON_EMPTY_GROUP
    h.beat("a", -1)
    answer = h.send(request, version=0)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(each.topic_name, each.error_code) for each in answer.responses] == [("foo", 0), ("bar", unknown)]
    foo = h.topic_id("foo")
    assert h.told() == DeleteShareState("g", ((foo, 0), (foo, 1)))
    h.beat("a", 0, "foo")
    assert h.told() == InitializeShareState("g", state_epoch=5, starts={(foo, 0): -1, (foo, 1): -1})


def test_targets_are_computed_at_most_once_an_interval(h: Shared) -> None:
    """Many workers that start together share one target."""
    h.set_group_config(share_assignment_interval_ms="1000")
    h.beat("a", 0, "foo")
    assert h.beat("a", 2).member_epoch == 2
    h.advance(1_000)
    assert h.beat("a", 2).member_epoch == 3
