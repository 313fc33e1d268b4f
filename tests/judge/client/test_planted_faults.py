"""Members with one fault each: the referee names the rule that it breaks, and no other. What is right is not named.

A fault is a conversation as a member with that mistake in its core would have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.testing.judge.client.referee import JUDGED
from kip848_client.testing.judge.rulebook import rulebook
from kip848_client.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kip848_client.wire.messages.join_group import JoinGroupResponse
from tests.judge.client.talk import (
    INTERVAL_MS,
    READER,
    Talk,
    accepted,
    classic_join,
    heartbeat,
    join,
    refused,
    share_answer,
    share_fetch,
)

FAULTS: Final[list[tuple[int, Callable[[Talk], None]]]] = []
"""The rule that each fault breaks, and the fault."""


def breaks(rule: int) -> Callable[[Callable[[Talk], None]], Callable[[Talk], None]]:
    """Register a fault; its name says what the member does."""

    def register(fault: Callable[[Talk], None]) -> Callable[[Talk], None]:
        FAULTS.append((rule, fault))
        return fault

    return register


# --- groups of KIP-848: joining


@breaks(10)
def joins_without_topics(talk: Talk) -> None:
    talk.tell(join(subscribed_topic_names=None), refused(ErrorCode.INVALID_REQUEST))


@breaks(10)
def joins_without_a_rebalance_timeout(talk: Talk) -> None:
    talk.tell(join(rebalance_timeout_ms=-1), refused(ErrorCode.INVALID_REQUEST))


@breaks(10)
def joins_with_null_partitions(talk: Talk) -> None:
    talk.tell(join(topic_partitions=None), refused(ErrorCode.INVALID_REQUEST))


@breaks(10)
def joins_with_the_partitions_of_its_last_life(talk: Talk) -> None:
    talk.joins()
    talk.beat(1, told=refused(ErrorCode.FENCED_MEMBER_EPOCH))
    talk.tell(join(topic_partitions=heartbeat(0, owned=(0, 1)).topic_partitions), refused(ErrorCode.INVALID_REQUEST))


@breaks(11)
def lets_the_coordinator_make_its_id(talk: Talk) -> None:
    talk.tell(join(member_id=""), refused(ErrorCode.INVALID_REQUEST))


# --- when heartbeats are sent


@breaks(27)
def heartbeats_in_a_loop(talk: Talk) -> None:
    talk.joins()
    for _ in range(25):
        talk.beat(1, after_ms=1)


@breaks(27)
def heartbeats_ten_times_as_often_as_told(talk: Talk) -> None:
    talk.joins()
    for _ in range(60):
        talk.beat(1, after_ms=INTERVAL_MS // 11)


@breaks(28)
def stops_heartbeats_while_it_fetches(talk: Talk) -> None:
    talk.joins()
    talk.beat(1)
    for _ in range(140):
        talk.wait(100)
        talk.fetches(0, 1)
    talk.beat(1)


@breaks(29)
def has_two_heartbeats_under_way(talk: Talk) -> None:
    talk.joins()
    talk.wait()
    talk.ask(heartbeat(1))
    talk.wait(50)
    talk.ask(heartbeat(1, owned=(0, 1), rebalance_timeout_ms=60_000, subscribed_topic_names=("orders",)))


@breaks(33)
def repeats_a_refused_heartbeat_at_once(talk: Talk) -> None:
    talk.joins()
    talk.wait()
    for _ in range(6):
        talk.beat(1, told=refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), after_ms=1)


@breaks(21)
def looks_the_coordinator_up_in_a_loop(talk: Talk) -> None:
    for _ in range(6):
        talk.wait(1)
        talk.looks_up_coordinator(code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


# --- epochs


@breaks(36)
def counts_its_epoch_up_by_itself(talk: Talk) -> None:
    talk.joins()
    talk.beat(2)


@breaks(36)
def keeps_its_old_epoch(talk: Talk) -> None:
    talk.joins()
    talk.beat(1, told=accepted(2))
    talk.beat(1)


@breaks(36)
def joins_although_it_is_a_member(talk: Talk) -> None:
    talk.joins()
    talk.wait()
    talk.tell(join(), accepted(2, (0, 1)))


@breaks(57)
def goes_on_after_it_was_fenced(talk: Talk) -> None:
    talk.joins()
    talk.beat(1, told=refused(ErrorCode.FENCED_MEMBER_EPOCH))
    talk.beat(1)


@breaks(57)
def goes_on_with_all_fields_after_it_was_forgotten(talk: Talk) -> None:
    talk.joins()
    talk.beat(1, told=refused(ErrorCode.UNKNOWN_MEMBER_ID))
    talk.beat(1, owned=(0, 1), rebalance_timeout_ms=60_000, subscribed_topic_names=("orders",))


@breaks(50)
def goes_on_after_its_instance_was_replaced(talk: Talk) -> None:
    talk.joins(instance="i")
    talk.beat(1, instance_id="i", told=refused(ErrorCode.FENCED_INSTANCE_ID))
    talk.beat(1, instance_id="i")


@breaks(48)
def stays_with_a_broker_that_is_not_its_coordinator(talk: Talk) -> None:
    talk.joins()
    talk.beat(1, told=refused(ErrorCode.NOT_COORDINATOR))
    talk.beat(1)


# --- fields


@breaks(40)
def repeats_a_lost_heartbeat_without_its_partitions(talk: Talk) -> None:
    talk.joins()
    talk.beat(1, told=None)
    talk.connection = 7
    talk.beat(1)


@breaks(40)
def forgets_an_acknowledgement_that_was_refused(talk: Talk) -> None:
    talk.tell(join(), accepted(1, (0, 1)))
    talk.beat(1, owned=(0, 1), told=refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    talk.beat(1)


@breaks(143)
def changes_its_instance_id(talk: Talk) -> None:
    talk.joins(instance="i")
    talk.beat(1, instance_id="j")


# --- partitions


@breaks(42)
def owns_what_it_was_never_assigned(talk: Talk) -> None:
    talk.tell(join(), accepted(1, (0, 1)))
    talk.beat(1, owned=(0, 1, 2))


@breaks(42)
def owns_again_what_it_gave_away(talk: Talk) -> None:
    talk.joins()
    talk.beat(1, told=accepted(1, (0,)))
    talk.beat(1, owned=(0,), told=accepted(2))
    talk.beat(2, owned=(0, 1))


@breaks(72)
def never_acknowledges_an_assignment(talk: Talk) -> None:
    talk.joins()
    talk.beat(1, told=accepted(2, (0,)))
    for _ in range(72):
        talk.beat(2)


@breaks(68)
def reads_on_what_it_gave_away(talk: Talk) -> None:
    talk.joins()
    talk.fetches(0, 1)
    talk.fetches(0, 1)
    talk.beat(1, told=accepted(1, (0,)))
    talk.beat(1, owned=(0,), told=accepted(2))
    talk.wait(3000)
    talk.fetches(0, 1)


@breaks(57)
def reads_on_what_it_lost(talk: Talk) -> None:
    talk.joins()
    talk.fetches(0, 1)
    talk.beat(1, told=refused(ErrorCode.FENCED_MEMBER_EPOCH))
    talk.tell(join(), accepted(2, ()))
    talk.wait(3000)
    talk.fetches(0, 1)


@breaks(131)
def reads_on_after_it_left(talk: Talk) -> None:
    talk.joins()
    talk.fetches(0, 1)
    talk.beat(-1)
    talk.wait(3000)
    talk.fetches(0, 1)


# --- offsets


@breaks(102)
def commits_with_an_epoch_of_its_own(talk: Talk) -> None:
    talk.joins()
    talk.commits(7)


@breaks(102)
def commits_with_an_old_epoch(talk: Talk) -> None:
    talk.joins()
    talk.beat(1, told=accepted(2))
    talk.beat(2)
    talk.commits(1)


@breaks(104)
def commits_after_it_left(talk: Talk) -> None:
    talk.joins()
    talk.beat(-1)
    talk.commits(1)


@breaks(104)
def commits_with_the_epoch_of_its_last_life(talk: Talk) -> None:
    talk.joins(epoch=3)
    talk.beat(3, told=refused(ErrorCode.FENCED_MEMBER_EPOCH))
    talk.tell(join(), accepted(5, ()))
    talk.commits(3)


@breaks(104)
def commits_long_after_it_was_removed(talk: Talk) -> None:
    talk.joins()
    talk.beat(1, told=refused(ErrorCode.UNKNOWN_MEMBER_ID))
    for _ in range(160):
        talk.wait(100)
        talk.fetches()
    talk.commits(1)


@breaks(105)
def repeats_a_refused_commit_at_once(talk: Talk) -> None:
    talk.joins()
    for _ in range(6):
        talk.wait(1)
        talk.commits(1, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


@breaks(275)
def commits_what_it_gave_away(talk: Talk) -> None:
    talk.joins()
    talk.beat(1, told=accepted(1, (0,)))
    talk.beat(1, owned=(0,), told=accepted(2))
    talk.commits(2, partition=1)


@breaks(91)
def looks_offsets_up_with_an_epoch_of_its_own(talk: Talk) -> None:
    talk.joins()
    talk.looks_up_offsets(9)


@breaks(92)
def repeats_a_refused_lookup_at_once(talk: Talk) -> None:
    talk.joins()
    for _ in range(6):
        talk.wait(1)
        talk.looks_up_offsets(1, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


# --- leaving


@breaks(6)
def heartbeats_after_it_left(talk: Talk) -> None:
    talk.joins()
    talk.beat(-1)
    talk.beat(1)


@breaks(132)
def leaves_as_a_static_member_without_being_one(talk: Talk) -> None:
    talk.joins()
    talk.beat(-2)


# --- classic groups


@breaks(200)
def joins_without_the_id_that_it_was_given(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.tell(classic_join(""), None)


@breaks(200)
def makes_its_own_id(talk: Talk) -> None:
    talk.tell(classic_join("my-own"), None)


@breaks(200)
def joins_without_an_assignor(talk: Talk) -> None:
    talk.tell(classic_join("", protocols=()), None)


@breaks(201)
def syncs_with_another_generation(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1, assigned=None)
    talk.syncs(2, {"m": (0, 1)})


@breaks(201)
def assigns_without_leading(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1, leads=False, assigned=None)
    talk.syncs(1, {"m": (0, 1)})


@breaks(201)
def heartbeats_with_another_generation(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1)
    talk.classic_beat(2)


@breaks(203)
def claims_what_it_was_never_assigned(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1)
    talk.classic_joins(2, owned=(0, 1, 2), assigned=(0, 1, 2))


@breaks(203)
def ignores_a_rebalance(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1)
    for _ in range(24):
        talk.classic_beat(1, code=ErrorCode.REBALANCE_IN_PROGRESS)


@breaks(204)
def ignores_a_rebalance_of_an_eager_group(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1, protocol="range")
    for _ in range(24):
        talk.classic_beat(1, code=ErrorCode.REBALANCE_IN_PROGRESS)


@breaks(205)
def does_not_join_again_after_it_gave_something_up(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1)
    talk.classic_joins(2, leads=False, owned=(0, 1), assigned=(0,))
    for _ in range(24):
        talk.classic_beat(2)


@breaks(207)
def goes_on_in_a_generation_that_is_over(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1)
    for _ in range(5):
        talk.classic_beat(1, code=ErrorCode.ILLEGAL_GENERATION)


@breaks(207)
def joins_with_an_id_that_is_unknown(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1)
    talk.tell(classic_join("m"), JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    talk.tell(classic_join("m"), None)


@breaks(207)
def claims_what_it_had_before_it_was_removed(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1)
    talk.classic_beat(1, code=ErrorCode.UNKNOWN_MEMBER_ID)
    talk.tell(classic_join("", owned=(0, 1)), None)


@breaks(210)
def commits_with_an_old_generation(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1)
    talk.classic_joins(2, owned=(0, 1))
    talk.commits(1)


@breaks(211)
def heartbeats_after_leave_group(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1)
    talk.classic_beat(1)
    talk.classic_leaves()
    talk.classic_beat(1)


@breaks(212)
def assigns_what_another_member_still_owns(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1, others={"n": (0, 1)}, assigned=None)
    talk.syncs(1, {"m": (1,), "n": (0,)}, (1,))


@breaks(212)
def assigns_a_partition_twice(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1, protocol="range", others={"n": ()}, assigned=None)
    talk.syncs(1, {"m": (0, 1), "n": (1,)}, (0, 1))


# --- share groups


@breaks(320)
def joins_a_share_group_without_topics(talk: Talk) -> None:
    talk.share_beat(0, told=1)


@breaks(322)
def repeats_a_lost_heartbeat_without_its_topics(talk: Talk) -> None:
    talk.share_joins()
    talk.share_beat(1, told=None)
    talk.share_beat(1)


@breaks(325)
def goes_on_after_it_was_fenced_from_a_share_group(talk: Talk) -> None:
    talk.share_joins()
    talk.share_beat(1, code=ErrorCode.FENCED_MEMBER_EPOCH)
    talk.share_beat(1)


@breaks(325)
def makes_up_an_epoch_in_a_share_group(talk: Talk) -> None:
    talk.share_joins()
    talk.share_beat(4)


@breaks(326)
def stays_with_a_broker_that_no_longer_coordinates_its_share_group(talk: Talk) -> None:
    talk.share_joins()
    talk.share_beat(1, code=ErrorCode.NOT_COORDINATOR)
    talk.share_beat(1)


@breaks(329)
def leaves_a_share_group_as_static_members_leave(talk: Talk) -> None:
    talk.share_joins()
    talk.share_beat(-2)


@breaks(329)
def heartbeats_after_it_left_a_share_group(talk: Talk) -> None:
    talk.share_joins()
    talk.share_beat(-1)
    talk.share_beat(1)


@breaks(330)
def repeats_a_session_epoch(talk: Talk) -> None:
    talk.share_fetches(0)
    talk.share_fetches(1)
    talk.share_fetches(1)


@breaks(330)
def asks_twice_at_once_in_a_session(talk: Talk) -> None:
    talk.share_fetches(0)
    talk.ask(share_fetch(1), connection=READER)
    talk.ask(share_fetch(2), connection=READER)


@breaks(330)
def acknowledges_while_it_opens_a_session(talk: Talk) -> None:
    talk.share_fetches(0, acquired=range(5))
    talk.answer(talk.ask(share_fetch(0, range(5)), connection=9), share_answer())


@breaks(334)
def acknowledges_twice(talk: Talk) -> None:
    talk.share_fetches(0, acquired=range(5))
    talk.share_fetches(1, said=range(5))
    talk.share_acknowledges(2, range(3, 5))


@breaks(334)
def acknowledges_what_it_did_not_acquire(talk: Talk) -> None:
    talk.share_fetches(0, acquired=range(5))
    talk.share_fetches(1, said=range(6))


@breaks(336)
def goes_on_with_a_session_that_is_lost(talk: Talk) -> None:
    talk.share_fetches(0)
    talk.share_fetches(1, code=ErrorCode.SHARE_SESSION_NOT_FOUND)
    talk.share_fetches(2)


@pytest.mark.parametrize(("rule", "fault"), FAULTS, ids=[f"R{rule}-{fault.__name__}" for rule, fault in FAULTS])
def test_a_fault_is_named_by_its_rule(rule: int, fault: Callable[[Talk], None]) -> None:
    """A client's author is told the right rule, and nothing else that would lead astray."""
    talk = Talk()
    fault(talk)
    assert talk.broken == [rule]


