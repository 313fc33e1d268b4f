"""The `uniform` assignor beside its description, step by step and one partition at a time: the targets are the same.

The description is that of Kafka's ``UniformHomogeneousAssignmentBuilder`` and its heterogeneous sibling, with every
order that Kafka leaves to its hash maps fixed: members by id, topics by id, partitions ascending.
"""

from __future__ import annotations

from uuid import UUID

from hypothesis import given

from kip848_client.assignors.server.spec import GroupSpec, TargetAssignment
from kip848_client.assignors.server.uniform import UniformAssignor
from tests.assignors.test_server_assignors import T, flat, groups, spec

Held = dict[str, list[tuple[UUID, int]]]


def kept(group: GroupSpec) -> Held:
    """What each member may keep, in (topic, partition) order; members by id."""
    return {
        member_id: sorted(
            (topic, number)
            for topic, numbers in group.target.get(member_id, {}).items()
            for number in numbers
            if topic in group.subscriptions[member_id] and number < group.topics[topic]
        )
        for member_id in sorted(group.subscriptions)
    }


def homogeneous(group: GroupSpec) -> Held:
    """Quotas, released partitions, a pool, and who lacks some is filled up."""
    held = kept(group)
    topics = sorted({topic for topics in group.subscriptions.values() for topic in topics})
    partitions = [(topic, number) for topic in topics for number in range(group.topics[topic])]
    floor, larger = divmod(len(partitions), len(held))
    chosen = [member_id for member_id in held if len(held[member_id]) > floor][:larger]
    chosen += [member_id for member_id in held if member_id not in chosen][: larger - len(chosen)]
    quota = {member_id: floor + (member_id in chosen) for member_id in held}
    owned = {partition for partitions in held.values() for partition in partitions}
    pool = [partition for partition in partitions if partition not in owned]
    for member_id in held:
        pool += held[member_id][quota[member_id] :]
        held[member_id] = held[member_id][: quota[member_id]]
    for member_id in held:
        while len(held[member_id]) < quota[member_id]:
            held[member_id].append(pool.pop(0))
    return held


def heterogeneous(group: GroupSpec) -> Held:
    """Each free partition to who has least; then from who has most to who has least, topic by topic."""
    held = kept(group)
    index = {member_id: number for number, member_id in enumerate(held)}
    subscribers = {
        topic: [member_id for member_id in held if topic in group.subscriptions[member_id]]
        for topic in {topic for topics in group.subscriptions.values() for topic in topics}
    }
    order = sorted(
        subscribers,
        key=lambda topic: (-group.topics[topic] / len(subscribers[topic]), len(subscribers[topic]), topic),
    )

    def in_order(topic: UUID) -> list[str]:
        return sorted(subscribers[topic], key=lambda member_id: (len(held[member_id]), index[member_id]))

    owned = {partition for partitions in held.values() for partition in partitions}
    for topic in order:
        queue = in_order(topic)
        for number in range(group.topics[topic]):
            if (topic, number) not in owned:
                held[min(queue, key=lambda member_id: len(held[member_id]))].append((topic, number))
    for _ in range(16):
        moved = False
        for topic in order:
            queue = in_order(topic)
            while True:
                donors = [member_id for member_id in queue if any(t == topic for t, _ in held[member_id])]
                if not donors:
                    break
                donor = max(donors[::-1], key=lambda member_id: len(held[member_id]))
                taker = min(queue, key=lambda member_id: len(held[member_id]))
                if len(held[donor]) - len(held[taker]) <= 1:
                    break
                partition = max(partition for partition in held[donor] if partition[0] == topic)
                held[donor].remove(partition)
                held[taker].append(partition)
                moved = True
        if not moved:
            break
    return held


def owners(held: Held) -> dict[tuple[UUID, int], str]:
    return {partition: member_id for member_id, partitions in held.items() for partition in partitions}


@given(group=groups(homogeneous=True))
def test_members_that_subscribe_alike_are_assigned_as_described(group: GroupSpec) -> None:
    """A target computed by hand, or by another implementation of the description, is this one."""
    assert flat(UniformAssignor().assign(group)) == owners(homogeneous(group))


@given(group=groups(homogeneous=False))
def test_members_with_mixed_subscriptions_are_assigned_as_described(group: GroupSpec) -> None:
    """In mixed groups each tie is broken as the description says, so that every coordinator computes the same."""
    if len(set(group.subscriptions.values())) > 1:
        assert flat(UniformAssignor().assign(group)) == owners(heterogeneous(group))


def test_free_partitions_of_a_mixed_group_are_dealt_out_in_turn() -> None:
    """Kafka gives each member one partition in turn, and not a run of neighbours; so do we."""
    group = spec({"a": (T[1],), "b": (T[1],), "c": (T[2],)}, {T[1]: 4, T[2]: 1})
    wanted: TargetAssignment = {"a": {T[1]: (0, 2)}, "b": {T[1]: (1, 3)}, "c": {T[2]: (0,)}}
    assert UniformAssignor().assign(group) == wanted
