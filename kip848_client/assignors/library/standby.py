"""`Standby`: sticky, and each partition has members that would take it over, so that its state can be copied ahead."""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from kip848_client.assignors.client.interface import (
    AssignmentSpec,
    AssignorMetadata,
    ConsumerGroupMetadata,
    GroupAssignment,
    MemberAssignment,
    PartitionAssignor,
)
from kip848_client.assignors.client.plan import AssignmentPlan
from kip848_client.assignors.library.even import spread_over
from kip848_client.assignors.library.metadata_json import Json, decode, decode_bytes, encode
from kip848_client.common.model import NamedPartition, TopicIdPartition

_LOOK_AHEAD = 12
_ENOUGH = 4
"""For each copy at most so many members are compared, those with the fewest copies first; fewer if enough of them are
in another rack."""


class Standby(PartitionAssignor):
    """Balanced and sticky, with *copies* members standing by for each partition.

    For consumers that keep state (windows, caches, a local store): a standby keeps a warm copy, and when the owner goes
    a standby is given the partition. Members report the partitions of which they have copies, so that copies are used
    and kept: each change of standbys is followed by one more assignment, in which nothing moves.

    Guarantee: counts of members that subscribe alike differ by at most one; a partition moves only if its owner is gone
    or has too many; one that lost its owner goes to a member with a copy if that has room. No member has a copy of its
    own partitions; copies are spread about evenly, and are in another rack than the owner where possible. With fewer
    members than copies, there are fewer copies.

    Args:
        copies: standbys a partition.
        on_standby: called on the assignor's thread with what this member stands by for, when that changes.

    Raises:
        ValueError: copies is negative.
    """

    name = "sticky-standby"

    def __init__(self, copies: int = 1, on_standby: Callable[[tuple[NamedPartition, ...]], None] | None = None) -> None:
        if copies < 0:
            raise ValueError(f"copies is {copies}; it cannot be negative")
        self._copies = copies
        self._on_standby = on_standby
        self._standby: tuple[NamedPartition, ...] = ()

    @property
    def standby(self) -> tuple[NamedPartition, ...]:
        """Partitions of which this member should keep a copy, as of the last assignment; sorted. For any thread."""
        return self._standby

    def metadata(self) -> AssignorMetadata:
        """The partitions of which this member has copies."""
        return encode({"standby": _as_json(self._standby)})

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        """Spread, and choose who stands by."""
        plan = AssignmentPlan(spec)
        copies = {m: _from_json(decode(member).get("standby"), whose=m) for m, member in spec.members.items()}
        holders: defaultdict[NamedPartition, list[str]] = defaultdict(list)
        for member_id, held in copies.items():
            for partition in held:
                holders[partition].append(member_id)
        by_subscribers: dict[tuple[str, ...], list[TopicIdPartition]] = {}
        for topic in spec.topics.values():
            by_subscribers.setdefault(plan.subscribers(topic.name), []).extend(topic.partitions)
        standbys: dict[str, list[NamedPartition]] = {member_id: [] for member_id in spec.members}
        for members, partitions in sorted(by_subscribers.items(), key=lambda item: (len(item[0]), item[0])):
            spread_over(plan, partitions, members, ranked=lambda partition: holders.get(partition.topic_partition, ()))
            self._choose(plan, partitions, members, holders, standbys)
        told = {m: encode({"standby": _as_json(sorted(chosen))}).metadata for m, chosen in standbys.items()}
        return plan.to_assignment(told)

    def on_assignment(self, error: int, assignment: MemberAssignment, group_metadata: ConsumerGroupMetadata) -> None:
        """Keep what this member stands by for, and tell the application if it changed."""
        if error:
            return
        told = decode_bytes(assignment.metadata, whose="the assignment") if assignment.metadata else {}
        found = _from_json(told.get("standby"), whose="the assignment")
        if found != self._standby:
            self._standby = found
            if self._on_standby is not None:
                self._on_standby(found)

    def _choose(
        self,
        plan: AssignmentPlan,
        partitions: Sequence[TopicIdPartition],
        members: tuple[str, ...],
        holders: Mapping[NamedPartition, Sequence[str]],
        standbys: dict[str, list[NamedPartition]],
    ) -> None:
        copies = min(self._copies, len(members) - 1)
        if copies <= 0:
            return
        most = math.ceil(copies * len(partitions) / len(members))
        able = frozenset(members)
        load: Counter[str] = Counter()
        chosen: dict[TopicIdPartition, list[str]] = {}
        for partition in partitions:  # a copy that is there is kept
            owner = plan.owner(partition)
            chosen[partition] = [
                m for m in holders.get(partition.topic_partition, ()) if m in able and m != owner and load[m] < most
            ][:copies]
            load.update(chosen[partition])
        pairs = Counter((plan.owner(p) or "", m) for p, standing_by in chosen.items() for m in standing_by)
        heap = [(load[m], m) for m in members]
        heapq.heapify(heap)
        for partition in _in_turns(plan, partitions):
            while len(chosen[partition]) < copies:
                member_id = _least_loaded(plan, heap, partition, chosen[partition], pairs)
                chosen[partition].append(member_id)
        for partition, member_ids in chosen.items():
            for member_id in member_ids:
                standbys[member_id].append(partition.topic_partition)


