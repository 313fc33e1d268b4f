"""Waking a member when nothing is due: told nothing new, it must do nothing, and its deadline must be true. C9.

A deadline that is too late, or missing, shows itself as something that a member does when it is asked before that time.
What is asked changes nothing where all is well, so a run is the same with and without.

Does not own: when the shell wakes a member (`consumer`).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from kip848_client.member.events import Tick
from kip848_client.simulation.violation import fail

if TYPE_CHECKING:
    from kip848_client.simulation.consumer import SimulatedConsumer

_LONGEST_MS: Final = 3_000
"""How far ahead a member without a deadline is asked."""


class Wakeups:
    """Asks one member at times that nobody told it.

    Args:
        rng: when; nothing else is drawn from it.
    """

    def __init__(self, consumer: SimulatedConsumer, rng: random.Random) -> None:
        self._consumer = consumer
        self._rng = rng
        self._planned = False

    def stepped(self) -> None:
        """The member did all that its event called for; ask it again now, and once before its deadline."""
        self._ask("again at once")
        if not self._planned:
            self._planned = True
            consumer = self._consumer
            deadline_ms = consumer.member.deadline_ms()
            wait_ms = _LONGEST_MS if deadline_ms is None else min(_LONGEST_MS, deadline_ms - consumer.now_ms)
            consumer.world.call_in(int(self._rng.random() * max(0, wait_ms)), self._ask_early)

    def _ask_early(self) -> None:
        self._planned = False
        if not self._consumer.frozen:
            self._ask("before its deadline")

    def _ask(self, when: str) -> None:
        consumer = self._consumer
        member, now_ms = consumer.member, consumer.now_ms
        deadline_ms = member.deadline_ms()
        if consumer.closed or (deadline_ms is not None and deadline_ms <= now_ms):
            return  # the shell is about to wake it
        before = member.view()
        effects = member.step(Tick(consumer.app_polled_ms), now_ms=now_ms)
        after_ms = member.deadline_ms()
        if effects or member.view() is not before:
            fail("C9", f"{consumer.name} has nothing to do until {deadline_ms}, and asked {when} does {effects}")
        if after_ms != deadline_ms and (after_ms is None or deadline_ms is None or after_ms < deadline_ms):
            fail("C9", f"{consumer.name} asked {when} moves its deadline from {deadline_ms} to {after_ms}")
