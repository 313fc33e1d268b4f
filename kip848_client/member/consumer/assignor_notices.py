"""Calls on_assignment() of a member's assignors: once per member epoch, with the complete target, before the listener.

The complete target is the member's assignment and the partitions that others have yet to release. The cluster is asked
for topic names that are missing; a topic that it does not know is left out.

Source: KIP-848 "Assignment": onAssignment is called when the member moves to its new epoch, before the listener.
Rules: R172 to R174 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import msgspec

from kip848_client.assignors.client.interface import ConsumerGroupMetadata
from kip848_client.common.model import TopicIdPartition
from kip848_client.member.consumer.topic_names import TopicNames
from kip848_client.member.core.assignor_events import CallOnAssignment
from kip848_client.member.core.context import Context
from kip848_client.member.core.events import MetadataUpdated
from kip848_client.wire.messages.consumer_group_heartbeat import Assignment, TopicPartitions


class _Target(msgspec.Struct, frozen=True):
    """The target of this member, as of the last answer."""

    partitions: frozenset[tuple[UUID, int]] = frozenset()
    error: int = 0
    version: int = 0
    metadata: bytes = b""
    assignor_name: str = ""


class _Notice(msgspec.Struct, frozen=True):
    """A target for which on_assignment() was not called yet."""

    incarnation: int
    epoch: int
    target: _Target
    until_ms: int
    """How long the rebalance listener waits for this notice."""


class AssignorNotices:
    """The pending on_assignment() call of one member. A newer target replaces it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._told: tuple[int, int] | None = None
        """Incarnation and epoch of the last notice."""
        self._target = _Target()
        self._notice: _Notice | None = None
        self._giving: _Notice | None = None
        """The notice of the call that is in progress or returned last."""
        self._names = TopicNames(context, failure_counts=False)

    @property
    def holds_back(self) -> bool:
        """Whether the rebalance listener must wait for on_assignment()."""
        return self._notice is not None and self._context.now_ms < self._notice.until_ms

    def receive(self, assignment: Assignment | None) -> None:
        """A heartbeat with this assignment was accepted, and its epoch applied."""
        context = self._context
        if assignment is not None:
            self._target = _Target(
                _partitions(assignment.topic_partitions) | _partitions(assignment.pending_topic_partitions),
                assignment.error,
                assignment.metadata_version,
                assignment.metadata_bytes,
                assignment.assignor_name,
            )
        elif self._told is None or self._told[0] != context.incarnation:
            self._target = _Target()
        if self._told == (context.incarnation, context.epoch):
            return
        self._told = (context.incarnation, context.epoch)
        until_ms = context.now_ms + context.config.assignor_timeout_ms
        self._notice = _Notice(context.incarnation, context.epoch, self._target, until_ms)
        self._names.want(_topic_ids(self._target))
        self._names.ask_anew()

    def drop_stale(self, *, member: bool) -> None:
        """Drop a notice from before the last join, and every notice if the member is not in the group."""
        if self._notice is not None and (self._notice.incarnation != self._context.incarnation or not member):
            self._notice = None

    # --- call

    @property
    def ready(self) -> bool:
        """Whether on_assignment() can be called now."""
        return self._notice is not None and not self._names.not_asked

    def call(self, call_id: int) -> CallOnAssignment:
        """Build the call of on_assignment()."""
        notice, config = self._notice, self._context.config
        assert notice is not None
        self._giving = notice
        target = notice.target
        named = (
            TopicIdPartition(self._names[topic_id], index, topic_id)
            for topic_id, index in target.partitions
            if topic_id in self._names
        )
        return CallOnAssignment(
            call_id,
            assignor_name=target.assignor_name,
            error=target.error,
            partitions=tuple(sorted(named)),
            metadata=target.metadata,
            version=target.version,
            group_metadata=ConsumerGroupMetadata(
                config.group_id, self._context.member_id, notice.epoch, self._context.instance_id
            ),
        )

    def given(self) -> None:
        """The call returned. A notice that arrived meanwhile is due now, even for the same epoch."""
        if self._notice is self._giving:
            self._notice = None

    # --- names

    def metadata_updated(self, event: MetadataUpdated) -> None:
        """Learn names of topics."""
        useful = _topic_ids(self._target)
        self._names.update(event, useful=useful if self._notice is None else useful | _topic_ids(self._notice.target))

    def advance(self) -> None:
        """Ask the cluster, once for each notice, for names that are missing."""
        if self._notice is None:
            return
        if self._names.not_asked:
            self._names.ask()
        if self.holds_back:
            self._context.wake_at(self._notice.until_ms)


def _topic_ids(target: _Target) -> frozenset[UUID]:
    return frozenset(topic_id for topic_id, _ in target.partitions)


def _partitions(topics: Iterable[TopicPartitions]) -> frozenset[tuple[UUID, int]]:
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)
