"""What the `uniform` assignor remembers between runs is a shortcut only: results never depend on it."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from kip848_client.assignors import GroupAssignment, GroupSpec, UniformAssignor
from kip848_client.assignors.survey_memory import SurveyMemory

TOPIC_IDS = tuple(UUID(int=number + 1) for number in range(4))


class Remembering(UniformAssignor):
    """Remembers groups of any size."""

    def __init__(self) -> None:
        super().__init__()
        self._memory = SurveyMemory(members_min=1)  # type: ignore[misc]  # final for everybody else


@pytest.mark.parametrize("seed", range(40))
def test_a_life_of_joins_and_leaves_ends_as_without_memory(seed: int) -> None:
    """A remembered mapping that is not valid any more would give a partition to two members, or to none."""
    rng = random.Random(seed)
    remembering = Remembering()
    topics: dict[UUID, int] = dict.fromkeys(TOPIC_IDS, 5)
    subscription = TOPIC_IDS
    members: list[str] = []
    given: GroupAssignment = {}
    wanted: GroupAssignment = {}
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


def test_one_join_looks_at_one_member_only() -> None:
    """The target of a group of ten thousand is computed again for each of its members that comes or goes."""
    assignor, topics = Remembering(), dict.fromkeys(TOPIC_IDS, 5)
    before = assignor.assign(GroupSpec(dict.fromkeys(["a", "b"], TOPIC_IDS), topics))
    memory = assignor._memory
    recalled = memory.recall([before["a"], before["b"], {}], topics=topics, subscription=TOPIC_IDS)
    assert recalled is not None
    assert (recalled.sizes, recalled.free) == ([10, 10, 0], {})
    assert memory.recall([before["a"]], topics=topics, subscription=TOPIC_IDS) is None
    assert memory.recall([*before.values()], topics=dict(topics), subscription=TOPIC_IDS) is None
    assert memory.recall([*before.values(), {UUID(int=99): (0,)}], topics=topics, subscription=TOPIC_IDS) is None