def _in_turns(plan: AssignmentPlan, partitions: Sequence[TopicIdPartition]) -> list[TopicIdPartition]:
    """One partition of each owner, then the next of each, so that the last ones still have several candidates."""
    turn: Counter[str | None] = Counter()
    ordered = []
    for partition in partitions:
        owner = plan.owner(partition)
        ordered.append((turn[owner], partition))
        turn[owner] += 1
    return [partition for _, partition in sorted(ordered)]


def _least_loaded(
    plan: AssignmentPlan,
    heap: list[tuple[int, str]],
    partition: TopicIdPartition,
    already: Sequence[str],
    pairs: Counter[tuple[str, str]],
) -> str:
    """Take, of the members with the fewest copies, one in another rack than the owner, and with few of that owner.

    When an owner goes its partitions are spread evenly, so its standbys must be many.
    """
    owner = plan.owner(partition)
    assert owner is not None
    rack = plan.spec.members[owner].rack_id
    passed_over: list[tuple[int, str]] = []
    able: list[tuple[int, str]] = []
    elsewhere = 0
    while heap and elsewhere < _ENOUGH and len(able) < _LOOK_AHEAD:
        entry = heapq.heappop(heap)
        if entry[1] == owner or entry[1] in already:
            passed_over.append(entry)
        else:
            able.append(entry)
            elsewhere += rack is None or plan.spec.members[entry[1]].rack_id != rack

    def cost(entry: tuple[int, str]) -> tuple[bool, int, tuple[int, str]]:
        member = entry[1]
        return rack is not None and plan.spec.members[member].rack_id == rack, pairs[owner, member], entry

    taken = min(able, key=cost)
    pairs[owner, taken[1]] += 1
    for entry in (*passed_over, *able):
        heapq.heappush(heap, (entry[0] + 1, entry[1]) if entry is taken else entry)
    return taken[1]


def _as_json(partitions: Sequence[NamedPartition]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for topic, index in partitions:
        indexes = found.setdefault(topic, [])
        assert isinstance(indexes, list)
        indexes.append(index)
    return found


def _from_json(told: Json, *, whose: str) -> tuple[NamedPartition, ...]:
    """Sorted.

    Raises:
        ValueError: it is not a mapping of topics to partition numbers.
    """
    if told is None:
        return ()
    found = []
    for topic, indexes in told.items() if isinstance(told, dict) else [("", told)]:
        if not isinstance(indexes, list) or any(type(index) is not int for index in indexes):
            raise ValueError(f"{whose!r} tells standby={told!r}; {{topic: [partitions]}} is expected")
        found += [NamedPartition(topic, int(str(index))) for index in indexes]
    return tuple(sorted(found))