def test_every_rule_that_is_judged_has_a_fault() -> None:
    """A rule without one might never be named. That of R46 is a note only."""
    assert {rule for rule, _ in FAULTS} == JUDGED.keys() - {46}
    assert rulebook().keys() >= JUDGED.keys()


# --- what is right


def goes_through_a_rebalance(talk: Talk) -> None:
    talk.joins()
    talk.fetches(0, 1)
    talk.beat(1)
    talk.commits(1)
    talk.beat(1, told=accepted(1, (0,)))
    talk.fetches(0)
    talk.commits(1, partition=1, offset=9)
    talk.beat(1, owned=(0,), told=accepted(2))
    talk.beat(2, told=accepted(3, (0, 1)))
    talk.beat(3, owned=(0, 1))
    talk.wait(3000)
    talk.fetches(0, 1)
    talk.commits(3, partition=1)
    talk.beat(-1)
    talk.tell(join(), accepted(5, (1,)))


def is_removed_and_joins_again(talk: Talk) -> None:
    talk.joins(epoch=4)
    talk.beat(4, told=refused(ErrorCode.FENCED_MEMBER_EPOCH))
    talk.commits(4)  # it was under way when the answer came
    talk.joins(epoch=6)
    talk.beat(6)
    talk.commits(6)


def loses_the_answer_that_raised_its_epoch(talk: Talk) -> None:
    talk.joins()
    talk.beat(1, told=accepted(2))
    talk.connection = 7  # the answer was written, but perhaps not read
    talk.beat(1, owned=(0, 1), rebalance_timeout_ms=60_000, subscribed_topic_names=("orders",), told=accepted(2))
    talk.beat(2)


