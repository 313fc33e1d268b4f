"""The interface between `Member` and the protocol of its group. Types only.

Does not own: the rules of either protocol (`kip848_protocol`, `classic_protocol`, and their parts).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from kip848_client.common.model import Subscription, TopicIdPartition
from kip848_client.member.core.assignment import IdPartition
from kip848_client.member.core.assignor_events import AssignorEvent
from kip848_client.member.core.events import (
    HandOverRequested,
    MetadataUpdated,
    RequestFailed,
    TopicsDescribed,
)
from kip848_client.member.group.group_exit import GroupExit
from kip848_client.member.group.runs import Run


class GroupFacts(msgspec.Struct, frozen=True):
    """The fields of `MemberSnapshot` that come from the group part; they are explained there."""

    target: frozenset[IdPartition]
    current: frozenset[IdPartition]
    ack_due: bool
    heartbeat_in_flight: bool
    heartbeat_interval_ms: int


class GroupPart(ABC):
    """Membership in a group by one protocol."""

    exit: GroupExit
    """The ways out: leaving, the poll timer."""

    @property
    @abstractmethod
    def poll_wanted(self) -> bool:
        """Whether the next poll() moves the member."""

    @property
    @abstractmethod
    def run(self) -> Run | None:
        """The run under way."""

    @property
    @abstractmethod
    def blocked(self) -> frozenset[TopicIdPartition]:
        """Owned partitions that must not be read now."""

    @property
    @abstractmethod
    def handing_over(self) -> bool:
        """Whether a hand-over is under way."""

    @property
    def standing_by(self) -> bool:
        """Whether the member waits for a slot."""
        return False

    @property
    @abstractmethod
    def expects_partitions(self) -> bool:
        """Whether an answer that is due soon may bring partitions."""

    @abstractmethod
    def facts(self) -> GroupFacts:
        """For a snapshot."""

    @abstractmethod
    def resume(self) -> None:
        """Do what needs no coordinator. Called first in each step, after the event."""

    @abstractmethod
    def advance(self) -> None:
        """Send the requests that are due."""

    @abstractmethod
    def subscribe(self, subscription: Subscription) -> None:
        """The application wants these topics."""

    @abstractmethod
    def polled(self) -> None:
        """poll() began."""

    @abstractmethod
    def hand_over(self, event: HandOverRequested) -> None:
        """hand_over() was called."""

    @abstractmethod
    def coordinator_found(self) -> None:
        """There is a connection to the coordinator."""

    @abstractmethod
    def connection_refused(self, failure: RequestFailed) -> None:
        """The coordinator refused the connection or does not offer our protocol."""

    @abstractmethod
    def metadata_updated(self, event: MetadataUpdated) -> None:
        """Learn names of topics."""

    @abstractmethod
    def topics_described(self, event: TopicsDescribed) -> None:
        """The answer to `DescribeTopics`."""

    @abstractmethod
    def handle(self, event: AssignorEvent) -> None:
        """The user's assignor returned, or the application wants a new assignment."""
