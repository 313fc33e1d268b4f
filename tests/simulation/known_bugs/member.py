"""Bugs of the member, put back one at a time; see `registry`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from kip848_client.common.model import NamedPartition, OffsetAndMetadata
from kip848_client.member import member as member_module
from kip848_client.member.consumer import heartbeats as member_heartbeat
from kip848_client.member.consumer import membership as member_membership
from kip848_client.member.consumer import slots as member_slots
from kip848_client.member.consumer.hand_over import HandOver
from kip848_client.member.consumer.heartbeats import Heartbeats
from kip848_client.member.consumer.reconciler import Reconciler
from kip848_client.member.consumer.slots import Slots
from kip848_client.member.core.error_tables import HeartbeatErrorClass, heartbeat_error_class
from kip848_client.member.core.events import HandOverRequested
from kip848_client.member.core.states import HEARTBEATING, Phase
from kip848_client.member.group.group_exit import GroupExit
from kip848_client.member.group.runs import Run
from kip848_client.member.offsets import commit_requests
from kip848_client.wire.messages.consumer_group_describe import DescribedGroup
from tests.simulation.known_bugs.registry import Patch, known_bug


@known_bug("partitions are taken while a heartbeat without them is on its way", "C1")
def _(patch: Patch) -> None:
    patch.setattr(Heartbeats, "ownership_report_pending", False)


@known_bug("a member that was removed keeps its partitions and is given others on top", "C3", "C2", "C1")
def _(patch: Patch) -> None:
    patch.setattr(GroupExit, "_lose", GroupExit._lost)


@known_bug("an on_partitions_assigned that raised counts as having returned", "C2")
def _(patch: Patch) -> None:
    original = Reconciler._go_on

    def go_on(self: Reconciler, run: Run, error: BaseException | None = None) -> None:
        original(self, run, None if self._context.phase is Phase.ASSIGNING else error)

    patch.setattr(Reconciler, "_go_on", go_on)


@known_bug("heartbeats go on while the lost callback runs (KAFKA-16251)", "C4", scenario="zombies")
def _(patch: Patch) -> None:
    phases = HEARTBEATING | {Phase.FENCED_RELEASE, Phase.STALE_RELEASE}
    patch.setattr(member_heartbeat, "HEARTBEATING", phases)
    patch.setattr(member_module, "HEARTBEATING", phases)


@known_bug("the rebalance timeout is never sent (Dekaf#2767)", "L1")
def _(patch: Patch) -> None:
    original = Heartbeats.build
    patch.setattr(
        Heartbeats,
        "build",
        lambda self, **named: replace(original(self, **named), rebalance_timeout_ms=-1),
    )


@known_bug("being fenced is the end of a member", "C5")
def _(patch: Patch) -> None:
    def classify(code: int, *, joining: bool) -> HeartbeatErrorClass:
        found = heartbeat_error_class(code, joining=joining)
        return HeartbeatErrorClass.FATAL if found is HeartbeatErrorClass.FENCED else found

    patch.setattr(member_membership, "heartbeat_error_class", classify)


@known_bug("commits run one record ahead of what was handed out", "C6")
def _(patch: Patch) -> None:
    original = commit_requests.build_commit

    def build_commit(context: Any, offsets: Mapping[NamedPartition, OffsetAndMetadata]) -> Any:
        return original(context, {key: OffsetAndMetadata(at.offset + 1) for key, at in offsets.items()})

    patch.setattr("kip848_client.member.offsets.commits.build_commit", build_commit)


@known_bug("members that hand over wait for others that do so, too", "L12")
def _(patch: Patch) -> None:
    def others_are_ready(self: HandOver, group: DescribedGroup) -> bool:
        others = [one for one in group.members if one.member_id != self._context.member_id and one.member_epoch > 0]
        return all(one.member_epoch >= group.group_epoch for one in others)

    patch.setattr(HandOver, "_others_are_ready", others_are_ready)


@known_bug("a hand-over waits for a coordinator that is away", "L11", scenario="storm")
def _(patch: Patch) -> None:
    original = HandOver.request

    def request(self: HandOver, event: HandOverRequested) -> None:
        original(self, replace(event, deadline_ms=event.deadline_ms + 3_600_000))

    patch.setattr(HandOver, "request", request)


@known_bug("a standby does not try again", "L13", "L1", scenario="deploys")
def _(patch: Patch) -> None:
    patch.setattr(Slots, "_pause_ms", lambda _: 3_600_000)


@known_bug("a member with a slot gives it up at once", "L13", scenario="deploys")
def _(patch: Patch) -> None:
    patch.setattr(member_membership, "STATIC_LEAVE_EPOCH", -1)
    patch.setattr(member_slots, "STATIC_LEAVE_EPOCH", -1)
