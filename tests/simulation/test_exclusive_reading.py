"""C1 sees every kind of double reading by itself, and excuses what the protocol cannot prevent and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from msgspec.structs import replace

from kip848_client.common.model import NamedPartition
from kip848_client.member.consumer.heartbeats import Heartbeats
from kip848_client.member.consumer.reconciler import Reconciler
from kip848_client.member.group.group_exit import GroupExit
from kip848_client.member.group.runs import Run
from kip848_client.testing.coordinator.modern import current_assignment
from kip848_client.testing.simulation import MIXED, run
from kip848_client.testing.simulation.checkers import every_checker
from kip848_client.testing.simulation.checkers.members import ListenerPairs, OneHeartbeat
from kip848_client.testing.simulation.checkers.ownership import RevokeFirst
from kip848_client.testing.simulation.checkers.reading import ExclusiveReading
from kip848_client.testing.simulation.consumer_environment import ConsumerEnvironment
from kip848_client.testing.simulation.observed_group import MemberChange, Partitions
from kip848_client.testing.simulation.observer import Observer
from kip848_client.testing.simulation.run import RunPhases
from kip848_client.testing.simulation.virtual.scenario import QUIET
from kip848_client.testing.simulation.virtual.violation import InvariantViolation
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

SEEDS: Final = 25
MEMBER: Final = "member-1"
ASSIGNING: Final = ConsumerGroupHeartbeatResponse(member_epoch=1, assignment=Assignment())
Bug = Callable[[pytest.MonkeyPatch], object]


def ignores_its_removal(patch: pytest.MonkeyPatch) -> None:
    """It was told that it is no member, and goes on."""
    patch.setattr(GroupExit, "removed", lambda self, why, **_: None)


def keeps_what_it_gave_up(patch: pytest.MonkeyPatch) -> None:
    """It acknowledges the smaller assignment, and reads the partitions on."""
    original = Reconciler._begin

    def begin(self: Reconciler, run: Run) -> None:
        run.revoked = frozenset()
        original(self, run)

    patch.setattr(Reconciler, "_begin", begin)


def takes_while_a_list_without_them_is_on_its_way(patch: pytest.MonkeyPatch) -> None:
    """An old list that arrives gives away what it has taken since."""
    patch.setattr(Heartbeats, "ownership_report_pending", False)


def gives_away_before_the_owner_confirmed(patch: pytest.MonkeyPatch) -> None:
    """The coordinator does not wait."""
    patch.setattr(current_assignment, "_owns_any", lambda owned, partitions: False)


@pytest.mark.parametrize(
    ("bug", "first_seed"),
    [
        (ignores_its_removal, 14),
        (keeps_what_it_gave_up, 0),
        (takes_while_a_list_without_them_is_on_its_way, 39),
        (gives_away_before_the_owner_confirmed, 0),
    ],
)
def test_reading_what_is_not_ones_own_is_seen(bug: Bug, first_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checkers of callbacks, heartbeats and revocations, which may see the same bug earlier."""
    bug(monkeypatch)
    for checker in (ListenerPairs, OneHeartbeat, RevokeFirst):
        for hook in set(vars(checker)) & set(vars(Observer)) - {"__init__", "__doc__", "__module__"}:
            monkeypatch.setattr(checker, hook, getattr(Observer, hook))
    found = set()
    for seed in range(first_seed, first_seed + SEEDS):
        violation = run(MIXED, seed=seed, keep_history=False).violation
        found.add(violation.invariant if violation is not None else None)
        if "C1" in found:
            return
    pytest.fail(f"{SEEDS} seeds, and C1 did not notice; found {found}")


