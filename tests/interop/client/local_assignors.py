"""Client-side assignors for tests: they weigh, and they misbehave on request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from kip848_client.assignors import (
    AssignmentSpec,
    AssignorMetadata,
    ConsumerGroupMetadata,
    GroupAssignment,
    MemberAssignment,
    PartitionAssignor,
    spread_by_weight,
)


class Weighing(PartitionAssignor):
    """Spreads by a weight that each member tells in its metadata; writes down what it hears.

    Attributes:
        weight: of this member; may be changed at any time.
        heard: (member epoch, error, number of partitions) of each on_assignment, oldest first.
        threads: names of the threads that called.
        on_assign: called with the spec before anything is computed, to misbehave.
    """

    name = "weighing"

    def __init__(self, weight: int = 1) -> None:
        self.weight = weight
        self.heard: Final[list[tuple[int, int, int]]] = []
        self.specs: Final[list[AssignmentSpec]] = []
        self.threads: Final[set[str]] = set()
        self.on_assign: Callable[[AssignmentSpec], GroupAssignment | None] = lambda spec: None

    def metadata(self) -> AssignorMetadata:
        self.threads.add(threading.current_thread().name)
        return AssignorMetadata(str(self.weight).encode())

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        self.threads.add(threading.current_thread().name)
        self.specs.append(spec)
        other = self.on_assign(spec)
        if other is not None:
            return other
        return spread_by_weight(spec, lambda member: int(member.metadata))

    def on_assignment(self, error: int, assignment: MemberAssignment, group_metadata: ConsumerGroupMetadata) -> None:
        self.threads.add(threading.current_thread().name)
        self.heard.append((group_metadata.member_epoch, error, len(tuple(assignment.partitions))))