def gives_up_a_heartbeat_whose_answer_comes_late(talk: Talk) -> None:
    talk.joins()
    talk.wait()
    late = talk.ask(heartbeat(1))
    talk.wait()
    talk.answer(late, refused(ErrorCode.FENCED_MEMBER_EPOCH))
    talk.tell(heartbeat(1), refused(ErrorCode.FENCED_MEMBER_EPOCH))  # it had been sent when that came
    talk.tell(join(), accepted(3, ()))


def loses_the_answer_and_leaves(talk: Talk) -> None:
    talk.joins()
    talk.wait()
    waiting = talk.ask(heartbeat(1))
    talk.tell(heartbeat(-1), accepted(-1))
    talk.answer(waiting, accepted(1))
    talk.tell(join(), accepted(3, ()))


def follows_its_coordinator(talk: Talk) -> None:
    talk.joins()
    talk.beat(1, told=refused(ErrorCode.NOT_COORDINATOR))
    talk.looks_up_coordinator(code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    talk.wait(100)
    talk.looks_up_coordinator()
    talk.beat(1, owned=(0, 1), rebalance_timeout_ms=60_000, subscribed_topic_names=("orders",), after_ms=1)


def waits_longer_each_time(talk: Talk) -> None:
    talk.joins()
    for tries in range(6):
        talk.beat(1, told=refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), after_ms=100 << tries)


