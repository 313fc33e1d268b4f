"""Which heartbeats of workers came, so that one that comes late is not taken for the worker's state now. Soft state."""

from __future__ import annotations

from typing import Final

import msgspec

from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState, StatePart


class HeardHeartbeats(StatePart):
    """Connect group -> worker -> number of the latest heartbeat that came."""

    def __init__(self, state: CoordinatorState) -> None:
        super().__init__(state)
        self._heard: Final[dict[str, dict[str, int]]] = {}

    def latest(self, group_id: str, member_id: str) -> int:
        """The number of a worker's latest heartbeat; -1 if none came."""
        return self._heard.get(group_id, {}).get(member_id, -1)

    def note(self, group_id: str, member_id: str, sequence: int | None) -> None:
        """A heartbeat came; None: the worker is gone."""
        if sequence is None:
            self._heard.get(group_id, {}).pop(member_id, None)
        else:
            self._heard.setdefault(group_id, {})[member_id] = sequence

    def forget(self, group_id: str) -> None:
        """Drop the state kept for a group that no longer exists."""
        self._heard.pop(group_id, None)


class Heard(msgspec.Struct, frozen=True):
    """The worker's heartbeats up to this one came; None: it is not a worker any more."""

    group_id: str
    member_id: str
    sequence: int | None

    def apply(self, state: CoordinatorState) -> None:
        """Remember it."""
        state.part(HeardHeartbeats).note(self.group_id, self.member_id, self.sequence)
