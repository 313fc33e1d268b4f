"""The assignor of share groups: each partition has the same number of members, and members keep what they have."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import hypothesis.strategies as st
from hypothesis import example, given

from kip848_client.assignors.server.simple import assign_shared
from kip848_client.assignors.server.spec import TargetAssignment

TOPICS = [UUID(int=number) for number in range(3)]


def sharers(target: TargetAssignment) -> Counter[tuple[UUID, int]]:
    return Counter((topic, number) for held in target.values() for topic, numbers in held.items() for number in numbers)


@example(7, [3], 3)  # members that may get more had already what was left
@given(st.integers(1, 9), st.lists(st.integers(0, 4), min_size=1, max_size=3), st.integers(0, 9))
def test_work_is_spread_evenly_and_moves_little(count: int, sizes: list[int], left: int) -> None:
    """A queue with a worker too many on one partition and too few on another is as slow as its slowest part."""
    partitions = {topic: range(size) for topic, size in zip(TOPICS, sizes, strict=False)}
    total = sum(sizes)
    members = [f"m{number}" for number in range(count)]
    target: TargetAssignment = {}
    for present in (members, members[: max(1, count - left)], members):
        subscriptions = {member: tuple(partitions) for member in present}
        target = assign_shared(subscriptions, partitions, target, is_alike=True)
        assert target.keys() == set(present)
        shared = sharers(target)
        assert len(shared) == total
        assert set(shared.values()) <= {-(-len(present) // total)} if total else True
        held = [sum(map(len, each.values())) for each in target.values()]
        assert max(held) - min(held) <= 1
    assert assign_shared(subscriptions, partitions, target, is_alike=True) == target


def test_members_get_only_topics_that_they_subscribe_to() -> None:
    """A member that is given another topic would fetch records that its handler does not know."""
    one, two, _ = TOPICS
    subscriptions = {"a": (one,), "b": (one, two), "c": (two,)}
    target = assign_shared(subscriptions, {one: (0, 1), two: (0,)}, {}, is_alike=False)
    assert target == {"a": {one: (0,)}, "b": {one: (1,), two: (0,)}, "c": {two: (0,)}}
