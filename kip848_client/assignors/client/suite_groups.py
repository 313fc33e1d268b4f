"""Groups to try an assignor on: random ones, extreme ones, a large one, and changes of a group."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from kip848_client.assignors.client.check import checked
from kip848_client.assignors.client.interface import AssignmentSpec, GroupAssignment, MemberSpec, TopicSpec
from kip848_client.common.model import TopicIdPartition


def make_group(
    members: Mapping[str, Sequence[str]],
    topics: Mapping[str, int],
    *,
    metadata: Mapping[str, bytes] | None = None,
    racks: Mapping[str, str] | None = None,
) -> AssignmentSpec:
    """A group without an assignment: member id -> topics, topic -> number of partitions."""
    subscribed = {topic for chosen in members.values() for topic in chosen}
    return AssignmentSpec(
        group_epoch=1,
        members={
            member_id: MemberSpec(
                member_id,
                tuple(sorted(members[member_id])),
                metadata=(metadata or {}).get(member_id, b""),
                rack_id=(racks or {}).get(member_id),
            )
            for member_id in sorted(members)
        },
        topics={
            name: TopicSpec(uuid.uuid5(uuid.NAMESPACE_DNS, name), name, topics[name])
            for name in sorted(topics)
            if name in subscribed
        },
    )


def random_group(rng: random.Random, told: bytes, *, alike: bool) -> AssignmentSpec:
    """1 to 8 members, 1 to 4 topics of 0 to 12 partitions; some static, some with racks, some holding something."""
    topics = {f"topic-{index}": rng.choice((0, 1, 2, 3, 5, 8, 12)) for index in range(rng.randint(1, 4))}
    ids = [f"member-{index}" for index in range(rng.randint(1, 8))]
    members = {
        member_id: sorted(topics) if alike else rng.sample(sorted(topics), rng.randint(1, len(topics)))
        for member_id in ids
    }
    racks = {member_id: f"rack-{rng.randint(0, 2)}" for member_id in ids if rng.random() < 0.5}
    spec = make_group(members, topics, metadata=dict.fromkeys(ids, told), racks=racks)
    if rng.random() < 0.5:
        return spec
    held: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in ids}
    for topic in spec.topics.values():
        for partition in topic.partitions:
            owner = rng.choice([*ids, None])
            if owner is not None and topic.name in spec.members[owner].subscribed_topics:
                held[owner].append(partition)
    return replace(
        spec,
        members={
            member_id: replace(
                member,
                target=tuple(sorted(held[member_id])),
                member_epoch=1,
                instance_id=f"i-{member_id}" if rng.random() < 0.3 else None,
            )
            for member_id, member in spec.members.items()
        },
    )


def extreme_groups(told: bytes) -> Iterator[AssignmentSpec]:
    """Extreme groups, such as one member, no partitions, or more members than partitions."""
    for members, topics in (
        ({"only": ["t"]}, {"t": 1}),
        ({"only": ["t"]}, {"t": 0}),
        ({"only": ["t"]}, {"t": 1_000}),
        ({f"m{index}": ["t"] for index in range(50)}, {"t": 1}),
        ({f"m{index}": ["t"] for index in range(50)}, {"t": 49}),
        ({"a": ["x"], "b": ["y"]}, {"x": 3, "y": 3}),
        ({"a": ["x"], "b": ["x", "y"]}, {"x": 0, "y": 7}),
        ({"idle": [], "busy": ["t"]}, {"t": 4}),
        ({"a": [f"t{index}" for index in range(200)]}, {f"t{index}": 1 for index in range(200)}),
        ({"Ä ö/\u2603": ["topic.with-all_kinds"], "b": ["topic.with-all_kinds"]}, {"topic.with-all_kinds": 5}),
    ):
        yield make_group(members, topics, metadata=dict.fromkeys(members, told))


def large_group(members: int, told: bytes) -> AssignmentSpec:
    """*members* members that subscribe to the same 10 topics, with ten partitions for each of them."""
    topics = {f"topic-{index}": members for index in range(10)}
    subscribed = sorted(topics)
    ids = [f"member-{index:06}" for index in range(members)]
    return make_group(dict.fromkeys(ids, subscribed), topics, metadata=dict.fromkeys(ids, told))


def held_by(spec: AssignmentSpec, assignment: GroupAssignment) -> AssignmentSpec:
    """The same group an epoch later: each member holds what *assignment* gives."""
    applied = checked(spec, assignment, assignor="under test")
    return replace(
        spec,
        group_epoch=spec.group_epoch + 1,
        members={
            member_id: replace(member, target=_given(applied, member_id), member_epoch=spec.group_epoch)
            for member_id, member in spec.members.items()
        },
    )


def left(spec: AssignmentSpec) -> AssignmentSpec | None:
    """Without its first member; None if that would leave no member, or a topic without subscribers."""
    rest = dict(list(spec.members.items())[1:])
    if not rest or {*spec.topics} - {topic for member in rest.values() for topic in member.subscribed_topics}:
        return None
    return replace(spec, members=rest)


def joined(spec: AssignmentSpec) -> AssignmentSpec:
    """With one more member, that subscribes to everything and tells what the others tell."""
    told = next(iter(spec.members.values())).metadata if spec.members else b""
    newcomer = MemberSpec("newcomer", tuple(sorted(spec.topics)), metadata=told)
    return replace(spec, members=dict(sorted({**spec.members, "newcomer": newcomer}.items())))


def grown(spec: AssignmentSpec) -> AssignmentSpec:
    """Every topic with three partitions more, but the first, which was made anew under its name and is smaller."""
    topics = {name: replace(topic, partition_count=topic.partition_count + 3) for name, topic in spec.topics.items()}
    first = next(iter(topics))
    topics[first] = TopicSpec(uuid.uuid5(uuid.NAMESPACE_DNS, f"{first} anew"), first, 2)
    return replace(spec, topics=topics)


def describe(spec: AssignmentSpec) -> str:
    """Describe a group in one line, for a report."""
    topics = ", ".join(f"{topic.name}:{topic.partition_count}" for topic in list(spec.topics.values())[:5])
    members = ", ".join(
        f"{member.member_id} [{' '.join(member.subscribed_topics[:5])}] holds "
        + (" ".join(str(p.topic_partition) for p in member.target[:12]) or "nothing")
        for member in list(spec.members.values())[:6]
    )
    more = "" if len(spec.members) <= 6 else f" and {len(spec.members) - 6} more members"
    return f"topics {topics or 'none'}; {members}{more}"


def _given(applied: GroupAssignment, member_id: str) -> tuple[TopicIdPartition, ...]:
    return tuple(p for p in applied.members[member_id].partitions if isinstance(p, TopicIdPartition))
