"""Leaving for good, leaving for a while, and static members that come back."""

from __future__ import annotations

import pytest

from kip848_client.assignors.server.server_assignors import SERVER_ASSIGNORS
from kip848_client.assignors.server.spec import GroupSpec, TargetAssignment
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.testing.coordinator.modern.member_record import ReconciliationState
from kip848_client.testing.coordinator.modern.modern_group import GroupState
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.messages.leave_group import LeaveGroupRequest
from tests.support.coordinator_harness import Harness


def _group() -> Harness:
    """Members a and b, settled, with three partitions of foo each; b is static."""
    h = Harness()
    h.create_topic("foo", partitions=6)
    h.join("a", ["foo"], rack="r1")
    h.join("b", ["foo"], instance="i", rack="r2")
    h.heartbeat("a", 1)
    h.heartbeat("a", 1, owned={"foo": [0, 1, 2]})
    h.heartbeat("b", 2, instance="i")
    assert h.group.state is GroupState.STABLE
    return h


def test_a_member_that_leaves_is_removed_and_the_group_moves_on() -> None:
    """close() gives the partitions to the other members at once, without a session timeout."""
    h = _group()
    response = h.heartbeat("a", -1)
    assert (response.error_code, response.member_id, response.member_epoch) == (ErrorCode.NONE, "a", -1)
    assert (response.heartbeat_interval_ms, response.assignment) == (0, None)
    assert h.record_names() == ["current†", "target†", "member†", "epoch"]
    assert (h.group.group_epoch, h.group.target_epoch, h.group.state) == (3, 2, GroupState.ASSIGNING)
    response = h.heartbeat("b", 2, instance="i")
    assert (response.member_epoch, h.received(response)) == (3, {"foo": [0, 1, 2, 3, 4, 5]})
    assert h.group.state is GroupState.STABLE
    h.verify_log()


def test_the_last_member_that_leaves_makes_the_group_empty() -> None:
    """An empty group does not compute targets for ever."""
    h = _group()
    h.heartbeat("a", -1)
    h.heartbeat("b", -1, instance="i")
    assert h.record_names() == ["current†", "target†", "member†", "epoch", "target_epoch"]
    assert (h.group.group_epoch, h.group.target_epoch, h.group.state) == (4, 4, GroupState.EMPTY)
    assert h.coordinator.deadline_ms() is None
    response = h.join("c", ["foo"])
    assert (response.member_epoch, h.received(response)) == (5, {"foo": [0, 1, 2, 3, 4, 5]})
    h.verify_log()


