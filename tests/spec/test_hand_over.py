"""The rules of docs/protocol.md, section Handing over."""

from __future__ import annotations

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.member.consumer.hand_over import QUESTION_EVERY_MS, WAITING_SHARE
from kip848_client.member.core.events import HandOverFailed, HandOverRequested
from kip848_client.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.spec.arrange import fence
from tests.support.member_harness import MemberHarness, partition

LIMIT_MS = 8_000


def handing_over(*, describes: bool = True) -> MemberHarness:
    """It owned t-0, asked to hand over, and was told that it shall own nothing from epoch 2 on."""
    member = MemberHarness(describes=describes)
    member.become_stable({"t": [0]})
    member.step(HandOverRequested(member.now_ms + LIMIT_MS))
    return member


def unsubscribed(*, describes: bool = True) -> MemberHarness:
    """The coordinator has answered the heartbeat that unsubscribes."""
    member = handing_over(describes=describes)
    member.answer_heartbeat(epoch=1, assignment={})
    return member


def describe(member: MemberHarness, *, other_epoch: int, error: int = 0, own_target: tuple[int, ...] = ()) -> None:
    """Answer ConsumerGroupDescribe: the group and its target, which gives t-0 to the other member, are in epoch 2."""
    target = {"t": own_target} if own_target else {}
    targets = {} if own_target else {0: {"t": [0]}}
    member.describe(target, epoch=2, own_epoch=1, others=[other_epoch], error=error, targets=targets)


def test_r188_it_unsubscribes_at_once_and_goes_on_reading() -> None:
    """The member must read its partitions until the others can take them."""
    member = handing_over()

    assert member.expect_heartbeat(epoch=1).subscribed_topic_names == ()
    assert not member.requests(ConsumerGroupDescribeRequest)
    member.answer_heartbeat(epoch=1, assignment={})
    member.poll()
    assert member.calls == []
    assert member.member.view().readable == {partition("t-0")}
    assert member.member.view().handing_over


def test_r189_it_revokes_when_the_next_owner_has_the_new_epoch() -> None:
    """A member that has the new epoch waits for the partitions, and asks for them early."""
    member = unsubscribed()
    describe(member, other_epoch=1)
    assert not member.member.view().poll_wanted
    member.advance(100)
    describe(member, other_epoch=2)

    member.poll()

    assert [call.kind for call in member.calls] == ["revoked"]


@pytest.mark.parametrize(
    ("others", "target_epoch", "revokes"),
    [
        ([2, 2], 2, True),
        ([], 2, True),
        ([2, 1], 2, True),  # it gets nothing, and need not have heard of anything
        ([1, 2], 2, False),
        ([-2, 2], 2, True),  # a static member that is away hears nothing
        ([1, 2], 1, True),  # epoch 2 is of something later: the next owner has the target that it needs
    ],
)
def test_r189_the_next_owner_must_be_ready(others: list[int], target_epoch: int, revokes: bool) -> None:
    """Otherwise nothing reads the partitions until it has heard of them."""
    member = unsubscribed()
    targets = {0: {"t": [0]}}
    member.describe({}, epoch=2, own_epoch=1, others=others, target_epoch=target_epoch, targets=targets)
    assert member.member.view().poll_wanted is revokes


def test_r189_a_partition_without_a_next_owner_waits_for_the_target() -> None:
    """The target that names its next owner is still being computed."""
    member = unsubscribed()
    member.describe({}, epoch=2, own_epoch=1, others=[2], target_epoch=1)
    assert not member.member.view().poll_wanted
    member.advance(QUESTION_EVERY_MS)

    member.describe({}, epoch=2, own_epoch=1, others=[2])

    assert member.member.view().poll_wanted, "nobody wants it"


def test_r189_another_next_owner_has_to_hear_of_it_as_well() -> None:
    """The first one was told to leave, too: what counts is the epoch that gave the partition to the second."""
    member = unsubscribed()
    describe(member, other_epoch=1)
    for epoch, revokes in ((2, False), (3, True)):
        member.advance(QUESTION_EVERY_MS)
        targets = {1: {"t": [0]}}
        member.describe({}, epoch=3, own_epoch=1, others=[1, epoch], targets=targets, leaving=[0])
        assert member.member.view().poll_wanted is revokes


def test_r189_an_epoch_of_something_else_is_not_waited_for() -> None:
    """Members that leave one after the other would each time make the rest wait for another heartbeat."""
    member = unsubscribed()
    targets = {0: {"t": [0]}}
    member.describe({}, epoch=2, own_epoch=1, others=[1], targets=targets)
    member.advance(QUESTION_EVERY_MS)

    member.describe({}, epoch=5, own_epoch=1, others=[2], targets=targets)

    assert member.member.view().poll_wanted


def test_r300_a_member_that_leaves_as_well_is_not_waited_for() -> None:
    """Each would wait for the other until the time is up: after ``docker stop`` all processes were killed."""
    everybody, two_of_three = unsubscribed(), unsubscribed()

    everybody.describe({}, epoch=3, own_epoch=1, others=[1, 1], target_epoch=1, leaving=[0, 1])
    two_of_three.describe({}, epoch=3, own_epoch=1, others=[1, 3], targets={1: {"t": [0]}}, leaving=[0])

    assert everybody.member.view().poll_wanted
    assert two_of_three.member.view().poll_wanted


