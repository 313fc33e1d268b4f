"""Lets no group hold up the others: what one group asks for beyond its share waits, and is done between the rest.

Requests of one group keep their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

_WINDOW_S: Final = 0.05
_SHARE_S: Final = 0.01
"""How long the requests of one group may take in a window before the next ones wait."""
_SLICE_S: Final = 0.005
"""How long waiting requests of one group are served in one turn of the loop."""


class GroupTurns:
    """The requests of each group: how long they took lately, and which of them wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._spent_s: Final[dict[str, float]] = {}
        self._window_ends_s = 0.0
        self._waiting: Final[dict[str, deque[Callable[[], None]]]] = {}
        """By group; the first one has the next turn."""
        self._closed = False

    def run(self, group_id: str, request: Callable[[], None]) -> bool:
        """Serve a request now; returns False if its group has had its share, and the request must `wait`."""
        began_s = self._loop.time()
        if began_s >= self._window_ends_s:
            self._spent_s.clear()
            self._window_ends_s = began_s + _WINDOW_S
        if group_id in self._waiting or self._spent_s.get(group_id, 0.0) >= _SHARE_S:
            return False
        try:
            request()
        finally:
            self._spent_s[group_id] = self._spent_s.get(group_id, 0.0) + self._loop.time() - began_s
        return True

    def wait(self, group_id: str, request: Callable[[], None]) -> None:
        """Serve a request when its group has a turn, after the requests that wait already."""
        if not self._waiting:
            self._loop.call_soon(self._next_turn)
        self._waiting.setdefault(group_id, deque()).append(request)

    def close(self) -> None:
        """Serve nothing any more."""
        self._closed = True
        self._waiting.clear()

    def _next_turn(self) -> None:
        if self._closed:
            return
        group_id, requests = next(iter(self._waiting.items()))
        ends_s = self._loop.time() + _SLICE_S
        try:
            while requests and self._loop.time() < ends_s:
                requests.popleft()()
        finally:
            self._waiting.pop(group_id, None)
            if requests and not self._closed:
                self._waiting[group_id] = requests  # behind the others
            if self._waiting:
                self._loop.call_soon(self._next_turn)
