"""The rules of docs/protocol.md, section Early heartbeats."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.member.consumer.early_heartbeats import (
    BLIND_HEARTBEATS_MAX,
    CROWD,
    FOUND_MAX_MS,
    KNOWN_MAX_MS,
    SMALL_GROUP,
)
from kip848_client.member.core.events import CoordinatorDisconnected
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.spec.arrange import fence
from tests.support.member_harness import MemberHarness

INTERVAL_MS = 5_000
NOTHING: Mapping[str, list[int]] = {}


def newcomer(*, describes: bool = False, pending: Any = None, **settings: object) -> MemberHarness:
    """It has joined a group in which others still have everything, and has acknowledged its empty assignment."""
    member = MemberHarness(
        settings={"early_heartbeats": True, "max_poll_interval_ms": 300_000, **settings}, describes=describes
    )
    member.clock.advance(INTERVAL_MS)
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat(epoch=5, assignment=NOTHING, interval_ms=INTERVAL_MS, pending=pending)
    member.clock.advance(40)  # the acknowledgement comes later than the first early heartbeat would
    member.reconcile()
    member.answer_heartbeat(epoch=5, interval_ms=INTERVAL_MS)
    return member


def sends(member: MemberHarness, *, for_ms: int) -> list[int]:
    """How long after now the member sends heartbeats, each answered at once without news."""
    began_ms = member.now_ms
    end_ms = began_ms + for_ms
    times = []
    while member.now_ms < end_ms:
        deadline_ms = member.member.deadline_ms()
        assert deadline_ms is not None
        member.advance(max(1, min(deadline_ms, end_ms) - member.now_ms))
        if member.requests(ConsumerGroupHeartbeatRequest):
            times.append(member.now_ms - began_ms)
            member.answer_heartbeat(epoch=5, interval_ms=INTERVAL_MS)
    return times


def describe(
    member: MemberHarness, target: Mapping[str, list[int]], *, members: int = 2, target_epoch: int = 5
) -> None:
    """Answer the member's ConsumerGroupDescribe: the group is in epoch 5."""
    member.describe(target, epoch=5, others=[5] * (members - 1), target_epoch=target_epoch)


def test_r180_a_newcomer_asks_after_30_ms_and_then_at_growing_distances() -> None:
    """Partitions that others give up for it would lie idle until its next interval."""
    member = newcomer()

    assert sends(member, for_ms=1_000)[:5] == [30, 75, 143, 244, 396]


def test_r180_a_member_whose_epoch_moved_asks_too() -> None:
    """When a member leaves, its partitions go to members that are already in the group."""
    member = newcomer(describes=True)
    sends(member, for_ms=30)
    describe(member, NOTHING)
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=6, interval_ms=INTERVAL_MS)
    member.advance(29)
    member.expect_no_heartbeat()

    member.advance(1)

    member.expect_heartbeat(epoch=6)


def test_r181_a_part_that_arrives_begins_it_anew() -> None:
    """The next owner gives up its part soon after the first."""
    member = newcomer()
    sends(member, for_ms=1_500)
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=5, assignment={"t": [0]}, interval_ms=INTERVAL_MS)
    member.reconcile()
    member.answer_heartbeat(epoch=5, interval_ms=INTERVAL_MS)

    member.advance(30)

    member.expect_heartbeat(epoch=5)


def test_r182_a_member_asks_once_for_each_epoch_what_it_waits_for() -> None:
    """Only the coordinator knows the target; a description of the group for each heartbeat would cost too much."""
    member = newcomer(describes=True)
    assert member.requests(ConsumerGroupDescribeRequest) == []

    sends(member, for_ms=30)
    describe(member, {"t": [0]}, target_epoch=4)  # still being computed
    times = sends(member, for_ms=1_000)

    assert member.requests(ConsumerGroupDescribeRequest) == []
    assert max(later - earlier for earlier, later in pairwise(times)) > KNOWN_MAX_MS


def test_r182_a_member_asks_again_when_a_part_arrived_before_the_answer() -> None:
    """The answer is about a former target, and without another one the rest was asked for at growing distances."""
    member = newcomer(describes=True)
    sends(member, for_ms=29)
    member.advance(1)
    assert member.requests(ConsumerGroupDescribeRequest)
    member.answer_heartbeat(epoch=5, assignment={"t": [0]}, interval_ms=INTERVAL_MS)
    member.reconcile()
    member.answer_heartbeat(epoch=5, interval_ms=INTERVAL_MS)
    describe(member, {"t": [0, 1]})  # too late

    sends(member, for_ms=30)
    describe(member, {"t": [0, 1]})

    times = sends(member, for_ms=1_000)
    assert max(later - earlier for earlier, later in pairwise(times)) == KNOWN_MAX_MS


