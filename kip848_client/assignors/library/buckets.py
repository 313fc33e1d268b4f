"""`Buckets`: some members serve some of the partitions of a topic, by share; premium traffic has members of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kip848_client.assignors.client.interface import (
    AssignmentSpec,
    AssignorMetadata,
    GroupAssignment,
    MemberSpec,
    PartitionAssignor,
    TopicSpec,
)
from kip848_client.assignors.client.plan import AssignmentPlan
from kip848_client.assignors.library.even import spread_over
from kip848_client.assignors.library.metadata_json import decode, encode
from kip848_client.common.model import TopicIdPartition


class Buckets(PartitionAssignor):
    """Partitions of a topic are divided into buckets by share, and a bucket is served by members that asked for it.

    Producers put urgent records into the partitions of one bucket (`partitions_of_bucket` tells which); how many
    members serve it is the operator's choice. Within a bucket partitions are spread evenly.

    Guarantee: while a bucket has members, only they get its partitions, and two of its members differ by at most
    one partition of it. A bucket without members is served by all, so that nothing is left unread.

    Args:
        shares: bucket -> share of each topic's partitions; any positive numbers, 70 and 30 or 7 and 3. All members must
            be configured alike.
        bucket: the one that this member serves; None for any bucket that has no members.

    Raises:
        ValueError: no shares, one that is not positive, or a bucket that has none.
    """

    name = "buckets"

    def __init__(self, shares: Mapping[str, float], bucket: str | None = None) -> None:
        if not shares or any(not share > 0 for share in shares.values()):
            raise ValueError(
                f"shares are positive numbers by bucket, such as {{'gold': 70, 'rest': 30}}; got {shares!r}"
            )
        if bucket is not None and bucket not in shares:
            raise ValueError(f"bucket {bucket!r} has no share; there are {', '.join(sorted(shares))}")
        self._shares = dict(shares)
        self._bucket = bucket

    def metadata(self) -> AssignorMetadata:
        """The bucket that this member serves."""
        return encode({"bucket": self._bucket})

    def partitions_of_bucket(self, bucket: str, partition_count: int) -> range:
        """Which partitions of a topic are a bucket's, for producers.

        Raises:
            KeyError: no such bucket.
        """
        return divide(self._shares, partition_count)[bucket]

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Spread each bucket over its members."""
        plan = AssignmentPlan(spec)
        serves = {member_id: self._bucket_of(member) for member_id, member in spec.members.items()}
        by_subscribers: dict[tuple[str, ...], list[TopicSpec]] = {}
        for topic in spec.topics.values():
            by_subscribers.setdefault(plan.subscribers(topic.name), []).append(topic)
        for bucket in self._shares:
            for subscribers, topics in sorted(by_subscribers.items(), key=lambda item: (len(item[0]), item[0])):
                partitions = [p for topic in topics for p in self._slice(topic, bucket)]
                members = [member_id for member_id in subscribers if serves[member_id] == bucket] or list(subscribers)
                spread_over(plan, partitions, members)
        return plan.to_assignment()

    def _slice(self, topic: TopicSpec, bucket: str) -> Sequence[TopicIdPartition]:
        run = divide(self._shares, topic.partition_count)[bucket]
        return topic.partitions[run.start : run.stop]

    def _bucket_of(self, member: MemberSpec) -> str | None:
        told = decode(member).get("bucket")
        if told is not None and told not in self._shares:
            raise ValueError(
                f"member {member.member_id!r} serves bucket {told!r}, which has no share here; configure all alike"
            )
        return None if told is None else str(told)


def divide(shares: Mapping[str, float], count: int) -> dict[str, range]:
    """Cut partitions 0 to *count* into one run a bucket, in the order of *shares*; the largest remainders round up.

    With fewer partitions than buckets, the buckets with the smallest shares have none.
    """
    total = sum(shares.values())
    exact = {bucket: share / total * count for bucket, share in shares.items()}
    sizes = {bucket: int(size) for bucket, size in exact.items()}
    by_remainder = sorted(shares, key=lambda bucket: (sizes[bucket] - exact[bucket], -shares[bucket], bucket))
    for bucket in by_remainder[: count - sum(sizes.values())]:
        sizes[bucket] += 1
    runs, start = {}, 0
    for bucket, size in sizes.items():
        runs[bucket] = range(start, start + size)
        start += size
    return runs
