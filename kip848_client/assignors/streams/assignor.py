"""`StreamsAssignor`: the client-side assignor that keeps tasks where their state is."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

import msgspec

from kip848_client.assignors.client.interface import (
    AssignmentSpec,
    AssignorMetadata,
    ConsumerGroupMetadata,
    GroupAssignment,
    MemberAssignment,
    PartitionAssignor,
)
from kip848_client.assignors.streams.messages import (
    RUNNING,
    UNKNOWN,
    HostPartitions,
    MemberInfo,
    TaskAssignment,
)
from kip848_client.assignors.streams.planner import Settings, TaskPlan, make_plan
from kip848_client.assignors.streams.topology import Task, Topology, TopologyError

REASON_SHUTDOWN: Final = 1
REASON_CAUGHT_UP: Final = 2
REASON_FALLS_BEHIND: Final = 3
REASON_TOPOLOGY: Final = 4

SHUTDOWN: Final = 1
"""Assignment error: some process asked all of them to stop."""
ASSIGNMENT_ERROR: Final = 2
"""Assignment error: the topics do not fit the topology."""
INCONSISTENT_TOPOLOGY: Final = 3
"""Assignment error: the processes run different topologies."""

_RISING_SAMPLES: Final = 5


class Owner(msgspec.Struct, frozen=True):
    """The processes that can answer queries for a partition.

    Args:
        endpoint: where its task is active, or None if that process has no endpoint.
        standby_endpoints: where copies of its state are.
    """

    endpoint: str | None
    standby_endpoints: tuple[str, ...]


class StreamsAssignor(PartitionAssignor):
    """Tasks with local state, as in Kafka Streams, for a service in Python.

    A task is one partition number of the topics of a subtopology. It stays where its state is. A process without the
    state first gets a *warm-up*, restores from the changelog, and takes over once it is nearly caught up; *standbys*
    hold copies for when a process dies::

        topology = Topology().subtopology("0", sources=["orders"], changelogs=["totals"])
        assignor = StreamsAssignor(topology, process_id=mine, endpoint="10.0.0.7:9000", standbys=1)
        with Consumer(conf | {"group.protocol": "classic", "group.local.assignors": assignor}) as consumer:
            runner = TaskRunner(assignor, handler)
            consumer.subscribe(list(topology.topics), **runner.callbacks)

    Guarantee: each task is active once, no process has a task in two roles, and at most *warmups_max* tasks move at a
    time. Once the lags are reported the group comes to rest without warm-ups, and then the counts of active tasks of
    members in different processes differ by at most one, stateful and stateless ones each.

    Args:
        topology: the same in every process.
        endpoint: ``host:port`` where this process answers queries; every process gets it.
        tags: of this process, such as ``{"zone": "a"}``, for *rack_tags*.
        process_id: of the process that has the state: the same for all its consumers, and after a restart. Make one
            with ``uuid.uuid4()`` and keep it beside the state.
        standbys, warmups_max, acceptable_lag, rack_tags: see `Settings`; the same in every process.
    """

    name = "streams"

    def __init__(
        self,
        topology: Topology,
        *,
        process_id: UUID,
        endpoint: str | None = None,
        tags: Mapping[str, str] | None = None,
        standbys: int = 0,
        warmups_max: int = 2,
        acceptable_lag: int = 10_000,
        rack_tags: tuple[str, ...] = (),
    ) -> None:
        if not topology.subtopologies:
            raise TopologyError("the topology has no subtopology")
        if standbys < 0 or warmups_max < 1 or acceptable_lag < 0:
            raise ValueError(
                f"standbys={standbys}, warmups_max={warmups_max}, acceptable_lag={acceptable_lag}: "
                "they must be at least 0, 1 and 0"
            )
        self._settings: Final = Settings(acceptable_lag, warmups_max, standbys, rack_tags)
        self._topology = topology
        self._info = MemberInfo(process_id, endpoint, tuple(sorted((tags or {}).items())), topology.hash, {})
        # Messages of the application, from any thread. All other fields change on the assignor's thread only.
        self._said: deque[Mapping[Task, int | None] | Topology | int] = deque()
        self._lags: dict[Task, int] = {}
        self._rising: dict[Task, int] = {}
        self._reason = 0
        self._told: AssignorMetadata | None = None
        self._assignment = TaskAssignment()
        self.error: int = 0
        """The error of the last assignment: 0, `SHUTDOWN`, `ASSIGNMENT_ERROR`, `INCONSISTENT_TOPOLOGY` or negative."""

    @property
    def topology(self) -> Topology:
        """The topology whose tasks it assigns."""
        return self._topology

    @property
    def assignment(self) -> TaskAssignment:
        """The roles of this member in the last assignment. The rebalance listener gets only the owned partitions."""
        return self._assignment

    # --- what the application says

    def report_lag(self, lags: Mapping[Task, int | None]) -> None:
        """Say how far each local state is behind its changelog: all tasks with state here. Any thread may call.

        Before the first join they decide what this process gets. Later the group is asked for a new assignment when a
        warm-up has come within *acceptable_lag*, or fell behind in five reports in a row; anything else changes
        nothing.

        Args:
            lags: task -> records behind; None if it is not known. Active tasks need not be there.
        """
        self._said.append(dict(lags))

    def shut_down(self) -> None:
        """Ask every process of the group to stop: each gets the error `SHUTDOWN`. Any thread may call."""
        self._said.append(REASON_SHUTDOWN)

    def change_topology(self, topology: Topology) -> None:
        """Run another topology from now on. Until all processes do, the group keeps its assignment."""
        self._said.append(topology)

    def owner_of(self, topic: str, partition: int) -> Owner | None:
        """The processes that can answer queries for the state of a source partition; None if no endpoint is known."""
        active, standby = None, []
        for host in self._assignment.hosts:
            if partition in host.active.get(topic, ()):
                active = host.endpoint
            if partition in host.standby.get(topic, ()):
                standby.append(host.endpoint)
        return None if active is None and not standby else Owner(active, tuple(standby))

    # --- what the group asks

    def metadata(self) -> AssignorMetadata:
        """This process, and its lags; they change only with a reason, because each change is a new assignment."""
        self._listen()
        if self._told is None or self._reason:
            self._info = msgspec.structs.replace(self._info, lags=dict(self._lags))
            self._told = AssignorMetadata(self._info.encode(), reason=self._reason)
            self._reason = 0
        return self._told

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Plan the tasks of all members.

        Raises:
            ValueError: a member's metadata cannot be read.
        """
        members = {}
        for member_id, member in spec.members.items():
            try:
                members[member_id] = MemberInfo.decode(member.metadata)
            except ValueError as error:
                raise ValueError(f"the metadata of member {member_id!r} cannot be read: {error}") from error
        if any(member.reason == REASON_SHUTDOWN for member in spec.members.values()):
            return GroupAssignment(error=SHUTDOWN)
        if any(info.topology_hash != self._topology.hash for info in members.values()):
            return GroupAssignment(error=INCONSISTENT_TOPOLOGY)
        try:
            tasks = self._topology.tasks({name: topic.partition_count for name, topic in spec.topics.items()})
        except TopologyError:
            return GroupAssignment(error=ASSIGNMENT_ERROR)
        if set(spec.topics) != set(self._topology.topics):
            return GroupAssignment(error=ASSIGNMENT_ERROR)
        held = {
            member_id: {(tip.topic, tip.partition) for tip in member.target}
            for member_id, member in spec.members.items()
        }
        owned = {
            task: member_id for task, parts in tasks.items() for member_id in held if held[member_id].issuperset(parts)
        }
        plan = make_plan(
            {task: self._topology.is_stateful(task) for task in tasks},
            members,
            owned,
            self._settings,
            failed=[each for each, member in spec.members.items() if member.reason == REASON_FALLS_BEHIND],
        )
        return self._to_assignment(plan, tasks, members)

    def on_assignment(self, error: int, assignment: MemberAssignment, group_metadata: ConsumerGroupMetadata) -> None:
        """Keep the roles; after an error, keep the earlier ones."""
        del group_metadata
        self._listen()
        self.error = error
        if error == 0 and assignment.metadata:
            self._assignment = TaskAssignment.decode(assignment.metadata)
            self._lags |= dict.fromkeys(self._assignment.active, RUNNING)
            self._rising = {task: count for task, count in self._rising.items() if task in self._assignment.warmup}

    # --- internals

    def _listen(self) -> None:
        """Take in what the application said since the last time."""
        while self._said:
            said = self._said.popleft()
            if isinstance(said, int):
                self._reason = said
            elif isinstance(said, Topology):
                self._topology = said
                self._info = msgspec.structs.replace(self._info, topology_hash=said.hash)
                self._reason = REASON_TOPOLOGY
            else:
                self._take_lags(said)

    def _take_lags(self, lags: Mapping[Task, int | None]) -> None:
        before, acceptable = self._lags, self._settings.acceptable_lag
        self._lags = {task: UNKNOWN if lag is None else lag for task, lag in lags.items()}
        self._lags |= dict.fromkeys(self._assignment.active, RUNNING)
        for task in self._assignment.warmup:
            lag, last, told = (known.get(task, UNKNOWN) for known in (self._lags, before, self._info.lags))
            if lag < 0:
                continue
            if lag <= acceptable and not 0 <= told <= acceptable:
                self._reason = REASON_CAUGHT_UP
            self._rising[task] = self._rising.get(task, 0) + 1 if 0 <= last < lag else 0
            if self._rising[task] >= _RISING_SAMPLES:
                self._rising[task] = 0
                self._reason = REASON_FALLS_BEHIND

    def _to_assignment(
        self, plan: TaskPlan, tasks: Mapping[Task, tuple[tuple[str, int], ...]], members: Mapping[str, MemberInfo]
    ) -> GroupAssignment:
        active: dict[str, list[Task]] = defaultdict(list)
        standby: dict[str, list[Task]] = defaultdict(list)
        for task, member_id in plan.active.items():
            active[member_id].append(task)
        for task, holders in plan.standby.items():
            for member_id in holders:
                standby[member_id].append(task)
        hosts = self._hosts(active, standby, tasks, members)
        targets = {}
        for member_id in members:
            told = TaskAssignment(
                active=tuple(sorted(active[member_id])),
                standby={task: self._changelogs(task) for task in standby[member_id]},
                warmup={task: self._changelogs(task) for task, holder in plan.warmup.items() if holder == member_id},
                hosts=hosts,
            )
            partitions = tuple(part for task in told.active for part in tasks[task])
            targets[member_id] = MemberAssignment(partitions, told.encode())
        return GroupAssignment(targets)

    def _changelogs(self, task: Task) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(self._topology.changelogs_of(task), (task.partition,))

    @staticmethod
    def _hosts(
        active: Mapping[str, list[Task]],
        standby: Mapping[str, list[Task]],
        tasks: Mapping[Task, tuple[tuple[str, int], ...]],
        members: Mapping[str, MemberInfo],
    ) -> tuple[HostPartitions, ...]:
        by_endpoint: dict[str, list[str]] = defaultdict(list)
        for member_id, info in members.items():
            if info.endpoint is not None:
                by_endpoint[info.endpoint].append(member_id)
        return tuple(
            HostPartitions(
                endpoint,
                *(
                    _by_topic(part for member_id in ids for task in roles.get(member_id, ()) for part in tasks[task])
                    for roles in (active, standby)
                ),
            )
            for endpoint, ids in sorted(by_endpoint.items())
        )


def _by_topic(parts: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, number in parts:
        topics[topic].append(number)
    return {topic: tuple(sorted(numbers)) for topic, numbers in sorted(topics.items())}
