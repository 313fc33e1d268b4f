"""The round in flight: which member computes the target of a group, and the snapshot that it got. Decides nothing.

Soft state: lost with the process, and started again by the first heartbeat after a load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState, StatePart


class Prepared(msgspec.Struct, frozen=True):
    """The snapshot that the chosen member got; the target that it submits is checked against this alone.

    Args:
        group_epoch: the epoch that the target will be of.
        instance_ids: member id -> instance id, static members only.
    """

    group_epoch: int
    instance_ids: Mapping[str, str]


class AssignmentRound(msgspec.Struct, frozen=True):
    """One member was chosen to compute the target. There is at most one round per group.

    Args:
        is_notified: an answer asked the member to compute, and its timer runs.
        tried: members that were chosen before and failed.
        prepared: what its last ConsumerGroupPrepareAssignment was answered; None before the first one.
    """

    assignor_name: str
    member_id: str
    is_notified: bool = False
    tried: frozenset[str] = msgspec.field(default_factory=frozenset)
    prepared: Prepared | None = None


class Rounds(StatePart):
    """The rounds in flight, and when targets were computed last."""

    def __init__(self, state: CoordinatorState) -> None:
        super().__init__(state)
        self.in_flight: Final[dict[str, AssignmentRound]] = {}
        """Groups whose target a member is to compute."""
        self.computed_ms: Final[dict[str, int]] = {}
        """Group -> when its last target was computed."""

    def forget(self, group_id: str) -> None:
        """Drop the state kept for a group that no longer exists."""
        self.in_flight.pop(group_id, None)
        self.computed_ms.pop(group_id, None)


class RoundChanged(msgspec.Struct, frozen=True):
    """The round of a group that is in flight is now this one; None: none is."""

    group_id: str
    round: AssignmentRound | None

    def apply(self, state: CoordinatorState) -> None:
        """Keep the round, or forget the one that was in flight."""
        rounds = state.part(Rounds).in_flight
        if self.round is None:
            rounds.pop(self.group_id, None)
        else:
            rounds[self.group_id] = self.round


class TargetComputed(msgspec.Struct, frozen=True):
    """A target was computed now; the next one has to wait for the assignment interval."""

    group_id: str
    now_ms: int

    def apply(self, state: CoordinatorState) -> None:
        """Remember the time."""
        state.part(Rounds).computed_ms[self.group_id] = self.now_ms
