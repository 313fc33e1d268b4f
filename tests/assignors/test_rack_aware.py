"""What `uniform-rack-aware` adds to `uniform`: partitions are read where a replica is, as far as balance allows it."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kip848_client.assignors.server.spec import GroupSpec, TargetAssignment
from kip848_client.assignors.server.uniform import UniformAssignor
from kip848_client.assignors.server.uniform_rack_aware import RackAwareUniformAssignor
from tests.assignors.test_server_assignors import T, flat, groups, sizes

RACK_AWARE, UNIFORM = RackAwareUniformAssignor(), UniformAssignor()


def racked(
    members: Mapping[str, str],
    partitions: Mapping[UUID, tuple[str, ...]],
    target: TargetAssignment | None = None,
    *,
    subscriptions: Mapping[str, tuple[UUID, ...]] | None = None,
) -> GroupSpec:
    """Members with their racks, topics with the racks of each partition, one letter a rack; all subscribe to all."""
    return GroupSpec(
        subscriptions or dict.fromkeys(members, tuple(sorted(partitions))),
        {topic: len(racks) for topic, racks in partitions.items()},
        target or {},
        rack_ids={member: rack for member, rack in members.items() if rack},
        partition_racks={topic: tuple(map(frozenset, racks)) for topic, racks in partitions.items()},
    )


def local_count(group: GroupSpec, assignment: TargetAssignment) -> int:
    """How many partitions have a replica in the rack of their member."""
    return sum(
        number < len(group.partition_racks.get(topic, ()))
        and group.rack_ids.get(member_id) in group.partition_racks[topic][number]
        for member_id, partitions in assignment.items()
        for topic, numbers in partitions.items()
        for number in numbers
    )


def most_local(group: GroupSpec) -> int:
    """The greatest number of local partitions of any balanced assignment, by trying who gets one more (Kuhn)."""
    member_ids = sorted(group.subscriptions)
    partitions = [
        (topic, number) for topic in set(group.subscriptions[member_ids[0]]) for number in range(group.topics[topic])
    ]
    floor, larger = divmod(len(partitions), len(member_ids))
    wants = [
        [
            index
            for index, member_id in enumerate(member_ids)
            if number < len(group.partition_racks.get(topic, ()))
            and group.rack_ids.get(member_id) in group.partition_racks[topic][number]
        ]
        for topic, number in partitions
    ]
    return max(
        _matched(wants, [floor + (index in chosen) for index in range(len(member_ids))])
        for chosen in itertools.combinations(range(len(member_ids)), larger)
    )


def _matched(wants: list[list[int]], room: list[int]) -> int:
    taken: list[list[int]] = [[] for _ in room]

    def place(partition: int, seen: set[int]) -> bool:
        for member in wants[partition]:
            if member not in seen:
                seen.add(member)
                if len(taken[member]) < room[member]:
                    taken[member].append(partition)
                    return True
                for slot, other in enumerate(taken[member]):
                    if place(other, seen):
                        taken[member][slot] = partition
                        return True
        return False

    return sum(place(partition, set()) for partition in range(len(wants)))


def moved(before: TargetAssignment, after: TargetAssignment) -> int:
    now = flat(after)
    return sum(now.get(partition, owner) != owner for partition, owner in flat(before).items())


@st.composite
def small_groups(draw: st.DrawFn) -> GroupSpec:
    racks = draw(st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=6))
    members = {f"m{number}": rack for number, rack in enumerate(racks)}
    letters = st.frozensets(st.sampled_from("abc"), max_size=2).map(lambda chosen: "".join(sorted(chosen)))
    partitions = {
        topic: tuple(draw(st.lists(letters, min_size=1, max_size=7))) for topic in T[: draw(st.integers(1, 2))]
    }
    owners = [*members, None]
    target: dict[str, dict[UUID, tuple[int, ...]]] = {member: {} for member in members}
    for topic, all_racks in partitions.items():
        for number in range(len(all_racks)):
            owner = draw(st.sampled_from(owners))
            if owner is not None:
                target[owner][topic] = (*target[owner].get(topic, ()), number)
    return racked(members, partitions, {member: dict(share) for member, share in target.items()})


@given(group=small_groups())
def test_no_balanced_assignment_reads_more_partitions_in_their_rack(group: GroupSpec) -> None:
    """Traffic between racks is paid for: none is left that an equally even assignment would save."""
    assignment = RACK_AWARE.assign(group)
    counts = sizes(assignment).values()
    assert max(counts) - min(counts) <= 1
    assert local_count(group, assignment) == most_local(group)


@given(group=groups(homogeneous=True))
def test_where_all_subscribe_alike_loads_are_those_of_uniform(group: GroupSpec) -> None:
    """Racks never cost balance: as many members have one partition more."""
    assert sorted(sizes(RACK_AWARE.assign(group)).values()) == sorted(sizes(UNIFORM.assign(group)).values())


@given(group=groups(homogeneous=False))
def test_with_mixed_subscriptions_loads_are_as_even_as_those_of_uniform(group: GroupSpec) -> None:
    """A swap may open a way to level loads that was barred; it never leaves them less even."""
    ours, plain = sizes(RACK_AWARE.assign(group)).values(), sizes(UNIFORM.assign(group)).values()
    assert sum(ours) == sum(plain)
    assert sum(load**2 for load in ours) <= sum(load**2 for load in plain)


@given(group=groups())
def test_at_least_as_many_partitions_are_local_as_with_uniform(group: GroupSpec) -> None:
    """A user who switches to the rack-aware assignor must never read fewer partitions locally."""
    if sizes(RACK_AWARE.assign(group)) == sizes(UNIFORM.assign(group)):
        assert local_count(group, RACK_AWARE.assign(group)) >= local_count(group, UNIFORM.assign(group))


@given(group=groups())
def test_without_racks_it_is_uniform(group: GroupSpec) -> None:
    """A group whose members or partitions say nothing of racks is not treated in another way."""
    for other in (
        replace(group, rack_ids={}),
        replace(group, partition_racks={}),
        replace(group, rack_ids=dict.fromkeys(group.subscriptions, "a")),
    ):
        assert RACK_AWARE.assign(other) == UNIFORM.assign(other)


@given(group=small_groups())
def test_where_every_rack_has_a_replica_no_more_moves_than_with_uniform(group: GroupSpec) -> None:
    """With as many replicas as racks there is nothing to gain, and nothing is moved for it."""
    everywhere = replace(
        group,
        rack_ids={member_id: group.rack_ids.get(member_id, "a") for member_id in group.subscriptions},
        partition_racks={topic: (frozenset("abc"),) * count for topic, count in group.topics.items()},
    )
    assert RACK_AWARE.assign(everywhere) == UNIFORM.assign(everywhere)


@given(group=small_groups())
def test_a_partition_moves_only_for_the_load_or_for_a_rack(group: GroupSpec) -> None:
    """Beyond the moves of balance, each local partition that is gained costs at most one move per rack."""
    plain, ours = UNIFORM.assign(group), RACK_AWARE.assign(group)
    gained = local_count(group, ours) - local_count(group, plain)
    racks = len(set(group.rack_ids.values()) | {""})
    assert moved(group.target, ours) <= moved(group.target, plain) + gained * racks


def test_each_rack_reads_its_own_partitions() -> None:
    """The plain case: one replica a partition, as many members as partitions in each rack."""
    group = racked({"m1": "a", "m2": "b", "m3": "c"}, {T[1]: ("c", "b", "a", "c", "b", "a")})
    assert RACK_AWARE.assign(group) == {"m1": {T[1]: (2, 5)}, "m2": {T[1]: (1, 4)}, "m3": {T[1]: (0, 3)}}


def test_a_chain_of_three_racks_is_found() -> None:
    """No two racks would gain by a swap, but three in a ring do."""
    group = racked(
        {"m1": "a", "m2": "b", "m3": "c"},
        {T[1]: ("b", "c", "a")},
        {"m1": {T[1]: (0,)}, "m2": {T[1]: (1,)}, "m3": {T[1]: (2,)}},
    )
    assert RACK_AWARE.assign(group) == {"m1": {T[1]: (2,)}, "m2": {T[1]: (0,)}, "m3": {T[1]: (1,)}}


def test_a_new_member_is_given_partitions_of_its_rack() -> None:
    """Scaling out in one rack takes from others what they read from afar, and leaves them what is theirs."""
    partitions = {T[1]: ("a", "b", "a", "b", "a", "b")}
    before: TargetAssignment = {"m1": {T[1]: (0, 2, 5)}, "m2": {T[1]: (1, 3, 4)}}
    group = racked({"m1": "a", "m2": "b", "m3": "b"}, partitions, before)
    after = RACK_AWARE.assign(group)
    assert local_count(group, after) == 5
    assert after["m1"] == {T[1]: (0, 2)}
    assert after["m3"][T[1]][-1] == 5


def test_members_with_different_subscriptions_swap_what_both_want() -> None:
    """A topic that only one of them reads stays where it is; the common one is split by rack."""
    group = racked(
        {"m1": "a", "m2": "b"},
        {T[1]: ("b", "b"), T[2]: ("b", "a", "b", "a")},
        subscriptions={"m1": (T[1], T[2]), "m2": (T[2],)},
    )
    assignment = RACK_AWARE.assign(group)
    assert sizes(assignment) == {"m1": 3, "m2": 3}
    assert assignment["m1"][T[1]] == (0, 1)
    assert local_count(group, assignment) == 3


def test_more_subscriptions_than_it_compares_are_served_all_the_same() -> None:
    """A large group of very different members is balanced, and alike members still swap."""
    topics = [UUID(int=100 + number) for number in range(140)]
    subscriptions = {f"m{number:03}{rack}": (topics[number],) for number in range(len(topics)) for rack in "ab"}
    group = GroupSpec(
        subscriptions,
        dict.fromkeys(topics, 2),
        rack_ids={member_id: member_id[-1] for member_id in subscriptions},
        partition_racks=dict.fromkeys(topics, (frozenset("b"), frozenset("a"))),
    )
    assignment = RACK_AWARE.assign(group)
    assert local_count(group, assignment) == 2 * len(topics)


@pytest.mark.parametrize("seed", range(20))
def test_a_life_of_joins_and_leaves_stays_local_and_balanced(seed: int) -> None:
    """After any history the group is as local as if it had just been made, without giving up stickiness for it."""
    rng = random.Random(seed)
    partitions = {topic: tuple(rng.choice(["a", "b", "c", "ab", "bc"]) for _ in range(9)) for topic in T[1:4]}
    members: dict[str, str] = {}
    target: TargetAssignment = {}
    for number in range(25):
        if members and rng.random() < 0.4:
            members.pop(rng.choice(sorted(members)))
        else:
            members[f"m{rng.randrange(100):02}-{number}"] = rng.choice("abc")
        group = racked(members, partitions, target)
        fresh = replace(group, target={})
        kept = target
        target = RACK_AWARE.assign(group)
        if members:
            assert local_count(group, target) == local_count(fresh, RACK_AWARE.assign(fresh))
            counts = Counter(sizes(target).values())
            assert max(counts) - min(counts) <= 1
            still_there = {member_id: share for member_id, share in kept.items() if member_id in members}
            assert moved(still_there, target) <= len(flat(target)) // 2 + 2
