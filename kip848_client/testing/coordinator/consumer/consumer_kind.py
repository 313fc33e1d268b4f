"""Consumer groups as one of the coordinator's kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.consumer.consumer_commit import check_commit, check_fetch
from kip848_client.testing.coordinator.consumer.consumer_departure import remove_members, time_is_up
from kip848_client.testing.coordinator.consumer.consumer_describe import handle_consumer_group_describe
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.consumer_heartbeat import handle_heartbeat
from kip848_client.testing.coordinator.consumer.install_assignment import handle_install, handle_prepare
from kip848_client.testing.coordinator.consumer.mixed_consumer_group import MixedConsumerGroup
from kip848_client.testing.coordinator.consumer.subscriptions import AllChecksDue, MetadataCheckDue
from kip848_client.testing.coordinator.core.group_events import EventMember
from kip848_client.testing.coordinator.core.kind import ClassicSide, CommitAttempt, GroupKind, Route, route, timeless
from kip848_client.testing.coordinator.core.result import CoordinatorResult, SoftChange
from kip848_client.testing.coordinator.core.timers import ArmedTimer, TimerKey, TimerKind
from kip848_client.testing.coordinator.modern.departure import MEMBER_TIMERS
from kip848_client.testing.coordinator.modern.member_timers import timers_after_load
from kip848_client.testing.coordinator.modern.replay import replay
from kip848_client.wire.messages import group_records as wire
from kip848_client.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.consumer_group_install_assignment import ConsumerGroupInstallAssignmentRequest
from kip848_client.wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest
from kip848_client.wire.messages.leave_group import MemberIdentity
from kip848_client.wire.schema import RecordPart


class ConsumerKind(GroupKind[ConsumerGroup]):
    """See the module."""

    GROUP: ClassVar[type[ConsumerGroup]] = ConsumerGroup
    ROUTES: ClassVar[tuple[Route, ...]] = (
        route(ConsumerGroupHeartbeatRequest, handle_heartbeat),
        route(ConsumerGroupPrepareAssignmentRequest, handle_prepare),
        route(ConsumerGroupInstallAssignmentRequest, handle_install),
        timeless(ConsumerGroupDescribeRequest, handle_consumer_group_describe),
    )
    RECORD_KEYS: ClassVar[tuple[type[RecordPart], ...]] = (
        wire.ConsumerGroupMetadataKey,
        wire.ConsumerGroupPartitionMetadataKey,
        wire.ConsumerGroupMemberMetadataKey,
        wire.ConsumerGroupTargetAssignmentMetadataKey,
        wire.ConsumerGroupTargetAssignmentMemberKey,
        wire.ConsumerGroupCurrentMemberAssignmentKey,
        wire.ConsumerGroupRegularExpressionKey,
    )
    TIMERS: ClassVar[frozenset[TimerKind]] = MEMBER_TIMERS
    HAS_OFFSETS: ClassVar[bool] = True

    def replay(self, key: Any, value: Any) -> None:
        """Apply the record to its group; the first one makes the group."""
        replay(self.state, key, value, kind=ConsumerGroup)

    def loaded(self, *, now_ms: int) -> Sequence[SoftChange]:
        """Every member's session starts again; each group compares the topics at its next heartbeat."""
        groups = self.state.all_of(ConsumerGroup)
        return [
            AllChecksDue(tuple(group.group_id for group in groups)),
            *[timer for group in groups for timer in timers_after_load(self.state, group, now_ms=now_ms)],
        ]

    def time_is_up(
        self, group: ConsumerGroup, key: TimerKey, timer: ArmedTimer, *, now_ms: int, wall_ms: int
    ) -> CoordinatorResult:
        """See `consumer_departure`."""
        return time_is_up(self.state, group, key, timer, now_ms=now_ms, wall_ms=wall_ms)

    def topics_changed(self, names: frozenset[str]) -> Sequence[SoftChange]:
        """Groups that subscribe to one of them look at their next heartbeat."""
        due = [
            group.group_id
            for group in self.state.all_of(ConsumerGroup)
            if not names.isdisjoint(group.subscribed_topics)
        ]
        return (MetadataCheckDue(tuple(sorted(due))),)

    def remove_members(
        self, group: ConsumerGroup, leaving: Sequence[MemberIdentity], *, now_ms: int, wall_ms: int
    ) -> tuple[Sequence[ErrorCode], CoordinatorResult]:
        """See `consumer_departure`."""
        return remove_members(self.state, group, leaving, now_ms=now_ms, wall_ms=wall_ms)

    def classic_side(self, group: ConsumerGroup) -> ClassicSide:
        """See `mixed_consumer_group`."""
        return MixedConsumerGroup(self.state, group)

    def check_commit(self, group: ConsumerGroup, commit: CommitAttempt, *, now_ms: int) -> Sequence[SoftChange]:
        """See `consumer_commit`."""
        del now_ms
        check_commit(group, commit)
        return ()

    def check_fetch(self, group: ConsumerGroup, *, member_id: str, member_epoch: int) -> None:
        """See `consumer_commit`."""
        check_fetch(group, member_id=member_id, member_epoch=member_epoch)

    def committing(self, group: ConsumerGroup, member_id: str) -> tuple[EventMember | None, int]:
        """A member, and the group epoch."""
        return group.members.get(member_id), group.group_epoch
