"""Starting and stopping tasks by what the group really gave: rebalance callbacks for `StreamsAssignor`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypedDict

from kip848_client.assignors.client.interface import PartitionLike
from kip848_client.assignors.streams.assignor import StreamsAssignor
from kip848_client.assignors.streams.topology import Task
from kip848_client.common.callables import check_methods_not_async

_TIMEOUT_S = 10.0


class TaskHandler(Protocol):
    """The application's code for its tasks. Called on the thread that polls, one call at a time."""

    def start(self, task: Task) -> None:
        """Process the task's records from now on; its local state, if there is any, is still there."""

    def stop(self, task: Task) -> None:
        """Finish what was begun and write it down: another process may start the task next. Keep the state."""

    def restore(self, task: Task, changelogs: Mapping[str, tuple[int, ...]]) -> None:
        """Copy the task's state from these changelog partitions from now on, as a standby or warm-up."""

    def stop_restoring(self, task: Task) -> None:
        """Stop copying. Keep the state: the task may be started next."""


class Callbacks(TypedDict):
    """Keyword arguments of ``Consumer.subscribe``."""

    on_assign: Callable[[Any, list[Any]], None]
    on_revoke: Callable[[Any, list[Any]], None]
    on_lost: Callable[[Any, list[Any]], None]


class TaskRunner:
    """Tells a `TaskHandler` what to run.

    Give its `callbacks` to ``consumer.subscribe``, and call `update` between polls: standbys and warm-ups belong to no
    partition, so no rebalance tells of them.

    An active task starts when all of its partitions are assigned, and stops before any of them is acknowledged as
    revoked. Its state is copied only while it is not active here.
    """

    def __init__(self, assignor: StreamsAssignor, handler: TaskHandler) -> None:
        self._assignor = assignor
        check_methods_not_async(handler, "start", "stop", "restore", "stop_restoring")
        self._handler = handler
        self._partitions: set[tuple[str, int]] = set()
        self._counts: dict[str, int] = {}
        self.active: set[Task] = set()
        """The tasks that run here."""
        self.restoring: set[Task] = set()
        """The tasks whose state is copied here."""

    @property
    def callbacks(self) -> Callbacks:
        """The keyword arguments of ``subscribe``: ``consumer.subscribe(topics, **runner.callbacks)``."""
        return {"on_assign": self.assigned, "on_revoke": self.revoked, "on_lost": self.revoked}

    def assigned(self, consumer: Any, partitions: Iterable[PartitionLike]) -> None:
        """Start the tasks that have all their partitions."""
        self._learn_counts(consumer)
        self._partitions |= {(each.topic, each.partition) for each in partitions}
        self.update()

    def revoked(self, consumer: Any, partitions: Iterable[PartitionLike]) -> None:
        """Stop what loses a partition, before this is acknowledged; or after it was lost."""
        del consumer
        self._partitions -= {(each.topic, each.partition) for each in partitions}
        self.update()

    def update(self) -> None:
        """Let the handler do what the partitions and the last assignment say. Quick if nothing changed."""
        assignment = self._assignor.assignment
        runs = {task for task in assignment.active if self._is_complete(task)}
        runs |= {task for task in self.active if self._is_complete(task)}
        for task in sorted(self.active - runs):
            self.active.discard(task)
            self._handler.stop(task)
        copies = {**assignment.standby, **assignment.warmup}
        for task in sorted(self.restoring - copies.keys() | self.restoring & runs):
            self.restoring.discard(task)
            self._handler.stop_restoring(task)
        for task in sorted(runs - self.active):
            self.active.add(task)
            self._handler.start(task)
        for task in sorted(copies.keys() - self.restoring - self.active):
            self.restoring.add(task)
            self._handler.restore(task, copies[task])

    def _is_complete(self, task: Task) -> bool:
        """Whether all partitions of the task are here: its number in each topic that has that many partitions."""
        sources = self._assignor.topology.sources_of(task)
        parts = {
            (topic, task.partition) for topic in sources if self._counts.get(topic, task.partition + 1) > task.partition
        }
        return bool(parts) and self._partitions.issuperset(parts)

    def _learn_counts(self, consumer: Any) -> None:
        """Ask how many partitions topics have, where a task may lack some of its topics."""
        for each in self._assignor.topology.subtopologies:
            if len(each.sources) > 1 and not each.copartition:
                for topic in each.sources:
                    described = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics.get(topic)
                    if described is not None and described.partitions:
                        self._counts[topic] = len(described.partitions)
