"""`AssignedPartition`: the records of one partition in hand, in lanes; what is done, and what is committed of it.

Only `Processing` changes them.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kip848_client.common.model import NamedPartition
from kip848_client.member.processing.marks import Ranges
from kip848_client.member.processing.progress import PartitionProgress
from kip848_client.member.processing.work import Item


class Lane:
    """Records that are handled one after the other."""

    __slots__ = ("batch", "busy", "key", "queued", "singles", "waiting")

    def __init__(self, key: object) -> None:
        self.key: object = key
        self.waiting: deque[Item] = deque()
        self.busy: bool = False
        """A call runs, waits to be tried again, or its dead letter is not acknowledged."""
        self.queued: bool = False
        """It stands in the partition's heap of lanes that may start, or waits for its batch."""
        self.singles: int = 0
        """How many records at the front of `waiting` are handled one by one, because their batch failed."""
        self.batch: int = -1
        """Which entry of the batches or keys that `Processing` keeps is its own."""

    @property
    def startable(self) -> bool:
        """Whether it has records, and none of them is under way."""
        return not self.busy and len(self.waiting) > 0


class AssignedPartition:
    """One assigned partition."""

    def __init__(
        self, name: NamedPartition, offset: int, done: Ranges, *, generation: int, level: deque[AssignedPartition]
    ) -> None:
        self.name: Final = name
        self.level: deque[AssignedPartition] = level
        """The partitions of the same priority that have something to start."""
        self.began: int = offset
        """Where it began: the committed offset, else the first delivered record."""
        self.progress: Final = PartitionProgress(offset, done)
        self.marks_end: int = done[-1][1] if done else 0
        """One after the last offset that is or may soon be in its marks."""
        self.generation: Final = generation
        self.lanes: Final[dict[object, Lane]] = {}
        self.startable: Final[list[tuple[int, int, Lane]]] = []
        """Heap of (offset, tie-breaker, lane)."""
        self.turn: bool = False
        """It stands in the round-robin of its level."""
        self.in_hand: Final[dict[int, Item]] = {}
        """Records by their numbers."""
        self.held_bytes: int = 0
        self.busy: Final[set[int]] = set()
        """Ids of its works that are not decided."""
        self.begun: int = 0
        """Records of these works."""
        self.draining: bool = False
        self.committed: tuple[int, str] | None = None
        self.committing: tuple[int, str] | None = None

    def fits(self, first: int, last: int, count: int, room: int) -> bool:
        """Whether *room* bytes hold the marks in whichever order begun calls end, if one of *count* records begins.

        Args:
            first, last: its offsets.
        """
        low = self.progress.low_mark
        span = max(self.marks_end, last + 1) - low
        if span <= room * 8 or first <= low:
            return True
        # Each record that is begun adds a run at most, which is two numbers. 7 bits of a number fit into a byte, and
        # few numbers can be large, as together they are the span.
        numbers = 2 * (self.progress.runs + self.begun + count)
        size = numbers
        while span := span >> 7:
            size += min(numbers, span)
        return size <= room

    def deliver(self, offset: int) -> int | None:
        """See `PartitionProgress.deliver`."""
        if self.progress.goes_back(offset):
            self.began, self.committed, self.marks_end = offset, None, 0
        elif self.began < 0:
            self.began = offset
        return self.progress.deliver(offset)

    @property
    def held(self) -> int:
        """How many records are in hand."""
        return len(self.in_hand)

    @property
    def waits(self) -> bool:
        """Whether most of its records wait for earlier ones."""
        return self.begun * 2 < len(self.in_hand)

    @property
    def first(self) -> Item | None:
        """The first record in hand, and mostly the first one that is not done."""
        first = self.in_hand.get(self.progress.low_number)
        if first is None and self.in_hand:  # a revocation has let that one go
            return next(iter(list(self.in_hand.values())), None)
        return first
