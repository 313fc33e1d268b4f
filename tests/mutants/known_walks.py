"""Bugs that only members of other clients, or seldom rounds, bring to light, put in one at a time; see `registry`."""

from __future__ import annotations

from typing import Any

from kip848_client.coordinator import (
    client_assignment,
    client_assignors,
    current_assignment,
    install_assignment,
    offset_commit,
)
from kip848_client.coordinator.client_assignors import Choice
from kip848_client.member.assignor_calls import AssignorCalls
from tests.mutants.registry import Patch, mutant


@mutant("who reads less is asked for a target before who reads more", "S10", probes=True)
def _(patch: Patch) -> None:
    honest = client_assignors._choose_members

    def choose(name: str, offers: Any) -> Choice | None:
        found = honest(name, offers)
        return found and Choice(name, spanning=found.able, able=found.spanning)

    patch.setattr(client_assignors, "_choose_members", choose)


@mutant("a static member that is back counts with the assignors of its former self, too", "S10", probes=True)
def _(patch: Patch) -> None:
    honest = client_assignors.offers_after

    def with_former_self(*arguments: Any, **options: Any) -> Any:
        return honest(*arguments, **options | {"gone": frozenset()})

    patch.setattr(client_assignment, "offers_after", with_former_self)


@mutant("a member that gave up one of several topics has given up all", "S4", "S5", probes=True)
def _(patch: Patch) -> None:
    def owns_all(owned: Any, partitions: Any) -> bool:
        return owned is None or all(
            not epochs.keys().isdisjoint(owned.get(id_, ())) for id_, epochs in partitions.items()
        )

    patch.setattr(current_assignment, "_owns_any", owns_all)


@mutant("metadata of any length is stored with a commit", "S11", probes=True)
def _(patch: Patch) -> None:
    patch.setattr(offset_commit, "_is_metadata_too_long", lambda *_: False)


@mutant("the event log does not have refused targets", "T1", probes=True)
def _(patch: Patch) -> None:
    patch.setattr(install_assignment, "note_refusal", lambda *_, **__: None)


@mutant("all calls of an assignor have one number", "A1", scenario="assignors", probes=True)
def _(patch: Patch) -> None:
    honest = AssignorCalls.start

    def start(self: AssignorCalls, make: Any) -> None:
        self._last_call_id = 0
        honest(self, make)

    patch.setattr(AssignorCalls, "start", start)
