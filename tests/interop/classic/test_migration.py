"""A living service moves from the classic protocol to KIP-848 and back, one process at a time."""

from __future__ import annotations

import pytest

from tests.interop.classic.conftest import Scene
from tests.interop.classic.members import OurMember

pytestmark = [pytest.mark.interop, pytest.mark.kafka]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_rolling_restart_moves_a_group_and_moves_it_back(kafka_scene: Scene, strategy: str) -> None:
    """The promise to every user of an older client: one changed line, and no record lost."""
    classic = {"partition_assignment_strategy": strategy}
    consumer = {"group_protocol": "consumer"}
    members: list[OurMember] = [kafka_scene.ours(**classic) for _ in range(3)]
    every = list(members)
    kafka_scene.wait_for_owned(*members, shares=(2, 2, 2))
    for conf in (consumer, classic):
        for number in range(3):
            kafka_scene.produce(60)
            kafka_scene.leave(members[number])
            kafka_scene.produce(60)
            members[number] = kafka_scene.ours(**conf)
            every.append(members[number])
            kafka_scene.wait_for_owned(*members, shares=(2, 2, 2))
        kafka_scene.wait_until_all_is_read()
    if strategy == "range":
        return  # an eager member that lags when the group is a classic one again cannot commit: docs/migrating.md
    twice = sorted(key for key, times in kafka_scene.read.items() if times > 1)
    assert not twice, [
        (number, member.told, [key for key in member.delivered if key in twice]) for number, member in enumerate(every)
    ]
