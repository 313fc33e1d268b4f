"""The interface between the simulation and its checkers: typed hooks for the events of a run.

The simulation knows this class and no checker; checkers know this class and `RunState`. A hook without a listener costs
almost nothing. The checkers of `checkers` watch every run; `run(..., watch=...)` adds others.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from kip848_client.common.model import TopicIdPartition
from kip848_client.errors import Kip848Error
from kip848_client.member.core.events import (
    AssignPartitions,
    CommitDone,
    LosePartitions,
    MemberEffect,
    MemberEvent,
    RevokePartitions,
    StateChanged,
)
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.simulation.observed_group import MemberChange, ObservedGroup
from kip848_client.testing.simulation.virtual.client_process import ClientProcess
from kip848_client.testing.simulation.virtual.cluster import VirtualCluster
from kip848_client.testing.simulation.virtual.network import Network
from kip848_client.testing.simulation.virtual.scenario import Scenario
from kip848_client.testing.simulation.virtual.scheduler import Scheduler
from kip848_client.testing.simulation.virtual.topics import Topics
from kip848_client.wire.schema import Request

ListenerCall: TypeAlias = RevokePartitions | AssignPartitions | LosePartitions


class RunState(msgspec.Struct, frozen=True):
    """The state that observers may read. They must not change it.

    Args:
        config: of the coordinators.
        handed_out: what applications were given to read; an observer is told of records before they are counted here.
        consumers: the consumers whose process runs, and those that ended since the last one started.
        probing: the run is one of those that may be asked questions (`Scenario.probes`).
    """

    scheduler: Scheduler
    cluster: VirtualCluster
    observed_group: ObservedGroup
    scenario: Scenario
    config: CoordinatorConfig
    handed_out: HandedOut
    consumers: Callable[[], Sequence[ClientProcess]]
    probing: bool


class Surroundings(NamedTuple):
    """Objects that all consumers of a run share."""

    scheduler: Scheduler
    scenario: Scenario
    cluster: VirtualCluster
    network: Network
    observer: Observer


class Observer:
    """Base of observers; every hook does nothing.

    A subclass overrides the hooks that it needs, and calls `violation.fail` to end the run with a failure. `about`
    limits a hook to some kinds of request and their answers. A `Checker` reads the state of the run, too.
    """

    def told(self, consumer: ClientProcess, event: MemberEvent) -> None:
        """The member is about to be told of *event*."""

    def decided(self, consumer: ClientProcess, effects: Sequence[MemberEffect]) -> None:
        """The member was told, and asks for these effects; none of them was performed."""

    def stepped(self, consumer: ClientProcess) -> None:
        """All effects of the step were performed."""

    def state_changed(self, consumer: ClientProcess, effect: StateChanged) -> None:
        """The member's public state moved."""

    def sent(self, consumer: ClientProcess, request: Any) -> None:
        """A request was written."""

    def unsent(self, consumer: ClientProcess, request: Any) -> None:
        """There was no connection to write a request on, and the member will hear that it failed."""

    def commit_ended(self, consumer: ClientProcess, effect: CommitDone) -> None:
        """The application, or for an automatic commit the log, is told what became of a commit."""

    def error_surfaced(self, consumer: ClientProcess, error: Kip848Error) -> None:
        """The application is about to be told of an error."""

    def stopped(self, consumer: ClientProcess, error: Kip848Error) -> None:
        """The member stopped for good, and the application is about to be told why."""

    def answered(self, consumer: ClientProcess, request: Any, response: Any) -> None:
        """An answer arrived, and the member is about to see it."""

    def ended(self, consumer: ClientProcess, request: Any) -> None:
        """A request was answered, or it failed, which the member is about to hear."""

    def stale(self, client_id: str, request: Any) -> None:
        """A request is about to be served for which its sender no longer waits: a late one, or a copy."""

    def served(self, client_id: str, request: Any, response: Any) -> None:
        """The coordinator decided; the answer leaves once records are durable. Observers see the group as before."""

    def fetching_started(self, consumer: ClientProcess, partition: TopicIdPartition, offset: int) -> None:
        """Fetching of a partition began, or began again, at *offset*."""

    def handed_out(self, consumer: ClientProcess, partition: TopicIdPartition, offsets: range) -> None:
        """poll() returned the records with these offsets."""

    def handler_begins(self, consumer: ClientProcess, partition: TopicIdPartition, offset: int) -> None:
        """A handler of process() is given a record."""

    def record_done(self, consumer: ClientProcess, partition: TopicIdPartition, offset: int, lane: object) -> None:
        """A handler returned, or a dead letter was acknowledged; *lane* is what keeps its order, None without one."""

    def slice_begins(self, consumer: ClientProcess, records: Iterable[tuple[TopicIdPartition, int]]) -> None:
        """A transaction of process() is being written, with what handlers have made of these records."""

    def listener_due(self, consumer: ClientProcess, call: ListenerCall) -> None:
        """The member asks for a listener call; it begins when the application is inside poll()."""

    def listener_begins(self, consumer: ClientProcess, name: str, partitions: Iterable[TopicIdPartition]) -> None:
        """A listener call (assigned, revoked, lost) started."""

    def listener_ended(
        self, consumer: ClientProcess, name: str, partitions: Iterable[TopicIdPartition], error: object
    ) -> None:
        """The call is over; *error* is the exception that it raised, or None."""

    def closed(self, consumer: ClientProcess) -> None:
        """close() returned."""

    def view_changed(self, consumer: ClientProcess) -> None:
        """The consumer's view changed in this step: its state, or what its application may read."""

    def group_changed(self, changes: Sequence[MemberChange]) -> None:
        """In this step the coordinator's state changed, or the topics did. The observed group is the group after it."""

    def loaded(self, before: GroupCoordinator | None, after: GroupCoordinator) -> None:
        """Coordinator *after* read the log; *before* is its predecessor, or None if records of it were lost."""

    def converged(self) -> None:
        """Faults ended and the group came to rest."""


