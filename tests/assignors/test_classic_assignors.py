"""Built-in assignors of the classic protocol: what kafka-clients 4.3.1 gives for the same group; user data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip848_client.assignors.client.classic import BUILT_IN
from kip848_client.assignors.client.suite import assert_sound
from kip848_client.assignors.client.user_data import (
    AssignmentFrame,
    SubscriptionFrame,
    generation_user_data,
    read_assignment_frame,
    read_generation,
    read_subscription_frame,
    write_assignment_frame,
    write_subscription_frame,
)
from kip848_client.common.model import ZERO_UUID
from kip848_client.member.classic.classic_plan import ClassicPlan, read_members
from kip848_client.member.core.assignor_events import RunAssignor
from kip848_client.member.core.assignor_values import compute
from kip848_client.member.core.events import TopicDescription
from kip848_client.wire.messages.consumer_protocol import decode_assignment
from tests.support.member_harness import a_member, held

Owned = dict[str, list[int]]
Claim = tuple[str, Owned, int, str | None]
"""Topics with spaces between them, what it owns, in which generation, and its instance id."""

_FOO = {"foo": 6}


def member(topics: str = "foo", owned: Owned | None = None, at: int = 5, instance: str | None = None) -> Claim:
    return topics, owned or {}, at, instance


VECTORS: list[tuple[str, dict[str, int], dict[str, Claim], dict[str, str]]] = [
    ("range", {"t0": 3, "t1": 3}, {"c0": member("t0 t1"), "c1": member("t0 t1")}, {"c0": "t0-0 t0-1 t1-0 t1-1"}),
    (
        "range",
        {"foo": 5},
        {"a": member(), "m": member(instance="i2"), "n": member(instance="i1")},
        {"n": "foo-0 foo-1", "m": "foo-2 foo-3", "a": "foo-4"},
    ),
    (
        "roundrobin",
        {"t0": 2, "t1": 3},
        {"a": member("t0 t1"), "b": member("t1")},
        {"a": "t0-0 t0-1 t1-1", "b": "t1-0 t1-2"},
    ),
    (
        "roundrobin",
        {"foo": 5},
        {"a": member(), "m": member(instance="i2"), "n": member(instance="i1")},
        {"n": "foo-0 foo-3", "m": "foo-1 foo-4", "a": "foo-2"},
    ),
    (
        "cooperative-sticky",
        _FOO,
        {"a": member(owned={"foo": [0, 1, 2, 3, 4, 5]}), "b": member()},
        {"a": "foo-0 foo-1 foo-2", "b": ""},
    ),
    (
        "cooperative-sticky",
        _FOO,
        {"a": member(owned={"foo": [0, 1, 2]}, at=6), "b": member()},
        {"a": "foo-0 foo-1 foo-2", "b": "foo-3 foo-4 foo-5"},
    ),
    (
        "cooperative-sticky",
        _FOO,
        {"a": member(owned={"foo": [0, 1, 2]}), "b": member(owned={"foo": [2, 3, 4]}, at=4)},
        {"a": "foo-0 foo-1 foo-2", "b": "foo-3 foo-4 foo-5"},
    ),
    (
        "cooperative-sticky",
        _FOO,
        {"a": member(owned={"foo": [0, 1, 2]}), "b": member(owned={"foo": [2, 3, 4]})},
        {"a": "foo-0 foo-1", "b": "foo-3 foo-4 foo-5"},
    ),
    (
        "cooperative-sticky",
        _FOO,
        {"a": member(owned={"foo": [0, 1]}), "b": member(owned={"foo": [2, 3]})},
        {"a": "foo-0 foo-1 foo-4", "b": "foo-2 foo-3 foo-5"},
    ),
    (
        "cooperative-sticky",
        {"foo": 8},
        {"a": member(owned={"foo": [0, 1, 2]}), "b": member(owned={"foo": [3, 4, 5]})},
        {"a": "foo-0 foo-1 foo-2 foo-6", "b": "foo-3 foo-4 foo-5 foo-7"},
    ),
    (
        "cooperative-sticky",
        {"t0": 2, "t1": 2},
        {"a": member("t0 t1", {"t0": [0, 1], "t1": [0, 1]}), "b": member("t0 t1")},
        {"a": "t0-0 t1-0", "b": ""},
    ),
    (
        "cooperative-sticky",
        {"t0": 3, "t1": 3},
        {"a": member("t0 t1", {"t0": [0, 1, 2], "t1": [0, 1, 2]}), "b": member("t0")},
        {"a": "t1-0 t1-1 t1-2", "b": ""},
    ),
    (
        "cooperative-sticky",
        {"foo": 7},
        {"a": member(), "b": member(), "c": member()},
        {"a": "foo-0 foo-3 foo-6", "b": "foo-1 foo-4", "c": "foo-2 foo-5"},
    ),
]


@pytest.mark.parametrize(("name", "topics", "members", "expected"), VECTORS)
def test_a_round_gives_what_java_gives(
    name: str, topics: dict[str, int], members: dict[str, Claim], expected: dict[str, str]
) -> None:
    """Any member of a mixed group may lead: with another result partitions would move whenever the leader changes."""
    joined = [
        a_member(member_id, owned, generation=at if owned else -1, topics=subscribed.split(), instance=instance)
        for member_id, (subscribed, owned, at, instance) in members.items()
    ]
    described = {topic: TopicDescription(ZERO_UUID, count) for topic, count in topics.items()}
    plan = ClassicPlan(read_members(joined, protocol=name), protocol=name, generation=7, topics=described)
    done, failure = compute([BUILT_IN[name]()], RunAssignor(1, plan.snapshot))
    assert failure is None
    given_to = {
        each.member_id: " ".join(
            f"{topic.topic}-{index}"
            for topic in decode_assignment(each.assignment).assigned_partitions
            for index in topic.partitions
        )
        for each in plan.assignments(done.members)
    }
    assert given_to | expected == given_to


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_assignor_passes_the_suite(name: str) -> None:
    """The built-in assignors pass the suite that users run on their own."""
    assert_sound(BUILT_IN[name], groups=40)


FRAMES = st.builds(
    SubscriptionFrame,
    version=st.integers(-1, 100),
    reason=st.integers(-128, 127),
    wish=st.integers(0, 2**31 - 1),
    cooperative=st.booleans(),
    held=st.none() | st.just(held(t=[0, 2], u=[1])) | st.just(()),
    metadata=st.binary(max_size=20),
)


@given(FRAMES, st.binary(max_size=4))
def test_a_frame_is_read_as_it_was_written_also_with_bytes_behind_it(frame: SubscriptionFrame, more: bytes) -> None:
    """A later version adds fields at the end; members of this one must go on reading it."""
    assert read_subscription_frame(write_subscription_frame(frame) + more) == frame


@given(st.binary(max_size=60), FRAMES, st.integers(0, 60))
def test_bytes_that_are_no_frame_are_none(junk: bytes, frame: SubscriptionFrame, cut: int) -> None:
    """Members of other clients send what they like under the name of an assignor."""
    assert isinstance(read_subscription_frame(junk), SubscriptionFrame | None)
    read_assignment_frame(junk)
    whole = write_subscription_frame(frame)
    assert cut >= len(whole) or read_subscription_frame(whole[:cut]) is None


def test_an_assignment_without_news_has_no_user_data() -> None:
    """A group with user data in any assignment cannot be moved to KIP-848."""
    assert write_assignment_frame(AssignmentFrame()) is None
    news = AssignmentFrame(error=-1, version=2, metadata=b"m")
    assert read_assignment_frame(write_assignment_frame(news)) == news


def test_cooperative_sticky_has_the_bytes_of_java() -> None:
    """A Java 2.x leader reads the generation there, and nowhere else."""
    assert [generation_user_data(number).hex() for number in (-1, 2)] == ["ffffffff", "00000002"]
    assert read_generation(bytes.fromhex("00000002")) == 2
    assert read_generation(b"") == read_generation(None) == -1


def test_of_claims_of_three_generations_the_latest_wins() -> None:
    """The order in which the coordinator lists members must not matter."""
    claims = [
        a_member(name, {"foo": [0]}, generation=at, topics=["foo"]) for name, at in (("a", 3), ("b", 5), ("c", 5))
    ]
    for order in (claims, claims[::-1]):
        members = read_members(order, protocol="cooperative-sticky")
        plan = ClassicPlan(
            members, protocol="cooperative-sticky", generation=6, topics={"foo": TopicDescription(ZERO_UUID, 1)}
        )
        assert not any(each.topic_partitions for each in plan.snapshot.members), "two claims of generation 5"
        done, _ = compute([BUILT_IN["cooperative-sticky"]()], RunAssignor(1, plan.snapshot))
        assert not any(
            decode_assignment(each.assignment).assigned_partitions for each in plan.assignments(done.members)
        )
