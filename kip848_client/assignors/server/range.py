"""The `range` assignor: each topic is cut into runs, one per subscriber. Nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from kip848_client.assignors.server.partitions import MutableTopicPartitions
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
        static = [member for member in spec.subscriptions if member in instance_ids]
        dynamic = [member for member in spec.subscriptions if member not in instance_ids]
        members = sorted(static, key=instance_ids.__getitem__) + sorted(dynamic)
        every = tuple(range(max(spec.topics.values(), default=0)))
        owned: list[MutableTopicPartitions] = [{} for _ in members]
        subscribers_of = subscribers_by_topic(members_alike(spec, members))
        alike: dict[tuple[int, int], dict[UUID, None]] = {}
        for topic_id, subscribers in subscribers_of.items():
            # Topics with the same subscribers share one list of them.
            alike.setdefault((spec.topics[topic_id], id(subscribers)), {})[topic_id] = None
        for (count, _), topic_ids in alike.items():
            subscribers = subscribers_of[next(iter(topic_ids))]
            for member, run in zip(subscribers, _runs(count, len(subscribers), every), strict=False):
                # A copy of a dict does not ask its keys for their hash, which for a UUID is a call into Python.
                partitions = dict.fromkeys(topic_ids, run)
                if owned[member]:
                    owned[member].update(partitions)
                else:
                    owned[member] = partitions
        assignment: dict[str, TopicPartitions] = dict(zip(members, owned, strict=True))
        _reuse(assignment, spec.target)
        return assignment


def _runs(count: int, owners: int, every: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """One run for each of the first *owners* that gets any."""
    floor, larger = divmod(count, owners)
    start = 0
    for owner in range(owners if floor else larger):
        end = start + floor + (owner < larger)
        yield every[start:end]
        start = end


def _reuse(assignment: dict[str, TopicPartitions], target: TargetAssignment) -> None:
    """Share what did not change with the target in force, so that the caller finds the difference by identity."""
    if not target:
        return
    for member_id, partitions in assignment.items():
        before = target.get(member_id)
        if before == partitions and before is not None:
            assignment[member_id] = before