def is_in_haste_for_a_moment(talk: Talk) -> None:
    talk.joins()
    for _ in range(12):
        talk.beat(1, after_ms=25)


def stands_still(talk: Talk) -> None:
    talk.joins()
    talk.fetches(0, 1)
    talk.beat(1, after_ms=60_000)


def rebalances_a_cooperative_group(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1)
    talk.classic_beat(1, code=ErrorCode.REBALANCE_IN_PROGRESS)
    talk.commits(1)
    talk.classic_joins(2, owned=(0, 1), others={"n": ()}, assigned=None)
    talk.syncs(2, {"m": (0,), "n": ()}, (0,))
    talk.classic_joins(3, owned=(0,), others={"n": ()}, assigned=None)
    talk.syncs(3, {"m": (0,), "n": (1,)}, (0,))
    talk.classic_beat(3)
    talk.commits(3)
    talk.classic_leaves()


def hears_of_a_rebalance_too_late(talk: Talk) -> None:
    talk.is_given_an_id()
    talk.classic_joins(1)
    talk.wait(3000)
    late = talk.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
    talk.classic_joins(2, owned=(0, 1))
    talk.answer(late, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    for _ in range(24):
        talk.classic_beat(2)


def works_in_a_share_group(talk: Talk) -> None:
    talk.share_joins()
    talk.share_fetches(0, acquired=range(10))
    talk.share_fetches(1, said=range(5))
    talk.share_fetches(2, said=range(5, 6), kind=4)  # it renews
    talk.share_acknowledges(3, range(5, 10))
    talk.share_fetches(4, acquired=range(3, 5))  # they were released elsewhere, and come again
    talk.share_fetches(5, said=range(3, 5))
    talk.share_beat(1)
    talk.share_fetches(-1)
    talk.share_beat(-1)


def says_again_what_had_no_answer(talk: Talk) -> None:
    talk.share_fetches(0, acquired=range(10))
    talk.wait(100)
    talk.answer(talk.ask(share_fetch(1, range(10)), connection=READER), None)
    talk.share_fetches(0)
    talk.share_fetches(1, said=range(10))


@pytest.mark.parametrize(
    "conversation",
    [
        goes_through_a_rebalance,
        is_removed_and_joins_again,
        loses_the_answer_that_raised_its_epoch,
        gives_up_a_heartbeat_whose_answer_comes_late,
        loses_the_answer_and_leaves,
        follows_its_coordinator,
        waits_longer_each_time,
        is_in_haste_for_a_moment,
        stands_still,
        rebalances_a_cooperative_group,
        hears_of_a_rebalance_too_late,
        works_in_a_share_group,
        says_again_what_had_no_answer,
    ],
)
def test_what_a_right_member_does_breaks_nothing(conversation: Callable[[Talk], None]) -> None:
    """A false alarm costs a client's author a day."""
    talk = Talk()
    conversation(talk)
    assert [found.seen for found in talk.referee.findings.broken] == []
