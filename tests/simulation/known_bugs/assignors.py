"""Bugs of client-side assignment, put back one at a time; see `registry`."""

from __future__ import annotations

from typing import Any

from kip848_client.member.consumer.assignor_round import AssignorRound
from kip848_client.member.core.assignor_calls import AssignorCalls
from kip848_client.testing.coordinator.consumer import install_assignment
from tests.simulation.known_bugs.registry import KNOWN_BUGS, KnownBug, Patch, known_bug

ASSIGNORS = "assignors"


def _add(name: str, *killed_by: str, put: Any, seed: int = 0) -> None:
    KNOWN_BUGS.append(KnownBug(name, frozenset(killed_by), put, ASSIGNORS, seed))


def _not_as_handed_in(patch: Patch) -> None:
    honest = install_assignment.read_assignment

    def read(prepared: Any, members: Any, **limits: Any) -> Any:
        handed_in = dict(honest(prepared, members, **limits))
        if len(handed_in) > 1:
            first, second, *_ = sorted(handed_in)
            handed_in[first], handed_in[second] = handed_in[second], handed_in[first]
        return handed_in

    patch.setattr(install_assignment, "read_assignment", read)


_add("two members are given each other's part", "S10", put=_not_as_handed_in)


def _two_calls(patch: Patch) -> None:
    patch.setattr(AssignorCalls, "free", property(lambda self: True))

    def start(self: Any, make: Any) -> int:
        self._call = None
        return honest(self, make)

    honest = AssignorCalls.start
    patch.setattr(AssignorCalls, "start", start)


_add("an assignor is called while it still computes", "A1", put=_two_calls)


def _abandons_for_good(patch: Patch) -> None:
    def returned(self: Any, call_id: int) -> Any:
        if self._call is not None and self._call.abandoned:
            return None
        return honest(self, call_id)

    honest = AssignorCalls.returned
    patch.setattr(AssignorCalls, "returned", returned)


_add(
    "a member whose assignor hung once never computes again",
    "A3",
    "L12",
    "L1",
    "L2",
    "L5",
    "L8",
    "L10",
    put=_abandons_for_good,
)


def _asks_once(patch: Patch) -> None:
    def answered(self: Any, response: Any) -> None:
        reason = self._reason
        honest(self, response)
        if reason is not None:
            self._reason = reason
            self._advertise()

    honest = AssignorRound.answered
    patch.setattr(AssignorRound, "answered", answered)


_add("a member that asked for another target once cannot ask again", "A3", put=_asks_once)


@known_bug("all calls of an assignor have one number", "A1", scenario="assignors", probes=True)
def _(patch: Patch) -> None:
    honest = AssignorCalls.start

    def start(self: AssignorCalls, make: Any) -> int:
        self._last_call_id = 0
        return honest(self, make)

    patch.setattr(AssignorCalls, "start", start)
