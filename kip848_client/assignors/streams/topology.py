"""Which topics are processed together: subtopologies, and the tasks that they make of partitions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

import msgspec

_HASH_BYTES = 16


class TopologyError(ValueError):
    """The topics of the cluster do not fit the topology. The message names the topic."""


class Task(NamedTuple):
    """The unit of work: one partition number of all source topics of a subtopology. Sorts by subtopology."""

    subtopology: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"


class Subtopology(msgspec.Struct, frozen=True):
    """Topics that are processed together.

    Args:
        name: unique in its topology.
        sources: the topics that are read; a topic is in one subtopology only.
        copartition: they are joined by key, so they must have equally many partitions.
        changelogs: topics that hold the state; a subtopology with any is stateful.
    """

    name: str
    sources: tuple[str, ...]
    copartition: bool = False
    changelogs: tuple[str, ...] = ()


class Topology(msgspec.Struct, frozen=True):
    """All subtopologies of an application. The same in every process; a process with another one gets an error.

    Example::

        topology = Topology().subtopology("0", sources=["orders", "users"], copartition=True, changelogs=["agg"])
    """

    subtopologies: tuple[Subtopology, ...] = ()

    def subtopology(
        self, name: str, *, sources: Iterable[str], copartition: bool = False, changelogs: Iterable[str] = ()
    ) -> Topology:
        """This topology and one subtopology more.

        Raises:
            TopologyError: the name is taken, there is no source, or another subtopology reads one of the sources.
        """
        added = Subtopology(name, tuple(sorted(sources)), copartition, tuple(sorted(changelogs)))
        if not added.sources:
            raise TopologyError(f"subtopology {name!r} has no source topic")
        for other in self.subtopologies:
            if other.name == name:
                raise TopologyError(f"there are two subtopologies {name!r}")
            shared = sorted(set(other.sources) & set(added.sources))
            if shared:
                raise TopologyError(f"{shared[0]!r} is a source of the subtopologies {other.name!r} and {name!r}")
        ordered = sorted((*self.subtopologies, added), key=lambda each: each.name)
        return Topology(tuple(ordered))

    @property
    def topics(self) -> tuple[str, ...]:
        """Every source topic, sorted: what a consumer subscribes to."""
        return tuple(sorted(topic for each in self.subtopologies for topic in each.sources))

    @property
    def hash(self) -> UUID:
        """Equal in two processes if and only if their topologies are."""
        canonical = json.dumps(msgspec.to_builtins(self), sort_keys=True, separators=(",", ":"))
        return UUID(bytes=hashlib.sha256(canonical.encode()).digest()[:_HASH_BYTES])

    def tasks(self, partition_counts: Mapping[str, int]) -> dict[Task, tuple[tuple[str, int], ...]]:
        """The tasks, sorted: each with its source partitions.

        Args:
            partition_counts: of every source topic.

        Raises:
            TopologyError: a source topic is missing, or joined topics have different counts.
        """
        tasks = {}
        for each in self.subtopologies:
            missing = [topic for topic in each.sources if topic not in partition_counts]
            if missing:
                raise TopologyError(f"there is no topic {missing[0]!r}, a source of subtopology {each.name!r}")
            counts = {topic: partition_counts[topic] for topic in each.sources}
            if each.copartition and len(set(counts.values())) > 1:
                raise TopologyError(f"subtopology {each.name!r} joins topics with different partition counts: {counts}")
            for number in range(max(counts.values())):
                parts = tuple((topic, number) for topic, count in counts.items() if number < count)
                tasks[Task(each.name, number)] = parts
        return tasks

    def is_stateful(self, task: Task) -> bool:
        """Whether the task keeps state in a changelog."""
        return bool(self.changelogs_of(task))

    def changelogs_of(self, task: Task) -> tuple[str, ...]:
        """The changelogs that hold the task's state, each in the partition of the task's number."""
        return self._of(task).changelogs

    def sources_of(self, task: Task) -> tuple[str, ...]:
        """The topics of the task's subtopology. Those with fewer partitions are not part of the task."""
        return self._of(task).sources

    def _of(self, task: Task) -> Subtopology:
        return next(each for each in self.subtopologies if each.name == task.subtopology)
