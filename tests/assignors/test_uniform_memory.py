"""What the `uniform` assignor remembers between runs is a shortcut only: results never depend on it."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from kip848_client.assignors.server.balance_memory import BalanceMemory
from kip848_client.assignors.server.spec import GroupSpec, TargetAssignment
from kip848_client.assignors.server.uniform import UniformAssignor

TOPIC_IDS = tuple(UUID(int=number + 1) for number in range(4))


class Remembering(UniformAssignor):
    """Remembers groups of any size."""

    def __init__(self) -> None:
        super().__init__()
        self._memory = BalanceMemory(members_min=1)  # type: ignore[misc]  # final for everybody else


@pytest.mark.parametrize("seed", range(40))
def test_a_life_of_joins_and_leaves_ends_as_without_memory(seed: int) -> None:
    """A remembered mapping that is not valid any more would give a partition to two members, or to none."""
    rng = random.Random(seed)
    remembering = Remembering()
    topics: dict[UUID, int] = dict.fromkeys(TOPIC_IDS, 5)
    subscription = TOPIC_IDS
    members: list[str] = []
    given: TargetAssignment = {}
    wanted: TargetAssignment = {}
    for number in range(40):
        what = rng.choice(["join", "join", "join", "leave", "grow", "shrink", "subscribe", "lose", "nothing"])
        if what == "join" or not members:
            members.append(f"m{rng.randrange(1000)}-{number}")
        elif what == "leave":
            members.remove(rng.choice(members))
        elif what == "grow":
            topics = {**topics, rng.choice(TOPIC_IDS): rng.randrange(5, 12)}
        elif what == "shrink":
            topics = {**topics, rng.choice(TOPIC_IDS): rng.randrange(5)}
        elif what == "subscribe":
            subscription = tuple(sorted(rng.sample(TOPIC_IDS, rng.randrange(1, 5))))
        elif what == "lose":
            lost = rng.choice(members)
            given = {member_id: share for member_id, share in given.items() if member_id != lost}
            wanted = {member_id: share for member_id, share in wanted.items() if member_id != lost}
        subscriptions = dict.fromkeys(members, subscription)
        given = remembering.assign(GroupSpec(subscriptions, topics, given))
        wanted = UniformAssignor().assign(GroupSpec(subscriptions, topics, wanted))
        assert given == wanted


@pytest.mark.parametrize("seed", range(60))
def test_members_that_come_and_go_one_by_one_are_found_without_a_survey(seed: int) -> None:
    """The target of a group of ten thousand is computed again for each of its members that comes or goes."""
    rng = random.Random(seed)
    remembering = Remembering()
    topics: dict[UUID, int] = {topic: rng.choice([1, 2, 5, 40]) for topic in TOPIC_IDS}
    members = [f"m{number:03}" for number in range(rng.randrange(1, 9))]
    target = remembering.assign(GroupSpec(dict.fromkeys(members, TOPIC_IDS), topics))
    partition_count = sum(topics.values())
    for _ in range(60):
        load = partition_count // len(members)
        if len(members) > 1 and rng.random() < 0.45:
            members.remove(rng.choice(members))
        elif rng.random() < 0.9:
            members = [*members, f"m{rng.randrange(1000):03}x{rng.randrange(10**6)}"]
        subscriptions = dict.fromkeys(rng.sample(members, len(members)) if rng.random() < 0.3 else members, TOPIC_IDS)
        before = dict(rng.sample(list(target.items()), len(target))) if rng.random() < 0.5 else target
        before = {member_id: share for member_id, share in before.items() if member_id in members or rng.random() < 0.5}
        spec = GroupSpec(subscriptions, topics, before)
        known = remembering._memory.recall(spec)
        target = remembering.assign(spec)
        assert target == UniformAssignor().assign(spec)
        if abs(partition_count // len(members) - load) <= 1:
            assert known == target
        else:
            assert known is None


def test_what_the_caller_changes_is_not_what_is_remembered() -> None:
    """A target that was handed out belongs to the caller; so does the mapping of topics."""
    assignor, topics = Remembering(), dict.fromkeys(TOPIC_IDS, 5)
    group = GroupSpec(dict.fromkeys(["a", "b"], TOPIC_IDS), topics)
    target = assignor.assign(group)
    assert isinstance(target, dict)
    target["a"] = {}
    assert assignor.assign(GroupSpec(group.subscriptions, topics, target)) == UniformAssignor().assign(
        GroupSpec(group.subscriptions, topics, target)
    )
    topics[TOPIC_IDS[0]] = 9
    grown = assignor.assign(GroupSpec(group.subscriptions, topics, {}))
    assert sum(len(numbers) for share in grown.values() for numbers in share.values()) == 24


def test_two_groups_are_remembered_at_a_time() -> None:
    """Large groups take turns without forgetting each other; the same target is computed again without a survey."""
    assignor, topics = Remembering(), dict.fromkeys(TOPIC_IDS, 5)
    one = GroupSpec(dict.fromkeys("abcdef", TOPIC_IDS), topics)
    other = GroupSpec(dict.fromkeys("uvw", TOPIC_IDS), topics)
    targets = [assignor.assign(one), assignor.assign(other)]
    for spec, target in zip((one, other), targets, strict=True):
        again = GroupSpec(spec.subscriptions, topics, target)
        assert assignor._memory.recall(again) == target
    more = GroupSpec(dict.fromkeys("abcdefg", TOPIC_IDS), topics, targets[0])
    for _ in range(4):  # the state before the join is used each time, and stays known
        assert assignor._memory.recall(more) == UniformAssignor().assign(more)
