"""What the processes of a soak wrote down, and what follows from it. Starts and reads nothing but their files.

A topic that is deleted and created again starts anew: each of its lives is a *generation*, and every record carries the
number of its own. So a place is (topic, generation, partition), and its records are known by their offsets.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec


class Place(msgspec.Struct, frozen=True, order=True):
    """One partition of one life of a topic."""

    topic: str
    generation: int
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} (generation {self.generation})"


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a worker process did.

    Args:
        at_ms: monotonic; all processes of one machine share this clock.
        first, end: of a *read*: offsets first <= n < end.
        text: of an *error* or a *fatal*.
    """

    at_ms: int
    kind: Literal["assigned", "revoked", "lost", "read", "error", "fatal", "left"]
    topic: str = ""
    partition: int = -1
    generation: int = 0
    first: int = 0
    end: int = 0
    text: str = ""


def lines_of(path: Path) -> list[Line]:
    """What a process has written so far; half a line at the end (it was killed) is left out."""
    decoder = msgspec.json.Decoder(Line)
    return [decoder.decode(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


class Verdict(msgspec.Struct):
    """What a soak showed.

    Attributes:
        wrong: sentences; what must never happen.
        written: acknowledged records of the last generation of each topic.
        read: different records read, of all generations.
        repeated: records that were read more than once.
        longest_silence_ms: place -> longest time between two reads of it while it was written to.
        errors: text -> how often a process reported it.
    """

    wrong: list[str]
    written: int
    read: int
    repeated: int
    longest_silence_ms: int
    silent_place: str
    errors: dict[str, int]


def judge(
    lines: Mapping[str, Iterable[Line]],
    *,
    acknowledged: Mapping[Place, int],
    backwards: Iterable[str],
) -> Verdict:
    """Examine a soak.

    Args:
        lines: worker -> what it wrote.
        acknowledged: offset after the last acknowledged record of every place that still exists.
        backwards: sentences about committed offsets that went down.
    """
    read: defaultdict[Place, set[int]] = defaultdict(set)
    read_at: defaultdict[Place, list[int]] = defaultdict(list)
    errors: Counter[str] = Counter()
    wrong = list(backwards)
    repeated = 0
    for worker, written in lines.items():
        for line in written:
            if line.kind == "read":
                place = Place(line.topic, line.generation, line.partition)
                offsets = range(line.first, line.end)
                repeated += len(read[place].intersection(offsets))
                read[place].update(offsets)
                read_at[place].append(line.at_ms)
            elif line.kind == "error":
                errors[line.text.partition(":")[0]] += 1
            elif line.kind == "fatal":
                wrong.append(f"{worker} ended by itself: {line.text}")
    for place, end in sorted(acknowledged.items()):
        missing = set(range(end)) - read[place]
        if missing:
            wrong.append(f"{place}: {len(missing)} of {end} records were never read, {min(missing)} first")
    silences = {
        place: max((later - earlier for earlier, later in itertools.pairwise(times)), default=0)
        for place, times in ((place, sorted(times)) for place, times in read_at.items())
    }
    silent_place = max(silences, key=lambda place: silences[place], default=None)
    return Verdict(
        wrong=wrong,
        written=sum(acknowledged.values()),
        read=sum(map(len, read.values())),
        repeated=repeated,
        longest_silence_ms=0 if silent_place is None else silences[silent_place],
        silent_place=str(silent_place),
        errors=dict(errors),
    )
