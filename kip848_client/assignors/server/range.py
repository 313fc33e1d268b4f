"""The `range` assignor: each topic is cut into runs, one per subscriber. Nothing else."""

from __future__ import annotations

from uuid import UUID

from kip848_client.assignors.server.spec import (
    GroupSpec,
    TargetAssignment,
    TopicPartitions,
    check_topics,
    members_alike,
    subscribers_by_topic,
)


class RangeAssignor:
    """Contiguous runs per topic, so that partition i of topics of equal size goes to one member (co-partitioning).

    Subscribers are ordered static members first by instance id, then dynamic ones by member id; of n partitions and m
    subscribers the first n mod m get one more. It does not look at the target in force: what keeps partitions in place
    is a constant order, so use group.instance.id.

    Source:
        KIP-848 "Assignors"; Kafka's ``RangeAssignor``.
    """

    name = "range"

    def assign(self, spec: GroupSpec) -> TargetAssignment:
        """Compute the target of every member; see `ServerAssignor.assign`."""
        check_topics(spec)
        instance_ids = spec.instance_ids
        static = sorted(
            (member for member in spec.subscriptions if member in instance_ids), key=instance_ids.__getitem__
        )
        members = static + sorted(member for member in spec.subscriptions if member not in instance_ids)
        assignment: dict[str, dict[UUID, tuple[int, ...]]] = {member_id: {} for member_id in members}
        every = tuple(range(max(spec.topics.values(), default=0)))
        owned = list(assignment.values())
        for topic_id, subscribers in subscribers_by_topic(members_alike(spec, members)).items():
            owners = owned if len(subscribers) == len(owned) else [owned[index] for index in subscribers]
            _cut(topic_id, owners, count=spec.topics[topic_id], every=every)
        return _reuse(assignment, spec.target)


def _cut(topic_id: UUID, owners: list[dict[UUID, tuple[int, ...]]], *, count: int, every: tuple[int, ...]) -> None:
    floor, larger = divmod(count, len(owners))
    start = 0
    for partitions in owners[:larger]:
        partitions[topic_id] = every[start : start + floor + 1]
        start += floor + 1
    if floor:
        for partitions in owners[larger:]:
            partitions[topic_id] = every[start : start + floor]
            start += floor


def _reuse(assignment: dict[str, dict[UUID, tuple[int, ...]]], target: TargetAssignment) -> TargetAssignment:
    """Share what did not change with the target in force, so that the caller finds the difference by identity."""
    result: dict[str, TopicPartitions] = {}
    for member_id, partitions in assignment.items():
        before = target.get(member_id)
        result[member_id] = before if before is not None and before == partitions else partitions
    return result
