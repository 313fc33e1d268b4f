"""LeaveGroup: an administrator takes members out of a group, several with one request."""

from __future__ import annotations

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tests.support.coordinator_harness import AssignmentHarness, Harness, offer

NONE, UNKNOWN, FENCED = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID


@pytest.fixture
def h() -> Harness:
    """A group of two dynamic members, a static one, and a static one that is away."""
    harness = Harness()
    harness.create_topic("foo", partitions=4)
    harness.join("a", ["foo"])
    harness.join("b", ["foo"])
    harness.join("s", ["foo"], instance="i")
    harness.join("t", ["foo"], instance="j")
    harness.heartbeat("t", -2, instance="j")
    return harness


def remove(h: Harness, *members: tuple[str, str | None], group: str = "g") -> list[int]:
    """The code of each (member id, instance id)."""
    named = tuple(MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in members)
    response = h.send(LeaveGroupRequest(group_id=group, members=named), version=5)
    assert [(item.member_id, item.group_instance_id) for item in response.members] == list(members)
    return [response.error_code or item.error_code for item in response.members]


def test_several_members_leave_with_one_epoch(h: Harness) -> None:
    """The others are moved once, and not once for each that goes."""
    epoch = h.group.group_epoch
    assert remove(h, ("a", None), ("", "i"), ("t", "j")) == [NONE, NONE, NONE]
    assert h.group.members.keys() == {"b"}
    assert h.group.group_epoch == epoch + 1
    assert h.heartbeat("a", epoch).error_code == UNKNOWN
    response = h.heartbeat("b", 2, owned={})
    assert h.received(response) == {"foo": [0, 1, 2, 3]}
    h.verify_log()


def test_each_member_has_its_own_code(h: Harness) -> None:
    """A tool that names one member wrongly still removes the others, and says which was wrong."""
    named = (("x", None), ("", None), ("", "nobody"), ("a", "i"), ("a", "nobody"), ("b", None), ("b", None))
    assert remove(h, *named) == [UNKNOWN, UNKNOWN, UNKNOWN, FENCED, UNKNOWN, NONE, NONE]
    assert h.group.members.keys() == {"a", "s", "t"}


def test_a_static_member_may_be_removed_by_its_member_id_alone(h: Harness) -> None:
    """Kafka's own tools do so when they remove all members."""
    assert remove(h, ("s", None)) == [NONE]
    assert h.join("u", ["foo"], instance="i").error_code == NONE


@pytest.mark.parametrize("group", ["nogroup", "g"])
def test_without_a_member_that_is_found_nothing_changes(h: Harness, group: str) -> None:
    """A wrong name must not cost the group a rebalance."""
    before = h.state()
    assert remove(h, ("x", None), group=group) == [UNKNOWN]
    assert h.state() == before


def test_a_group_without_members_is_empty_at_once(h: Harness) -> None:
    """It can be deleted, or its offsets reset, right after that: why administrators do it."""
    remove(h, ("a", None), ("b", None), ("s", None), ("t", None))
    assert (h.group.state, h.group.target_epoch) == ("Empty", h.group.group_epoch)
    h.verify_log()


def test_topics_and_patterns_of_all_that_go_are_forgotten() -> None:
    """The hash of the subscribed topics is that of the members that stay: no later heartbeat moves the group for it."""
    h = Harness()
    h.create_topic("foo", partitions=2)
    h.create_topic("bar", partitions=2)
    h.join("a", ["foo"])
    h.join("b", [], regex="b.*")
    h.join("c", [], regex="b.*")
    h.run_tasks()
    remove(h, ("b", None), ("c", None))
    assert h.record_names().count("regex†") == 1
    assert set(h.group.subscribed_topics) == {"foo"}
    epoch = h.group.group_epoch
    h.restart()
    h.heartbeat("a", h.group.members["a"].member_epoch, owned={})
    assert h.group.group_epoch == epoch


def test_a_member_that_was_to_compute_the_target_is_replaced_by_one_that_stays() -> None:
    """The group must not wait for the assignment time-out of a member that is gone."""
    h = AssignmentHarness()
    for member_id in ("a", "b", "c"):
        h.join(member_id, ["foo"], offers=[offer("mine")])
    stays = "c" if h.chosen != "c" else "b"
    remove(h, *((member_id, None) for member_id in ("a", "b", "c") if member_id != stays))
    assert h.chosen == stays


@pytest.mark.parametrize(("member_id", "code"), [("a", NONE), ("x", UNKNOWN)])
def test_old_versions_name_one_member(h: Harness, member_id: str, code: ErrorCode) -> None:
    """Before version 3 the code is that of the whole answer."""
    response = h.send(LeaveGroupRequest(group_id="g", member_id=member_id), version=2)
    assert response == LeaveGroupResponse(error_code=code)


def test_a_group_needs_an_id(h: Harness) -> None:
    """An empty one is a mistake of the caller, as on Kafka."""
    response = h.send(LeaveGroupRequest(group_id="", members=(MemberIdentity(member_id="a"),)), version=5)
    assert response == LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
