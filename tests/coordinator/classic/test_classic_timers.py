"""What happens when a member of a classic group is not heard of (s24 to s32)."""

from __future__ import annotations

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicState
from tests.support.classic_harness import REBALANCE_MS, SESSION_MS, ClassicHarness

NONE = ErrorCode.NONE
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def _beat_for(h: ClassicHarness, ms: int, *members: tuple[str, int]) -> None:
    """Let time go by with a heartbeat of each (member, generation) every second."""
    for _ in range(ms // 1000):
        h.advance(1000)
        for member_id, generation in members:
            h.beat(member_id, generation)


def test_s24_a_member_without_heartbeats_goes_after_its_session_timeout() -> None:
    """Otherwise the partitions of a dead member would never be read again."""
    h = ClassicHarness()
    a = h.newcomer(session_ms=600)
    h.sync_group(a, 1, {a: b"A"})
    h.advance(599)
    assert h.state_is(ClassicState.STABLE)
    h.advance(1)
    assert h.state_is(ClassicState.EMPTY)
    assert h.beat(a, 1) == UNKNOWN
    h.verify_log()


def test_s25_a_leader_that_never_syncs_goes_after_its_rebalance_timeout() -> None:
    """An assignor that hangs must not hold the group for ever, though its client sends heartbeats."""
    h = ClassicHarness()
    a = h.newcomer()
    _beat_for(h, REBALANCE_MS - 1000, (a, 1))
    assert h.state_is(ClassicState.COMPLETING)
    h.advance(1000)
    assert h.beat(a, 1) == UNKNOWN
    assert h.state_is(ClassicState.EMPTY)


def test_s26_a_follower_that_never_syncs_costs_a_rebalance() -> None:
    """No member reads its partitions, so they have to be given to others."""
    h = ClassicHarness()
    a, _ = h.joining()
    b = h.newcomer()
    h.join_group(a)
    h.sync_group(a, 2, {a: b"A", b: b"B"})
    _beat_for(h, REBALANCE_MS, (a, 2), (b, 2))
    assert h.beat(b, 2) == UNKNOWN
    assert h.beat(a, 2) == REBALANCE


def test_a_member_that_has_synced_has_its_session_again_and_is_left_alone() -> None:
    """The timer of the sync phase ends with it; a group that works must not rebalance because of it."""
    h = ClassicHarness()
    a = h.newcomer()
    h.advance(SESSION_MS - 1)
    h.sync_group(a, 1)
    h.advance(SESSION_MS - 1_001)
    _beat_for(h, REBALANCE_MS, (a, 1))
    assert h.state_is(ClassicState.STABLE)


def test_a_sync_timer_of_an_earlier_generation_does_nothing() -> None:
    """A member that has synced since must not be removed for a round that is over."""
    h = ClassicHarness()
    a = h.newcomer()
    _beat_for(h, REBALANCE_MS - 1000, (a, 1))
    h.join_group(a, protocols={"range": b"\0\0other"})
    h.sync_group(a, 2)
    h.advance(2000)
    assert h.beat(a, 2) == NONE


def test_s27_a_member_that_does_not_join_again_is_left_out() -> None:
    """The others wait for it no longer than the rebalance timeout."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    c, call = h.joining()
    _beat_for(h, REBALANCE_MS - 1000, (a, 1))
    assert call.is_parked
    h.advance(1000)
    assert (call.answer.generation_id, call.answer.leader) == (2, c)
    assert [member.member_id for member in call.answer.members] == [c]
    assert h.beat(a, 1) == UNKNOWN


@pytest.mark.parametrize(("session_ms", "gone_after_ms"), [(5_000, 5_000), (60_000, REBALANCE_MS)])
def test_s28_a_static_member_that_does_not_join_again_stays_until_its_session_or_the_sync_timer_ends(
    session_ms: int, gone_after_ms: int
) -> None:
    """A process that restarts finds its partitions; but not for ever."""
    h = ClassicHarness()
    s1 = h.join_group(instance="i1", session_ms=session_ms).answer.member_id
    h.sync_group(s1, 1, {s1: b"1"})
    call = h.join_group(instance="i2")
    h.advance(REBALANCE_MS)
    if session_ms < REBALANCE_MS:  # its session ended before
        assert [member.group_instance_id for member in call.answer.members] == ["i2"]
        return
    s2 = call.answer.member_id
    assert call.answer.leader == s2
    assert [member.group_instance_id for member in call.answer.members] == ["i1", "i2"]
    h.sync_group(s2, 2, {s1: b"1", s2: b"2"})
    _beat_for(h, gone_after_ms - 1000, (s2, 2))
    assert s1 in h.classic.members
    _beat_for(h, 1000, (s2, 2))
    assert s1 not in h.classic.members
    assert h.beat(s2, 2) == REBALANCE


def test_s29_an_id_that_was_handed_out_holds_up_the_join_phase_while_it_lives() -> None:
    """Its client is on the way; one rebalance is cheaper than two."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    h.join_group(session_ms=3_000)
    call = h.join_group(a)
    h.advance(2_999)
    assert call.is_parked
    h.advance(1)
    assert call.answer.generation_id == 2


@pytest.mark.parametrize(("rebalance_ms", "answered_at_ms"), [(6_000, 3_000), (2_000, 2_000), (500, 1_500)])
def test_s30_the_initial_delay_is_extended_by_newcomers_up_to_the_rebalance_timeout(
    rebalance_ms: int, answered_at_ms: int
) -> None:
    """Members of one deployment that start together begin with one generation, and not with one each."""
    h = ClassicHarness(delay_ms=1_500)
    first = h.join_group(instance="i1", rebalance_ms=rebalance_ms)
    h.advance(1_000)
    second = h.join_group(instance="i2", rebalance_ms=rebalance_ms)
    h.advance(answered_at_ms - 1_001)
    assert first.is_parked
    assert second.is_parked
    h.advance(1)
    assert (first.answer.generation_id, len(first.answer.members)) == (1, 2)
    assert second.code == NONE


def test_s30_newcomers_do_not_extend_the_initial_delay_for_ever() -> None:
    """A deployment that starts one process after the other would not begin to work."""
    h = ClassicHarness(delay_ms=1_500)
    calls = []
    for number in range(8):
        calls.append(h.join_group(instance=f"i{number}", rebalance_ms=4_000))
        h.advance(499)
        assert calls[0].is_parked
        h.advance(1)
    assert {call.answer.generation_id for call in calls} == {1}


def test_s30_the_initial_delay_of_a_sole_member_is_not_extended() -> None:
    """A sole member waits exactly the initial delay, even if its rebalance timeout is shorter."""
    h = ClassicHarness(delay_ms=1_500)
    call = h.join_group(instance="i1", rebalance_ms=500)
    h.advance(1_499)
    assert call.is_parked
    h.advance(1)
    assert call.code == NONE


def test_s31_the_size_limit_counts_who_waits_in_the_initial_delay() -> None:
    """A group does not begin with more members than it may have."""
    h = ClassicHarness(delay_ms=1_500, size_max=2)
    calls = [h.join_group(instance=f"i{n}") for n in range(3)]
    assert [call.is_parked for call in calls] == [True, True, False]
    assert calls[2].code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_group_that_all_members_left_in_the_initial_delay_is_empty_after_it() -> None:
    """The timer alone ends that phase, as in Kafka."""
    h = ClassicHarness(delay_ms=1_500)
    call = h.join_group(instance="i1")
    assert h.leave_group(("", "i1")) == [NONE]
    assert call.code == UNKNOWN
    h.advance(1_500)
    assert h.listed() == {"g": ("Empty", "classic", "consumer")}
    assert h.join_group(instance="i1").is_parked


def test_s32_a_newcomer_whose_client_died_goes_after_five_minutes() -> None:
    """It cannot send heartbeats while its first join waits; so it is given long."""
    h = ClassicHarness()
    a = h.newcomer(rebalance_ms=1_000_000)
    h.sync_group(a, 1)
    b, call = h.joining()
    _beat_for(h, 299_000, (a, 1))
    assert b in h.classic.members
    _beat_for(h, 1_000, (a, 1))
    assert (call.code, call.answer.member_id) == (UNKNOWN, "")
    assert list(h.classic.members) == [a]


def test_a_known_member_whose_join_waits_needs_no_heartbeats() -> None:
    """A member that waits for the others to join would be removed although it waits for us."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    h.join_group(session_ms=2 * SESSION_MS)
    call = h.join_group(a)
    h.advance(2 * SESSION_MS - 1)
    assert call.is_parked
    h.advance(1)
    assert call.code == NONE
    h.advance(SESSION_MS - 1)
    assert h.beat(a, call.answer.generation_id) == NONE


@pytest.mark.parametrize("refused", [True, False])
def test_a_member_whose_sync_has_waited_has_its_session_again(refused: bool) -> None:
    """While its SyncGroup waited it could send no heartbeat, and its timer may have fired for nothing."""
    h = ClassicHarness()
    a, _ = h.joining()
    b = h.newcomer()
    h.join_group(a)
    waiting = h.sync_group(b, 2)
    _beat_for(h, SESSION_MS + 1000, (a, 2))
    if refused:
        h.joining()
    else:
        h.sync_group(a, 2)
    assert waiting.code == (REBALANCE if refused else NONE)
    _beat_for(h, SESSION_MS - 1000, (a, 2))
    assert b in h.classic.members
    _beat_for(h, 1000, (a, 2))
    assert b not in h.classic.members


def test_a_member_that_is_silent_after_the_answer_to_its_join_goes_after_its_session_timeout() -> None:
    """The others would wait for its SyncGroup until the rebalance timeout."""
    h = ClassicHarness()
    a, _ = h.joining()
    b = h.newcomer()
    h.join_group(a)
    _beat_for(h, SESSION_MS - 1000, (a, 2))
    assert b in h.classic.members
    _beat_for(h, 1000, (a, 2))
    assert list(h.classic.members) == [a]


def test_static_members_of_which_one_is_back_wait_for_the_others_no_longer_than_the_rebalance_timeout() -> None:
    """No member came in the first round; without another timer the next one would wait for a session to end."""
    h = ClassicHarness()
    for instance in ("i1", "i2"):
        h.join_group(instance=instance, session_ms=1_000_000)
    h.advance(REBALANCE_MS)
    assert h.leave_group(("", "i2")) == [NONE]
    h.advance(REBALANCE_MS + 1_000)
    call = h.join_group(instance="i3")
    h.advance(REBALANCE_MS - 1_001)
    assert call.is_parked
    h.advance(1)
    assert [member.group_instance_id for member in call.answer.members] == ["i1", "i3"]


def test_a_static_member_whose_second_join_waits_needs_no_heartbeats() -> None:
    """A process that restarts while the group rebalances would be removed in the middle of it."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    h.join_group(instance="i1", session_ms=3_000)
    h.join_group(a)
    h.newcomer()
    again = h.join_group(instance="i1", session_ms=3_000)
    _beat_for(h, 3_000, (a, 2))
    h.join_group(a)
    assert again.code == NONE


@pytest.mark.parametrize("ends", ["a pending id", "a member", "a member that owes a sync", "a static member"])
def test_no_timer_is_kept_of_what_is_gone(ends: str) -> None:
    """A coordinator that runs for months would keep a timer of each member that it ever had, and wake up for it."""
    h = ClassicHarness()
    match ends:
        case "a pending id":
            gone = h.join_group().answer.member_id
        case "a member":
            (gone,) = h.stable("a")
        case "a member that owes a sync":
            gone = h.newcomer()
        case _:
            h.join_group(instance="i1")
            gone = h.join_group(instance="i1").answer.member_id
    assert h.leave_group(gone) == [NONE]
    assert h.coordinator.deadline_ms() is None
