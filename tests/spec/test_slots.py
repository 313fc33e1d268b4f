"""The rules of docs/protocol.md, section Slots and standbys."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.member.consumer.slots import CROWD, FRESH_MS, WATCH_EVERY_MS
from kip848_client.member.core.events import (
    FailureKind,
    HandOverRequested,
    LeaveDone,
    LeaveMode,
    RequestFailed,
    SlotsUnseen,
    SlotTaken,
    StandbyBegan,
)
from kip848_client.member.core.states import MemberState
from kip848_client.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.spec.arrange import fence
from tests.support.member_harness import MAX_POLL_MS, MemberHarness

UNRELEASED = ErrorCode.UNRELEASED_INSTANCE_ID
RETRY_MS, WAIT_MS, LIMIT_MS = 50, 1_000, 8_000
POOL = ("s-0", "s-1", "s-2")
AWAY = -2


def joining(*slots: str, describes: bool = True, **settings: object) -> MemberHarness:
    """It may take one of these slots, and polled for the first time."""
    pooled = len(slots) > 1
    member = MemberHarness(settings={"slots": slots, "gives_up_slot": pooled, **settings}, describes=describes)
    member.subscribe("t")
    member.poll()
    return member


def owner(*slots: str, assignment: Mapping[str, list[int]] | None = None, describes: bool = True) -> MemberHarness:
    """It has the first slot and t-0."""
    member = joining(*slots, describes=describes)
    if len(slots) > 1 and describes:
        show(member, {})
    member.answer_heartbeat(assignment={"t": [0]} if assignment is None else assignment)
    member.reconcile()
    member.answer_heartbeat()
    if assignment is None:
        member.answer_fetch({"t-0": 0})
    member.forget_history()
    return member


def show(member: MemberHarness, holders: Mapping[str, int]) -> None:
    """Answer ConsumerGroupDescribe: other members have these slots, with these epochs."""
    slots = dict(enumerate(holders))
    member.describe({}, epoch=3, others=[holders[slots[place]] for place in slots], slots=slots)


def named(member: MemberHarness) -> list[tuple[int, str | None]]:
    """Epoch and slot of the heartbeats that wait for an answer."""
    return [(each.member_epoch, each.instance_id) for each in member.requests(ConsumerGroupHeartbeatRequest)]


def releasing(*slots: str, describes: bool = True) -> MemberHarness:
    """hand_over() was called; everything is revoked, and the slot was released."""
    member = owner(*slots, describes=describes)
    member.step(HandOverRequested(member.now_ms + LIMIT_MS))
    member.reconcile()
    assert named(member) == [(AWAY, slots[0])]
    member.answer_heartbeat(epoch=AWAY)
    return member


def test_r301_a_standby_repeats_its_join() -> None:
    """The predecessor releases the slot at any moment, and the partitions have no reader until the next join."""
    member = joining("s-0")
    for _ in range(3):
        assert named(member) == [(0, "s-0")]
        member.answer_heartbeat(error=UNRELEASED)
        assert member.state() is MemberState.UNJOINED
        assert member.member.view().standing_by
        member.advance(RETRY_MS - 1)
        member.expect_no_heartbeat()
        member.advance(1)
    member.answer_heartbeat(epoch=7, assignment={"t": [0]})

    assert (member.member.view().standing_by, member.member.view().instance_id) == (False, "s-0")
    assert len(member.emitted(StandbyBegan)) == 1
    assert [taken.waited_ms for taken in member.emitted(SlotTaken)] == [3 * RETRY_MS]


def test_r301_a_standby_that_has_waited_for_long_asks_less_often() -> None:
    """A pool that is too small must not cost the coordinator twenty requests a second for ever."""
    member = joining("s-0")
    member.answer_heartbeat(error=UNRELEASED)
    while member.now_ms < FRESH_MS:
        member.poll()
        member.advance(RETRY_MS)
        member.answer_heartbeat(error=UNRELEASED)
    assert [began.waited_ms for began in member.emitted(StandbyBegan)] == [0, FRESH_MS]
    member.advance(4 * RETRY_MS - 1)
    member.expect_no_heartbeat()
    member.advance(1)
    assert named(member) == [(0, "s-0")]


def test_r301_many_slots_are_asked_for_less_often() -> None:
    """A hundred standbys of a hundred slots ask as often together as twenty."""
    pool = tuple(f"s-{number}" for number in range(5 * CROWD))
    member = joining(*pool)
    show(member, dict.fromkeys(pool, 3))
    member.advance(5 * RETRY_MS - 1)
    assert not member.requests(ConsumerGroupDescribeRequest)
    member.advance(1)
    assert member.requests(ConsumerGroupDescribeRequest)


def test_r302_free_slots_come_first_and_then_released_ones() -> None:
    """A free slot brings new partitions at once; a released one may be that of a process which restarts."""
    member = joining(*POOL)
    member.expect_no_heartbeat()
    show(member, {"s-0": 3, "s-1": AWAY})
    assert named(member) == [(0, "s-2")]

    member.answer_heartbeat(error=UNRELEASED)
    assert named(member) == [(0, "s-1")]
    member.answer_heartbeat(epoch=3, assignment={"t": [0]})

    assert member.emitted(SlotTaken) == [SlotTaken("s-1", "other-1", None)]


def test_r302_the_pool_is_looked_at_again_while_all_are_held() -> None:
    """The member joins with a slot only once it is seen to be released."""
    member = joining(*POOL)
    show(member, dict.fromkeys(POOL, 3))
    assert member.member.view().standing_by
    member.advance(RETRY_MS)
    member.expect_no_heartbeat()
    show(member, {"s-0": 3, "s-1": AWAY, "s-2": 3})
    assert named(member) == [(0, "s-1")]
    member.answer_heartbeat(error=UNRELEASED)  # another standby was faster
    member.advance(RETRY_MS)
    show(member, dict.fromkeys(POOL, 3))
    member.expect_no_heartbeat()


def test_r302_a_group_that_does_not_exist_yet_has_free_slots() -> None:
    """The first process of all."""
    member = joining(*POOL)
    member.describe({}, epoch=0, others=[], error=ErrorCode.GROUP_ID_NOT_FOUND)
    assert named(member) == [(0, "s-0")]


def test_r302_a_standby_follows_a_coordinator_that_moved() -> None:
    """It sends no heartbeats, which would be told: it stood by for ever, beside a free slot."""
    member = joining(*POOL)
    member.coordinator_found = False
    member.describe({}, epoch=0, others=[], error=ErrorCode.NOT_COORDINATOR)
    member.advance(1_000)
    assert member.requests(FindCoordinatorRequest)


@pytest.mark.parametrize("describes", [False, True], ids=["old coordinator", "no right"])
def test_r303_without_a_description_the_slots_are_tried_in_turn(describes: bool) -> None:
    """A refused join tells the same; the log says once why it takes longer."""
    member = joining(*POOL, describes=describes)
    if describes:
        member.describe({}, epoch=0, others=[], error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for slot in (*POOL, "s-0"):
        assert named(member) == [(0, slot)]
        member.answer_heartbeat(error=UNRELEASED)
        member.advance(RETRY_MS)
    assert len(member.emitted(SlotsUnseen)) == len(member.emitted(StandbyBegan)) == 1


def test_r304_a_join_whose_answer_was_lost_finds_its_own_slot() -> None:
    """The coordinator refuses the repetition of a join that it has applied: the slot would be lost for a session."""
    member = joining("s-0")
    for _ in range(2):
        member.answer_heartbeat(error=UNRELEASED)
        member.advance(RETRY_MS)
        member.fail_heartbeat()
        member.advance(200)
        member.answer_heartbeat(error=UNRELEASED)
        assert named(member) == [(AWAY, "s-0"), (0, "s-0")]
        member.answer_heartbeat(error=ErrorCode.FENCED_INSTANCE_ID)  # it was another one's after all


def test_r305_a_standby_that_leaves_says_nothing() -> None:
    """close() and Ctrl-C while standing by end at once, and no slot of another member is touched."""
    for member in (joining("s-0"), joining(*POOL)):
        if member.requests(ConsumerGroupDescribeRequest):
            show(member, dict.fromkeys(POOL, 3))
        else:
            member.answer_heartbeat(error=UNRELEASED)
        member.leave(closing=True)
        member.expect_no_heartbeat()
        assert len(member.emitted(LeaveDone)) == 1
        assert not member.member.view().standing_by


def test_r306_handing_over_releases_the_slot() -> None:
    """A standby may be there: it gets the very same partitions, and no other member hears of it."""
    member = owner("s-0")
    member.step(HandOverRequested(member.now_ms + LIMIT_MS))
    member.expect_no_heartbeat()
    assert member.member.view().poll_wanted
    member.poll()
    assert [call.kind for call in member.calls] == ["revoked"]
    member.finish_call("revoked", "t-0")
    assert named(member) == [(AWAY, "s-0")]


def test_r307_it_ends_when_a_standby_has_taken_the_slot() -> None:
    """Then the process may go."""
    member = releasing("s-0")
    for holder in (AWAY, 3):
        assert member.member.view().handing_over
        member.advance(WATCH_EVERY_MS)
        member.describe({}, epoch=3, others=[holder, 3], slots={0: "s-0"})
    assert not member.member.view().handing_over
    member.leave(closing=True)
    member.expect_no_heartbeat()


def test_r307_it_ends_when_the_whole_group_leaves() -> None:
    """After ``docker compose down`` the slots wait for the next start, and nothing moves."""
    member = releasing(*POOL)
    member.advance(WATCH_EVERY_MS)
    member.describe({}, epoch=3, others=[AWAY, AWAY, 3], slots={0: "s-0", 1: "s-1", 2: "s-2"}, leaving=[2])
    assert not member.member.view().handing_over


@pytest.mark.parametrize("describes", [True, False])
def test_r308_without_a_standby_it_takes_the_slot_back_and_hands_over_to_the_others(describes: bool) -> None:
    """A scale-down: else the partitions would wait for the others' heartbeats, or for the end of the session."""
    member = releasing("s-0", describes=describes)
    for _ in range(WAIT_MS // WATCH_EVERY_MS):
        if member.requests(ConsumerGroupDescribeRequest):
            member.describe({}, epoch=3, others=[AWAY, 3], slots={0: "s-0"})
        member.advance(WATCH_EVERY_MS)
    assert named(member) == [(0, "s-0")], "at once"

    member.answer_heartbeat(epoch=3, assignment={"t": [0]})
    member.reconcile()
    member.answer_heartbeat(epoch=3)
    assert member.expect_heartbeat(epoch=3).subscribed_topic_names == (), "as R188"
    assert member.readable == ["t-0"] or member.sent
    member.step(HandOverRequested(member.now_ms))
    member.advance(LIMIT_MS)
    assert not member.member.view().handing_over
    member.leave(closing=True)
    while member.calls:
        member.finish_call(member.calls[0].kind, *member.calls[0].partitions)
    assert named(member)[-1] == (-1, "s-0"), "it gives the slot up"


def test_r311_it_reads_on_until_others_that_leave_as_well_are_back() -> None:
    """In a scale-down it gave its partitions to members that were about to leave: unread for up to seven seconds."""
    member = releasing("s-0")
    while (0, "s-0") not in named(member):
        if member.requests(ConsumerGroupDescribeRequest):
            member.describe({}, epoch=3, others=[AWAY, 3], slots={0: "s-0"})
        member.advance(WATCH_EVERY_MS)
    member.answer_heartbeat(epoch=3, assignment={"t": [0]})
    member.reconcile()
    member.answer_heartbeat(epoch=3)
    member.answer_heartbeat(epoch=3, assignment={})
    assert member.member.view().handing_over

    member.advance(WAIT_MS - 1)
    assert not member.requests(ConsumerGroupDescribeRequest)
    member.advance(1)

    member.describe({}, epoch=4, own_epoch=3, others=[4], targets={0: {"t": [0]}})
    assert member.member.view().poll_wanted


def test_r308_a_standby_that_comes_late_keeps_the_slot() -> None:
    """It came between the last look and the join that wanted the slot back."""
    member = releasing("s-0", describes=False)
    member.advance(WAIT_MS)
    member.poll()
    member.answer_heartbeat(error=UNRELEASED)
    assert named(member) == [(AWAY, "s-0"), (0, "s-0")], "R304"
    member.answer_heartbeat(error=ErrorCode.FENCED_INSTANCE_ID)
    member.answer_heartbeat(error=UNRELEASED)
    assert not member.member.view().handing_over
    member.expect_no_heartbeat()


def test_r309_a_leave_from_a_pool_gives_the_slot_up_if_no_standby_comes() -> None:
    """close() alone deploys without moves, too, and a scale-down does not leave the slot to its session."""
    member = owner(*POOL)
    member.leave(closing=True)
    member.finish_call("revoked", "t-0")
    assert named(member) == [(AWAY, "s-0")]
    member.answer_heartbeat(epoch=AWAY)
    while member.now_ms < WAIT_MS + 10_000 and not member.requests(ConsumerGroupHeartbeatRequest):
        member.advance(WATCH_EVERY_MS)
        if member.requests(ConsumerGroupDescribeRequest):
            member.describe({}, epoch=3, others=[AWAY, 3], slots={0: "s-0"})
    assert named(member) == [(-1, "s-0")]
    assert not member.emitted(LeaveDone)
    member.answer_heartbeat(epoch=-1)
    assert len(member.emitted(LeaveDone)) == 1


@pytest.mark.parametrize("mode", list(LeaveMode))
def test_r309_other_leaves_are_those_of_static_members(mode: LeaveMode) -> None:
    """One slot is that of a StatefulSet's pod, which comes back; and a mode that was asked for is kept."""
    one, pooled = owner("s-0", assignment={}), owner(*POOL, assignment={})
    one.leave(mode=mode, closing=True)
    pooled.leave(mode=mode, closing=True)
    assert named(one) == named(pooled) == [(-1 if mode is LeaveMode.LEAVE_GROUP else AWAY, "s-0")]
    one.answer_heartbeat()
    assert len(one.emitted(LeaveDone)) == 1


def test_r310_a_removed_member_joins_again_with_its_slot() -> None:
    """Its partitions may still be those of the slot; if another process has it, the member stands by."""
    member = owner(*POOL, assignment={})
    fence(member)
    assert named(member) == [(0, "s-0")]
    member.answer_heartbeat(error=UNRELEASED)
    member.answer_heartbeat(error=ErrorCode.UNKNOWN_MEMBER_ID)
    member.answer_heartbeat(error=UNRELEASED)
    member.advance(RETRY_MS)
    show(member, {"s-0": 3})
    assert named(member) == [(0, "s-1")]


def test_r308_an_answer_about_an_earlier_leave_does_not_end_a_later_one() -> None:
    """After a late poll() the member leaves and comes back; close() is to wait for its own leave, and for a standby."""
    member = owner("s-0", "s-1", describes=False)
    member.advance(MAX_POLL_MS + 1)
    member.poll()
    member.finish_call("lost", "t-0")
    member.poll()
    epochs = [heartbeat.member_epoch for heartbeat in member.requests(ConsumerGroupHeartbeatRequest)]
    earlier, join = [member.take(ConsumerGroupHeartbeatRequest) for _ in epochs][-2:]
    assert epochs[-2:] == [AWAY, 0]
    member.sent.append(join)
    member.answer_heartbeat(epoch=5, assignment={"t": [0]})
    member.reconcile()
    member.answer_heartbeat(epoch=5)

    member.leave(closing=True)
    member.finish_call("revoked", "t-0")
    member.expect_heartbeat(epoch=AWAY)
    member.step(RequestFailed(earlier.request_id, FailureKind.TIMED_OUT, "scripted"))
    assert not member.emitted(LeaveDone)
