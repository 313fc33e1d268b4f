"""A living service moves from the classic protocol to KIP-848 and back, one process at a time, while records flow."""

from __future__ import annotations

import pytest

from kip848_client import Consumer
from kip848_client.errors import GroupIdNotFoundError
from tests.interop.classic.conftest import Scene
from tests.interop.embedded.holding import overlaps
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

ROLLS = (
    ("librdkafka range", "librdkafka consumer"),
    ("ours range", "ours consumer"),
    ("ours cooperative-sticky", "ours consumer"),
    ("librdkafka range", "ours consumer"),
    ("kafka-python", "ours consumer"),
    ("aiokafka", "librdkafka consumer"),
)
OF_OURS = ROLLS[1:4]
"""Those that Apache Kafka sees, too: what others do there without us proves nothing here."""


@pytest.mark.parametrize(
    ("scene", "classic", "consumer"),
    [
        *(pytest.param("embedded", *roll, id=f"embedded: {' to '.join(roll)}") for roll in ROLLS),
        *(pytest.param("kafka", *roll, id=f"kafka: {' to '.join(roll)}", marks=pytest.mark.kafka) for roll in OF_OURS),
    ],
    indirect=["scene"],
)
def test_a_rolling_restart_moves_a_group_and_moves_it_back(scene: Scene, classic: str, consumer: str) -> None:
    """The promise to every user of an older client: one changed line, no record lost, and one reader a partition."""
    members = [scene.start(classic) for _ in range(3)]
    scene.wait_for_owned(*members, shares=(2, 2, 2))
    with scene.records_flowing():
        for name in (consumer, classic):
            for number in range(3):
                scene.wait_for_reading()
                is_downgrade = name == classic and number == 2
                if is_downgrade:
                    before = scene.read
                scene.leave(members[number])
                if classic == "aiokafka":  # it fails if the group changes its type while it joins, on Kafka, too
                    scene.wait_for_owned(*members[:number], *members[number + 1 :], shares=(3, 3))
                members[number] = scene.start(name)
                scene.wait_for_owned(*members, shares=(2, 2, 2))
        scene.wait_for_reading()
    scene.wait_until_all_is_read()
    assert not overlaps(scene.members)
    assert set(before.values()) == {1}
    if "cooperative" in classic:  # an eager member that lags at the downgrade cannot commit: docs/porting.md
        assert set(scene.read.values()) == {1}


def test_a_group_led_by_cooperative_librdkafka_is_not_upgraded(scene: Scene) -> None:
    """From its second rebalance on, librdkafka sends members their own user data back: a custom assignor, to a broker.

    Nothing happens to the group, and members of ours that take over on the classic protocol can be upgraded.
    """
    members = [scene.start("librdkafka cooperative-sticky")]
    scene.wait_for_owned(*members, shares=(6,))
    members.append(scene.start("librdkafka cooperative-sticky"))
    scene.wait_for_owned(*members, shares=(3, 3))
    settings = {"bootstrap.servers": scene.bootstrap_servers, "group.id": scene.group_id, "log_level": 0}
    with scene.records_flowing():
        with Consumer(settings) as refused:
            refused.subscribe([scene.topic])
            with pytest.raises(GroupIdNotFoundError, match="cooperative-sticky"):
                wait_until(lambda: refused.poll(0.1), what="the refusal")
        scene.wait_for_reading()
        for name in ("ours cooperative-sticky", "ours consumer"):
            for number in range(2):
                scene.leave(members[number])
                members[number] = scene.start(name)
                scene.wait_for_owned(*members, shares=(3, 3))
        scene.wait_for_reading()
    scene.wait_until_all_is_read()
    assert not overlaps(scene.members)
    assert set(scene.read.values()) == {1}
