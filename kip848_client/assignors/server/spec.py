"""Input and result of a server-side assignor. No algorithm lives here.

The group is handed over by columns (one mapping per attribute) and not as one object per member: a group of 10,000
members is then described without making 10,000 objects, and parts that did not change are shared with the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias
from uuid import UUID

import msgspec

from kip848_client.errors import Kip848Error

TopicPartitions: TypeAlias = Mapping[UUID, tuple[int, ...]]
"""Topic id -> partitions, ascending and without repeats; a topic without partitions is left out. Never changed in
place, so it may be shared."""

TargetAssignment: TypeAlias = Mapping[str, TopicPartitions]
"""Member id -> the partitions that it should own. Holds every member, also one that owns nothing."""


class AssignorError(Kip848Error):
    """An assignor cannot compute a target from its input."""


class GroupSpec(msgspec.Struct, frozen=True):
    """One group, as an assignor sees it.

    Args:
        subscriptions: member id -> topic ids, ascending, without repeats; holds every member. Members with equal
            subscriptions should share one tuple: that is recognised and makes the run faster.
        topics: topic id -> number of partitions; holds every subscribed topic.
        target: the target now in force; a member may be missing. A partition is in at most one member's target.
        instance_ids: member id -> group.instance.id, static members only.
        rack_ids: member id -> rack, where known.
        partition_racks: topic id -> for each partition the racks of its replicas. Topics whose racks are not known may
            be missing, a topic's last partitions too.
    """

    subscriptions: Mapping[str, tuple[UUID, ...]]
    topics: Mapping[UUID, int]
    target: TargetAssignment = msgspec.field(default_factory=dict)
    instance_ids: Mapping[str, str] = msgspec.field(default_factory=dict)
    rack_ids: Mapping[str, str] = msgspec.field(default_factory=dict)
    partition_racks: Mapping[UUID, Sequence[frozenset[str]]] = msgspec.field(default_factory=dict)


class ServerAssignor(Protocol):
    """A server-side assignor: pure, and a function of the spec alone (never of the order of its mappings)."""

    @property
    def name(self) -> str:
        """The name that members ask for with group.remote.assignor."""
        ...

    def assign(self, spec: GroupSpec) -> TargetAssignment:
        """Compute the target of every member.

        Raises:
            AssignorError: a member subscribes to a topic that `GroupSpec.topics` does not hold.
        """
        ...


def common_subscription(spec: GroupSpec) -> tuple[UUID, ...] | None:
    """The subscription that all members share, or None if they differ (or there are none)."""
    subscriptions = list(spec.subscriptions.values())
    # Counting compares by identity first: nearly always the members share one object.
    return subscriptions[0] if subscriptions and subscriptions.count(subscriptions[0]) == len(subscriptions) else None


def check_topics(spec: GroupSpec) -> None:
    """Refuse a spec that subscribes to a topic it does not describe.

    Raises:
        AssignorError: names the topic id and a member.
    """
    topics = spec.topics
    common = common_subscription(spec)
    for topic_ids in _distinct_subscriptions(spec) if common is None else [common]:
        for topic_id in topic_ids:
            if topic_id not in topics:
                member_id = next(
                    member_id for member_id, topic_ids in spec.subscriptions.items() if topic_id in topic_ids
                )
                raise AssignorError(f"member {member_id!r} subscribes to topic id {topic_id}, which is not described")


def _distinct_subscriptions(spec: GroupSpec) -> list[tuple[UUID, ...]]:
    """One of each by identity: usually a handful of objects stand for ten thousand members."""
    subscriptions = spec.subscriptions.values()
    return list(dict(zip(map(id, subscriptions), subscriptions, strict=True)).values())


def members_alike(spec: GroupSpec, member_ids: Sequence[str]) -> Mapping[tuple[UUID, ...], list[int]]:
    """Subscription -> positions in *member_ids*, which names all members, of those that have it, ascending."""
    common = common_subscription(spec)
    if common is not None:
        return {common: list(range(len(member_ids)))}
    by_identity: dict[int, tuple[tuple[UUID, ...], list[int]]] = {}
    for index, member_id in enumerate(member_ids):
        subscription = spec.subscriptions[member_id]
        entry = by_identity.get(id(subscription))
        if entry is None:
            by_identity[id(subscription)] = (subscription, [index])
        else:
            entry[1].append(index)
    alike: dict[tuple[UUID, ...], list[int]] = {}
    for subscription, indexes in by_identity.values():
        alike[subscription] = sorted(alike[subscription] + indexes) if subscription in alike else indexes
    return alike


def subscribers_by_topic(alike: Mapping[tuple[UUID, ...], list[int]]) -> dict[UUID, list[int]]:
    """Topic id -> positions of its subscribers, ascending; topics with equal subscribers share one list.

    Args:
        alike: see `members_alike`.
    """
    sources: dict[UUID, list[int]] = {}
    groups = list(alike.items())
    for number, (subscription, _) in enumerate(groups):
        for topic_id in subscription:
            sources.setdefault(topic_id, []).append(number)
    shared: dict[tuple[int, ...], list[int]] = {}
    subscribers = {}
    for topic_id, numbers in sources.items():
        key = tuple(numbers)
        if key not in shared:
            shared[key] = sorted(index for number in numbers for index in groups[number][1])
        subscribers[topic_id] = shared[key]
    return subscribers
