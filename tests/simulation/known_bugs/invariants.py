"""A bug for each invariant that no bug of an other implementation trips; see `registry`."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kip848_client.common.model import ZERO_UUID, OffsetAndMetadata
from kip848_client.member.core.discovery import Discovery
from kip848_client.member.group.group_exit import GroupExit
from kip848_client.member.offsets.positions import Positions
from kip848_client.testing.coordinator.consumer import consumer_heartbeat as heartbeat
from kip848_client.testing.coordinator.consumer.subscriptions import MetadataCheckDue
from kip848_client.testing.coordinator.core.result import ArmTimer, CoordinatorResult, SoftChange
from kip848_client.testing.coordinator.core.timers import TimerKind
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.coordinator.modern import member_lookup as membership
from kip848_client.testing.coordinator.offsets import offset_deletion, offset_fetch
from tests.simulation.known_bugs.registry import Patch, known_bug

_LONG_MS = 30_000


@known_bug("a group takes more members than it may have", "S12")
def _(patch: Patch) -> None:
    original = membership.find_member

    def find_member(state: Any, group: Any, message: Any, *, owned: Any, size_max: int) -> Any:
        return original(state, group, message, owned=owned, size_max=2**31 - 1)

    patch.setattr(heartbeat, "find_member", find_member)


@known_bug("a member starts far behind the end of a partition without a commit", "C7")
def _(patch: Patch) -> None:
    original = Positions.listed

    def listed(self: Positions, event: Any) -> None:
        later = {key: OffsetAndMetadata(at.offset + 1_000_000) for key, at in event.offsets.items()}
        original(self, replace(event, offsets=later))

    patch.setattr(Positions, "listed", listed)


@known_bug("a session lasts three times as long as the group was told", "L2", "L1")
def _(patch: Patch) -> None:
    original = GroupCoordinator.apply

    def apply(self: GroupCoordinator, result: CoordinatorResult) -> None:
        soft = tuple(_thrice(change) for change in result.soft)
        original(self, replace(result, soft=soft))

    def _thrice(change: Any) -> Any:
        if getattr(getattr(change, "key", None), "kind", None) is not TimerKind.SESSION:
            return change
        if not isinstance(change, ArmTimer):
            return change
        return replace(change, deadline_ms=change.deadline_ms + 2 * 6_000)

    patch.setattr(GroupCoordinator, "apply", apply)


@known_bug("close() waits for an answer to its leave, however long that takes", "L4", scenario="assignors")
def _(patch: Patch) -> None:
    original = GroupExit._leave_answered

    def answered(self: GroupExit, answer: object) -> None:
        if type(answer).__name__ != "RequestFailed":
            original(self, answer)

    def advance(self: GroupExit) -> None:
        if self._context.phase.name == "LEAVE_DUE":
            self._send_leave()

    patch.setattr(GroupExit, "_leave_answered", answered)
    patch.setattr(GroupExit, "advance", advance)


@known_bug("a coordinator that moved is looked for after half a minute", "L8", "L1")
def _(patch: Patch) -> None:
    original = Discovery.disconnected

    def disconnected(self: Discovery, event: Any) -> None:
        original(self, event)
        self._backoff.ready_ms = self._context.now_ms + _LONG_MS

    patch.setattr(Discovery, "disconnected", disconnected)


@known_bug("a group hears of topics that changed with the change after", "L10", "L1")
def _(patch: Patch) -> None:
    original = GroupCoordinator._topics_changed
    before: dict[int, MetadataCheckDue] = {}

    def changed(self: GroupCoordinator, image: Any) -> CoordinatorResult:
        result = original(self, image)
        soft: list[SoftChange] = []
        for change in result.soft:
            if isinstance(change, MetadataCheckDue):
                soft.append(before.get(id(self), MetadataCheckDue(())))
                before[id(self)] = change
            else:
                soft.append(change)
        return replace(result, soft=tuple(soft))

    patch.setattr(GroupCoordinator, "_topics_changed", changed)


@known_bug("offsets of a topic that was deleted are those of the next one with its name", "S11", "C6", "C7")
def _(patch: Patch) -> None:
    original = offset_fetch._GroupFetch._partition

    def read(committed: Any, *, index: int, topic_id: Any, error: Any) -> Any:
        return original(committed, index=index, topic_id=ZERO_UUID, error=error)

    patch.setattr(offset_deletion, "offsets_of_topics", lambda state, names: [])
    patch.setattr(offset_fetch._GroupFetch, "_partition", staticmethod(read))
