"""Bugs in what the coordinator answers and refuses, put in one at a time; see `registry`."""

from __future__ import annotations

from typing import Any

from kip848_client.coordinator import heartbeat, heartbeat_validation, membership, target_assignment
from kip848_client.coordinator.heartbeat_answer import plain_assignment
from kip848_client.member.assignor_round import AssignorRound
from tests.mutants.registry import Patch, mutant


@mutant("a join that lacks what a join must say is accepted", "S13", seed=38)
def _(patch: Patch) -> None:
    patch.setattr(heartbeat_validation, "_validate_join", lambda *_: None)


@mutant("a full broker takes one member more", "S13", seed=38)
def _(patch: Patch) -> None:
    patch.setattr(membership, "check_room", lambda *_: None)


@mutant("every answer repeats the assignment", "S14")
def _(patch: Patch) -> None:
    def every_time(message: Any, *, before: Any, after: Any) -> Any:
        del before
        return plain_assignment(message, before=type(after)(), after=after)

    patch.setattr(heartbeat, "plain_assignment", every_time)


@mutant("the racks of new members are not told to the assignor", "S2", seed=63)
def _(patch: Patch) -> None:
    patch.setattr(target_assignment, "_rack_ids", lambda group, **_: group.rack_ids)


@mutant("a member installs what an earlier life of it prepared", "A2", "A4", scenario="assignors", seed=15)
def _(patch: Patch) -> None:
    patch.setattr(AssignorRound, "_drop_stale", lambda _: None)
