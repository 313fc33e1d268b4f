"""Places tasks, standbys and warm-ups. Pure: members with their lags in, a plan out; every tie is broken by id."""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

import msgspec

from kip848_client.assignors.streams.messages import RUNNING, MemberInfo
from kip848_client.assignors.streams.topology import Task


class Settings(msgspec.Struct, frozen=True):
    """How far behind a copy may be to take over, and how many copies there are.

    Args:
        acceptable_lag: ``acceptable.recovery.lag``, in records.
        warmups_max: ``max.warmup.replicas``, in the whole group.
        standbys: ``num.standby.replicas``, of each stateful task.
        rack_tags: ``rack.aware.assignment.tags``: keys whose values standbys differ in.
    """

    acceptable_lag: int = 10_000
    warmups_max: int = 2
    standbys: int = 0
    rack_tags: tuple[str, ...] = ()


class TaskPlan(msgspec.Struct, frozen=True):
    """Task -> member id, by role."""

    active: Mapping[Task, str]
    standby: Mapping[Task, tuple[str, ...]]
    warmup: Mapping[Task, str]


def make_plan(
    tasks: Mapping[Task, bool],
    members: Mapping[str, MemberInfo],
    owned: Mapping[Task, str],
    settings: Settings,
    *,
    failed: Collection[str] = (),
) -> TaskPlan:
    """Plan the whole group.

    Args:
        tasks: task -> whether it is stateful.
        members: by member id.
        owned: task -> the member whose target holds all of its partitions.
        failed: members that said that a warm-up does not catch up; their processes get none.
    """
    return _Planner(tasks, members, owned, settings, failed).plan()


