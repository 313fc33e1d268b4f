"""Bugs of the member, put back one at a time; see `registry`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from kip848_client.member import commit_requests
from kip848_client.member import heartbeat as member_heartbeat
from kip848_client.member import member as member_module
from kip848_client.member import membership as member_membership
from kip848_client.member.commit_requests import FetchResult
from kip848_client.member.context import Context
from kip848_client.member.error_tables import HeartbeatErrorClass, heartbeat_error_class
from kip848_client.member.heartbeat import Heartbeats
from kip848_client.member.leaving import Leaving
from kip848_client.member.positions import Positions
from kip848_client.member.reconciler import Reconciler
from kip848_client.member.release import Release
from kip848_client.member.runs import Run
from kip848_client.member.states import HEARTBEATING, LEAVING, Phase
from kip848_client.model import OffsetAndMetadata, TopicPartition
from tests.mutants.registry import Patch, mutant


@mutant("partitions are acknowledged as given up while on_partitions_revoked runs", "C1", "C2")
def _(patch: Patch) -> None:
    original = Reconciler._revoke

    def revoke(self: Reconciler, run: Run) -> None:
        self.current = run.resolved
        self._heartbeats.ack_due = True
        original(self, run)

    patch.setattr(Reconciler, "_revoke", revoke)


@mutant("partitions are taken while a heartbeat without them is on its way", "C1", seed=39)
def _(patch: Patch) -> None:
    patch.setattr(Heartbeats, "telling_partitions", False)


@mutant(
    "a hanging callback returns, and its partitions are read though they were given away",
    "C1",
    "L1",
    seed=458,
)
def _(patch: Patch) -> None:
    original = Reconciler._assignment_ended

    def assignment_ended(self: Reconciler, run: Run, error: BaseException | None) -> None:
        original(self, run, error)
        self.in_doubt = frozenset()

    patch.setattr(Reconciler, "_assignment_ended", assignment_ended)


@mutant("a member that was removed keeps its partitions and is given others on top", "C3", "C2", "C1")
def _(patch: Patch) -> None:
    patch.setattr(Release, "_lose", Release._over)


@mutant("an on_partitions_assigned that raised counts as having returned", "C2")
def _(patch: Patch) -> None:
    original = Reconciler._assignment_ended
    patch.setattr(Reconciler, "_assignment_ended", lambda self, run, error: original(self, run, None))


@mutant("heartbeats go on while the lost callback runs (KAFKA-16251)", "C4")
def _(patch: Patch) -> None:
    phases = HEARTBEATING | {Phase.FENCED_RELEASE, Phase.STALE_RELEASE}
    patch.setattr(member_heartbeat, "HEARTBEATING", phases)
    patch.setattr(member_module, "HEARTBEATING", phases)


@mutant("a heartbeat does not wait for the answer to the one before", "C4", "C9")
def _(patch: Patch) -> None:
    original = Heartbeats.deadline_ms

    def deadline_ms(self: Heartbeats) -> int | None:
        in_flight, self._in_flight = self._in_flight, None
        try:
            return original(self)
        finally:
            self._in_flight = in_flight

    patch.setattr(Heartbeats, "deadline_ms", deadline_ms)


@mutant("the heartbeat after a failure repeats nothing", "C4")
def _(patch: Patch) -> None:
    original, build = Heartbeats.failed, Heartbeats.build

    def failed(self: Heartbeats, *, at_once: bool = False) -> None:
        sent = self._sent
        original(self, at_once=at_once)
        self._sent = sent

    def build_on_any_connection(self: Heartbeats, **named: Any) -> Any:
        if self._sent is not None:
            self._sent = replace(self._sent, link=self._context.link)
        return build(self, **named)

    patch.setattr(Heartbeats, "failed", failed)
    patch.setattr(Heartbeats, "build", build_on_any_connection)


@mutant("the rebalance timeout is never sent (Dekaf#2767)", "C4")
def _(patch: Patch) -> None:
    original = Heartbeats.build
    patch.setattr(
        Heartbeats,
        "build",
        lambda self, **named: replace(original(self, **named), rebalance_timeout_ms=-1),
    )


@mutant("being fenced is the end of a member", "C5")
def _(patch: Patch) -> None:
    def classify(code: int) -> HeartbeatErrorClass:
        found = heartbeat_error_class(code)
        return HeartbeatErrorClass.FATAL if found is HeartbeatErrorClass.FENCED else found

    patch.setattr(member_membership, "heartbeat_error_class", classify)


@mutant("commits run one record ahead of what was handed out", "C6")
def _(patch: Patch) -> None:
    original = commit_requests.build_commit

    def build_commit(context: Any, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Any:
        return original(context, {key: OffsetAndMetadata(at.offset + 1) for key, at in offsets.items()})

    patch.setattr("kip848_client.member.commits.build_commit", build_commit)


@mutant("an owner starts one record before the committed offset", "C6")
def _(patch: Patch) -> None:
    original = Positions._looked_up

    def looked_up(self: Positions, lookup: Any, slots: Any, result: FetchResult | None, error: Any) -> None:
        if result is not None:
            earlier = {key: OffsetAndMetadata(at.offset - 1) for key, at in result.offsets.items()}
            result = replace(result, offsets=earlier)
        original(self, lookup, slots, result, error)

    patch.setattr(Positions, "_looked_up", looked_up)


@mutant("a member never hears that it was removed", "L1", "C4")
def _(patch: Patch) -> None:
    def classify(code: int) -> HeartbeatErrorClass:
        found = heartbeat_error_class(code)
        return HeartbeatErrorClass.RETRY if found is HeartbeatErrorClass.FENCED else found

    patch.setattr(member_membership, "heartbeat_error_class", classify)


@mutant("a member that is out of its group goes on showing its epoch", "C5")
def _(patch: Patch) -> None:
    shown: dict[Context, int] = {}

    def live_epoch(self: Context) -> int:
        if self.epoch > 0:
            shown[self] = self.epoch
        return shown.get(self, -1)

    patch.setattr(Context, "live_epoch", property(live_epoch))


@mutant("close() does not wait for the answer to its leave", "L4")
def _(patch: Patch) -> None:
    honest = Leaving.advance

    def advance(self: Leaving) -> None:
        honest(self)
        if self._waiters and self._context.phase not in LEAVING:
            self.over()

    patch.setattr(Leaving, "advance", advance)
