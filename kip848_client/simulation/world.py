"""Virtual time and the one root of randomness. Everything that happens in a simulation is an action on this heap."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kip848_client.simulation.history import History

EPOCH_WALL_MS: Final = 1_700_000_000_000
"""Wall-clock time at virtual time 0."""


@dataclass(slots=True, eq=False)
class Timer:
    """An action that is due at a time. Equal times run in the order in which they were asked for."""

    action: Callable[[], None] | None

    def cancel(self) -> None:
        """Never run it."""
        self.action = None


class World:
    """A clock that jumps from action to action.

    Args:
        seed: everything random in the simulation is derived from it, by name, so that one more draw in one place does
            not change what the others draw.
    """

    def __init__(self, seed: int) -> None:
        self.seed: Final = seed
        self.now_ms = 0
        self.history: Final = History()
        self.after_step: Callable[[], None] = lambda: None
        """Called after every action; the checkers look here."""
        self._heap: list[tuple[int, int, Timer]] = []
        self._number = 0

    @property
    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return EPOCH_WALL_MS + self.now_ms

    def random(self, name: str) -> random.Random:
        """A generator of its own for whoever is called *name*."""
        return random.Random(f"{self.seed}/{name}")

    def call_in(self, delay_ms: int, action: Callable[[], None]) -> Timer:
        """Run *action* once *delay_ms* (>= 0) have passed."""
        assert delay_ms >= 0, f"an action cannot be due in the past: {delay_ms} ms"
        self._number += 1
        timer = Timer(action)
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._number, timer))
        return timer

    def run_until(self, at_ms: int, *, done: Callable[[], bool] = lambda: False) -> bool:
        """Run actions until *done* (looked at after each) or until the clock would pass *at_ms*.

        Returns:
            Whether *done* said so.
        """
        while self._heap and self._heap[0][0] <= at_ms:
            due_ms, _, timer = heapq.heappop(self._heap)
            if timer.action is None:
                continue
            self.now_ms = due_ms
            timer.action()
            self.after_step()
            if done():
                return True
        self.now_ms = max(self.now_ms, at_ms)
        return done()
