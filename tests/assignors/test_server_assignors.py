"""What every server-side assignor promises, and what each one adds, for all groups."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kip848_client.assignors.server.range import RangeAssignor
from kip848_client.assignors.server.server_assignors import SERVER_ASSIGNORS
from kip848_client.assignors.server.spec import (
    AssignorError,
    GroupSpec,
    ServerAssignor,
    TargetAssignment,
    TopicPartitions,
)
from kip848_client.assignors.server.uniform import UniformAssignor
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig

T = [UUID(int=number) for number in range(10)]
UNIFORM, RANGE = UniformAssignor(), RangeAssignor()
RACKS = ("", "a", "b", "c", "d")
each_assignor = pytest.mark.parametrize("assignor", SERVER_ASSIGNORS.values(), ids=lambda assignor: assignor.name)


def spec(
    subscriptions: Mapping[str, tuple[UUID, ...]],
    topics: Mapping[UUID, int],
    target: TargetAssignment | None = None,
    instances: Mapping[str, str] | None = None,
) -> GroupSpec:
    return GroupSpec(subscriptions, topics, target or {}, instances or {})


@st.composite
def topic_counts(draw: st.DrawFn) -> dict[UUID, int]:
    return {topic: draw(st.integers(1, 12)) for topic in draw(st.lists(st.sampled_from(T), unique=True, max_size=5))}


@st.composite
def targets(draw: st.DrawFn, member_ids: list[str]) -> dict[str, TopicPartitions]:
    """A target in force from other days: some members, some topics that are gone, some partitions past the end."""
    target: dict[str, dict[UUID, tuple[int, ...]]] = {
        member_id: {} for member_id in member_ids if draw(st.integers(0, 4)) > 0
    }
    if target:
        for topic in draw(st.lists(st.sampled_from(T), unique=True, max_size=6)):
            owners = draw(st.lists(st.sampled_from([*target, "gone"]), min_size=1, max_size=14))
            for number, owner in enumerate(owners):
                if owner in target:
                    held = target[owner]
                    held[topic] = (*held.get(topic, ()), number)
    return dict(target)


@st.composite
def groups(draw: st.DrawFn, *, homogeneous: bool | None = None) -> GroupSpec:
    topics = draw(topic_counts())
    member_ids = [f"m{number:02}" for number in range(draw(st.integers(1, 8)))]
    alike = draw(st.booleans()) if homogeneous is None else homogeneous
    common = tuple(sorted(topics))
    subscriptions = {
        member_id: common
        if alike
        else tuple(sorted(draw(st.lists(st.sampled_from(common), unique=True)) if common else ()))
        for member_id in member_ids
    }
    with_racks = draw(st.booleans())
    return GroupSpec(
        subscriptions,
        topics,
        draw(targets(member_ids)),
        {member_id: f"i{9 - number}" for number, member_id in enumerate(member_ids) if draw(st.booleans())},
        rack_ids={member_id: rack for member_id in member_ids if with_racks and (rack := draw(st.sampled_from(RACKS)))},
        partition_racks={topic: draw(partition_racks(count)) for topic, count in topics.items() if with_racks},
    )


@st.composite
def partition_racks(draw: st.DrawFn, count: int) -> tuple[frozenset[str], ...]:
    """The racks of a topic's partitions; of some of the last ones nothing is known."""
    known = draw(st.integers(0, count))
    return tuple(draw(st.frozensets(st.sampled_from(RACKS[1:]), max_size=2)) for _ in range(known))


def flat(assignment: TargetAssignment) -> dict[tuple[UUID, int], str]:
    """(topic, partition) -> member; fails if a partition is given twice."""
    owners: dict[tuple[UUID, int], str] = {}
    for member_id, partitions in assignment.items():
        for topic, numbers in partitions.items():
            assert numbers, "a topic without partitions is left out"
            assert list(numbers) == sorted(set(numbers))
            for number in numbers:
                assert (topic, number) not in owners
                owners[topic, number] = member_id
    return owners