class _Planner:
    def __init__(
        self,
        tasks: Mapping[Task, bool],
        members: Mapping[str, MemberInfo],
        owned: Mapping[Task, str],
        settings: Settings,
        failed: Collection[str],
    ) -> None:
        self._settings = settings
        self._owned = owned
        self._stateful = sorted((task for task, is_stateful in tasks.items() if is_stateful), key=_by_partition)
        self._stateless = sorted((task for task, is_stateful in tasks.items() if not is_stateful), key=_by_partition)
        self._members = members
        self._process_of = {member_id: info.process_id for member_id, info in sorted(members.items())}
        self._processes: dict[UUID, list[str]] = defaultdict(list)
        for member_id, process in self._process_of.items():
            self._processes[process].append(member_id)
        self._failed = {self._process_of[member_id] for member_id in failed}
        self._tags = {process: dict(members[ids[0]].tags) for process, ids in self._processes.items()}
        self._active: dict[Task, UUID] = {}
        self._counts: Counter[str] = Counter()
        self._load: Counter[UUID] = Counter()
        self._stateless_load: Counter[UUID] = Counter()
        # Stateful task -> members that report how far behind its state is.
        self._reporting: dict[Task, list[str]] = defaultdict(list)
        for member_id, info in sorted(members.items()):
            for task, lag in info.lags.items():
                if lag >= 0:
                    self._reporting[task].append(member_id)
        nothing_known = dict.fromkeys(self._processes, math.inf)
        self._lags: dict[Task, dict[UUID, float]] = {task: dict(nothing_known) for task in self._stateful}
        self._learn_lags()

    def plan(self) -> TaskPlan:
        wanted: dict[Task, str] = {}
        for kind in (self._stateful, self._stateless):
            wanted |= self._desired(kind)
        warmups = self._delay_moves(wanted)
        standbys = self._standbys(warmups)
        seats = Counter[str]()
        active = {task: self._seat(task, self._active[task], seats, wanted.get(task)) for task in sorted(self._active)}
        warm = {task: self._seat(task, process, seats) for task, process in sorted(warmups.items())}
        copies = {
            task: tuple(self._seat(task, process, seats) for process in processes)
            for task, processes in sorted(standbys.items())
        }
        return TaskPlan(active, copies, warm)

    def _learn_lags(self) -> None:
        """How far each process's state is behind: -1 where the task runs, infinity without known state."""
        for member_id, info in self._members.items():
            process = self._process_of[member_id]
            for task, told in info.lags.items():
                if task in self._lags and (told == RUNNING or told >= 0):
                    # A copy of a task that ran there before: others may have written since.
                    lag = self._settings.acceptable_lag if told == RUNNING else told
                    self._lags[task][process] = min(self._lags[task][process], lag)
        for task, member_id in self._owned.items():
            if task in self._lags and member_id in self._process_of:
                self._lags[task][self._process_of[member_id]] = -1

    def _desired(self, kind: Sequence[Task]) -> dict[Task, str]:
        """A member for each task: where it was, then where its state is, then where there is room."""
        left, given = list(kind), dict[Task, str]()
        counts: Counter[str] = Counter()
        waiting, open_members = len(kind), len(self._members)
        quota = math.ceil(waiting / open_members)

        def give(task: Task, member_id: str) -> None:
            nonlocal waiting, open_members, quota
            given[task] = member_id
            counts[member_id] += 1
            self._place(task, member_id, is_stateless=kind is self._stateless)
            if counts[member_id] == quota:
                open_members -= 1
                waiting -= counts[member_id]
                if open_members:
                    quota = math.ceil(waiting / open_members)

        for task in left:
            owner = self._owned.get(task)
            if owner is not None and counts[owner] < quota:
                give(task, owner)
        for task in [task for task in left if task not in given]:
            holders = [
                (self._members[member_id].lags[task], self._pressure(self._process_of[member_id]), member_id)
                for member_id in self._reporting.get(task, ())
                if counts[member_id] < quota
            ]
            if holders:
                give(task, min(holders)[-1])
        # Loads only grow here, so an entry of the heap is right, or is put back with today's load.
        heap = [self._room(process) for process in self._processes]
        heapq.heapify(heap)
        for task in sorted(task for task in left if task not in given):
            while (now := self._room(heap[0][-1])) != heap[0]:
                heapq.heapreplace(heap, now)
            process = heap[0][-1]
            give(task, min(self._processes[process], key=lambda each: (self._counts[each], each)))
        return given

    def _place(self, task: Task, member_id: str, *, is_stateless: bool) -> None:
        process = self._process_of[member_id]
        self._active[task] = process
        self._counts[member_id] += 1
        self._load[process] += 1
        self._stateless_load[process] += is_stateless

    def _room(self, process: UUID) -> tuple[float, int, bytes, UUID]:
        return self._pressure(process), self._stateless_load[process], process.bytes, process

    def _pressure(self, process: UUID) -> float:
        return self._load[process] / len(self._processes[process])

    def _delay_moves(self, wanted: Mapping[Task, str]) -> dict[Task, UUID]:
        """Leave a task where its state is while its desired process is behind; return the warm-ups for that process."""
        warmups: dict[Task, UUID] = {}
        caught_up = {
            task: [each for each, lag in lags.items() if lag <= self._settings.acceptable_lag]
            for task, lags in self._lags.items()
        }
        for task in sorted(self._stateful, key=lambda each: (len(caught_up[each]), each)):
            desired = self._process_of[wanted[task]]
            lags = self._lags[task]
            if desired in caught_up[task] or min(lags.values()) >= lags[desired]:
                continue
            if caught_up[task]:
                stay = min(caught_up[task], key=lambda each: (self._pressure(each), each.bytes))
            else:
                stay = min(lags, key=lambda each: (lags[each], each.bytes))
            self._load[desired] -= 1
            self._load[stay] += 1
            self._active[task] = stay
            if len(warmups) < self._settings.warmups_max and desired not in self._failed:
                warmups[task] = desired
                self._load[desired] += 1
        return warmups

    def _standbys(self, warmups: Mapping[Task, UUID]) -> dict[Task, list[UUID]]:
        chosen: dict[Task, list[UUID]] = {}
        for task in sorted(self._stateful, key=_by_partition, reverse=True):
            holders = [self._active[task]]
            taken = {*holders, *((warmups[task],) if task in warmups else ())}
            copies: list[UUID] = []
            while len(copies) < self._settings.standbys:
                free = [process for process in self._processes if process not in taken]
                if not free:
                    break
                process = self._standby(task, free, holders)
                copies.append(process)
                holders.append(process)
                taken.add(process)
                self._load[process] += 1
            if copies:
                chosen[task] = copies
        return chosen

    def _standby(self, task: Task, free: Iterable[UUID], holders: Sequence[UUID]) -> UUID:
        """A process whose tags differ from those of the holders, by the first key for which there is one."""
        lags, keys = self._lags[task], self._settings.rack_tags
        candidates = list(free)
        taken = {key: {self._tags[holder].get(key) for holder in holders} | {None} for key in keys}
        for place, key in enumerate(keys):
            new = [process for process in candidates if self._tags[process].get(key) not in taken[key]]
            if new:
                others = keys[place + 1 :]
                return min(
                    new,
                    key=lambda each: (
                        -sum(self._tags[each].get(other) not in taken[other] for other in others),
                        math.isinf(lags[each]),
                        self._pressure(each),
                        each.bytes,
                    ),
                )
        return min(candidates, key=lambda each: (lags[each], self._pressure(each), each.bytes))

    def _seat(self, task: Task, process: UUID, seats: Counter[str], wanted: str | None = None) -> str:
        """The member of *process* that gets *task*.

        With *wanted* it is the task's owner, else *wanted*. Otherwise, or if neither is in the process, it is the
        member with the fewest tasks.
        """
        ids = self._processes[process]
        had = (self._owned.get(task), wanted) if wanted is not None else ()
        chosen = next((each for each in had if each in ids), None)
        if chosen is None:
            chosen = min(ids, key=lambda each: (seats[each], each))
        seats[chosen] += 1
        return chosen


def _by_partition(task: Task) -> tuple[int, str]:
    return task.partition, task.subtopology
