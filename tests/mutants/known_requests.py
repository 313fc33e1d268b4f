"""Bugs in what a member asks for, and when, put in one at a time; see `registry`."""

from __future__ import annotations

from typing import Any

from kip848_client.member import commits
from kip848_client.member.commit_requests import CommitResult
from kip848_client.member.discovery import Discovery
from kip848_client.member.heartbeat import Heartbeats
from kip848_client.member.offset_fetches import OffsetFetches
from kip848_client.member.reconciler import Reconciler
from tests.mutants.registry import Patch, mutant


@mutant("a member that is to look for the coordinator again is not woken", "C9", "L1", seed=70)
def _(patch: Patch) -> None:
    patch.setattr(Discovery, "deadline_ms", lambda _, **__: None)


@mutant("a heartbeat tells again what the coordinator knows", "C4")
def _(patch: Patch) -> None:
    patch.setattr(Heartbeats, "_subscription_changed", lambda _: True)


@mutant("heartbeats that fail are repeated without a pause", "C4")
def _(patch: Patch) -> None:
    original = Heartbeats.failed
    patch.setattr(Heartbeats, "failed", lambda self, **_: original(self, at_once=True))


@mutant("an acknowledgement waits for the interval", "C4")
def _(patch: Patch) -> None:
    original = Reconciler._assignment_ended

    def assignment_ended(self: Reconciler, *arguments: Any) -> None:
        original(self, *arguments)
        self._heartbeats.ack_due = False

    patch.setattr(Reconciler, "_assignment_ended", assignment_ended)


@mutant("a commit that was refused counts as done", "C8")
def _(patch: Patch) -> None:
    patch.setattr(commits, "read_commit", lambda *_, **__: CommitResult(0, frozenset()))


@mutant("offsets that are not stable yet are asked for without a pause", "C8")
def _(patch: Patch) -> None:
    patch.setattr(OffsetFetches, "_retry", lambda *_: None)
