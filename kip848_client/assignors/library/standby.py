"""`Standby`: sticky, and for every partition it is known who would take over, so that state can be copied ahead."""

from __future__ import annotations

import functools
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from kip848_client.assignors.interface import (
    AssignmentSpec,
    ConsumerGroupMetadata,
    GroupAssignment,
    MemberAssignment,
    MemberSpec,
    PartitionAssignor,
)
from kip848_client.assignors.library.even import spread_over
from kip848_client.assignors.library.metadata_json import Json, decode_bytes, encode
from kip848_client.assignors.plan import AssignmentPlan
from kip848_client.model import TopicIdPartition, TopicPartition

_SLACK = 1.25
"""A member stands by for at most so many times its even share."""


class Standby(PartitionAssignor):
    """Balanced and sticky, with *copies* members standing by for each partition.

    For consumers that keep state (windows, caches, a local store): a standby keeps a warm copy, and when the owner goes
    its first standby is given the partition. The members that stand by are chosen by rendezvous hashing, so they change
    only for partitions whose owner or standby changed; those in another rack than the owner come first.

    Guarantee: counts of members that subscribe alike differ by at most one; a partition moves only if its owner is gone
    or has too many; one that lost its owner goes to its first standby with room. No member stands by for what it owns.
    With fewer members than copies, there are fewer copies.

    Args:
        copies: standbys a partition.
        on_standby: called on the assignor's thread with what this member stands by for, when that changes.

    Raises:
        ValueError: copies is negative.
    """

    name = "sticky-standby"

    def __init__(self, copies: int = 1, on_standby: Callable[[tuple[TopicPartition, ...]], None] | None = None) -> None:
        if copies < 0:
            raise ValueError(f"copies is {copies}; it cannot be negative")
        self._copies = copies
        self._on_standby = on_standby
        self._standby: tuple[TopicPartition, ...] = ()

    @property
    def standby(self) -> tuple[TopicPartition, ...]:
        """What this member stands by for, as of the last assignment; sorted. Any thread may ask."""
        return self._standby

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Spread, and choose who stands by."""
        plan = AssignmentPlan(spec)
        ranks = _Ranks(spec)
        by_subscribers: dict[tuple[str, ...], list[TopicIdPartition]] = {}
        for topic in spec.topics.values():
            by_subscribers.setdefault(plan.subscribers(topic.name), []).extend(topic.partitions)
        standbys: dict[str, dict[str, list[int]]] = {}
        for subscribers, partitions in sorted(by_subscribers.items(), key=lambda item: (len(item[0]), item[0])):
            spread_over(plan, partitions, subscribers, ranked=functools.partial(ranks.of, members=subscribers))
        for subscribers, partitions in sorted(by_subscribers.items()):
            self._choose(plan, ranks, partitions, subscribers, standbys)
        told = {m: encode({"standby": {**topics}}).metadata for m, topics in _as_json(standbys).items()}
        return plan.to_assignment(told)

    def on_assignment(self, error: int, assignment: MemberAssignment, group_metadata: ConsumerGroupMetadata) -> None:
        """Keep what this member stands by for, and tell the application if it changed."""
        if error:
            return
        told = decode_bytes(assignment.metadata, whose="the assignment") if assignment.metadata else {}
        topics = told.get("standby")
        found = tuple(
            TopicPartition(topic, int(str(index)))
            for topic, indexes in sorted(topics.items() if isinstance(topics, dict) else ())
            for index in (indexes if isinstance(indexes, list) else ())
        )
        if found != self._standby:
            self._standby = found
            if self._on_standby is not None:
                self._on_standby(found)

    def _choose(
        self,
        plan: AssignmentPlan,
        ranks: _Ranks,
        partitions: Sequence[TopicIdPartition],
        members: tuple[str, ...],
        standbys: dict[str, dict[str, list[int]]],
    ) -> None:
        copies = min(self._copies, len(members) - 1)
        if copies <= 0:
            return
        most = math.ceil(_SLACK * copies * len(partitions) / len(members)) + 1
        load: Counter[str] = Counter()
        for partition in partitions:
            owner = plan.owner(partition)
            assert owner is not None
            ranked = [m for m in ranks.of(partition, members) if m != owner]
            rack = plan.spec.members[owner].rack_id
            # Those with room first, then those in another rack; both sorts keep the order of the ranks.
            ranked.sort(key=lambda m: rack is not None and plan.spec.members[m].rack_id == rack)
            ranked.sort(key=lambda m: load[m] >= most)
            for member in ranked[:copies]:
                load[member] += 1
                standbys.setdefault(member, {}).setdefault(partition.topic, []).append(partition.partition)


class _Ranks:
    """Rendezvous hashing: each partition ranks the members, and a member that goes leaves the order of the others."""

    def __init__(self, spec: AssignmentSpec) -> None:
        self._names = {member_id: _lasting_name(member) for member_id, member in spec.members.items()}
        self._known: dict[TopicIdPartition, list[str]] = {}

    def of(self, partition: TopicIdPartition, members: tuple[str, ...]) -> Iterator[str]:
        known = self._known.get(partition)
        if known is None:
            start = hashlib.blake2b(partition.topic_id.bytes + partition.partition.to_bytes(4, "big"), digest_size=8)

            def rank(member_id: str) -> bytes:
                hashed = start.copy()
                hashed.update(self._names[member_id])
                return hashed.digest()

            known = self._known[partition] = sorted(members, key=rank)
        return iter(known)


def _lasting_name(member: MemberSpec) -> bytes:
    """A static member keeps its ranks over a restart."""
    return (member.instance_id or member.member_id).encode()


def _as_json(standbys: dict[str, dict[str, list[int]]]) -> dict[str, dict[str, Json]]:
    return {m: {topic: [*indexes] for topic, indexes in topics.items()} for m, topics in standbys.items()}
