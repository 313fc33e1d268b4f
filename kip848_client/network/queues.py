"""The two queues between the application's threads and the background thread. They decide nothing.

`Inbox` carries events to the background thread, `AppQueue` carries effects to the thread that polls. Nothing else
crosses threads except the frozen `MemberView` and finished calls.

A signal handler may interrupt any step here and call the consumer again, on the same thread. So nothing here holds a
lock while Python code runs: each step is one operation that no handler and no other thread can cut in two.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

_WAIT_S_MAX: Final = 1_000_000.0
"""A lock refuses much longer times."""


class Bell:
    """Wakes one thread; a ring that comes before the wait is not lost.

    Not `threading.Event`: its methods hold a lock, for which a signal handler would wait that interrupts one of them.
    """

    __slots__ = ("_silence",)

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """End the current or the next `wait` (any thread)."""
        try:
            self._silence.release()
        except RuntimeError:  # it rings already
            return

    def wait(self, timeout_s: float) -> bool:
        """Wait for a ring, at most *timeout_s*, and take it. Whether it came."""
        if timeout_s <= 0:
            return self._silence.acquire(blocking=False)
        return self._silence.acquire(timeout=min(timeout_s, _WAIT_S_MAX))


class Bells:
    """Wakes every thread that waits; `threading.Condition` without a lock.

    A KeyboardInterrupt in a method of a Condition can leave that locked, so that the background thread stands.
    """

    def __init__(self) -> None:
        self._bells: Final[list[Bell]] = []

    def ring(self) -> None:
        """Let all who wait look again (any thread)."""
        for bell in list(self._bells):
            bell.ring()

    def wait_for(self, holds: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until *holds* returns True, at most *timeout_s*. Returns whether it does; it is asked at each ring."""
        until_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        bell = Bell()
        self._bells.append(bell)  # before the look: what changes after it rings
        try:
            while not holds():
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    return False
                bell.wait(left_s)
            return True
        finally:
            self._bells.remove(bell)


class Latch:
    """Is set once. As `threading.Event`, without a lock (see `Bells`)."""

    def __init__(self) -> None:
        self._set = False
        self._bells: Final = Bells()

    def is_set(self) -> bool:
        """Whether it is."""
        return self._set

    def set(self) -> None:
        """Set it (any thread)."""
        self._set = True
        self._bells.ring()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set, at most *timeout_s*; whether it is."""
        return self._bells.wait_for(self.is_set, timeout_s)


class Posted(Generic[Item]):
    """An item of an `Inbox`.

    Attributes:
        done: the background thread has dealt with it, and all that follows from it is visible.
    """

    __slots__ = ("done", "item")

    def __init__(self, item: Item, *, done: bool = False) -> None:
        self.item: Final[Item] = item
        self.done: bool = done


class Inbox(Generic[Item]):
    """Any thread → background thread: in order, and one wake-up for many items.

    Args:
        wake: makes the background thread call `drain` soon; called from the posting thread.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.items: Final[deque[Posted[Item]]] = deque()
        """What is queued, oldest first."""
        self._drains = 0
        """How many calls of `drain` have begun."""
        self._woken_at = -1
        """That number when the background thread was last woken."""

    def post(self, item: Item) -> Posted[Item]:
        """Queue *item*."""
        posted = Posted(item)
        self.items.append(posted)
        drains = self._drains
        if self._woken_at != drains:  # else the drain that is to come sees the item
            self._wake()
            self._woken_at = drains  # if this call is cut off before, the next one wakes
        return posted

    def nudge(self) -> None:
        """Wake once more if something is still queued: `post` may have been cut off before it did."""
        if self.items:
            self._wake()

    def __len__(self) -> int:
        return len(self.items)

    def drain(self) -> deque[Posted[Item]]:
        """Take everything queued so far, oldest first."""
        self._drains += 1
        taken: deque[Posted[Item]] = deque()
        while self.items:
            taken.append(self.items.popleft())
        return taken


class AppQueue(Generic[Item]):
    """Background → the thread that polls: the effects that it must perform, in order; `wait` ends with any change.

    `first` returns the oldest effect, and `done` removes it after it was performed, so that a KeyboardInterrupt in
    between loses nothing.
    """

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._moved = Bell()

    def __bool__(self) -> bool:
        return bool(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        """Queue *item* (background thread). Call `wake` when the whole step is visible."""
        self._items.append(item)

    def wake(self) -> None:
        """End the current or the next `wait` (any thread)."""
        self._moved.ring()

    def first(self) -> Item | None:
        """The oldest item, which stays, or None (the thread that polls)."""
        return self._items[0] if self._items else None

    def done(self, item: Item) -> None:
        """Remove *item*, the oldest one, now that it was performed."""
        if self._items and self._items[0] is item:
            self._items.popleft()

    def clear(self) -> None:
        """Forget everything queued."""
        self._items.clear()

    def wait(self, timeout_s: float) -> None:
        """Wait until `wake` was called since the last wait, at most *timeout_s*; look at the conditions afterwards."""
        self._moved.wait(timeout_s)
