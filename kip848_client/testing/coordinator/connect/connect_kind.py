"""Connect groups as one of the coordinator's kinds. They have no offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.connect.connect_describe import handle_describe
from kip848_client.testing.coordinator.connect.connect_group import ConnectGroup
from kip848_client.testing.coordinator.connect.connect_rounds import handle_install, handle_prepare
from kip848_client.testing.coordinator.connect.mixed_connect_group import MixedConnectGroup
from kip848_client.testing.coordinator.connect.worker_departure import remove_members, time_is_up
from kip848_client.testing.coordinator.connect.worker_heartbeat import handle_heartbeat
from kip848_client.testing.coordinator.core.kind import ClassicSide, GroupKind, Route, route, timeless
from kip848_client.testing.coordinator.core.result import CoordinatorResult, SoftChange
from kip848_client.testing.coordinator.core.timers import ArmedTimer, TimerKey, TimerKind
from kip848_client.testing.coordinator.modern.departure import MEMBER_TIMERS
from kip848_client.testing.coordinator.modern.member_timers import timers_after_load
from kip848_client.testing.coordinator.modern.replay import replay
from kip848_client.wire.messages import connect_group_records as wire
from kip848_client.wire.messages.connect_group_describe import ConnectGroupDescribeRequest
from kip848_client.wire.messages.connect_group_heartbeat import ConnectGroupHeartbeatRequest
from kip848_client.wire.messages.connect_group_install_assignment import ConnectGroupInstallAssignmentRequest
from kip848_client.wire.messages.connect_group_prepare_assignment import ConnectGroupPrepareAssignmentRequest
from kip848_client.wire.messages.leave_group import MemberIdentity
from kip848_client.wire.schema import RecordPart


class ConnectKind(GroupKind[ConnectGroup]):
    """See the module."""

    GROUP: ClassVar[type[ConnectGroup]] = ConnectGroup
    ROUTES: ClassVar[tuple[Route, ...]] = (
        route(ConnectGroupHeartbeatRequest, handle_heartbeat),
        route(ConnectGroupPrepareAssignmentRequest, handle_prepare),
        route(ConnectGroupInstallAssignmentRequest, handle_install),
        timeless(ConnectGroupDescribeRequest, handle_describe),
    )
    RECORD_KEYS: ClassVar[tuple[type[RecordPart], ...]] = (
        wire.ConnectGroupMetadataKey,
        wire.ConnectGroupCatalogKey,
        wire.ConnectGroupMemberKey,
        wire.ConnectGroupTargetMetadataKey,
        wire.ConnectGroupTargetMemberKey,
        wire.ConnectGroupCurrentMemberKey,
    )
    TIMERS: ClassVar[frozenset[TimerKind]] = MEMBER_TIMERS

    def replay(self, key: Any, value: Any) -> None:
        """Apply the record to its group; the first one makes the group."""
        replay(self.state, key, value, kind=ConnectGroup)

    def loaded(self, *, now_ms: int) -> Sequence[SoftChange]:
        """Every worker's session starts again."""
        groups = self.state.all_of(ConnectGroup)
        return [timer for group in groups for timer in timers_after_load(self.state, group, now_ms=now_ms)]

    def time_is_up(
        self, group: ConnectGroup, key: TimerKey, timer: ArmedTimer, *, now_ms: int, wall_ms: int
    ) -> CoordinatorResult:
        """See `worker_departure`."""
        return time_is_up(self.state, group, key, timer, now_ms=now_ms, wall_ms=wall_ms)

    def remove_members(
        self, group: ConnectGroup, leaving: Sequence[MemberIdentity], *, now_ms: int, wall_ms: int
    ) -> tuple[Sequence[ErrorCode], CoordinatorResult]:
        """See `worker_departure`."""
        return remove_members(self.state, group, leaving, now_ms=now_ms, wall_ms=wall_ms)

    def classic_side(self, group: ConnectGroup) -> ClassicSide:
        """See `mixed_connect_group`."""
        return MixedConnectGroup(self.state, group)
