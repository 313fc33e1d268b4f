"""Deadlines by key, in the order of time. Soft state: lost with the process and armed again after a load."""

from __future__ import annotations

import enum
import heapq
from typing import NamedTuple


class TimerKind(enum.StrEnum):
    """The kinds of timers, by the event when their time is up."""

    __hash__ = str.__hash__  # Enum's own is Python code, and every heartbeat hashes a key three times

    SESSION = "session"
    """The member sent no heartbeat: it is removed."""
    REBALANCE = "rebalance"
    """The member did not revoke its partitions in time: it is removed."""
    CLIENT_ASSIGNMENT = "client assignment"
    """The member did not compute the target in time: another one is asked."""
    CLASSIC_SESSION = "classic session"
    """The session of a classic member ended, or an id that was handed out was not used."""
    CLASSIC_JOIN = "classic join"
    """A classic group's members had time enough to join; of the whole group."""
    CLASSIC_SYNC = "classic sync"
    """A classic group's members had time enough to fetch their assignment; of the whole group and one generation."""
    MIXED_JOIN = "mixed join"
    """A classic member of a consumer group was asked to join again and did not: it is removed."""
    MIXED_SYNC = "mixed sync"
    """A classic member of a consumer group joined and did not fetch its assignment: it is removed."""


class TimerKey(NamedTuple):
    """One timer; arming it again replaces it. `member_id` is empty if it is one of the whole group."""

    kind: TimerKind
    group_id: str
    member_id: str


class ArmedTimer(NamedTuple):
    """A timer that runs."""

    deadline_ms: int
    member_epoch: int
    """The member's epoch, or the classic group's generation, when it was armed."""


class Timers:
    """Armed timers. Re-arming is the hot path and costs one dictionary write.

    The heap holds one entry per key, at a time that is never later than the deadline; an entry that comes up early
    is put back at the real deadline.
    """

    def __init__(self) -> None:
        self._armed: dict[TimerKey, ArmedTimer] = {}
        self._queued: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, int, TimerKey]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._armed)

    def get(self, key: TimerKey) -> ArmedTimer | None:
        """The timer of *key* if it runs."""
        return self._armed.get(key)

    def arm(self, key: TimerKey, *, deadline_ms: int, member_epoch: int) -> None:
        """Start the timer of *key*, or move it."""
        self._armed[key] = ArmedTimer(deadline_ms, member_epoch)
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._queue(key, deadline_ms)

    def cancel(self, key: TimerKey) -> None:
        """Stop the timer of *key*, if it runs."""
        self._armed.pop(key, None)

    def first(self) -> tuple[TimerKey, ArmedTimer] | None:
        """The timer that is due next."""
        heap = self._heap
        while heap:
            queued_ms, _, key = heap[0]
            timer = self._armed.get(key)
            is_its_entry = self._queued.get(key) == queued_ms
            if is_its_entry and timer is not None and timer.deadline_ms <= queued_ms:
                return key, timer
            heapq.heappop(heap)
            if not is_its_entry:
                continue  # queued again for an earlier time since
            if timer is None:
                del self._queued[key]
            else:
                self._queue(key, timer.deadline_ms)
        return None

    def _queue(self, key: TimerKey, at_ms: int) -> None:
        self._queued[key] = at_ms
        self._sequence += 1
        heapq.heappush(self._heap, (at_ms, self._sequence, key))