def sizes(assignment: TargetAssignment) -> dict[str, int]:
    return {member_id: sum(map(len, partitions.values())) for member_id, partitions in assignment.items()}


@each_assignor
@given(group=groups())
def test_every_partition_of_every_subscribed_topic_has_exactly_one_owner_that_subscribes_to_it(
    assignor: ServerAssignor, group: GroupSpec
) -> None:
    """Each record of a subscribed topic is read by exactly one member, which subscribes to it."""
    assignment = assignor.assign(group)
    assert assignment.keys() == group.subscriptions.keys()
    owners = flat(assignment)
    subscribed = {topic for topics in group.subscriptions.values() for topic in topics}
    assert owners.keys() == {(topic, number) for topic in subscribed for number in range(group.topics[topic])}
    assert all(topic in group.subscriptions[owner] for (topic, _), owner in owners.items())


@each_assignor
@given(group=groups(), seed=st.integers(0, 100))
def test_the_result_is_a_function_of_the_content(assignor: ServerAssignor, group: GroupSpec, seed: int) -> None:
    """Two coordinators, or one after a restart, compute the same target: the order of mappings means nothing."""

    rng = random.Random(seed)

    def shuffled(keys: Mapping[str, object]) -> list[str]:
        return rng.sample(list(keys), len(keys))

    again = GroupSpec(
        subscriptions={
            member_id: tuple(UUID(int=topic.int) for topic in group.subscriptions[member_id])
            for member_id in shuffled(group.subscriptions)
        },
        topics=dict(reversed(list(group.topics.items()))),
        target={
            member_id: {UUID(int=t.int): numbers for t, numbers in reversed(list(group.target[member_id].items()))}
            for member_id in shuffled(group.target)
        },
        instance_ids={member_id: group.instance_ids[member_id] for member_id in shuffled(group.instance_ids)},
        rack_ids={member_id: group.rack_ids[member_id] for member_id in shuffled(group.rack_ids)},
        partition_racks=dict(reversed(list(group.partition_racks.items()))),
    )
    assert assignor.assign(again) == assignor.assign(group)


@each_assignor
@given(group=groups())
def test_a_second_run_changes_nothing(assignor: ServerAssignor, group: GroupSpec) -> None:
    """A rebalance without a reason moves no partition, and shares every part with the target in force."""
    once = assignor.assign(group)
    again = assignor.assign(replace(group, target=once))
    assert again == once
    assert all(again[member_id] is once[member_id] for member_id in once)


@each_assignor
@given(group=groups())
def test_the_input_is_left_alone(assignor: ServerAssignor, group: GroupSpec) -> None:
    """The target in force is shared with the group's own state."""
    before = {member_id: dict(partitions) for member_id, partitions in group.target.items()}
    assignor.assign(group)
    assert group.target == before


@each_assignor
def test_a_topic_that_is_not_described_is_an_error(assignor: ServerAssignor) -> None:
    """A bug of the caller is not turned into a partial target."""
    with pytest.raises(AssignorError, match="'a' subscribes to topic id"):
        assignor.assign(spec({"a": (T[1],)}, {}))


@each_assignor
def test_an_empty_group_and_a_group_without_topics_have_empty_targets(assignor: ServerAssignor) -> None:
    """The edges of a group's life are no special case for the caller."""
    assert assignor.assign(spec({}, {T[1]: 3})) == {}
    assert assignor.assign(spec({"a": (), "b": ()}, {T[1]: 3})) == {"a": {}, "b": {}}


@given(group=groups(homogeneous=True))
def test_uniform_is_balanced_over_the_whole_group_where_all_subscribe_alike(group: GroupSpec) -> None:
    """No consumer has two partitions more than another."""
    counts = sizes(UNIFORM.assign(group)).values()
    assert max(counts) - min(counts) <= 1


