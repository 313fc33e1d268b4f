"""Bugs in what the coordinator answers and refuses, put in one at a time; see `registry`."""

from __future__ import annotations

from kip848_client.member.assignor_round import AssignorRound
from tests.mutants.registry import Patch, mutant


@mutant("a member installs what an earlier life of it prepared", "A2", "A4", scenario="assignors", seed=15)
def _(patch: Patch) -> None:
    patch.setattr(AssignorRound, "_drop_stale", lambda _: None)
