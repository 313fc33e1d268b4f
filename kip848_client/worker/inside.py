"""Which unit the present code works for: known inside its runner, and in what that calls or starts as tasks."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from kip848_client.worker.events import OwnedUnit

_INSIDE: Final[ContextVar[tuple[object, OwnedUnit] | None]] = ContextVar("kip848_unit", default=None)


def enter(worker: object, owned: OwnedUnit | None) -> None:
    """From here on this thread or task works for a unit of *worker*, or for none."""
    _INSIDE.set(None if owned is None else (worker, owned))


def unit_here(worker: object) -> OwnedUnit | None:
    """The unit of *worker* that the present code works for."""
    inside = _INSIDE.get()
    return inside[1] if inside is not None and inside[0] is worker else None
