"""Sessions and revocations that take too long; deadlines by key, for all sequences of arming and cancelling."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kip848_client.assignors.server.server_assignors import SERVER_ASSIGNORS
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup
from kip848_client.testing.coordinator.consumer.consumer_departure import time_is_up
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.result import CancelTimer, CoordinatorResult
from kip848_client.testing.coordinator.core.timers import ArmedTimer, TimerKey, TimerKind, Timers
from kip848_client.testing.coordinator.modern.member_record import ReconciliationState
from kip848_client.testing.coordinator.modern.modern_group import GroupState
from tests.support.coordinator_harness import Harness


def _group(rebalance_timeout_ms: int = 5_000) -> Harness:
    """Members a and b; a holds all six partitions of foo and must give up three."""
    h = Harness()
    h.create_topic("foo", partitions=6)
    h.join("a", ["foo"], rebalance_timeout_ms=rebalance_timeout_ms)
    h.join("b", ["foo"])
    return h


def test_a_refused_heartbeat_does_not_keep_the_session_alive() -> None:
    """A zombie that is fenced again and again goes away."""
    h = _group()
    for _ in range(4):
        h.advance(11_000)
        assert h.heartbeat("b", 99).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    h.advance(1_000)
    assert "b" not in h.group.members


@pytest.mark.parametrize("has_group", [False, True])
def test_nothing_expires_before_its_time(has_group: bool) -> None:
    """A shell that looks at its timers too early, or has none, removes no member."""
    h = _group() if has_group else Harness()
    assert h.coordinator.expire(now_ms=4_999, wall_ms=h.wall_ms) == CoordinatorResult()


def test_a_test_may_let_the_time_of_one_timer_run_out() -> None:
    """``broker.groups.expire_session`` removes a member without waiting for its session timeout."""
    h = _group()
    assert h.coordinator.let_time_run_out(TimerKey(TimerKind.SESSION, "g", "b"), now_ms=0)
    assert not h.coordinator.let_time_run_out(TimerKey(TimerKind.SESSION, "g", "gone"), now_ms=0)
    h.advance(0)
    assert set(h.group.members) == {"a"}


def test_a_changed_session_timeout_acts_from_the_next_heartbeat_on() -> None:
    """Group configs can be changed while the group runs."""
    h = _group()
    h.set_group_config(consumer_session_timeout_ms="50000", consumer_heartbeat_interval_ms="7000")
    assert h.heartbeat("b", 2).heartbeat_interval_ms == 7_000
    h.advance(49_999)
    assert "b" in h.group.members
    h.advance(1)
    assert "b" not in h.group.members
    h.join("b", ["foo"])
    h.set_group_config(consumer_session_timeout_ms="6000", consumer_heartbeat_interval_ms="1000")
    h.heartbeat("b", h.member("b").member_epoch)
    h.advance(6_000)
    assert "b" not in h.group.members
    h.set_group_config()
    assert h.join("b", ["foo"]).heartbeat_interval_ms == 5_000


def test_the_revocation_has_the_timeout_that_the_member_sent_last() -> None:
    """max.poll.interval.ms of the request that starts a revocation counts, not an older one."""
    h = _group(rebalance_timeout_ms=1_000)
    h.heartbeat("a", 1, rebalance_timeout_ms=12_000)
    assert h.member("a").state is ReconciliationState.UNREVOKED_PARTITIONS
    assert h.advance(11_999) == []
    assert h.advance(1) != []


def test_an_acknowledgement_in_time_ends_the_timer() -> None:
    """A member that did its part is not removed later."""
    h = _group()
    h.heartbeat("a", 1)
    h.advance(4_000)
    assert h.heartbeat("a", 1, owned={"foo": [0, 1, 2]}).member_epoch == 2
    assert h.advance(30_000) == []
    assert set(h.group.members) == {"a", "b"}


def test_waiting_for_others_has_no_timeout() -> None:
    """The rebalance timeout is about revoking only (KAFKA-16249): the newcomer is not punished for others."""
    h = _group(rebalance_timeout_ms=40_000)
    h.heartbeat("a", 1)
    for _ in range(3):
        h.advance(10_000)
        h.heartbeat("a", 1)
        h.heartbeat("b", 2)
    assert h.member("b").state is ReconciliationState.UNRELEASED_PARTITIONS
    assert set(h.group.members) == {"a", "b"}


@pytest.mark.parametrize("revokes", [True, False])
def test_a_loaded_coordinator_watches_all_members_again(revokes: bool) -> None:
    """After a restart, dead members still time out, and stuck revocations too."""
    h = _group()
    if revokes:
        h.heartbeat("a", 1)
    h.restart()
    assert h.advance(4_999) == []
    fired = h.advance(1)
    assert bool(fired) is revokes
    h.advance(40_000)
    assert h.group.state is GroupState.EMPTY


def test_a_loaded_coordinator_does_not_wait_for_what_a_member_gave_up_by_leaving() -> None:
    """A static member that restarts during a rebalance keeps its place for its session, also over a failover."""
    h = Harness()
    h.create_topic("foo", partitions=6)
    h.join("a", ["foo"], instance="i", rebalance_timeout_ms=5_000)
    h.join("b", ["foo"])
    h.heartbeat("a", 1)
    assert h.member("a").state is ReconciliationState.UNREVOKED_PARTITIONS
    h.heartbeat("a", -2, instance="i")
    h.restart()
    h.heartbeat("b", h.member("b").member_epoch)
    h.advance(44_999)
    assert "a" in h.group.members
    h.advance(1)
    assert "a" not in h.group.members


def test_a_timer_that_is_out_of_date_does_nothing() -> None:
    """A timer of a member that moved on, or is gone, has no effect."""
    h = _group()
    h.heartbeat("a", 1)
    assert h.member("a").state is ReconciliationState.UNREVOKED_PARTITIONS
    state = CoordinatorState(h.config, rng=random.Random(0), assignors=SERVER_ASSIGNORS, offsets_only=ClassicGroup)
    group = h.load_group()
    for kind, member_id, epoch in (
        (TimerKind.REBALANCE, "a", 0),
        (TimerKind.REBALANCE, "gone", 1),
        (TimerKind.SESSION, "gone", 1),
    ):
        key = TimerKey(kind, "g", member_id)
        result = time_is_up(state, group, key, ArmedTimer(deadline_ms=0, member_epoch=epoch), now_ms=0, wall_ms=0)
        assert (result.records, result.soft) == ((), (CancelTimer(key),))
    due = TimerKey(TimerKind.REBALANCE, "g", "a")
    assert time_is_up(state, group, due, ArmedTimer(deadline_ms=0, member_epoch=1), now_ms=0, wall_ms=0).records


def test_a_timer_whose_group_is_gone_is_cancelled() -> None:
    """Otherwise it stays due, and no later timer of any group fires."""
    h = _group()
    for kind in (TimerKind.SESSION, TimerKind.CLASSIC_JOIN):
        key = TimerKey(kind, "other", "a")
        h.coordinator._state.timers.arm(key, deadline_ms=h.now_ms - 1, member_epoch=1)
        result = h.coordinator.expire(now_ms=h.now_ms, wall_ms=h.wall_ms)
        assert (result.records, result.soft) == ((), (CancelTimer(key),))
        h.coordinator.apply(result)


def test_a_failed_append_leaves_the_timer_due() -> None:
    """A disk that is full for a moment does not make a dead member immortal."""
    h = _group()
    h.advance(44_999)
    h.now_ms += 1
    result = h.coordinator.expire(now_ms=h.now_ms, wall_ms=h.wall_ms)
    assert result.records, "decided, but the records are not kept"
    assert h.coordinator.deadline_ms() == h.now_ms
    h.advance(0)
    assert h.group.state is GroupState.EMPTY


KEYS = [TimerKey(kind, "g", member_id) for kind in TimerKind for member_id in ("a", "b", "c")]


class TimersAgainstAModel(RuleBasedStateMachine):
    """The model is a dictionary that is searched."""

    def __init__(self) -> None:
        super().__init__()
        self.timers = Timers()
        self.model: dict[TimerKey, tuple[int, int]] = {}

    @rule(key=st.sampled_from(KEYS), deadline_ms=st.integers(0, 50), epoch=st.integers(0, 3))
    def arm(self, key: TimerKey, deadline_ms: int, epoch: int) -> None:
        self.timers.arm(key, deadline_ms=deadline_ms, member_epoch=epoch)
        self.model[key] = (deadline_ms, epoch)

    @rule(key=st.sampled_from(KEYS))
    def cancel(self, key: TimerKey) -> None:
        self.timers.cancel(key)
        self.model.pop(key, None)

    @rule()
    def fire_the_first(self) -> None:
        due = self.timers.first()
        assert (due is None) == (not self.model)
        if due is not None:
            self.cancel(due[0])

    @invariant()
    def the_first_is_the_earliest(self) -> None:
        assert len(self.timers) == len(self.model)
        due = self.timers.first()
        if due is None:
            assert not self.model
            return
        key, timer = due
        assert self.model[key] == timer == self.timers.get(key)
        assert timer.deadline_ms == min(deadline_ms for deadline_ms, _ in self.model.values())


TestTimersAgainstAModel = TimersAgainstAModel.TestCase


def test_a_timer_that_is_moved_a_million_times_needs_no_memory() -> None:
    """Heartbeats move their session timer for as long as the group lives."""
    timers = Timers()
    for now_ms in range(10_000):
        timers.arm(KEYS[0], deadline_ms=now_ms + 45_000, member_epoch=1)
        if now_ms % 100 == 0:
            assert timers.first() is not None
    assert len(timers._heap) <= 2
