"""The interface between `Member` and the protocol of its group. Types only.

Does not own: the rules of either protocol (`consumer_group`, `classic_group`, and their parts).
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from kip848_client.member.core.assignment import IdPartition
from kip848_client.member.core.assignor_events import AssignorEvent
from kip848_client.member.core.events import (
    HandOverRequested,
    LeaveRequested,
    MetadataUpdated,
    RequestFailed,
    TopicsDescribed,
)
from kip848_client.member.group.runs import Run
from kip848_client.model import Subscription, TopicIdPartition

__all__ = ["GroupFacts", "GroupPart"]


class GroupFacts(msgspec.Struct, frozen=True):
    """The fields of `MemberSnapshot` that come from the group part; they are explained there."""

    target: frozenset[IdPartition]
    current: frozenset[IdPartition]
    ack_due: bool
    heartbeat_in_flight: bool
    heartbeat_interval_ms: int


class GroupPart(Protocol):
    """Membership in a group by one protocol."""

    @property
    def poll_wanted(self) -> bool:
        """Whether the next poll() moves the member."""
        ...

    @property
    def run(self) -> Run | None:
        """The run under way."""
        ...

    @property
    def blocked(self) -> frozenset[TopicIdPartition]:
        """Owned partitions that must not be read now."""
        ...

    @property
    def handing_over(self) -> bool:
        """Whether a hand-over is under way."""
        ...

    @property
    def expects_partitions(self) -> bool:
        """Whether an answer that is due soon may bring partitions."""
        ...

    def facts(self) -> GroupFacts:
        """For a snapshot."""
        ...

    def resume(self) -> None:
        """Do what needs no coordinator. Called first in each step, after the event."""
        ...

    def advance(self) -> None:
        """Send what is due."""
        ...

    def subscribe(self, subscription: Subscription) -> None:
        """The application wants these topics."""
        ...

    def seen_polling(self, at_ms: int) -> None:
        """The application was inside poll() at *at_ms*."""
        ...

    def polled(self) -> None:
        """poll() began."""
        ...

    def check_poll_timer(self) -> None:
        """Leave the group if the application did not poll in time."""
        ...

    def leave(self, event: LeaveRequested) -> None:
        """unsubscribe() or close()."""
        ...

    def abandon(self, leave_id: int) -> None:
        """The caller stopped waiting for this leave."""
        ...

    def hand_over(self, event: HandOverRequested) -> None:
        """hand_over() was called."""
        ...

    def coordinator_found(self) -> None:
        """There is a connection to the coordinator."""
        ...

    def connection_refused(self, failure: RequestFailed) -> None:
        """The coordinator refused the connection or does not offer our protocol."""
        ...

    def metadata_updated(self, event: MetadataUpdated) -> None:
        """Learn names of topics."""
        ...

    def topics_described(self, event: TopicsDescribed) -> None:
        """The answer to `DescribeTopics`."""
        ...

    def handle(self, event: AssignorEvent) -> None:
        """The user's assignor returned, or the application wants a new assignment."""
        ...
