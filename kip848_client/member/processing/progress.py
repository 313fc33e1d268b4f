"""The progress of one partition: which delivered records are done, and so how far it may be committed.

Records are numbered as they are delivered, because offsets have gaps (compaction, markers of transactions). What is
done is kept as runs, so that memory follows the records in hand and not how far the others are ahead.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import msgspec

from kip848_client.member.processing.marks import Ranges


class _Run(msgspec.Struct):
    """Done records that were delivered one after the other."""

    end: int
    """One after the number of its last record."""
    first_offset: int
    end_offset: int


class PartitionProgress:
    """What was delivered of one partition since it was assigned.

    Args:
        offset: the committed offset; -1 if there is none.
        done: offsets that an earlier owner has done beyond it.
    """

    def __init__(self, offset: int, done: Ranges = ()) -> None:
        self._done_before = tuple(done)
        self._firsts: Final = [first for first, _ in done]
        self._next = 0
        self._low = 0
        self._undone: dict[int, int] = {}
        self._runs: Final[dict[int, _Run]] = {}
        """By the number of their first record."""
        self._starts: Final[dict[int, int]] = {}
        """One after the last record of a run -> its first one."""
        self._end_offset = offset
        """One after the last delivered record."""

    def deliver(self, offset: int) -> int | None:
        """A record was delivered. Returns its number; None if an earlier owner has done it already."""
        number = self._next
        self._undone[number] = offset  # first: a Ctrl-C may come between two steps, and must not pass the record
        self._next += 1
        if offset < self._end_offset:
            self._begin_again(number)
        self._end_offset = offset + 1
        if self._done_before:
            place = bisect_right(self._firsts, offset) - 1
            if place >= 0 and offset < self._done_before[place][1]:
                self.done(number)
                return None
        return number

    def goes_back(self, offset: int) -> bool:
        """Whether a record of this offset is one of another log: the topic was created again, or lost its end."""
        return offset < self._end_offset

    def _begin_again(self, number: int) -> None:
        """From this record on they are of another log. What is in hand of the old one has no place in a commit."""
        self._low, self._done_before = number, ()
        self._undone = {number: self._undone[number]}
        self._runs.clear()
        self._starts.clear()

    @property
    def at_rest(self) -> bool:
        """Whether all that was delivered is done."""
        return self._low == self._next

    def reached(self, offset: int) -> None:
        """All that was delivered is done, and this is the position."""
        self._end_offset = max(self._end_offset, offset)

    def done(self, number: int) -> None:
        """The record of this number is done."""
        offset = self._undone.pop(number, None)
        if offset is None:  # of another log
            return
        if number == self._low:
            self._low += 1
            run = self._runs.pop(self._low, None)
            if run is not None:
                del self._starts[run.end]
                self._low = run.end
            return
        start = self._starts.pop(number, None)
        if start is None:
            start, run = number, _Run(number + 1, offset, offset + 1)
            self._runs[number] = run
        else:
            run = self._runs[start]
            run.end, run.end_offset = number + 1, offset + 1
        after = self._runs.pop(number + 1, None)
        if after is not None:
            run.end, run.end_offset = after.end, after.end_offset
        self._starts[run.end] = start

    @property
    def low_number(self) -> int:
        """The number of the first record that is not done, or of the next one that is delivered."""
        return self._low

    @property
    def low_mark(self) -> int:
        """The offset to commit: of the first record that is not done, or after the last one; -1 if none was seen."""
        return self._undone.get(self._low, self._end_offset)

    @property
    def done_beyond(self) -> Ranges:
        """Offsets above `low_mark` that are done, as ascending ranges, with those that an earlier owner has done."""
        ranges = [(run.first_offset, run.end_offset) for _, run in sorted(self._runs.items())]
        for first, end in self._still_before():
            begin = max(first, self._end_offset)
            if begin >= end:
                continue
            if ranges and ranges[-1][1] == begin:
                begin = ranges.pop()[0]
            ranges.append((begin, end))
        return ranges

    def _still_before(self) -> Ranges:
        """Ranges of `_done_before` that were not delivered to their end; and maybe one that was."""
        return self._done_before[max(0, bisect_right(self._firsts, self._end_offset) - 1) :]

    @property
    def runs(self) -> int:
        """How many runs `done_beyond` has, or a few more."""
        before = self._done_before
        if not before:
            return len(self._runs)
        return len(self._runs) + len(before) - max(0, bisect_right(self._firsts, self._end_offset) - 1)
