"""Which partitions count as new to a member that listens, and so may not start at their end."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kip848_client.common.model import ZERO_UUID, Subscription, TopicIdPartition
from kip848_client.member.core.context import Context
from kip848_client.member.core.events import (
    DescribeTopics,
    FailureKind,
    RequestFailed,
    TopicDescription,
    TopicsDescribed,
)
from kip848_client.member.core.settings import MemberConfig, ResetPolicy
from kip848_client.member.offsets.new_partitions import NewPartitions
from tests.support.member_harness import NoJitter

T, OTHER = UUID(int=1), UUID(int=2)
NAMES = Subscription(frozenset({"t"}))
PATTERN = Subscription(pattern="t.*")


class Listener:
    """A member that listens, and the brokers that it asks."""

    def __init__(self) -> None:
        config = MemberConfig(
            group_id="g",
            member_id="m",
            auto_offset_reset=ResetPolicy.LATEST,
            auto_offset_reset_new_partitions=ResetPolicy.EARLIEST,
        )
        self.context = Context(config, NoJitter())
        self.partitions = NewPartitions(self.context, on_known=lambda: None)

    def listen(self, subscription: Subscription, **answer: Any) -> None:
        """Subscribe, and take the answer to the first look."""
        self.partitions.listen(subscription)
        self.answer(**answer)

    def answer(self, *, passing: str = "", unauthorized: str = "", **counts: int) -> None:
        """Brokers describe topics with these numbers of partitions; all ids are `T`."""
        topics = {name: TopicDescription(T, count) for name, count in counts.items()}
        answered = TopicsDescribed(self.asked().request_id, topics, frozenset(unauthorized), frozenset(passing))
        assert self.partitions.described(answered)

    def asked(self) -> DescribeTopics:
        """The question that is asked now."""
        self.context.begin_step(self.context.now_ms)
        self.partitions.advance()
        if self.context.wake_ms is not None:
            self.context.now_ms = self.context.wake_ms
            self.partitions.advance()
        asked = self.context.effects[-1]
        assert isinstance(asked, DescribeTopics)
        return asked

    def new(self, topic: str, index: int, topic_id: UUID = T) -> bool | None:
        """Whether a partition is new."""
        return self.partitions.is_new(TopicIdPartition(topic, index, topic_id))


@pytest.mark.parametrize("subscription", [NAMES, PATTERN])
def test_what_was_there_at_first_is_old_and_what_came_later_is_new(subscription: Subscription) -> None:
    """Of a partition that appears while the group listens, every record is one that it waits for."""
    listener = Listener()
    listener.listen(subscription, t=2)
    assert [listener.new("t", index) for index in range(4)] == [False, False, True, True]
    assert listener.new("t", 0, OTHER), "the topic was deleted and created again"
    assert not listener.new("t", 0, ZERO_UUID), "the classic protocol names no ids"
    assert not listener.new("elsewhere", 9), "it was not subscribed to"


@pytest.mark.parametrize("subscription", [NAMES, PATTERN])
def test_a_topic_that_is_created_after_the_subscription_is_new(subscription: Subscription) -> None:
    """Consumers are often started before the first producer."""
    listener = Listener()
    listener.listen(subscription)
    assert listener.new("t", 0)


def test_nothing_is_decided_before_the_first_look() -> None:
    """A start at the end that was taken in haste cannot be taken back."""
    listener = Listener()
    listener.partitions.listen(NAMES)
    assert listener.new("t", 0) is None
    asked = listener.asked()
    on_failure, _ = listener.context.take_failure(asked.request_id)
    assert on_failure is not None
    on_failure(RequestFailed(asked.request_id, FailureKind.TIMED_OUT, "scripted"))
    assert listener.new("t", 0) is None
    listener.answer(passing="t")
    assert listener.new("t", 0) is None, "brokers could not describe it just then"
    listener.answer(t=1)
    assert (listener.new("t", 0), listener.new("t", 1)) == (False, True)


def test_a_topic_that_was_forbidden_is_not_new_when_it_is_allowed() -> None:
    """latest must not replay what was written before."""
    listener = Listener()
    listener.listen(NAMES, unauthorized="t")
    assert not listener.new("t", 0)


@pytest.mark.parametrize("pattern", [None, "x.*"])
def test_a_second_subscription_keeps_the_first_look(pattern: str | None) -> None:
    """A program that adds a topic goes on listening to the others."""
    listener = Listener()
    listener.listen(Subscription(frozenset("tv"), pattern), t=1)
    listener.listen(Subscription(frozenset("tuv"), pattern), t=3, u=3, v=1)
    found = [listener.new("t", 0), listener.new("t", 2), listener.new("v", 0), listener.new("u", 2)]
    assert found == [False, True, True, False]
    listener.partitions.stop()
    listener.listen(NAMES, t=3)
    assert not listener.new("t", 2), "it did not listen meanwhile"


@pytest.mark.parametrize("policy", [None, ResetPolicy.LATEST])
def test_without_a_policy_of_their_own_nothing_is_asked(policy: ResetPolicy | None) -> None:
    """A question that decides nothing would cost every start a request."""
    config = MemberConfig(group_id="g", member_id="m", auto_offset_reset_new_partitions=policy)
    context = Context(config, NoJitter())
    partitions = NewPartitions(context, on_known=lambda: None)
    partitions.listen(NAMES)
    partitions.advance()
    assert (context.effects, context.wake_ms) == ([], None)
    assert partitions.is_new(TopicIdPartition("t", 0, T)) is False
