"""`CoordinatorState.subscriptions`: what a target is computed from is derived, and reading it changes nothing."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from uuid import UUID

import hypothesis.strategies as st
from hypothesis import given

from kip848_client.coordinator.coordinator import GroupCoordinator
from tests.support.coordinator_harness import Harness

_MEMBERS = ("m1", "m2", "m3")
_TOPICS = ("t0", "t1", "t2")


def _read(coordinator: GroupCoordinator) -> Mapping[str, tuple[UUID, ...]]:
    state = coordinator._state
    return dict(state.subscriptions(state.groups["g"]))


def _from_nothing(coordinator: GroupCoordinator) -> Mapping[str, tuple[UUID, ...]]:
    state = coordinator._state
    group = state.groups["g"]
    return {member_id: state.topic_ids(group, member.metadata) for member_id, member in group.members.items()}


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(_MEMBERS), st.sets(st.sampled_from(_TOPICS)) | st.none(), st.booleans()), max_size=20
    )
)
def test_reading_the_subscriptions_changes_no_group_and_misses_no_change(
    steps: list[tuple[str, set[str] | None, bool]],
) -> None:
    """Broken: a second reader, or a description between two targets, makes the next target forget a member."""
    h = Harness()
    for name in _TOPICS:
        h.create_topic(name, partitions=2)
    h.join("m0", ["t0"])
    for member_id, topics, is_read in steps:
        if topics is None:
            if member_id in h.group.members:
                h.heartbeat(member_id, -1)
        elif member_id in h.group.members:
            h.heartbeat(member_id, h.member(member_id).member_epoch, topics=sorted(topics))
        else:
            h.join(member_id, sorted(topics))
        if is_read:
            before = copy.deepcopy(vars(h.coordinator._state.groups["g"]))
            assert _read(h.coordinator) == _from_nothing(h.coordinator)
            assert vars(h.coordinator._state.groups["g"]) == before
    assert _read(h.coordinator) == _from_nothing(h.coordinator)


def test_a_long_history_of_changes_is_not_kept() -> None:
    """Broken: a group whose members come and go for a year fills the memory."""
    h = Harness()
    h.create_topic("t0", partitions=2)
    h.join("m0", ["t0"])
    for _ in range(200):
        h.join("m1", ["t0"])
        h.heartbeat("m1", -1)
        assert _read(h.coordinator) == _from_nothing(h.coordinator)
    assert len(h.coordinator._state.groups["g"].metadata_changes) < 150