class RunState:
    """A group at rest, and the checker."""

    def __init__(self) -> None:
        self.environment = ConsumerEnvironment(QUIET, seed=1, watch=[every_checker], keep_history=False)
        RunPhases(self.environment).safety()
        self.consumer = next(one for one in self.environment.living() if one.view.member_id == MEMBER)
        self.checker = ExclusiveReading(self.environment.run_state)
        self.seen = self.environment.observed_group.members[MEMBER]
        assert self.seen.held
        assert self.consumer.readable

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """One that the consumer sent."""
        return ConsumerGroupHeartbeatRequest(
            group_id="simulated", member_id=MEMBER, member_epoch=self.seen.epoch, topic_partitions=()
        )

    def take_away(self, held: Partitions = frozenset()) -> None:
        """The coordinator counts less as the member's own, in this step."""
        after = self.seen._replace(assigned=held, pending=frozenset(), held=held)
        self.environment.observed_group.members[MEMBER] = after
        self.checker.group_changed([MemberChange(MEMBER, self.seen, after)])
        self.seen = after

    def hear(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """The consumer asks, and is answered by the coordinator."""
        request = self.heartbeat()
        self.checker.sent(self.consumer, request)
        self.checker.served("", request, response)
        self.checker.answered(self.consumer, request, response)

    def read(self, readable: frozenset[NamedPartition]) -> None:
        """The consumer reads these now."""
        self.consumer.view = replace(self.consumer.view, readable=readable)
        self.checker.view_changed(self.consumer)


def overtaken() -> RunState:
    """An old heartbeat of a consumer has given away all that it reads, and it has heard of it."""
    run_state = RunState()
    run_state.checker.stale("", run_state.heartbeat())
    run_state.take_away()
    run_state.environment.scheduler.steps += 1
    run_state.checker.view_changed(run_state.consumer)
    run_state.hear(ConsumerGroupHeartbeatResponse(member_epoch=run_state.seen.epoch))
    run_state.checker.view_changed(run_state.consumer)
    assert run_state.checker._excused[MEMBER]
    run_state.hear(ASSIGNING)
    assert MEMBER not in run_state.checker._excused
    run_state.checker.view_changed(run_state.consumer)
    return run_state


def test_what_an_overtaken_heartbeat_gave_away_is_excused_until_the_member_heard_of_it_and_stopped() -> None:
    """The protocol cannot tell an old heartbeat from a new one; a member that knows gives up with its next poll()."""
    run_state = overtaken()
    readable = run_state.consumer.view.readable
    run_state.read(frozenset())
    with pytest.raises(InvariantViolation, match="C1"):
        run_state.read(readable)


def test_who_heard_that_partitions_were_taken_has_its_rebalance_timeout_to_stop() -> None:
    """As long as it may take to give up any others, and not a record longer; hearing of it again is no excuse."""
    run_state = overtaken()
    tip = min(run_state.consumer.view.assigned)
    run_state.environment.scheduler.now_ms += run_state.consumer.config.rebalance_timeout_ms
    run_state.hear(ASSIGNING)
    run_state.checker.handed_out(run_state.consumer, tip, range(1))
    run_state.environment.scheduler.now_ms += run_state.consumer.config.rebalance_timeout_ms // 2
    with pytest.raises(InvariantViolation, match="C1"):
        run_state.checker.handed_out(run_state.consumer, tip, range(1, 2))


def test_who_heard_that_partitions_were_taken_may_not_read_others() -> None:
    """The excuse names partitions: what is taken afterwards, by no old heartbeat, is none of them."""
    run_state = RunState()
    one, *others = sorted(run_state.seen.held)
    run_state.checker.stale("", run_state.heartbeat())
    run_state.take_away(frozenset(others))
    run_state.environment.scheduler.steps += 1
    run_state.hear(ASSIGNING)
    run_state.checker.view_changed(run_state.consumer)
    with pytest.raises(InvariantViolation, match="C1"):
        run_state.take_away(frozenset([one]))


def test_an_answer_of_a_former_coordinator_ends_no_excuse() -> None:
    """It does not know what the member lost."""
    run_state = RunState()
    run_state.checker.stale("", run_state.heartbeat())
    run_state.take_away()
    request = run_state.heartbeat()
    run_state.checker.sent(run_state.consumer, request)
    run_state.checker.answered(run_state.consumer, request, ASSIGNING)
    run_state.checker.view_changed(run_state.consumer)
    assert run_state.checker._excused[MEMBER]


def test_what_is_given_away_in_another_step_is_not_excused() -> None:
    """An old heartbeat that did nothing is no excuse for what happens later."""
    run_state = RunState()
    run_state.checker.stale("", run_state.heartbeat())
    run_state.environment.scheduler.steps += 1
    with pytest.raises(InvariantViolation, match="C1"):
        run_state.take_away()


def test_the_excuse_is_for_the_partitions_that_were_given_away_and_for_no_other() -> None:
    """A member that lost one partition so may not read another one that is not its own."""
    run_state = RunState()
    one, *others = sorted(run_state.seen.held)
    assert others
    run_state.checker.stale("", run_state.heartbeat())
    run_state.take_away(frozenset(others))
    run_state.environment.scheduler.steps += 1
    with pytest.raises(InvariantViolation, match="C1"):
        run_state.take_away()
    assert run_state.checker._excused[MEMBER] == {one}


def asked_back(*, by_an_old_heartbeat: bool = True) -> tuple[RunState, Partitions]:
    """The coordinator asks for one partition back, in the answer to a heartbeat. Returns what the member keeps."""
    run_state = RunState()
    one, *others = sorted(run_state.seen.held)
    if by_an_old_heartbeat:
        run_state.checker.stale("", run_state.heartbeat())
    before, kept = run_state.seen, frozenset(others)
    run_state.seen = before._replace(assigned=kept, pending=frozenset([one]))
    run_state.environment.observed_group.members[MEMBER] = run_state.seen
    run_state.checker.group_changed([MemberChange(MEMBER, before, run_state.seen)])
    run_state.environment.scheduler.steps += 1
    run_state.checker.view_changed(run_state.consumer)
    return run_state, kept


def test_what_was_asked_back_in_an_answer_that_nobody_hears_is_excused_until_an_assignment_is_heard() -> None:
    """A copy of a heartbeat is answered to nobody, and the next list was made before the member took this up."""
    run_state, kept = asked_back()
    run_state.take_away(kept)
    run_state.hear(ASSIGNING)
    run_state.checker.view_changed(run_state.consumer)
    run_state.read(frozenset())
    with pytest.raises(InvariantViolation, match="C1"):
        run_state.read(run_state.consumer.readable | {tip.topic_partition for tip in run_state.consumer.view.assigned})


def test_what_was_asked_back_and_heard_is_not_excused() -> None:
    """By the answer to a heartbeat of its own, or by an assignment that followed."""
    heard, kept = asked_back(by_an_old_heartbeat=False)
    with pytest.raises(InvariantViolation, match="C1"):
        heard.take_away(kept)
    heard_later, kept = asked_back()
    heard_later.checker.served("", heard_later.heartbeat(), ASSIGNING)
    with pytest.raises(InvariantViolation, match="C1"):
        heard_later.take_away(kept)


def test_what_was_not_asked_back_is_not_excused() -> None:
    """The excuse names partitions."""
    run_state, _ = asked_back()
    with pytest.raises(InvariantViolation, match="C1"):
        run_state.take_away()


def test_a_removed_member_reads_until_it_hears_of_it_and_no_longer() -> None:
    """Its commits are refused from the removal on; its records stop when it knows."""
    run_state = RunState()
    checker, consumer = run_state.checker, run_state.consumer
    del run_state.environment.observed_group.members[MEMBER]
    checker.group_changed([MemberChange(MEMBER, run_state.seen, None)])
    tip = sorted(consumer.view.assigned)[0]
    checker.handed_out(consumer, tip, range(1))
    request = run_state.heartbeat()
    checker.sent(consumer, request)
    checker.answered(consumer, request, ConsumerGroupHeartbeatResponse(error_code=25))
    with pytest.raises(InvariantViolation, match="C1"):
        checker.handed_out(consumer, tip, range(1, 2))