def test_a_repeated_leave_changes_nothing() -> None:
    """A leave that is sent twice, for a lost answer, does not bump the group again."""
    h = _group()
    h.heartbeat("a", -1)
    before = h.state()
    assert h.heartbeat("a", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.state() == before


def test_a_static_member_comes_back_under_a_new_id_with_its_old_partitions() -> None:
    """The new process reads on after one round trip, and no other member notices."""
    h = _group()
    h.heartbeat("b", -2, instance="i")
    assert h.member("b").assigned == {h.topic_id("foo"): {3: 0, 4: 0, 5: 0}}
    response = h.join("c", ["foo"], instance="i")
    assert (response.member_epoch, h.received(response)) == (2, {"foo": [3, 4, 5]})
    assert h.record_names() == ["current†", "target†", "member†", "member", "target", "current", "current"]
    assert set(h.group.members) == {"a", "c"}
    assert (h.group.group_epoch, h.group.state) == (2, GroupState.STABLE)
    assert h.coordinator.timer(TimerKey(TimerKind.SESSION, "g", "b")) is None
    h.advance(44_999)
    h.heartbeat("a", 2)
    h.heartbeat("c", 2, instance="i")
    assert h.advance(10_000) == [], "timers of the old id do nothing any more"
    h.verify_log()


def test_a_static_member_that_comes_back_with_another_subscription_bumps_the_group() -> None:
    """A new version of an application may subscribe to something else."""
    h = _group()
    h.create_topic("bar", partitions=1)
    h.heartbeat("b", -2, instance="i")
    response = h.join("c", ["bar"], instance="i")
    assert h.group.group_epoch == 3
    assert (response.member_epoch, h.received(response)) == (3, {"bar": [0]})
    assert h.record_names() == [
        *["current†", "target†", "member†", "member", "target", "current"],
        *["member", "epoch", "target", "target", "target_epoch", "current"],
    ]
    response = h.heartbeat("a", 2)
    assert h.received(response) == {"foo": [0, 1, 2, 3, 4, 5]}
    h.verify_log()


def test_the_assignor_is_told_the_old_target_and_the_new_rack_of_a_static_member_that_comes_back() -> None:
    """Without the target a sticky assignor gives the partitions to others; its next process may be in another rack."""
    specs: list[GroupSpec] = []

    class Watched:
        name = "uniform"

        def assign(self, spec: GroupSpec) -> TargetAssignment:
            specs.append(spec)
            return SERVER_ASSIGNORS["uniform"].assign(spec)

    h = _group()
    h.assignors = {**SERVER_ASSIGNORS, "uniform": Watched()}
    h.restart()
    h.heartbeat("b", -2, instance="i")
    h.join("c", ["foo", "absent"], instance="i", rack="r3")
    foo = h.topic_id("foo")
    assert {member: list(topics[foo]) for member, topics in specs[-1].target.items()} == {
        "a": [0, 1, 2],
        "c": [3, 4, 5],
    }
    assert dict(specs[-1].rack_ids) == {"a": "r1", "c": "r3"}
    assert dict(specs[-1].instance_ids) == {"c": "i"}
    h.heartbeat("a", -1)
    h.join("a", ["foo"])
    assert dict(specs[-1].rack_ids) == {"c": "r3"}, "it does not say any more where it is"
    assert list(specs[-1].subscriptions) == ["a", "c"], "the same order whoever came last"


def test_a_static_member_may_come_back_under_its_own_id() -> None:
    """A process that was only paused, or fenced, is not taken for a second one."""
    h = _group()
    h.heartbeat("b", -2, instance="i")
    response = h.join("b", ["foo"], instance="i")
    assert (response.member_epoch, h.received(response)) == (2, {"foo": [3, 4, 5]})
    assert h.record_names() == ["current"]
    assert (h.group.group_epoch, h.group.state) == (2, GroupState.STABLE)


def test_a_static_member_that_leaves_while_it_revokes_has_revoked() -> None:
    """The partitions that it was revoking are free at once, and the others need not wait for it."""
    h = _group()
    h.join("c", ["foo"])
    h.heartbeat("b", 2, instance="i")
    assert h.member("b").state is ReconciliationState.UNREVOKED_PARTITIONS
    key = TimerKey(TimerKind.REBALANCE, "g", "b")
    assert h.coordinator.timer(key) is not None
    h.heartbeat("b", -2, instance="i")
    assert (h.pending("b"), h.coordinator.timer(key)) == ({}, None)
    response = h.join("d", ["foo"], instance="i")
    assert response.member_epoch == 3
    assert h.assigned("d") == {"foo": [3, 4]}
    h.verify_log()


@pytest.mark.parametrize("version", [2, 3])
def test_leave_group_names_one_member_or_several_by_its_version(version: int) -> None:
    """An administrator's tool of any age removes a member, and learns how it went."""
    h = _group()
    named = {"members": [{"member_id": "a"}, {"member_id": "x"}]} if version >= 3 else {"member_id": "a"}
    answer = h.send(build(LeaveGroupRequest, group_id="g", **named), version=version)
    assert set(h.group.members) == {"b"}
    codes = [member.error_code for member in answer.members]
    assert (answer.error_code, codes) == (0, [0, ErrorCode.UNKNOWN_MEMBER_ID] if version >= 3 else [])


def test_an_instance_id_of_another_member_is_fenced_and_an_unknown_one_is_unknown() -> None:
    """The old process of a static member learns that it was replaced."""
    h = _group()
    assert h.heartbeat("b", 2, instance="nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.heartbeat("b", -2, instance="nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.heartbeat("a", 2, instance="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert h.heartbeat("a", -1, instance="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert h.heartbeat("a", -2, instance="i").error_code == ErrorCode.FENCED_INSTANCE_ID