def test_r182_a_target_counts_until_the_next_one_is_computed() -> None:
    """Where members leave one after the other, a newer target is always to come, and the parts of this one come now."""
    member = newcomer(describes=True)
    sends(member, for_ms=30)
    member.describe({"t": [0]}, epoch=6, own_epoch=5, others=[5], target_epoch=5)
    times = sends(member, for_ms=1_000)
    assert max(later - earlier for earlier, later in pairwise(times)) == KNOWN_MAX_MS

    member.advance(KNOWN_MAX_MS)
    member.answer_heartbeat(epoch=5, assignment={"t": [0]}, interval_ms=INTERVAL_MS)
    member.reconcile()
    member.answer_heartbeat(epoch=5, interval_ms=INTERVAL_MS)

    assert sends(member, for_ms=100), "the next target may bring more"


@pytest.mark.parametrize("groups", [[], [{"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}]], ids=["no", "refused"])
def test_r182_without_a_description_it_goes_on_as_before(groups: list[dict[str, int]]) -> None:
    """Users who may read from a group may not always describe it."""
    member = newcomer(describes=True)
    sends(member, for_ms=30)
    member.answer(ConsumerGroupDescribeRequest, build(ConsumerGroupDescribeResponse, groups=groups))

    assert sends(member, for_ms=200) == [45, 113]


def test_r182_an_answer_about_a_former_epoch_is_ignored() -> None:
    """By then the member may wait for partitions that it does not name."""
    member = newcomer(describes=True)
    sends(member, for_ms=30)
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=6, interval_ms=INTERVAL_MS)
    describe(member, NOTHING)

    member.advance(30)

    member.expect_heartbeat(epoch=6)


def test_r182_a_coordinator_that_names_what_is_missing_is_not_asked() -> None:
    """Our own coordinator does: a description of the group would cost each member one request more."""
    member = newcomer(describes=True, pending={"t": [0]})

    times = sends(member, for_ms=1_000)

    assert max(later - earlier for earlier, later in pairwise(times)) == KNOWN_MAX_MS
    assert member.requests(ConsumerGroupDescribeRequest) == []


def test_r183_while_it_knows_what_it_waits_for_it_asks_every_25_ms_for_two_intervals() -> None:
    """This distance is how long users wait for a moved partition in a rebalance."""
    member = newcomer(describes=True)
    sends(member, for_ms=30)
    describe(member, {"t": [0]})

    times = sends(member, for_ms=8 * INTERVAL_MS)

    distances = [later - earlier for earlier, later in pairwise(times)]
    known = [at for at in times if at < 2 * INTERVAL_MS - 4 * KNOWN_MAX_MS]
    short = distances[: len(known)]
    assert max(short) == KNOWN_MAX_MS
    assert distances[-1] == INTERVAL_MS


def test_r183_in_a_large_group_the_distance_is_longer_in_proportion() -> None:
    """A hundred members that join at once ask together no more often than those of a small group."""
    member = newcomer(describes=True)
    sends(member, for_ms=30)
    describe(member, {"t": [0]}, members=4 * CROWD)

    times = sends(member, for_ms=INTERVAL_MS)

    assert max(later - earlier for earlier, later in pairwise(times)) == 4 * KNOWN_MAX_MS


def test_r255_it_says_that_it_expects_news_until_the_new_partitions_are_read() -> None:
    """The application's thread waits up to 50 ms for records of other partitions; a new one has no reader meanwhile."""
    member = newcomer(describes=True)
    sends(member, for_ms=30)
    describe(member, {"t": [0]})
    expected = [member.member.view().news_expected]
    member.advance(2 * KNOWN_MAX_MS)
    member.answer_heartbeat(epoch=5, assignment={"t": [0]}, interval_ms=INTERVAL_MS)
    member.reconcile()
    member.answer_heartbeat(epoch=5, interval_ms=INTERVAL_MS)
    expected.append(member.member.view().news_expected)
    member.answer_fetch({"t-0": 7})
    expected.append(member.member.view().news_expected)

    assert expected == [True, True, False]
    removed = newcomer()
    assert removed.member.view().news_expected
    removed.advance(INTERVAL_MS)
    fence(removed)
    assert not removed.member.view().news_expected


def test_r183_it_ends_when_everything_has_arrived() -> None:
    """A member that has all of its target has nothing to ask for."""
    member = newcomer(describes=True)
    sends(member, for_ms=30)
    describe(member, {"t": [0]})
    member.advance(2 * KNOWN_MAX_MS)
    member.answer_heartbeat(epoch=5, assignment={"t": [0]}, interval_ms=INTERVAL_MS)
    member.reconcile()
    member.answer_heartbeat(epoch=5, interval_ms=INTERVAL_MS)

    assert sends(member, for_ms=INTERVAL_MS - 1) == []


def test_r184_without_knowledge_twelve_early_heartbeats_are_the_limit() -> None:
    """In a large group nearly all members wait for nothing."""
    member = newcomer()

    times = sends(member, for_ms=6 * INTERVAL_MS)

    early = [later for earlier, later in pairwise([0, *times]) if later - earlier < INTERVAL_MS]
    assert len(early) == BLIND_HEARTBEATS_MAX
    assert times[-1] - times[-2] == INTERVAL_MS


def test_r185_a_member_that_waits_for_nothing_sends_none() -> None:
    """A group at rest costs one heartbeat an interval and member."""
    member = newcomer(describes=True)
    sends(member, for_ms=30)

    describe(member, NOTHING)

    assert sends(member, for_ms=INTERVAL_MS - 1) == []
    member.advance(1)
    member.answer_heartbeat(epoch=5, assignment=NOTHING, interval_ms=INTERVAL_MS)  # repeated, nothing new
    assert sends(member, for_ms=INTERVAL_MS - 1) == []


def test_r185_the_key_turns_them_off() -> None:
    """An operator who counts heartbeats can have Kafka's timing instead of ours."""
    member = newcomer(early_heartbeats=False)

    assert sends(member, for_ms=INTERVAL_MS - 1) == []


def test_r186_in_a_large_group_only_newcomers_and_those_who_get_a_part_ask_early() -> None:
    """A thousand members whose epoch moves because one joined must not ask a thousand times what they wait for."""
    member = newcomer(describes=True)
    sends(member, for_ms=30)
    describe(member, NOTHING, members=SMALL_GROUP + 1)
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(epoch=6, interval_ms=INTERVAL_MS)

    assert sends(member, for_ms=INTERVAL_MS - 1) == []
    assert member.requests(ConsumerGroupDescribeRequest) == []
    smaller = at_rest(members=SMALL_GROUP)
    smaller.advance(INTERVAL_MS)
    smaller.answer_heartbeat(epoch=6, interval_ms=INTERVAL_MS)
    assert sends(smaller, for_ms=30) == [30]


def test_r186_who_joins_again_does_not_know_how_large_the_group_is() -> None:
    """The group may have been begun anew, with the same epochs; the member would wait for its interval."""
    member = newcomer(describes=True)
    sends(member, for_ms=30)
    describe(member, NOTHING, members=SMALL_GROUP + 1)
    member.advance(INTERVAL_MS)
    fence(member)
    member.answer_heartbeat(epoch=5, assignment=NOTHING, interval_ms=INTERVAL_MS)
    member.reconcile()
    member.answer_heartbeat(epoch=5, interval_ms=INTERVAL_MS)

    sends(member, for_ms=30)

    assert len(member.requests(ConsumerGroupDescribeRequest)) == 1


def test_r187_the_interval_can_be_capped() -> None:
    """Users who want leaving members to be noticed sooner than the broker's interval say so."""
    member = newcomer(early_heartbeats=False, heartbeat_interval_max_ms=1_000)

    assert sends(member, for_ms=3_000) == [1_000, 2_000, 3_000]


def at_rest(*, describes: bool = True, members: int = 2, **settings: object) -> MemberHarness:
    """It waits for nothing. If it can describe its group, it knows that this has so many members."""
    member = newcomer(describes=describes, **settings)
    if describes:
        sends(member, for_ms=30)
        describe(member, NOTHING, members=members)
    sends(member, for_ms=10 * INTERVAL_MS)
    return member


def fail_over(member: MemberHarness) -> list[int]:
    """The coordinator's connection breaks, and the next coordinator is found at once; then as `sends`."""
    member.step(CoordinatorDisconnected(1))
    return sends(member, for_ms=2 * INTERVAL_MS)


@pytest.mark.parametrize(
    ("group", "delay_ms"),
    [
        ({"members": 1}, FOUND_MAX_MS // 2),
        ({"members": 10 * CROWD}, 10 * FOUND_MAX_MS // 2),
        ({"describes": False}, INTERVAL_MS // 20),
    ],
)
def test_r260_a_member_heartbeats_soon_after_a_fail_over(group: dict[str, Any], delay_ms: int) -> None:
    """It would learn only with its next interval's heartbeat what the next coordinator decided."""
    member = at_rest(**group)

    assert fail_over(member) == [delay_ms, delay_ms + INTERVAL_MS]


def test_r260_the_key_turns_it_off() -> None:
    """Users who count heartbeats can have Kafka's behaviour."""
    member = at_rest(describes=False, early_heartbeats=False)

    assert fail_over(member) == [INTERVAL_MS, 2 * INTERVAL_MS]


def test_r261_a_coordinator_that_closes_connections_gets_one_such_heartbeat_an_interval() -> None:
    """A broker in trouble would be asked at the speed of the network."""
    member = at_rest()
    times = []
    began_ms = member.now_ms

    for _ in range(INTERVAL_MS // 50):
        member.step(CoordinatorDisconnected(1))
        times += [member.now_ms - began_ms + at for at in sends(member, for_ms=50)]

    assert len(times) == 1


def test_r261_an_interval_later_it_may_do_so_again() -> None:
    """The next coordinator may die as well, and must be noticed as fast."""
    member = at_rest()
    soon_ms = FOUND_MAX_MS // 2
    assert fail_over(member)[0] == soon_ms
    member.step(CoordinatorDisconnected(1))
    assert sends(member, for_ms=2_000) == [soon_ms]
    member.subscribe("t", "u")
    member.answer_heartbeat(epoch=5, interval_ms=INTERVAL_MS)
    assert sends(member, for_ms=INTERVAL_MS - 2_000) == []
    member.step(CoordinatorDisconnected(1))
    assert sends(member, for_ms=1_000) == [soon_ms]
