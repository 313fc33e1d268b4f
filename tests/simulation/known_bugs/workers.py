"""Bugs of workers and of their coordinator: what their invariants are there for."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kip848_client.testing.coordinator.connect import catalogue
from kip848_client.testing.coordinator.connect import connect_records as records
from kip848_client.testing.coordinator.connect import worker_departure as departure
from kip848_client.testing.coordinator.connect import worker_heartbeat as heartbeat
from kip848_client.worker.classic.classic_round import ClassicRound
from kip848_client.worker.core import WorkerCore
from tests.simulation.known_bugs.registry import Patch, known_bug


@known_bug(
    "a worker that is cut off stops its units when they are given away, and not before", "U1", scenario="workers"
)
def _(patch: Patch) -> None:
    patch.setattr(WorkerCore, "_margin_ms", lambda core: -3_000)


@known_bug("a heartbeat that arrives late confirms what its worker ran then", "U1", scenario="workers", seed=13)
def _(patch: Patch) -> None:
    patch.setattr(heartbeat, "_check_sequence", lambda *_: None)


@known_bug("a lease does not end when the coordinator may remove its worker", "U1", scenario="workers", seed=16)
def _(patch: Patch) -> None:
    original = WorkerCore._note_wait

    def forget(core: Any, assignment: Any) -> None:
        original(core, assignment)
        core._revoking_since_ms = None

    patch.setattr(WorkerCore, "_note_wait", forget)


@known_bug("tokens do not grow", "U2", scenario="workers")
def _(patch: Patch) -> None:
    def write(held: Any) -> Any:
        return tuple(replace(item, epochs=(1,) * len(item.indexes)) for item in catalogue.write_held(held))

    patch.setattr("kip848_client.testing.coordinator.connect.worker_heartbeat.write_held", write)


@known_bug("units of a worker that is gone go to no other worker", "U3", scenario="workers")
def _(patch: Patch) -> None:
    def same_epoch(group_id: str, *, epoch: int, last_installer: str) -> Any:
        return records.group_record(group_id, epoch=epoch - 1, last_installer=last_installer)

    patch.setattr(departure, "connect_records", _Records(same_epoch))


@known_bug("the leader gives a unit away before its owner has stopped it", "U1", scenario="classic_workers")
def _(patch: Patch) -> None:
    original = ClassicRound._claim
    patch.setattr(ClassicRound, "_claim", lambda side, now_ms: replace(original(side, now_ms), running=[]))


@known_bug("tokens are generations, which begin again with a new group", "U2", scenario="classic_workers", seed=5)
def _(patch: Patch) -> None:
    def token(side: Any, _unit: Any) -> Any:
        yield from ()
        return side._generation

    patch.setattr(ClassicRound, "_token", token)


@known_bug("workers hear of a rebalance after five heartbeat intervals", "U4", scenario="classic_workers")
def _(patch: Patch) -> None:
    original = ClassicRound._answer

    def answer(side: Any) -> Any:
        return replace(original(side), heartbeat_interval_ms=5 * side._interval_ms)

    patch.setattr(ClassicRound, "_answer", answer)


class _Records:
    """The records of a connect group, with another one for the group epoch."""

    def __init__(self, group_record: Any) -> None:
        self.group_record = group_record

    def __getattr__(self, name: str) -> Any:
        return getattr(records, name)
