"""The interface of client-side assignors of units: input and result. One worker of the group runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from kip848_client.common.model import Unit


class WorkerSpec(msgspec.Struct, frozen=True):
    """One worker of the group.

    Args:
        target: its units in the present plan, ascending; empty for a newcomer.
        reconciled: it runs all of that.
        draining: it wants to give its units away.
    """

    member_id: str
    worker_id: str | None = None
    target: tuple[Unit, ...] = ()
    reconciled: bool = True
    draining: bool = False


class WorkerGroup(msgspec.Struct, frozen=True):
    """The group as it is now.

    Args:
        workers: by member id, ascending; at least one.
        units: the catalogue.
        state: what the assignor left at its last run, on any worker; None if there was none.
        state_age_ms: how long ago that was; -1 if it is not known.
    """

    workers: tuple[WorkerSpec, ...]
    units: frozenset[Unit]
    state: bytes | None = None
    state_version: int = 0
    state_age_ms: int = -1


class WorkerPlan(msgspec.Struct, frozen=True):
    """The target of a group of workers.

    Args:
        units: member id -> units; each unit of the catalogue is here once, or in *deferred*.
        deferred: units that no worker should run for now.
        delay_ms: when the assignor wants to run again; 0: not by itself.
        state: bytes that the next run gets.
    """

    units: Mapping[str, Sequence[Unit]]
    deferred: frozenset[Unit] = frozenset()
    delay_ms: int = 0
    state: bytes | None = None
    state_version: int = 0


class UnitAssignor(Protocol):
    """Computes plans. A pure function of the group: the next run may be on another worker."""

    name: str

    def assign(self, group: WorkerGroup) -> WorkerPlan:
        """Plan."""
        ...
