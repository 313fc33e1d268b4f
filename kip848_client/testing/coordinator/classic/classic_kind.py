"""Classic groups as one of the coordinator's kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kip848_client.errors import ErrorCode, IllegalStateError
from kip848_client.testing.coordinator.classic import rebalance
from kip848_client.testing.coordinator.classic.classic_commit import check_commit
from kip848_client.testing.coordinator.classic.classic_describe import handle_describe_groups
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup, from_value, put_classic_group
from kip848_client.testing.coordinator.classic.classic_heartbeat import handle_heartbeat
from kip848_client.testing.coordinator.classic.join import handle_join
from kip848_client.testing.coordinator.classic.leave import handle_leave, remove_members
from kip848_client.testing.coordinator.classic.sync import handle_sync
from kip848_client.testing.coordinator.core.kind import CommitAttempt, GroupKind, Route, route, timeless
from kip848_client.testing.coordinator.core.result import CoordinatorResult, SoftChange
from kip848_client.testing.coordinator.core.timers import ArmedTimer, TimerKey, TimerKind
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kip848_client.wire.messages.sync_group import SyncGroupRequest
from kip848_client.wire.schema import RecordPart


class ClassicKind(GroupKind[ClassicGroup]):
    """See the module. Its requests may concern groups of other kinds, too; those answer through `ClassicSide`."""

    GROUP: ClassVar[type[ClassicGroup]] = ClassicGroup
    ROUTES: ClassVar[tuple[Route, ...]] = (
        route(JoinGroupRequest, handle_join),
        route(SyncGroupRequest, handle_sync),
        route(HeartbeatRequest, handle_heartbeat),
        route(LeaveGroupRequest, handle_leave),
        timeless(DescribeGroupsRequest, handle_describe_groups),
    )
    RECORD_KEYS: ClassVar[tuple[type[RecordPart], ...]] = (GroupMetadataKey,)
    TIMERS: ClassVar[frozenset[TimerKind]] = rebalance.CLASSIC_TIMERS
    HAS_OFFSETS: ClassVar[bool] = True

    def replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """Replace the group whole."""
        group = self.state.groups.get(key.group)
        if value is not None and group is not None and not isinstance(group, ClassicGroup):
            raise IllegalStateError(f"a record of the classic group {key.group!r}, which is of another kind")
        put_classic_group(self.state, key.group, None if value is None else from_value(key.group, value))

    def loaded(self, *, now_ms: int) -> Sequence[SoftChange]:
        """Every member's session starts again."""
        groups = self.state.all_of(ClassicGroup)
        return [change for group in groups for change in rebalance.loaded(self.state, group, now_ms=now_ms).soft]

    def time_is_up(
        self, group: ClassicGroup, key: TimerKey, timer: ArmedTimer, *, now_ms: int, wall_ms: int
    ) -> CoordinatorResult:
        """A session or a phase of a rebalance has ended."""
        del timer
        return rebalance.time_is_up(self.state, group, key, now_ms=now_ms, wall_ms=wall_ms)

    def stopped(self) -> CoordinatorResult:
        """Answer parked JoinGroup and SyncGroup with NOT_COORDINATOR."""
        return rebalance.refuse_all(self.state, code=ErrorCode.NOT_COORDINATOR)

    def remove_members(
        self, group: ClassicGroup, leaving: Sequence[MemberIdentity], *, now_ms: int, wall_ms: int
    ) -> tuple[Sequence[ErrorCode], CoordinatorResult]:
        """See `leave`."""
        return remove_members(self.state, group, leaving, now_ms=now_ms, wall_ms=wall_ms)

    def check_commit(self, group: ClassicGroup, commit: CommitAttempt, *, now_ms: int) -> Sequence[SoftChange]:
        """See `classic_commit`."""
        return check_commit(group, commit, now_ms=now_ms)
