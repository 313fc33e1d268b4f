"""Collects the result of one event. Decides nothing."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from kip848_client.testing.coordinator.core.group_events import EventMember, FactValue, GroupEvent
from kip848_client.testing.coordinator.core.result import (
    CancelTimer,
    CoordinatorRecord,
    CoordinatorResult,
    DeleteShareState,
    InitializeShareState,
    Reply,
    ResolveRegexes,
    SoftChange,
)
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind

_AT_REST: Final = frozenset({"Stable", "Empty"})


class Batch:
    """Records, soft changes and facts of one event, for one group."""

    __slots__ = ("events", "group_id", "records", "replies", "share_state", "soft", "tasks")

    def __init__(self, group_id: str) -> None:
        self.group_id: str = group_id
        self.records: list[CoordinatorRecord] = []
        self.soft: list[SoftChange] = []
        self.tasks: list[ResolveRegexes] = []
        self.share_state: list[InitializeShareState | DeleteShareState] = []
        self.events: list[GroupEvent] = []
        self.replies: list[Reply] = []
        """Replies to requests of earlier events."""

    def happened(
        self,
        event: str,
        *,
        member: EventMember | None = None,
        group_epoch: int,
        fields: Mapping[str, FactValue],
    ) -> None:
        """Note one fact."""
        self.events.append(
            GroupEvent(
                event=event,
                group_id=self.group_id,
                member_id=None if member is None else member.member_id,
                client_id=None if member is None else member.client_id,
                member_epoch=None if member is None else member.member_epoch,
                group_epoch=group_epoch,
                fields=fields,
            )
        )

    def state_changed(self, *, old: enum.StrEnum, new: enum.StrEnum, group_epoch: int) -> None:
        """Note a change of the group's state; nothing if it did not change.

        A group of one member may get an epoch and be at rest again in one decision: its rebalance has an end, too.
        """
        bumped = any(event.event == "group_epoch_bumped" for event in self.events)
        if old is not new or (bumped and str(new) in _AT_REST):
            self.happened("group_state_changed", group_epoch=group_epoch, fields={"old": str(old), "new": str(new)})

    def cancel_timers(self, member_id: str) -> None:
        """Stop every timer of a member."""
        self.soft += [CancelTimer(TimerKey(kind, self.group_id, member_id)) for kind in TimerKind]

    def add(self, result: CoordinatorResult) -> None:
        """Add another result of the same event, as of the classic group that this group was or becomes."""
        self.records += result.records
        self.soft += result.soft
        self.share_state += result.share_state
        self.events += result.events
        self.replies += result.replies

    def result(self, *replies: Reply) -> CoordinatorResult:
        """The collected result. Call it last."""
        return CoordinatorResult(
            replies=(*self.replies, *replies),
            records=tuple(self.records),
            soft=tuple(self.soft),
            tasks=tuple(self.tasks),
            share_state=tuple(self.share_state),
            events=tuple(self.events),
        )
