"""Kafka Connect's two assignors, for workers: `CooperativeAssignor` and `EagerAssignor`.

Source: apache/kafka ``IncrementalCooperativeAssignor`` and ``EagerAssignor``; KIP-415.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from kip848_client.assignors.units.unit_interface import WorkerGroup, WorkerPlan, WorkerSpec
from kip848_client.assignors.units.unit_plans import plan_eager
from kip848_client.common.model import Unit

_Pair: TypeAlias = tuple[str, int]
"""A unit; tuples hash and sort faster than `Unit`, and a plan handles each unit many times."""

_STATE_VERSION: Final = 0
_BACKOFF_BASE: Final = 40


class _State(msgspec.Struct):
    """State that one run leaves for the next.

    Attributes:
        previous: units that were planned or deferred, and the members then.
        delay_ms: how long after this run the deferred units are due, or a move may be tried; 0: nothing is due.
        candidates: members without units that came during the delay; they get the lost units.
        balanced: the last run moved units.
        successive: runs that wanted to move units again before the last move was done.
        last_owner: name, index and worker id, of every planned unit.
    """

    previous: list[_Pair] = []
    previous_members: list[str] = []
    delay_ms: int = 0
    candidates: list[str] = []
    balanced: bool = False
    successive: int = 0
    last_owner: list[tuple[str, int, str | None]] = []


class EagerAssignor:
    """Deals all units round-robin over the workers, regardless of their owners before."""

    name = "eager"

    def assign(self, group: WorkerGroup) -> WorkerPlan:
        """Plan; no memory, no delay."""
        return WorkerPlan(plan_eager([worker.member_id for worker in group.workers], group.units, {}))


class CooperativeAssignor:
    """Keeps units where they are, waits for a worker that comes back, and spreads new units.

    Units of a worker that is gone are *lost*: no other worker runs them for `max_delay_ms`, so that a restart moves
    nothing. Then they go to workers that came meanwhile, or to those with the fewest units.

    Args:
        max_delay_ms: Connect's ``scheduled.rebalance.max.delay.ms``; 0: lost units move at once.
        mode: ``declarative`` plans the final state, and the coordinator stops units before others start them.
            ``two_phase`` leaves what moves without a worker until the next run, as Java does.
        recognise_workers: a worker that comes back under its ``worker.id`` takes its lost units at once.
    """

    name = "cooperative"

    def __init__(
        self,
        *,
        max_delay_ms: int = 300_000,
        mode: Literal["declarative", "two_phase"] = "declarative",
        recognise_workers: bool = True,
    ) -> None:
        self._max_delay_ms: Final = max_delay_ms
        self._declarative: Final = mode == "declarative"
        self._recognise: Final = recognise_workers and mode == "declarative"

    def assign(self, group: WorkerGroup) -> WorkerPlan:
        """Plan."""
        return _Run(
            group,
            max_delay_ms=self._max_delay_ms,
            declarative=self._declarative,
            recognise=self._recognise,
        ).plan()


class _Run:
    """One plan, step by step as Java takes them."""

    def __init__(self, group: WorkerGroup, *, max_delay_ms: int, declarative: bool, recognise: bool) -> None:
        self._max_delay_ms = max_delay_ms
        self._declarative = declarative
        self._recognise = recognise
        self._workers = group.workers
        draining = {worker.member_id for worker in group.workers if worker.draining}
        if len(draining) == len(group.workers):
            draining.clear()  # a worker must run the units
        self._members = [worker.member_id for worker in group.workers if worker.member_id not in draining]
        self._catalogue: set[_Pair] = {(unit.name, unit.index) for unit in group.units}
        state, age_ms = _read_state(group), max(group.state_age_ms, 0)
        self._state = state
        self._balanced, self._successive = state.balanced, state.successive
        self._delay_ms = state.delay_ms
        self._remaining_ms: int | None = state.delay_ms - age_ms if state.delay_ms else None
        """Until the deadline; None if there is none."""
        self._candidates = list(state.candidates)
        self._next: dict[str, list[_Pair]] = {member_id: [] for member_id in self._members}
        self._to_place: list[_Pair] = []
        targets: set[_Pair] = set()
        for worker in group.workers:
            held = [(unit.name, unit.index) for unit in worker.target]
            targets.update(held)
            kept = [pair for pair in held if pair in self._catalogue]
            if worker.member_id in draining:
                self._to_place += kept  # left without a delay: they are not lost
            else:
                self._next[worker.member_id] = kept
        previous = set(state.previous)
        self._lost = (previous - targets) & self._catalogue
        self._to_place += self._catalogue - previous - targets  # created

    def plan(self) -> WorkerPlan:
        """Take the steps."""
        if self._declarative and self._balanced and all(worker.reconciled for worker in self._workers):
            self._balanced, self._successive = False, 0
        if self._recognise:
            self._take_back()
        self._handle_lost()
        moved = self._balance()
        if self._declarative:
            self._to_place += moved
        self._place(self._to_place)
        waiting = self._lost if self._declarative else self._lost.union(moved)
        planned = [pair for units in self._next.values() for pair in units]
        worker_ids = {worker.member_id: worker.worker_id for worker in self._workers}
        owners = {(name, index): owner for name, index, owner in self._state.last_owner if (name, index) in self._lost}
        owners.update((pair, worker_ids[member_id]) for member_id, units in self._next.items() for pair in units)
        state = _State(
            previous=sorted([*planned, *self._lost]),  # in an order of its own, so that equal input gives equal bytes
            previous_members=[worker.member_id for worker in self._workers],
            delay_ms=self._delay_ms,
            candidates=self._candidates,
            balanced=self._balanced,
            successive=self._successive,
            last_owner=[(name, index, owner) for (name, index), owner in owners.items()],
        )
        units = {worker.member_id: self._units(worker) for worker in self._workers}
        return WorkerPlan(
            units=units,
            deferred=frozenset([Unit(*pair) for pair in waiting]),
            delay_ms=self._delay_ms,
            state=msgspec.msgpack.encode(state),
            state_version=_STATE_VERSION,
        )

    def _units(self, worker: WorkerSpec) -> list[Unit]:
        known = {(unit.name, unit.index): unit for unit in worker.target}
        return [known.get(pair) or Unit(*pair) for pair in sorted(self._next.get(worker.member_id, ()))]

    def _take_back(self) -> None:
        """A worker that returns under its name has its units again at once."""
        before = set(self._state.previous_members)
        owners: dict[str | None, list[_Pair]] = {}
        for name, index, owner in self._state.last_owner:
            if (name, index) in self._lost:
                owners.setdefault(owner, []).append((name, index))
        for worker in self._workers:
            held = self._next.get(worker.member_id)
            if held is None or held or worker.member_id in before or worker.worker_id is None:
                continue
            back = owners.pop(worker.worker_id, [])
            held += back
            self._lost.difference_update(back)

    def _handle_lost(self) -> None:
        """Decide about units whose worker is gone."""
        present = {worker.member_id for worker in self._workers}
        if not self._lost and not self._balanced:
            self._end_delay()
        elif self._remaining_ms is None and present.issuperset(self._state.previous_members):
            self._place_lost()  # no worker left: an assignment was not delivered
        elif not self._max_delay_ms:
            self._place_lost()
            self._end_delay()
        elif self._remaining_ms is not None and self._remaining_ms <= 0:
            candidates = [member_id for member_id in self._candidates if member_id in self._next]
            if candidates:
                for kind in _kinds(self._lost):
                    for number, pair in enumerate(kind):
                        self._next[candidates[number % len(candidates)]].append(pair)
                self._lost.clear()
            else:
                self._place_lost()
            self._end_delay()
            self._balanced = False
        else:
            known = set(self._candidates)
            self._candidates += [
                member_id for member_id, held in self._next.items() if not held and member_id not in known
            ]
            remaining_ms = self._max_delay_ms if self._remaining_ms is None else self._remaining_ms
            self._delay_ms = min(remaining_ms, self._max_delay_ms)

    def _place_lost(self) -> None:
        self._to_place += self._lost
        self._lost.clear()

    def _end_delay(self) -> None:
        self._candidates, self._delay_ms, self._remaining_ms = [], 0, None

    def _balance(self) -> list[_Pair]:
        """Take units from workers that have too many; returns them."""
        if self._delay_ms:
            self._balanced = False
            return []
        if not self._catalogue or not any(self._next.values()):
            return []
        surplus = [*self._surplus(is_task=False), *self._surplus(is_task=True)]
        if not surplus:
            if self._balanced:
                self._balanced, self._successive = False, 0
            return []
        if self._balanced:
            self._successive += 1
            self._delay_ms = _backoff_ms(self._successive, self._max_delay_ms)
            if self._delay_ms:
                return []
        self._balanced = True
        taken = {pair for _, pair in surplus}
        for member_id in {member_id for member_id, _ in surplus}:
            self._next[member_id] = [pair for pair in self._next[member_id] if pair not in taken]
        return sorted(taken)

    def _surplus(self, *, is_task: bool) -> list[tuple[str, _Pair]]:
        """(member, unit) beyond a fair share, of one kind."""
        total = sum((index >= 0) == is_task for _, index in self._catalogue)
        lo, extra = divmod(total, len(self._members))
        held = {
            member_id: sorted([pair for pair in units if (pair[1] >= 0) == is_task])
            for member_id, units in self._next.items()
        }
        sizes = [len(units) for units in held.values()]
        if sizes.count(lo + 1) == extra and sizes.count(lo) == len(sizes) - extra:
            return []
        surplus = []
        for member_id, units in held.items():
            if len(units) <= lo:
                continue
            cap = lo
            if extra:
                extra -= 1
                cap = lo + 1
            surplus += [(member_id, pair) for pair in units[cap:]]
        return surplus

    def _place(self, pairs: Iterable[_Pair]) -> None:
        """Each unit to the worker with the fewest of its kind."""
        for is_task, kind in enumerate(_kinds(pairs)):
            if not kind:
                continue
            heap = [
                (sum((pair[1] >= 0) == bool(is_task) for pair in units), member_id)
                for member_id, units in self._next.items()
            ]
            heapq.heapify(heap)
            for pair in kind:
                count, member_id = heap[0]
                self._next[member_id].append(pair)
                heapq.heapreplace(heap, (count + 1, member_id))


def _kinds(pairs: Iterable[_Pair]) -> tuple[list[_Pair], list[_Pair]]:
    """(plain units and connectors, tasks), each ascending."""
    ordered = sorted(pairs)
    return [pair for pair in ordered if pair[1] < 0], [pair for pair in ordered if pair[1] >= 0]


def _backoff_ms(successive: int, max_delay_ms: int) -> int:
    """40, 1600, 64000, ... up to the greatest delay: Kafka's ``ExponentialBackoff`` without jitter."""
    if max_delay_ms <= 1:
        return max_delay_ms
    exponent = min(successive, math.log(max_delay_ms) / math.log(_BACKOFF_BASE))
    return min(max_delay_ms, math.floor(math.pow(_BACKOFF_BASE, exponent) + 1e-6))  # 40^3 may come out below 64000


def _read_state(group: WorkerGroup) -> _State:
    """The state that the last run left; a fresh one if there is none, or it cannot be read."""
    if group.state is None or group.state_version != _STATE_VERSION:
        return _State()
    try:
        return msgspec.msgpack.decode(group.state, type=_State)
    except msgspec.MsgspecError:
        return _State()
