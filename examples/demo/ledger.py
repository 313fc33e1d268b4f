"""The demo's bookkeeping: who counted which record, which were counted twice and why, and whether the result is exact.

A record is known by (partition, offset). Counting one twice is right in one case only: its first reader disappeared
before the group had its commit, so the next owner began at the committed offset (at-least-once). Everything else is an
error of the client or the coordinator, and `Verdict` says so. Pure: no Kafka, no clock, no terminal.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

import msgspec

_Tag = TypeVar("_Tag")


class CountedRun(NamedTuple):
    """Records that a worker counted: consecutive offsets of one partition, and the carrier of each."""

    partition: int
    first_offset: int
    carriers: list[str]


class OffsetRange(msgspec.Struct, frozen=True):
    """Consecutive offsets of one partition, both ends included."""

    partition: int
    first_offset: int
    last_offset: int

    @property
    def records(self) -> int:
        """How many they are."""
        return self.last_offset - self.first_offset + 1

    def __str__(self) -> str:
        return f"partition {self.partition}: offsets {self.first_offset}..{self.last_offset}"


class Duplicate(msgspec.Struct, frozen=True):
    """Records counted twice.

    Args:
        reason: why that is right, or None if nothing explains it.
    """

    where: OffsetRange
    first_by: str
    again_by: str
    reason: str | None


class Disappearance(msgspec.Struct, frozen=True):
    """A worker that went without leaving, and how far the group knew it had come.

    Args:
        committed: partition -> committed offset when the coordinator removed it.
        why: a clause that completes "counter-3 ...".
    """

    worker: str
    committed: Mapping[int, int]
    why: str


class Verdict(msgspec.Struct, frozen=True):
    """The outcome: `ok` if every record was counted, and twice only where a crash explains it.

    Args:
        expected: flights per carrier in the data set.
        counted: flights per carrier as the workers counted them, repetitions included.
        distinct: the same, each (partition, offset) once.
        missing: produced, but counted by no worker.
        behind: partition -> committed offset, where the group's is not the end of the partition.
    """

    expected: Counter[str]
    counted: Counter[str]
    distinct: Counter[str]
    duplicates: tuple[Duplicate, ...]
    missing: tuple[OffsetRange, ...]
    behind: Mapping[int, int]

    @property
    def repeated(self) -> int:
        """How many records were counted twice."""
        return sum(duplicate.where.records for duplicate in self.duplicates)

    @property
    def unexplained(self) -> tuple[Duplicate, ...]:
        """Repetitions that at-least-once delivery does not explain."""
        return tuple(duplicate for duplicate in self.duplicates if duplicate.reason is None)

    @property
    def ok(self) -> bool:
        """Whether the demo kept its promise."""
        return not self.differences()

    def differences(self) -> list[str]:
        """One sentence for each difference from the expected result; empty if there is none."""
        found = [f"{where} were not counted" for where in self.missing]
        found += [
            f"{duplicate.where} were counted by {duplicate.first_by} and again by {duplicate.again_by}, "
            "and nothing explains it"
            for duplicate in self.unexplained
        ]
        found += [
            f"partition {partition}: the group's committed offset is {offset}, which is not the end"
            for partition, offset in sorted(self.behind.items())
        ]
        found += [
            f"carrier {carrier}: counted {self.distinct[carrier]:,}, the data set has {self.expected[carrier]:,}"
            for carrier in sorted(self.expected.keys() | self.distinct.keys())
            if self.distinct[carrier] != self.expected[carrier]
        ]
        return found


class Ledger:
    """Everything the workers reported, in the order in which it came."""

    def __init__(self) -> None:
        self._partitions: dict[int, dict[int, tuple[str, str]]] = {}  # partition -> offset -> (worker, carrier)
        self._next_offsets: dict[int, int] = {}
        self._counted: Counter[str] = Counter()
        self._by_worker: Counter[str] = Counter()
        self._repeated: list[tuple[int, int, str, str]] = []  # partition, offset, first by, again by
        self._disappeared: list[Disappearance] = []

    @property
    def counted(self) -> int:
        """Records counted, repetitions included."""
        return self._counted.total()

    @property
    def distinct(self) -> int:
        """Records counted, each once."""
        return self._counted.total() - len(self._repeated)

    def counted_by(self, worker: str) -> int:
        """Records that one worker counted."""
        return self._by_worker[worker]

    def next_offset(self, partition: int) -> int:
        """The offset after the highest that was counted; 0 if none was."""
        return self._next_offsets.get(partition, 0)

    def count(self, worker: str, runs: Iterable[CountedRun]) -> None:
        """Write down what *worker* counted."""
        for run in runs:
            seen = self._partitions.setdefault(run.partition, {})
            for offset, carrier in enumerate(run.carriers, run.first_offset):
                entry = (worker, carrier)
                first = seen.setdefault(offset, entry)
                if first is not entry:
                    self._repeated.append((run.partition, offset, first[0], worker))
            self._counted.update(run.carriers)
            self._by_worker[worker] += len(run.carriers)
            end = run.first_offset + len(run.carriers)
            self._next_offsets[run.partition] = max(self.next_offset(run.partition), end)

    def disappeared(self, disappearance: Disappearance) -> None:
        """Write down that a worker was removed without having left."""
        self._disappeared.append(disappearance)

    def verdict(self, *, expected: Counter[str], produced: Mapping[int, int], committed: Mapping[int, int]) -> Verdict:
        """Compare with the data set.

        Args:
            expected: flights per carrier that were produced.
            produced: partition -> number of records in it.
            committed: partition -> committed offset of the group, now that all have left.
        """
        distinct: Counter[str] = Counter()
        for seen in self._partitions.values():
            distinct.update(carrier for _, carrier in seen.values())
        return Verdict(
            expected=+expected,
            counted=Counter(self._counted),
            distinct=distinct,
            duplicates=tuple(self._duplicates()),
            missing=tuple(self._missing(produced)),
            behind={
                partition: committed.get(partition, 0)
                for partition, end in produced.items()
                if committed.get(partition, 0) != end
            },
        )

    def _duplicates(self) -> Iterator[Duplicate]:
        for run, (first_by, again_by, reason) in _runs(
            (partition, offset, (first_by, again_by, self._reason(partition, offset, first_by)))
            for partition, offset, first_by, again_by in sorted(self._repeated)
        ):
            yield Duplicate(run, first_by=first_by, again_by=again_by, reason=reason)

    def _reason(self, partition: int, offset: int, first_by: str) -> str | None:
        for gone in self._disappeared:
            if gone.worker == first_by and offset >= gone.committed.get(partition, 0):
                return f"{gone.worker} {gone.why} before it committed them"
        return None

    def _missing(self, produced: Mapping[int, int]) -> Iterator[OffsetRange]:
        for run, _ in _runs(
            (partition, offset, None)
            for partition in sorted(produced)
            for offset in range(produced[partition])
            if offset not in self._partitions.get(partition, ())
        ):
            yield run


def _runs(records: Iterable[tuple[int, int, _Tag]]) -> Iterator[tuple[OffsetRange, _Tag]]:
    """Join consecutive offsets of one partition that carry the same tag."""
    for _, group in itertools.groupby(
        enumerate(records), key=lambda item: (item[1][0], item[1][1] - item[0], item[1][2])
    ):
        run = [record for _, record in group]
        partition, first_offset, tag = run[0]
        yield OffsetRange(partition, first_offset, run[-1][1]), tag
