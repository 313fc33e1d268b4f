"""Share groups as one of the coordinator's kinds. They commit no offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import UUID

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.kind import GroupKind, Route, route, timeless
from kip848_client.testing.coordinator.core.result import (
    ArmTimer,
    CoordinatorResult,
    DeleteShareState,
    SoftChange,
)
from kip848_client.testing.coordinator.core.timers import ArmedTimer, TimerKey, TimerKind
from kip848_client.testing.coordinator.modern.replay import replay
from kip848_client.testing.coordinator.share.begun_partitions import (
    handle_alter_offsets,
    handle_delete_offsets,
    partitions_with_state,
    topics_gone,
)
from kip848_client.testing.coordinator.share.share_departure import time_is_up
from kip848_client.testing.coordinator.share.share_describe import handle_describe
from kip848_client.testing.coordinator.share.share_group import ShareGroup
from kip848_client.testing.coordinator.share.share_heartbeat import handle_heartbeat
from kip848_client.wire.messages import share_group_records as wire
from kip848_client.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kip848_client.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kip848_client.wire.messages.leave_group import MemberIdentity
from kip848_client.wire.messages.share_group_describe import ShareGroupDescribeRequest
from kip848_client.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kip848_client.wire.schema import RecordPart


class ShareKind(GroupKind[ShareGroup]):
    """See the module."""

    GROUP: ClassVar[type[ShareGroup]] = ShareGroup
    ROUTES: ClassVar[tuple[Route, ...]] = (
        route(ShareGroupHeartbeatRequest, handle_heartbeat),
        timeless(ShareGroupDescribeRequest, handle_describe),
        timeless(AlterShareGroupOffsetsRequest, handle_alter_offsets),
        timeless(DeleteShareGroupOffsetsRequest, handle_delete_offsets),
    )
    RECORD_KEYS: ClassVar[tuple[type[RecordPart], ...]] = (
        wire.ShareGroupMemberMetadataKey,
        wire.ShareGroupMetadataKey,
        wire.ShareGroupTargetAssignmentMetadataKey,
        wire.ShareGroupTargetAssignmentMemberKey,
        wire.ShareGroupCurrentMemberAssignmentKey,
        wire.ShareGroupStatePartitionMetadataKey,
    )
    TIMERS: ClassVar[frozenset[TimerKind]] = frozenset({TimerKind.SESSION})

    def replay(self, key: Any, value: Any) -> None:
        """Apply the record to its group; the first one makes the group."""
        replay(self.state, key, value, kind=ShareGroup)

    def loaded(self, *, now_ms: int) -> Sequence[SoftChange]:
        """Every member's session starts again."""
        return [
            ArmTimer(
                TimerKey(TimerKind.SESSION, group.group_id, member.member_id),
                deadline_ms=now_ms + self.state.group_config(group.group_id).share_session_timeout_ms,
                member_epoch=member.member_epoch,
            )
            for group in self.state.all_of(ShareGroup)
            for member in group.members.values()
        ]

    def time_is_up(
        self, group: ShareGroup, key: TimerKey, timer: ArmedTimer, *, now_ms: int, wall_ms: int
    ) -> CoordinatorResult:
        """See `share_departure`."""
        del timer, now_ms, wall_ms
        return time_is_up(self.state, group, key)

    def topics_gone(self, topic_ids: frozenset[UUID]) -> CoordinatorResult:
        """See `begun_partitions`."""
        return topics_gone(self.state, topic_ids)

    def delete(self, group: ShareGroup) -> CoordinatorResult:
        """The state of its partitions goes, too."""
        return CoordinatorResult(
            records=tuple(group.tombstones()),
            share_state=(DeleteShareState(group.group_id, partitions_with_state(group)),),
        )

    def remove_members(
        self, group: ShareGroup, leaving: Sequence[MemberIdentity], *, now_ms: int, wall_ms: int
    ) -> tuple[Sequence[ErrorCode], CoordinatorResult]:
        """LeaveGroup finds no member, as in Kafka: only the members themselves leave."""
        del group, now_ms, wall_ms
        return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving), CoordinatorResult()
