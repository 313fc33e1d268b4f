"""Three members, two topics: revoke first, then assign, seen through heartbeats."""

from __future__ import annotations

import pytest

from kip848_client.assignors.server.spec import GroupSpec, TargetAssignment
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.consumer.consumer_member import CurrentAssignment
from kip848_client.testing.coordinator.consumer.consumer_records import current_record
from kip848_client.testing.coordinator.core.result import CoordinatorRecord, CoordinatorResult
from kip848_client.testing.coordinator.modern.member_record import ReconciliationState
from kip848_client.testing.coordinator.modern.modern_group import GroupState
from kip848_client.wire.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from tests.support.coordinator_harness import Harness

Plan = dict[str, dict[str, list[int]]]


class PlannedAssignor:
    """Gives what the test planned: member id -> topic name -> partitions."""

    name = "uniform"

    def __init__(self) -> None:
        self.plan: Plan = {}
        self.topic_ids: dict[str, object] = {}

    def assign(self, spec: GroupSpec) -> TargetAssignment:
        return {
            member_id: {
                topic_id: tuple(partitions)
                for name, partitions in self.plan.get(member_id, {}).items()
                for topic_id in spec.topics
                if topic_id == self.topic_ids[name] and topic_id in spec.subscriptions[member_id]
            }
            for member_id in spec.subscriptions
        }


class Scene:
    """The group of KIP-848's reconciliation tests, with a planned target."""

    def __init__(self) -> None:
        self.assignor = PlannedAssignor()
        self.h = Harness(assignors={"uniform": self.assignor, "range": self.assignor})
        for name, partitions in (("foo", 6), ("bar", 3)):
            self.assignor.topic_ids[name] = self.h.create_topic(name, partitions=partitions)
        self.plan(m1={"foo": [0, 1, 2], "bar": [0, 1]}, m2={"foo": [3, 4, 5], "bar": [2]})
        self.h.join("m1", ["foo", "bar"])
        self.h.join("m2", ["foo", "bar"])
        self.h.heartbeat("m1", 1)
        self.epoch = self.h.group.group_epoch
        assert self.h.group.state is GroupState.STABLE

    def plan(self, **plan: dict[str, list[int]]) -> None:
        self.assignor.plan = plan

    def third_joins(self) -> None:
        self.plan(
            m1={"foo": [0, 1], "bar": [0]},
            m2={"foo": [2, 3], "bar": [2]},
            m3={"foo": [4, 5], "bar": [1]},
        )
        response = self.h.join("m3", ["foo", "bar"])
        assert (response.member_epoch, self.h.received(response)) == (self.epoch + 1, {})


def test_three_members_reach_a_new_target_step_by_step() -> None:
    """The whole dance of a rebalance: who is told what, in which heartbeat."""
    scene = Scene()
    h, old = scene.h, scene.epoch
    new = old + 1
    scene.third_joins()
    assert h.member("m3").state.name == "UNRELEASED_PARTITIONS"
    assert str(h.group.state) == "Reconciling"

    m1 = h.heartbeat("m1", old)
    assert (m1.member_epoch, h.received(m1)) == (old, {"foo": [0, 1], "bar": [0]})
    assert h.pending("m1") == {"foo": [2], "bar": [1]}
    m2 = h.heartbeat("m2", old)
    assert (m2.member_epoch, h.received(m2)) == (old, {"foo": [3], "bar": [2]})
    assert h.pending("m2") == {"foo": [4, 5]}
    m3 = h.heartbeat("m3", new)
    assert (m3.member_epoch, m3.assignment, h.record_names()) == (new, None, ["current"])

    m1 = h.heartbeat("m1", old, owned={"foo": [0, 1], "bar": [0]})
    assert (m1.member_epoch, m1.assignment) == (new, None)
    assert h.member("m1").state is ReconciliationState.STABLE
    m2 = h.heartbeat("m2", old)
    assert (m2.member_epoch, m2.assignment, h.record_names()) == (old, None, [])
    m3 = h.heartbeat("m3", new)
    assert h.received(m3) == {"bar": [1]}
    assert h.member("m3").state is ReconciliationState.UNRELEASED_PARTITIONS
    m3 = h.heartbeat("m3", new)
    assert (m3.assignment, h.record_names()) == (None, [])

    m2 = h.heartbeat("m2", old, owned={"foo": [3], "bar": [2]})
    assert (m2.member_epoch, h.received(m2)) == (new, {"foo": [2, 3], "bar": [2]})
    m3 = h.heartbeat("m3", new)
    assert (m3.member_epoch, h.received(m3)) == (new, {"foo": [4, 5], "bar": [1]})
    assert h.group.state is GroupState.STABLE
    h.verify_log()


def test_a_topic_that_is_unsubscribed_is_taken_away_though_the_target_lags() -> None:
    """After unsubscribing, a topic's records stop at once, also while the assignment interval delays the target."""
    scene = Scene()
    h, old = scene.h, scene.epoch
    h.set_group_config(consumer_assignment_interval_ms="10000")
    response = h.heartbeat("m1", old, topics=["foo"])
    assert (response.member_epoch, h.received(response)) == (old, {"foo": [0, 1, 2]})
    assert h.pending("m1") == {"bar": [0, 1]}
    assert (h.group.group_epoch, h.group.target_epoch) == (old + 1, old)
    response = h.heartbeat("m1", old, owned={"foo": [0, 1, 2]})
    assert (response.member_epoch, h.pending("m1")) == (old, {})
    assert h.assigned("m1") == {"foo": [0, 1, 2]}
    assert h.advance(9_000) == [], "it did its part: the time for revoking is no longer counted"


def test_a_member_in_an_unknown_state_is_fenced_and_then_starts_over() -> None:
    """A log written by a newer coordinator does not stop the group: the member rejoins."""
    scene = Scene()
    h, old = scene.h, scene.epoch
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m1")
    _write(h, CoordinatorRecord(key, ConsumerGroupCurrentMemberAssignmentValue(member_epoch=old, state=42)))
    assert h.member("m1").state is ReconciliationState.UNKNOWN
    assert h.heartbeat("m1", old).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert h.heartbeat("m1", old, owned={"foo": [0]}).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    response = h.join("m1", ["foo", "bar"])
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, old)
    assert h.received(response) == {"foo": [0, 1, 2], "bar": [0, 1]}


def test_a_partition_held_by_two_members_is_found_at_once() -> None:
    """The promise of the protocol is checked, not hoped for."""
    scene = Scene()
    h = scene.h
    foo = h.topic_id("foo")
    forged = CurrentAssignment(member_epoch=scene.epoch, assigned={foo: {0: 1}})
    with pytest.raises(AssertionError, match="held by"):
        _write(h, current_record("g", member_id="m2", current=forged))


def _write(h: Harness, record: CoordinatorRecord) -> None:
    """Put a record into the log that no handler would write."""
    h.finish(CoordinatorResult(records=(record,)))