@given(group=groups(homogeneous=True))
def test_uniform_moves_as_few_partitions_as_balance_allows(group: GroupSpec) -> None:
    """A rebalance stops as little work as it can: moved = sum c_i - sum min(c_i, q) - min(r, #{c_i > q})."""
    before = {part: owner for part, owner in flat(group.target).items() if part[1] < group.topics.get(part[0], 0)}
    after = flat(UNIFORM.assign(group))
    held = Counter(before.values())
    floor, larger = divmod(len(after), len(group.subscriptions))
    kept = sum(min(count, floor) for count in held.values())
    kept += min(larger, sum(count > floor for count in held.values()))
    moved = sum(after[part] != owner for part, owner in before.items())
    assert moved == len(before) - kept


@given(group=groups(homogeneous=False))
def test_uniform_is_balanced_within_each_topic_s_subscribers_where_those_subscribe_alike(group: GroupSpec) -> None:
    """Members with equal subscriptions carry equal loads, also in a mixed group, as far as others' topics allow."""
    loads = sizes(UNIFORM.assign(group))
    by_subscription: dict[tuple[UUID, ...], list[str]] = {}
    for member_id, topics in group.subscriptions.items():
        by_subscription.setdefault(topics, []).append(member_id)
    subscribers = Counter(topic for topics in group.subscriptions.values() for topic in topics)
    for topics, members in by_subscription.items():
        if topics and all(subscribers[topic] == len(members) for topic in topics):
            counts = [loads[member_id] for member_id in members]
            assert max(counts) - min(counts) <= 1


def test_uniform_levels_an_uneven_group_with_mixed_subscriptions() -> None:
    """Partitions that are already assigned move, too, if balance within a topic needs it."""
    target: TargetAssignment = {"a": {T[1]: tuple(range(8))}, "b": {}, "c": {T[2]: (0,)}}
    group = spec({"a": (T[1],), "b": (T[1],), "c": (T[1], T[2])}, {T[1]: 8, T[2]: 1}, target)
    assignment = UNIFORM.assign(group)
    assert sizes(assignment) == {"a": 3, "b": 3, "c": 3}
    assert assignment["a"][T[1]] == (0, 1, 2)


@given(group=groups())
def test_range_cuts_each_topic_into_runs_that_differ_by_at_most_one(group: GroupSpec) -> None:
    """Partition i of equally large topics meets at one member, which joins need."""
    assignment = RANGE.assign(group)
    for topic, count in group.topics.items():
        subscribers = [member_id for member_id, topics in group.subscriptions.items() if topic in topics]
        if not subscribers:
            continue
        runs = [assignment[member_id].get(topic, ()) for member_id in subscribers]
        assert all(run == tuple(range(run[0], run[0] + len(run))) for run in runs if run)
        lengths = list(map(len, runs))
        assert sum(lengths) == count
        assert max(lengths) - min(lengths) <= 1


@given(group=groups(homogeneous=True))
def test_range_co_partitions_topics_of_equal_size(group: GroupSpec) -> None:
    """Stream joins find both sides at one member."""
    for partitions in RANGE.assign(group).values():
        for topic, numbers in partitions.items():
            for other, count in group.topics.items():
                if count == group.topics[topic]:
                    assert partitions[other] == numbers


def test_range_orders_static_members_by_instance_id_before_the_dynamic_ones() -> None:
    """A restarted static member, with its new member id, gets its old range."""
    group = spec(dict.fromkeys("abc", (T[1],)), {T[1]: 4}, instances={"c": "i1", "b": "i2"})
    assert RANGE.assign(group) == {"c": {T[1]: (0, 1)}, "b": {T[1]: (2,)}, "a": {T[1]: (3,)}}
    restarted = spec(dict.fromkeys(("a", "0", "1"), (T[1],)), {T[1]: 4}, instances={"1": "i1", "0": "i2"})
    assert RANGE.assign(restarted)["1"] == {T[1]: (0, 1)}


def test_the_first_configured_assignor_is_uniform() -> None:
    """Groups that ask for nothing are balanced and sticky, and may ask for what Kafka has, no more and no less.

    The coordinator has more, for those who configure them.
    """
    assert CoordinatorConfig().consumer_assignors == ("uniform", "range")
    assert list(SERVER_ASSIGNORS)[:2] == ["uniform", "range"]