Watch: TypeAlias = Callable[[RunState], Iterable[Observer]]
"""Creates the observers of one run."""

HookT = TypeVar("HookT", bound=Callable[..., None])


def about(*requests: type[Request[Any]]) -> Callable[[HookT], HookT]:
    """Of `sent`, `unsent`, `answered`, `ended`, `stale` and `served`: listen to these requests only."""

    def mark(hook: HookT) -> HookT:
        hook.requests = frozenset(requests)  # type: ignore[attr-defined]
        return hook

    return mark


class Checker(Observer):
    """An observer that reads the state of the run."""

    def __init__(self, run_state: RunState) -> None:
        self._scene: Final = run_state
        self._scheduler: Final = run_state.scheduler
        self._cluster: Final = run_state.cluster
        self._observed_group: Final = run_state.observed_group
        self._consumers: Final = run_state.consumers


class HandedOut(Observer):
    """How far applications have read each partition, per incarnation of its topic."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.read: Final[defaultdict[TopicIdPartition, int]] = defaultdict(int)
        """Partition -> end of what any application was handed."""
        self.duplicates: int = 0
        """Records that were handed out more than once, as they may be after crashes and removals."""

    def handed_out(self, consumer: ClientProcess, partition: TopicIdPartition, offsets: range) -> None:
        """Count the records."""
        start, stop = offsets.start, offsets.stop
        read = self.read[partition]
        if read > start:
            self.duplicates += min(stop, read) - start
        if stop > read:
            self.read[partition] = stop

    def unread(self) -> str | None:
        """A partition that was not read to its end, in words; None if there is none."""
        for partition, end in self._topics.end_offsets.items():
            topic_id = self._topics.id_of(partition.topic)
            assert topic_id is not None
            read = self.read[TopicIdPartition(partition.topic, partition.partition, topic_id)]
            if end and read != end:
                return f"{partition}: {read} of {end} read"
        return None


class Observers(Observer):
    """Calls several observers, each only for the hooks that it overrides. Give its `after_step` to the scheduler."""

    def __init__(self, observers: Iterable[Observer], run_state: RunState) -> None:
        self._cluster: Final = run_state.cluster
        self._observed_group: Final = run_state.observed_group
        self._changed_views: list[ClientProcess] = []
        found: dict[str, list[Callable[..., None]]] = {name: [] for name in _HOOKS}
        for observer in observers:
            for name in _hooks_of(type(observer)):  # type: ignore[arg-type]  # mypy: classes are hashable
                found[name].append(getattr(observer, name))
        self._tell_view_changed = _telling(tuple(found.pop("view_changed")))
        for name, hooks in found.items():
            setattr(self, name, (_telling_about if name in _OF_REQUESTS else _telling)(tuple(hooks)))

    def view_changed(self, consumer: ClientProcess) -> None:
        """Have it told after the step."""
        self._changed_views.append(consumer)

    def after_step(self) -> None:
        """Call the hooks for visible changes of this step."""
        if self._cluster.version != self._observed_group.version:
            self.group_changed(self._observed_group.look())
        if self._changed_views:
            for consumer in self._changed_views:
                self._tell_view_changed(consumer)
            self._changed_views.clear()


_HOOKS: Final = tuple(name for name in vars(Observer) if not name.startswith("_"))


@functools.cache
def _hooks_of(kind: type[Observer]) -> tuple[str, ...]:
    """The hooks that this class overrides."""
    return tuple(name for name in _HOOKS if getattr(kind, name) is not getattr(Observer, name))


def _telling_about(hooks: Sequence[Callable[..., None]]) -> Callable[..., None]:
    """Tell each hook of the requests that it is `about`, and of their answers."""
    by_kind: dict[type, tuple[Callable[..., None], ...]] = {}

    def tell(who: object, request: object, *response: object) -> None:
        kind = request.__class__
        if kind not in by_kind:
            by_kind[kind] = tuple(
                hook for hook in hooks if kind in getattr(hook, "requests", ()) or not hasattr(hook, "requests")
            )
        for hook in by_kind[kind]:
            hook(who, request, *response)

    return tell


_OF_REQUESTS: Final = {"sent", "unsent", "answered", "ended", "stale", "served"}
"""Hooks whose second argument is a request."""


def _telling(hooks: tuple[Callable[..., None], ...]) -> Callable[..., None]:
    def tell(*args: object) -> None:
        for hook in hooks:
            hook(*args)

    return hooks[0] if len(hooks) == 1 else tell
