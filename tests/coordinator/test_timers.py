"""Deadlines by key: against a plain model, for all sequences of arming, cancelling and waiting."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kip848_client.coordinator.timers import TimerKey, TimerKind, Timers

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