def test_r189_it_asks_again_a_while_after_each_answer() -> None:
    """The coordinator would be asked in a loop, or the others' readiness would be noticed late."""
    member = unsubscribed()
    for _ in range(3):
        describe(member, other_epoch=1)
        assert member.member.deadline_ms() == member.now_ms + QUESTION_EVERY_MS
        member.advance(QUESTION_EVERY_MS - 1)
        assert not member.requests(ConsumerGroupDescribeRequest)
        member.advance(1)
        assert len(member.requests(ConsumerGroupDescribeRequest)) == 1


def test_r189_a_target_that_still_names_it_is_not_the_new_one() -> None:
    """The description may be older than the answer to the heartbeat that unsubscribed."""
    member = unsubscribed()

    describe(member, other_epoch=2, own_target=(0,))

    assert not member.member.view().poll_wanted


def test_r189_it_revokes_when_time_is_up() -> None:
    """A member that is cut off must not keep another one from leaving."""
    member = unsubscribed()
    describe(member, other_epoch=1)

    while not member.member.view().poll_wanted:
        member.advance(100)
        if member.requests(ConsumerGroupHeartbeatRequest):
            member.answer_heartbeat()

    assert member.now_ms == LIMIT_MS * WAITING_SHARE, "the rest is for handlers that have to end"
    describe(member, other_epoch=1, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)  # too late
    assert [effect.reason for effect in member.emitted(HandOverFailed)] == ["time is up"]


def test_r189_a_group_that_cannot_be_described_is_not_waited_for() -> None:
    """Brokers without the API, and users without rights on the group, get an ordinary revocation."""
    old = unsubscribed(describes=False)
    refused = unsubscribed()
    describe(refused, other_epoch=1, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    assert old.member.view().poll_wanted
    assert refused.member.view().poll_wanted
    assert len(old.emitted(HandOverFailed)) == len(refused.emitted(HandOverFailed)) == 1
    assert not old.requests(ConsumerGroupDescribeRequest)


@pytest.mark.parametrize("answer", [None, ConsumerGroupDescribeResponse(groups=())], ids=["none", "empty"])
def test_r189_a_question_without_an_answer_is_asked_again(answer: ConsumerGroupDescribeResponse | None) -> None:
    """Otherwise the member would wait until the time is up, although the others are ready."""
    member = unsubscribed()
    if answer is None:
        member.fail(ConsumerGroupDescribeRequest)
    else:
        member.answer(ConsumerGroupDescribeRequest, answer)
    member.advance(QUESTION_EVERY_MS)
    describe(member, other_epoch=2)
    assert member.member.view().poll_wanted


def test_r190_it_ends_when_everything_is_given_up_and_acknowledged() -> None:
    """Then the application may close the consumer: nothing lies idle because of it."""
    member = unsubscribed()
    describe(member, other_epoch=2)
    member.reconcile()
    assert member.reported(member.expect_heartbeat(epoch=1)) == {}

    member.answer_heartbeat(epoch=2)

    assert not member.member.view().handing_over


def test_r190_it_ends_when_the_coordinator_takes_nothing_in_time() -> None:
    """A coordinator that is away must not keep the application from closing the consumer."""
    member = handing_over(describes=False)
    member.answer_heartbeat(epoch=1)
    member.advance(LIMIT_MS - 1)
    assert member.member.view().handing_over

    member.advance(1)

    assert not member.member.view().handing_over


def test_r190_it_ends_in_the_step_that_ends_the_wait() -> None:
    """A member that has nothing left would keep the application from closing until something else wakes it."""
    member = MemberHarness(describes=True)
    member.become_stable({"t": [0]})
    member.assign_more({})
    member.poll()
    member.step(HandOverRequested(member.now_ms + LIMIT_MS))  # while it revokes, and nobody describes the group
    waits_until_ms = member.now_ms + int(LIMIT_MS * WAITING_SHARE)
    member.answer_heartbeat(epoch=2)
    member.finish_call("revoked", "t-0")
    member.reconcile()
    member.answer_heartbeat(epoch=2)
    assert member.owned == []
    assert member.member.view().handing_over

    member.advance(waits_until_ms - 1 - member.now_ms)
    member.clock.advance(1)
    member.tick()

    assert [effect.reason for effect in member.emitted(HandOverFailed)] == ["time is up"]
    assert not member.member.view().handing_over


def test_r190_removal_and_a_new_subscription_end_it() -> None:
    """Nothing is left to hand over; and an application that changed its mind wants to read."""
    removed, subscribed = unsubscribed(), unsubscribed()

    removed.advance(1_000)
    fence(removed)
    subscribed.subscribe("u")

    assert not removed.member.view().handing_over
    assert not subscribed.member.view().handing_over
    assert subscribed.expect_heartbeat().subscribed_topic_names == ("u",)
    subscribed.answer_heartbeat(epoch=1)
    subscribed.step(HandOverRequested(subscribed.now_ms + LIMIT_MS))
    subscribed.answer_heartbeat(epoch=1)
    subscribed.advance(QUESTION_EVERY_MS)
    assert len(subscribed.requests(ConsumerGroupDescribeRequest)) == 2, "it may change its mind again"


def test_r191_a_member_without_partitions_has_handed_over() -> None:
    """``hand_over()`` of a member that owns nothing must return at once."""
    member = MemberHarness()
    member.become_stable({})

    member.step(HandOverRequested(member.now_ms + LIMIT_MS))

    assert not member.member.view().handing_over
    member.expect_no_heartbeat()
