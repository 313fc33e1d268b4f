"""The two queues between the application's thread and the background thread. They decide nothing.

`Inbox` carries events to the background thread, `AppQueue` carries effects to the application's thread. Nothing else
crosses threads except the frozen `MemberView` and finished futures.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Inbox(Generic[Item]):
    """Application → background thread: in order, numbered, and one wake-up for many items.

    Args:
        wake: makes the background thread call `drain` soon; called from the posting thread.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._items: deque[tuple[int, Item]] = deque()
        self._tickets = itertools.count(1)
        self._woken = False

    def post(self, item: Item) -> int:
        """Queue *item*. Returns its ticket: a number that grows by one with every item."""
        ticket = next(self._tickets)
        self._items.append((ticket, item))
        if not self._woken:
            # Set before waking: a drain that starts in between clears it again and sees the item.
            self._woken = True
            self._wake()
        return ticket

    def nudge(self) -> None:
        """Wake once more if something is still queued: `post` may have been cut off before it did."""
        if self._items:
            self._wake()

    def __len__(self) -> int:
        return len(self._items)

    def drain(self) -> deque[tuple[int, Item]]:
        """Take everything queued so far, oldest first."""
        self._woken = False
        taken: deque[tuple[int, Item]] = deque()
        while self._items:
            taken.append(self._items.popleft())
        return taken


class AppQueue(Generic[Item]):
    """Background → application's thread: the effects that it must perform, in order; `wait` ends with any change.

    `first` returns the oldest effect, and `done` removes it after it was performed, so that a KeyboardInterrupt in
    between loses nothing.
    """

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._moved = threading.Event()

    def __bool__(self) -> bool:
        return bool(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        """Queue *item* (background thread). Call `wake` when the whole step is visible."""
        self._items.append(item)

    def wake(self) -> None:
        """End the current or the next `wait` (any thread)."""
        self._moved.set()

    def first(self) -> Item | None:
        """The oldest item, which stays, or None (application's thread)."""
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
        if timeout_s > 0:
            self._moved.wait(timeout_s)
        self._moved.clear()
