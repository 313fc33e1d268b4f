"""Virtual time and the root of randomness. Everything in a simulation is an action on one heap."""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from kip848_client.testing.simulation.virtual.history import History

EPOCH_WALL_MS: Final = 1_700_000_000_000
"""Wall-clock time at virtual time 0."""
_LOOK_EVERY_MS: Final = 100


class Timer(list[Any]):
    """An action that is due at a time: ``[time, number, action]``, as the heap compares them.

    Equal times run in the order in which they were asked for. A list, because there are hundreds of these in a run.
    """

    __slots__ = ()

    def cancel(self) -> None:
        """Cancel the action."""
        self[2] = None


class Scheduler:
    """A clock that jumps from action to action.

    Args:
        seed: root of all random generators, which are derived from it by name: an additional draw from one does not
        change the others.
        keep_history: False counts events and keeps no lines.
    """

    def __init__(self, seed: int, *, keep_history: bool = True) -> None:
        self.seed: Final = seed
        self.now_ms: int = 0
        self.wall_offset_ms = 0
        """Offset of the coordinator's wall clock, in ms."""
        self.history: Final = History(keep=keep_history)
        self.after_step: Callable[[], None] = lambda: None
        """Called after every action that set `dirty`; the checkers look here."""
        self.dirty: bool = False
        """The action changed state that checkers can see."""
        self.events = 0
        """Messages delivered, timers that were due, and actions of applications, administrators and faults."""
        self.steps: int = 0
        """Actions, counted or not."""
        self._stopped = False
        self._heap: list[Timer] = []
        self._number = 0

    @property
    def wall_ms(self) -> int:
        """Milliseconds since 1970, as the coordinator's machine believes."""
        return EPOCH_WALL_MS + self.now_ms + self.wall_offset_ms

    def note(self, who: str, what: str, **details: Any) -> None:
        """Write to the history that *what* happened to *who* now."""
        self.history.add(self.now_ms, who, what, **details)

    def random(self, name: str) -> random.Random:
        """The random generator of that name; each name has its own."""
        return random.Random(f"{self.seed}/{name}")

    def call_in(self, delay_ms: int, action: Callable[[], None]) -> Timer:
        """Run *action* once *delay_ms* (>= 0) have passed."""
        assert delay_ms >= 0, f"an action cannot be due in the past: {delay_ms} ms"
        self._number = number = self._number + 1
        timer = Timer((self.now_ms + delay_ms, number, action))
        heappush(self._heap, timer)
        return timer

    def stop(self) -> None:
        """End `run_until` after the action that is running."""
        self._stopped = True

    def run_until(self, at_ms: int) -> bool:
        """Run actions until one calls `stop`, or until the clock would pass *at_ms*.

        Returns:
            Whether it was stopped.
        """
        heap, after_step = self._heap, self.after_step
        self._stopped = False
        if self.dirty:  # changes between two calls, such as healing, are no part of the next action
            self.dirty = False
            after_step()
        while heap and heap[0][0] <= at_ms:
            due_ms, _, action = heappop(heap)
            if action is None:
                continue
            self.now_ms = due_ms
            self.steps += 1
            action()
            if self.dirty:
                self.dirty = False
                after_step()
            if self._stopped:
                return True
        self.now_ms = max(self.now_ms, at_ms)
        return False

    def wait_until(self, condition: Callable[[], bool], limit_ms: int) -> bool:
        """Let at most *limit_ms* pass until *condition* holds; returns whether it does. Looks every 100 ms."""
        end_ms = self.now_ms + limit_ms

        def look() -> None:
            if condition():
                self.stop()
            elif self.now_ms + _LOOK_EVERY_MS <= end_ms:
                self.call_in(_LOOK_EVERY_MS, look)

        self.call_in(_LOOK_EVERY_MS, look)
        return self.run_until(end_ms)
