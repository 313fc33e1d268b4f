"""Changes of a group: each lasts from its epoch until every member of that time has its part, even if another begins.

In a group that never rests one rebalance goes on for hours. How long each of its changes took is another question.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kip848_client.tools.report.timeline.timeline import EpochChange


class _Open:
    __slots__ = ("at_ms", "epoch", "owing", "reason", "settled_ms")

    def __init__(self, at_ms: float, epoch: int, reason: str, owing: set[str]) -> None:
        self.at_ms = at_ms
        self.settled_ms = at_ms
        self.epoch = epoch
        self.reason = reason
        self.owing = owing


class ChangeTracker:
    """Finds the changes of one group. Its methods are called in order of time.

    A member has its part of an epoch once it is stable at that epoch or a later one, or has left.
    """

    def __init__(self) -> None:
        self._present: Final[set[str]] = set()
        self._open: list[_Open] = []
        self._closed: list[EpochChange] = []

    def bumped(self, at_ms: float, epoch: int, reason: str) -> None:
        """The group has a new epoch."""
        self._close(at_ms)
        self._open.append(_Open(at_ms, epoch, reason, set(self._present)))

    def joined(self, who: str, epoch: int) -> None:
        """A member joined with this group epoch; it is owed its part from then on."""
        self._present.add(who)
        for change in self._open:
            if change.epoch == epoch:
                change.owing.add(who)

    def stable(self, who: str, epoch: int, at_ms: float) -> None:
        """A member has its whole part of *epoch*."""
        self._present.add(who)
        for change in self._open:
            if change.epoch <= epoch and who in change.owing:
                change.owing.discard(who)
                change.settled_ms = at_ms

    def left(self, who: str, at_ms: float) -> None:
        """A member is gone, or away."""
        self._present.discard(who)
        for change in self._open:
            if who in change.owing:
                change.owing.discard(who)
                change.settled_ms = at_ms

    def at_rest(self, at_ms: float) -> None:
        """Every member has its part."""
        for change in self._open:
            if change.owing:
                change.owing.clear()
                change.settled_ms = at_ms

    def finish(self) -> Iterator[EpochChange]:
        """The log ends: return the remaining changes, with those whose end the log does not show."""
        self._close(float("inf"))
        yield from self._closed
        for change in self._open:
            yield EpochChange(change.at_ms, None, change.epoch, change.reason)

    def _close(self, at_ms: float) -> None:
        """Settled changes stay settled once time has gone on: a join in the same millisecond still counts."""
        kept = []
        for change in self._open:
            if change.owing or change.settled_ms >= at_ms:
                kept.append(change)
            else:
                self._closed.append(EpochChange(change.at_ms, change.settled_ms, change.epoch, change.reason))
        self._open = kept
