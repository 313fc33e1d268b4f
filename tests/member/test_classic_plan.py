"""The plan of a classic group's leader, beside what rules R212 to R216 say: whose claims count, and what is sent."""

from __future__ import annotations

import itertools
from uuid import UUID

import pytest

from kip848_client.assignors.client.interface import ASSIGNOR_RAISED
from kip848_client.assignors.client.user_data import generation_user_data
from kip848_client.common.model import ZERO_UUID
from kip848_client.member.classic.classic_plan import ClassicPlan, read_members
from kip848_client.member.core.events import TopicDescription
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    embedded_version,
    encode_subscription,
)
from kip848_client.wire.messages.join_group import JoinGroupResponseMember
from kip848_client.wire.messages.sync_group import SyncGroupRequestAssignment
from tests.support.member_harness import a_member

STICKY = "cooperative-sticky"


def plan(*members: JoinGroupResponseMember, protocol: str = STICKY, count: int = 3) -> ClassicPlan:
    """Of generation 9, with one topic t."""
    topics = {"t": TopicDescription(ZERO_UUID, count)}
    return ClassicPlan(read_members(members, protocol=protocol), protocol=protocol, generation=9, topics=topics)


def claimed(told: ClassicPlan) -> dict[str, list[int]]:
    """What the assignor is told that members have."""
    return {
        member.member_id: [index for topic in member.topic_partitions for index in topic.partitions]
        for member in told.snapshot.members
    }


def given(assignments: tuple[SyncGroupRequestAssignment, ...]) -> dict[str, list[int]]:
    """What members are sent."""
    return {
        each.member_id: [
            index for topic in decode_assignment(each.assignment).assigned_partitions for index in topic.partitions
        ]
        for each in assignments
    }


def old_member(version: int, *, said: int = -1, user_data: bytes | None = None) -> JoinGroupResponseMember:
    """A member whose client writes this version of the subscription, and owns t-0."""
    owned = (TopicPartition("t", (0,)),)
    subscription = ConsumerProtocolSubscription(("t",), user_data, owned, said)
    return JoinGroupResponseMember("a", None, encode_subscription(subscription, version=version))


def test_a_later_claim_wins_also_over_two_that_cancel_each_other() -> None:
    """The member that got the partition last reads it; the order in which members are listed must not matter."""
    members = [a_member(name, {"t": [0]}, generation=at) for name, at in (("a", 3), ("b", 3), ("c", 5))]
    for order in itertools.permutations(members):
        assert claimed(plan(*order)) == {"a": [], "b": [], "c": [0]}


def test_only_partitions_that_are_there_and_subscribed_to_can_be_claimed() -> None:
    """An assignor that was told of another one would give it away, and the whole round would fail."""
    claims = {"t": [-1, 0, 2, 3], "u": [0]}
    assert claimed(plan(a_member("a", claims, generation=5))) == {"a": [0, 2]}
    assert claimed(plan(a_member("a", claims, generation=5, topics=["u"]))) == {"a": []}


@pytest.mark.parametrize(
    ("version", "protocol", "said", "generation"),
    [(1, STICKY, -1, 7), (1, "range", -1, 0), (2, STICKY, 4, 4), (3, STICKY, 4, 4), (3, STICKY, -1, 7)],
)
def test_the_generation_of_an_old_client_is_in_its_user_data(
    version: int, protocol: str, said: int, generation: int
) -> None:
    """A claim of Java 2.x would lose against every other one."""
    told = plan(old_member(version, said=said, user_data=generation_user_data(7)), protocol=protocol)
    assert [member.member_epoch for member in told.snapshot.members] == [generation]


@pytest.mark.parametrize(("reads", "written"), [(0, 0), (1, 1), (3, 3), (4, 3)])
def test_a_member_is_answered_in_a_version_that_it_reads(reads: int, written: int) -> None:
    """An old client would not understand its assignment."""
    newest = encode_subscription(ConsumerProtocolSubscription(("t",)), version=min(reads, 3))
    member = JoinGroupResponseMember("a", None, reads.to_bytes(2) + newest[2:])
    (sent,) = plan(member).assignments(())
    assert embedded_version(sent.assignment) == written


def test_when_the_assignor_fails_members_keep_what_they_alone_claim() -> None:
    """A partition claimed by two members must not be given to both, or both would read it."""
    members = [
        a_member("a", {"t": [0, 1]}, generation=5),
        a_member("b", {"t": [1, 2]}, generation=5),
        a_member("c", {"t": [2]}, generation=4),
    ]
    assert given(plan(*members).assignments((), error=ASSIGNOR_RAISED)) == {"a": [0], "b": [2], "c": []}


def test_topics_of_brokers_without_topic_ids_are_told_apart() -> None:
    """Before Kafka 2.8 all of them have the id zero, and each would be assigned as the same topic."""
    ids = {"t": ZERO_UUID, "u": ZERO_UUID, "v": UUID(int=7)}
    topics = {name: TopicDescription(topic_id, 1) for name, topic_id in ids.items()}
    members = read_members([a_member("a", topics=topics)], protocol=STICKY)
    told = ClassicPlan(members, protocol=STICKY, generation=9, topics=topics).snapshot.topics
    assert len({topic.topic_id for topic in told} - {ZERO_UUID}) == 3
    assert [topic.topic_name for topic in told if topic.topic_id == UUID(int=7)] == ["v"]
