"""Members of groups, whatever library they are of: what they read, and which partitions they held when.

No expectations here.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import pairwise
from types import TracebackType
from typing import Final, Self

import msgspec

from tests.support.driving import Key
from tests.support.waiting import TIMEOUT_S

Partition = tuple[str, int]


class Span(msgspec.Struct, order=True):
    """A time during which a member held a partition, in seconds of `time.monotonic`; no end: it still does."""

    begin_s: float
    end_s: float = float("inf")


class Member(ABC):
    """One member; leaving the `with` block makes it leave.

    A rebalance callback runs on the thread that polls, so the member reads nothing of a partition before it is gained,
    and nothing after it is given up.

    Attributes:
        delivered: everything read, in order.
        owned: what it may read now.
        spans: when it held which partition.
    """

    def __init__(self) -> None:
        self.delivered: Final[list[Key]] = []
        self.owned: frozenset[Partition] = frozenset()
        self.spans: Final[dict[Partition, list[Span]]] = {}

    @abstractmethod
    def leave(self) -> None:
        """Commit what was read, leave the group unless it is static, and close."""

    def keys(self) -> set[Key]:
        """Everything read so far."""
        return set(self.delivered)

    def gain(self, partitions: Iterable[Partition]) -> None:
        """The member was assigned more."""
        new = frozenset(partitions) - self.owned
        for partition in new:
            self.spans.setdefault(partition, []).append(Span(time.monotonic()))
        self.owned |= new

    def give_up(self, partitions: Iterable[Partition] | None = None) -> None:
        """The member reads no more of these; None means of all."""
        gone = self.owned if partitions is None else self.owned & frozenset(partitions)
        for partition in gone:
            self.spans[partition][-1].end_s = time.monotonic()
        self.owned -= gone

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()


class Polling(Member):
    """A member that polls on a thread of its own until it is told to leave."""

    def __init__(self) -> None:
        super().__init__()
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread: Final = threading.Thread(target=self._guarded, name="foreign-member")
        self._thread.start()

    @abstractmethod
    def _run(self) -> None:
        """Poll until `_stop` is set, then close."""

    def leave(self) -> None:
        """As in `Member`."""
        self._stop.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the member did not close in time"
        if self._failure is not None:
            raise self._failure

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as failure:
            self._failure = failure


def overlaps(members: Iterable[Member]) -> dict[Partition, float]:
    """Partition -> how many seconds two of *members* held it at a time, where there were any."""
    spans: dict[Partition, list[Span]] = {}
    for member in members:
        for partition, held in member.spans.items():
            spans.setdefault(partition, []).extend(held)
    found: dict[Partition, float] = {}
    for partition, held in spans.items():
        both_s = [before.end_s - after.begin_s for before, after in pairwise(sorted(held))]
        if worst_s := max([0.0, *both_s]):
            found[partition] = worst_s
    return found
