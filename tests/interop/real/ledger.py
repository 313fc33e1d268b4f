"""Who had which partition when, and which records were read: the evidence of these tests, and what follows from it.

Records carry their number in their partition (0, 1, 2 ...), so what was read proves by itself what is missing and what
came twice. Times are of the monotonic clock, which all processes of one machine share. Starts and reads nothing.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from kip848_client.common.model import NamedPartition

Kind = Literal["assigned", "revoked", "lost", "killed", "read", "committed", "error"]


class Entry(msgspec.Struct, frozen=True):
    """One thing that happened to one partition.

    Attributes:
        at_ns: *assigned*: when its listener call began; *revoked*, *lost*: when it ended; *read*: when the application
            got the records; *committed*: when the commit was confirmed.
        first, end: of a *read*: numbers first <= n < end; of a *committed*: end is the next number to read.
        text: of an *error*.
    """

    at_ns: int
    member: str
    kind: Kind
    topic: str = ""
    partition: int = -1
    first: int = 0
    end: int = 0
    text: str = ""

    @property
    def place(self) -> NamedPartition:
        """The partition."""
        return NamedPartition(self.topic, self.partition)

    def to_line(self) -> bytes:
        """As one line of JSON."""
        return msgspec.json.encode(self) + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Entry:
        """Read one line back."""
        return msgspec.json.decode(line, type=cls)


def entries_of(path: Path) -> list[Entry]:
    """What a process has written so far; half a line at the end (it was killed) is left out."""
    return [Entry.from_line(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


class Ledger:
    """Entries in the order in which they happened."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: Final = sorted(entries, key=lambda entry: entry.at_ns)
        self._different: Final = {
            (entry.place, number)
            for entry in self.entries
            if entry.kind == "read"
            for number in range(entry.first, entry.end)
        }

    def moved(
        self, member: str, kind: Literal["assigned", "revoked", "lost"], partitions: Iterable[tuple[str, int]]
    ) -> None:
        """A listener was called."""
        now_ns = time.monotonic_ns()
        self.entries.extend(Entry(now_ns, member, kind, topic, partition) for topic, partition in partitions)

    def read(self, member: str, partition: tuple[str, int], number: int) -> None:
        """One record was handed to the application."""
        self.entries.append(Entry(time.monotonic_ns(), member, "read", *partition, number, number + 1))
        self._different.add((NamedPartition(*partition), number))

    def numbers(self) -> dict[NamedPartition, list[int]]:
        """Numbers read of each partition, in order, by whomever."""
        found: defaultdict[NamedPartition, list[int]] = defaultdict(list)
        for entry in self.entries:
            if entry.kind == "read":
                found[entry.place].extend(range(entry.first, entry.end))
        return dict(found)

    def count(self) -> int:
        """How many different records were read."""
        return len(self._different)

    def summary(self) -> str:
        """For a failed test: the last owner of each partition, how far it was read and committed, and all errors."""
        owner: dict[NamedPartition, str] = {}
        read: dict[NamedPartition, int] = {}
        committed: dict[NamedPartition, int] = {}
        for entry in self.entries:
            if entry.kind == "assigned":
                owner[entry.place] = entry.member
            elif entry.kind == "read":
                read[entry.place] = entry.end
            elif entry.kind == "committed":
                committed[entry.place] = entry.end
        places = [
            f"{place}: {owner[place]} has read to {read.get(place)} and committed {committed.get(place)}"
            for place in sorted(owner)
        ]
        return "\n".join(places + self.errors())

    def errors(self) -> list[str]:
        """What members reported as raised by the library."""
        return [f"{entry.member}: {entry.text}" for entry in self.entries if entry.kind == "error"]


class Findings(msgspec.Struct):
    """What a ledger shows.

    Attributes:
        wrong: sentences; what must never happen.
        repeated: records that were read again after an owner was lost or killed before it had committed them.
        handovers: partitions that went from one member to another.
    """

    wrong: list[str] = msgspec.field(default_factory=list)
    repeated: int = 0
    handovers: int = 0


class _Partition(msgspec.Struct):
    owner: str | None = None
    last_owner: str | None = None
    next_number: int | None = None
    """Of the present owner; None until it has read something."""
    seen: set[int] = msgspec.field(default_factory=set)
    committed: int = 0
    gave_up: Kind = "revoked"
    """How the last owner went."""


def judge(ledger: Ledger, *, written: Mapping[NamedPartition, int], zombies: bool = False) -> Findings:
    """Examine a ledger of partitions that were written from 0 on.

    Wrong is: two members with one partition; a record read by a member that does not have its partition; a gap or a
    repetition within one ownership; a record read again although it was committed, or although its former owner had
    given it back in good order; a record that was not read.

    Args:
        zombies: members may have been removed without their knowledge: then a partition can have a new owner before
            the old one heard of it, and both may read.
    """
    found = Findings()
    partitions: defaultdict[NamedPartition, _Partition] = defaultdict(_Partition)
    for entry in ledger.entries:
        if entry.kind == "error":
            continue
        if entry.kind == "killed":
            for one in partitions.values():
                _give_up(one, entry)
            continue
        state = partitions[entry.place]
        match entry.kind:
            case "assigned":
                if state.owner is not None and not zombies:
                    found.wrong.append(f"{entry.place}: {entry.member} got it while {state.owner} had it")
                found.handovers += state.last_owner not in {None, entry.member}
                state.owner = state.last_owner = entry.member
                state.next_number = None
            case "revoked" | "lost":
                if state.owner != entry.member and not zombies:
                    found.wrong.append(f"{entry.place}: {entry.member} lost it, but {state.owner} had it")
                _give_up(state, entry)
            case "read":
                _read(found, state, entry, zombies=zombies)
            case "committed":
                state.committed = max(state.committed, entry.end)
    for place, count in written.items():
        missing = set(range(count)) - partitions[place].seen
        if missing:
            found.wrong.append(f"{place}: {len(missing)} of {count} records were never read, {min(missing)} first")
    return found


def _give_up(state: _Partition, entry: Entry) -> None:
    if state.owner == entry.member:
        state.owner = None
        state.gave_up = entry.kind


def _read(found: Findings, state: _Partition, entry: Entry, *, zombies: bool) -> None:
    where = f"{entry.place}: {entry.member} read {entry.first}..{entry.end - 1}"
    if state.owner != entry.member:
        if not zombies:
            found.wrong.append(f"{where} while {state.owner} had the partition")
    elif state.next_number is not None and entry.first != state.next_number:
        found.wrong.append(f"{where}, but {state.next_number} was next")
    if entry.first < state.committed and not zombies:
        found.wrong.append(f"{where}, although everything before {state.committed} was committed")
    again = state.seen & set(range(entry.first, entry.end))
    if again and not zombies and state.gave_up == "revoked":
        found.wrong.append(f"{where} again, although the former owner gave the partition back in good order")
    found.repeated += len(again)
    state.seen.update(range(entry.first, entry.end))
    if state.owner == entry.member:
        state.next_number = entry.end
