"""What every ready-made assignor promises, on random groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip848_client.assignors import PartitionAssignor
from kip848_client.assignors.client.check import violations
from kip848_client.assignors.client.interface import AssignmentSpec, GroupAssignment
from kip848_client.assignors.library import (
    Buckets,
    CoPartitioned,
    LagAware,
    Priority,
    RackAware,
    Range,
    Standby,
    Uniform,
    Weighted,
)
from kip848_client.assignors.library.metadata_json import encode
from tests.support.assignor_specs import counts, group, held_after, partitions_of

Make = Callable[[], PartitionAssignor]

ALL: dict[str, Make] = {
    "buckets": lambda: Buckets({"gold": 70, "rest": 30}),
    "co-partitioned": CoPartitioned,
    "lag-aware": LagAware,
    "priority": lambda: Priority({"t1": 9}),
    "rack-aware": RackAware,
    "range": Range,
    "standby": Standby,
    "uniform": Uniform,
    "weighted": Weighted,
}
TOLD = {
    "buckets": [encode({"bucket": bucket}).metadata for bucket in ("gold", "rest", None)],
    "lag-aware": [encode({"levels": {"t0": {"0": level, "1": 1}}}).metadata for level in (0, 1, 3)],
    "weighted": [encode({"weight": weight}).metadata for weight in (0, 0.5, 3)],
}
"""What members of a group may tell; all tell nothing if it is not listed."""


@st.composite
def groups(draw: st.DrawFn, *, name: str, alike: bool = False) -> AssignmentSpec:
    """A group with up to 6 members and 4 topics; every topic has a subscriber."""
    topics = {f"t{i}": draw(st.integers(1, 7)) for i in range(draw(st.integers(1, 4)))}
    ids = [f"m{i}" for i in range(draw(st.integers(1, 6)))]
    if alike:
        members = {member_id: sorted(topics) for member_id in ids}
    else:
        members = {member_id: sorted(draw(st.sets(st.sampled_from(sorted(topics)), min_size=1))) for member_id in ids}
        subscribed = {topic for chosen in members.values() for topic in chosen}
        topics = {topic: count for topic, count in topics.items() if topic in subscribed}
    told = TOLD.get(name, [b""])
    metadata = {member_id: draw(st.sampled_from([b"", *told])) for member_id in ids}
    return group(members, topics, metadata=metadata)


def _with_target(spec: AssignmentSpec, target: GroupAssignment) -> AssignmentSpec:
    """The same group, holding *target*."""
    return group(
        {member_id: member.subscribed_topics for member_id, member in spec.members.items()},
        {topic.name: topic.partition_count for topic in spec.topics.values()},
        target=target,
        metadata={member_id: member.metadata for member_id, member in spec.members.items()},
    )


@pytest.mark.parametrize("name", sorted(ALL))
@given(data=st.data())
def test_the_result_can_always_be_applied(name: str, data: st.DataObject) -> None:
    """Whatever the subscriptions and the metadata: no partition is lost, given twice, or given to a stranger."""
    spec = data.draw(groups(name=name))
    assert violations(spec, ALL[name]().assign(spec)) == ()


@pytest.mark.parametrize("name", sorted(ALL))
@given(data=st.data())
def test_a_second_run_on_its_own_result_moves_nothing(name: str, data: st.DataObject) -> None:
    """A heartbeat that asks again, or a coordinator that fails over, must not rebalance a group at rest."""
    spec = data.draw(groups(name=name))
    first = ALL[name]().assign(spec)
    second = ALL[name]().assign(_with_target(spec, first))
    assert {m: partitions_of(first, m) for m in spec.members} == {m: partitions_of(second, m) for m in spec.members}


@pytest.mark.parametrize("name", ["lag-aware", "rack-aware", "standby", "uniform", "weighted"])
@given(data=st.data())
def test_when_a_member_joins_nothing_moves_but_what_it_gets(name: str, data: st.DataObject) -> None:
    """A move between two old members would be for nothing."""
    spec = data.draw(groups(name="", alike=True))
    before = ALL[name]().assign(spec)
    topics = {topic.name: topic.partition_count for topic in spec.topics.values()}
    larger = group({**{m: sorted(topics) for m in spec.members}, "new": sorted(topics)}, topics, target=before)
    after = ALL[name]().assign(larger)
    assert held_after(before, after) == sum(topics.values()) - counts(after)["new"]
    assert counts(after)["new"] == sum(topics.values()) // (len(spec.members) + 1)


@pytest.mark.parametrize("name", ["buckets", "lag-aware", "standby", "weighted"])
@pytest.mark.parametrize("junk", [b"\xff\x00", b"[1]", b'{"weight":"much","levels":[1],"bucket":"silver","standby":7}'])
def test_metadata_that_cannot_be_read_is_an_error_that_names_the_member(name: str, junk: bytes) -> None:
    """Another program, or another version, in the same group: the message says who."""
    spec = group({"a": ["t"], "b": ["t"]}, {"t": 4}, metadata={"b": junk})
    with pytest.raises(ValueError, match="'b'"):
        ALL[name]().assign(spec)


def test_the_names_are_distinct() -> None:
    """A group tells assignors apart by name: with equal names a member would run the wrong one."""
    names = [make().name for make in ALL.values()]
    assert len(set(names)) == len(names)
