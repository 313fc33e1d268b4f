"""hand_over() of several members at once, as ``docker compose down`` and a scale-down let all of them do it."""

from __future__ import annotations

import pytest

from tests.interop.real.group import Group
from tests.support.driving import drive

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("staying", [0, 1, 2])
def test_members_that_hand_over_together_do_not_wait_for_each_other(group: Group, staying: int) -> None:
    """A member that leaves keeps its epoch until it has revoked: no other one may wait for that."""
    topic = group.topic(partitions=6)
    group.write(topic, 20, partitions=6)
    members = [group.ours(f"m{number}").subscribe(topic) for number in range(staying + 2)]
    group.settle(*members)
    leaving, stay = members[:2], members[2:]

    for one in leaving:
        one.raw.hand_over(timeout_s=60)
    drive(*leaving, *stay, until=lambda: all(one.raw.handed_over for one in leaving), what="the hand-overs")

    for one in leaving:
        one.close()
    failed = [event for one in leaving for event in one.journal.events if event.event == "hand_over_failed"]
    assert not failed
    late = [*stay, group.ours("late").subscribe(topic)]
    group.write(topic, 20, partitions=6)
    group.read_all(*late)
    group.assert_read_once()
