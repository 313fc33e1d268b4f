"""For whom time runs at the coordinator, and until when: L2, L3 and S10, told by its timers before they are due.

What a timer leads to when it is due is in `checkers.fencing` (L3, S7) and `trials` (L2). Does not own: who is asked
for a target (`checkers.assignors`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kip848_client.coordinator.coordinator import GroupCoordinator
from kip848_client.coordinator.group_configs import SESSION_TIMEOUT
from kip848_client.coordinator.group_member import GroupMember
from kip848_client.coordinator.result import CoordinatorResult
from kip848_client.coordinator.timers import TimerKey, TimerKind
from kip848_client.simulation.cluster import Cluster
from kip848_client.simulation.mirror import Change, Mirror
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.violation import fail
from kip848_client.simulation.world import World
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.consumer_group_install_assignment import ConsumerGroupInstallAssignmentRequest
from kip848_client.wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest


class _Asked(NamedTuple):
    """Whose time to compute a target runs, and until when."""

    member_id: str
    until_ms: int


class RunningTimers(Observer):
    """L2: a session runs from the last heartbeat that counted. L3: the time to give up partitions runs from the step
    that took them, and only while there are some. S10: so does the time of the member that was asked for the target.

    Args:
        session_ms: of a group without settings of its own.
    """

    def __init__(self, world: World, cluster: Cluster, mirror: Mirror, *, session_ms: int) -> None:
        self._world = world
        self._cluster = cluster
        self._mirror = mirror
        self._session_ms = session_ms
        self._sessions: dict[str, int] = {}
        """Member -> when its session ends, by the last heartbeat of it."""
        self._asked: _Asked | None = None
        self._loads = 0

    def loaded(self, before: GroupCoordinator | None, after: GroupCoordinator) -> None:
        """All timers start anew."""
        self._sessions.clear()
        self._asked = None

    @about(ConsumerGroupHeartbeatRequest, ConsumerGroupPrepareAssignmentRequest, ConsumerGroupInstallAssignmentRequest)
    def served(self, client_id: str, request: Any, response: Any) -> None:
        """Look at the timers of the member, and at that of the member that is to compute the target."""
        group = self._mirror.group
        if group is None:
            return
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            assert isinstance(response, ConsumerGroupHeartbeatResponse)
            member = group.members.get(response.member_id or request.member_id)
            if response.error_code or request.member_epoch < 0:
                self._same_session(request.member_id)
            elif member is not None:
                self._session(member)
            if member is not None and not response.error_code:
                self._revocation(member)
        self._round(group.members)

    def group_changed(self, changes: Sequence[Change]) -> None:
        """No timer of a removed member runs; each present member has a session timer."""
        if not self._cluster.up:
            return
        coordinator, world = self._cluster.coordinator, self._world
        due_ms = coordinator.deadline_ms()
        if due_ms is not None and due_ms > world.now_ms:
            early = coordinator.expire(now_ms=world.now_ms, wall_ms=world.wall_ms)
            if early != CoordinatorResult():
                fail("L2", f"time is up at {due_ms} for the first, and at {world.now_ms} it leads to {early}")
        if self._mirror.loads != self._loads:
            self._loads = self._mirror.loads
            for member_id, seen in self._mirror.members.items():
                self._as_loaded(member_id, is_late=bool(seen.pending))
        for member_id, _, after in changes:
            running = [kind for kind in TimerKind if self._until(kind, member_id) is not None]
            if after is None:
                self._sessions.pop(member_id, None)
                if running:
                    fail("S7", f"{member_id} is gone, and its time of {running} runs")
            elif TimerKind.SESSION not in running:
                fail("L2", f"{member_id} is a member, and its session does not run")

    def _as_loaded(self, member_id: str, *, is_late: bool) -> None:
        """Nothing of it is in the log: all time starts anew, for whom there is any."""
        running = {kind for kind in TimerKind if self._until(kind, member_id) is not None}
        wanted = {TimerKind.SESSION, TimerKind.REBALANCE} if is_late else {TimerKind.SESSION}
        if running - {TimerKind.CLIENT_ASSIGNMENT} != wanted:
            fail("L3" if is_late else "L2", f"a coordinator was loaded, and of {member_id} {sorted(running)} run")

    def _until(self, kind: TimerKind, member_id: str) -> int | None:
        timer = self._cluster.coordinator.timer(TimerKey(kind, self._mirror.group_id, member_id))
        return None if timer is None else timer.deadline_ms

    def _session(self, member: GroupMember) -> None:
        overrides = self._cluster.overrides_of(self._mirror.group_id)
        wanted_ms = self._world.now_ms + int(overrides.get(SESSION_TIMEOUT, self._session_ms))
        until_ms = self._until(TimerKind.SESSION, member.member_id)
        if until_ms != wanted_ms:
            fail("L2", f"{member.member_id} was heard, and its session ends at {until_ms}, not {wanted_ms}")
        self._sessions[member.member_id] = wanted_ms

    def _same_session(self, member_id: str) -> None:
        """A heartbeat that was refused, or a leave, does not count."""
        known_ms, until_ms = self._sessions.get(member_id), self._until(TimerKind.SESSION, member_id)
        if known_ms is not None and until_ms not in (None, known_ms):
            fail("S7", f"{member_id} was refused or left, and its session ends at {until_ms}, not {known_ms}")

    def _revocation(self, member: GroupMember) -> None:
        seen = self._mirror.members.get(member.member_id)
        until_ms = self._until(TimerKind.REBALANCE, member.member_id)
        if (until_ms is not None) != bool(member.current.pending_revocation):
            fail("L3", f"{member.member_id} is {member.current.state.name}, its time to give up runs until {until_ms}")
        moved = seen is None or seen.member.current is not member.current
        wanted_ms = self._world.now_ms + member.metadata.rebalance_timeout_ms
        if until_ms is not None and moved and until_ms != wanted_ms:
            fail("L3", f"{member.member_id} was to give up by {wanted_ms}, and its time runs until {until_ms}")

    def _round(self, members: Mapping[str, GroupMember]) -> None:
        flying = self._cluster.coordinator.round_in_flight(self._mirror.group_id)
        before, self._asked = self._asked, None
        for member_id, member in members.items():
            until_ms = self._until(TimerKind.CLIENT_ASSIGNMENT, member_id)
            is_told = flying is not None and flying.member_id == member_id and flying.is_notified
            if is_told != (until_ms is not None):
                fail("S10", f"{member_id} is asked for the target: {flying}; its time runs until {until_ms}")
            if until_ms is None:
                continue
            self._asked = _Asked(member_id, until_ms)
            wanted_ms = self._world.now_ms + member.metadata.rebalance_timeout_ms
            if self._asked != before and until_ms != wanted_ms:
                fail("S10", f"{member_id} has until {until_ms} for the target, and not {wanted_ms}")
