"""Random walks of a classic group: what must hold for any behaviour of its clients.

After every step the harness checks the group's invariants, that no request is answered twice, and that a record says
what the group is.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicState
from tests.support.classic_harness import Call, ClassicHarness

STEPS = 120
REFUSED = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
    }
)
OFFERS: tuple[list[str], ...] = (
    ["range", "sticky"],
    ["range", "sticky"],
    ["sticky", "range"],
    ["range"],
    ["sticky"],
    [],
)


class Walk:
    """Clients that do anything, also what no client would."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.h = ClassicHarness(delay_ms=self.random.choice([0, 0, 1500]), size_max=self.random.choice([2, 4, 100]))
        self.ids = ["nobody"]
        self.calls: list[Call[Any]] = []
        self.generation = 0

    def step(self) -> None:
        """One request, or some time."""
        h, rng = self.h, self.random
        before, deadline = h.coordinator.classic_group("g"), h.coordinator.deadline_ms()
        member_id, instance = self._someone()
        generation = self._some_generation()
        codes: list[ErrorCode] = []
        what = "join join join join sync sync sync sync beat beat commit leave time time restart"
        match rng.choice(what.split()):
            case "join":
                if not member_id or rng.random() < 0.3:
                    member_id, instance = "", rng.choice([None, None, "i1", "i2"])
                call = h.join_group(
                    member_id,
                    instance=instance,
                    protocols=rng.choice(OFFERS),
                    session_ms=rng.choice([3_000, 10_000, 10_000, 10_000, 10_000, 50]),
                    rebalance_ms=rng.choice([2_000, 20_000]),
                    version=rng.choice([3, 4, 8, 9]) if instance is None else rng.choice([5, 9]),
                )
                self.calls.append(call)
                if not call.is_parked:
                    codes.append(call.code)
                    self.ids.append(call.answer.member_id)
            case "sync":
                sync = h.sync_group(member_id, generation, {member_id: b"x"}, protocol=self._protocol())
                self.calls.append(sync)
                codes += [] if sync.is_parked else [sync.code]
            case "beat":
                codes.append(h.beat(member_id, generation, instance=instance))
            case "leave" if rng.random() < 0.5:
                codes += h.leave_group((member_id, instance) if instance else member_id)
            case "commit":
                codes.append(h.commit_code(member_id, generation))
            case "time":
                h.advance(rng.choice([100, 100, 1_000, 1_000, 3_000, 30_000]))
                return
            case "restart" if rng.random() < 0.1:
                h.restart()
                self.calls.clear()  # those who waited have lost their connection
                self.generation = 0
                return
        if codes and REFUSED.issuperset(codes):
            assert h.results[-1].records == ()
            assert h.coordinator.classic_group("g") == before, "a refused request has changed the group"
            assert h.coordinator.deadline_ms() == deadline, "a refused request has moved a timer"
        if self._exists():
            assert h.classic.generation >= self.generation, "the generation fell"
            self.generation = h.classic.generation

    def _exists(self) -> bool:
        return self.h.coordinator.classic_group("g") is not None

    def _someone(self) -> tuple[str, str | None]:
        """(member id, instance id): of a member mostly, of one that was, or of one that never is."""
        group, rng = self.h.coordinator.classic_group("g"), self.random
        known = () if group is None else (*group.members.values(),)
        if known and rng.random() < 0.7:
            # The leader more often than others: without it no round ends.
            member = rng.choice([*known, group.members[group.leader or ""]]) if group else known[0]
            return member.member_id, rng.choice([member.instance_id, member.instance_id, None, "i1"])
        if group is not None and group.pending_joins and rng.random() < 0.7:
            return rng.choice(sorted(group.pending_joins)), None
        return rng.choice(self.ids[-3:]), rng.choice([None, None, "i1", "i2"])

    def _some_generation(self) -> int:
        current = self.h.classic.generation if self._exists() else 0
        return self.random.choice([current, current, current, current - 1, -1])

    def _protocol(self) -> str:
        return (self.h.classic.protocol or "range") if self._exists() else "range"


@pytest.mark.parametrize("seed", range(30))
def test_every_request_is_answered_and_a_refused_one_changes_nothing(seed: int) -> None:
    """A request that is never answered stops its client for good."""
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    walk.h.verify_log()
    walk.h.advance(1_000_000)
    assert not any(call.is_parked for call in walk.calls)
    group = walk.h.coordinator.classic_group("g")
    assert group is None or group.state is ClassicState.EMPTY
    walk.h.verify_log()
