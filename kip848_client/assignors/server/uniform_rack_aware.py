"""The `uniform-rack-aware` assignor: as even as `uniform`, with as many partitions as possible in the rack of a
replica.

Three steps. `uniform` decides how many partitions each member owns, and which, if racks were nothing. `rack_exchange`
then lets racks swap partitions, which changes no load. This file does the rest: it sorts members and partitions by
rack, and when the exchange is done, picks which partitions go, and gives as many as it can to who had them before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from kip848_client.assignors.server.rack_exchange import Place, exchange
from kip848_client.assignors.server.spec import GroupSpec, TargetAssignment, TopicPartitions, check_topics
from kip848_client.assignors.server.uniform import UniformAssignor

_ROUNDS_MAX: Final = 16
"""Exchanging and levelling are repeated at most this often. With mixed subscriptions, an exchange between racks can
make it possible for `uniform` to level loads further, and that can make another exchange worthwhile."""

_PLACES_MAX: Final = 100
"""With more (rack, subscription) pairs than this, members swap only with members of the same subscription."""

_NO_RACKS: Final[frozenset[str]] = frozenset()

Partition: TypeAlias = int
"""Number of a partition within a market: topics ascend, and the partitions of a topic follow each other. Numbers are
used because there may be half a million partitions, and comparing two topic ids runs Python code."""


class RackAwareUniformAssignor:
    """Loads as even as with `uniform`, and with these loads as many partitions as possible in their member's rack.

    A partition is *local* if the rack of its member is the rack of one of its replicas. Loads come first, then the
    number of local partitions, then few moves: a partition moves only for the load or for a rack. A group whose racks
    are not known gets what `uniform` gives it. A second run changes nothing.

    If all members subscribe alike, no balanced assignment has more local partitions. With mixed subscriptions, no
    assignment with the loads that `uniform` chose has more.

    Source:
        KIP-848 "Assignors" hands racks to assignors; Kafka ships none that uses them (KAFKA-19909).
    """

    name = "uniform-rack-aware"

    def __init__(self) -> None:
        self._uniform: Final = UniformAssignor()

    def assign(self, spec: GroupSpec) -> TargetAssignment:
        """Compute the target of every member; see `ServerAssignor.assign`."""
        check_topics(spec)
        before = spec.target
        result: TargetAssignment = {}
        for _ in range(_ROUNDS_MAX):
            result = self._uniform.assign(spec)
            exchanged = _exchange_all(spec, result, before=before)
            if exchanged is None:
                break
            result = exchanged
            spec = GroupSpec(
                spec.subscriptions, spec.topics, result, spec.instance_ids, spec.rack_ids, spec.partition_racks
            )
        return {
            member_id: target if (target := before.get(member_id)) is not None and target == share else share
            for member_id, share in result.items()
        }


def _exchange_all(
    spec: GroupSpec, assignment: TargetAssignment, *, before: TargetAssignment
) -> TargetAssignment | None:
    """The assignment after all exchanges; None if there was nothing to gain."""
    if not spec.partition_racks or not spec.rack_ids:
        return None
    members: dict[tuple[tuple[UUID, ...], str], list[str]] = {}
    for member_id in sorted(spec.subscriptions):
        members.setdefault((spec.subscriptions[member_id], spec.rack_ids.get(member_id, "")), []).append(member_id)
    keys = sorted(members)
    if len(keys) <= _PLACES_MAX:
        markets = [keys]
    else:
        alike: dict[tuple[UUID, ...], list[tuple[tuple[UUID, ...], str]]] = {}
        for key in keys:
            alike.setdefault(key[0], []).append(key)
        markets = list(alike.values())
    changed: dict[str, TopicPartitions] = {}
    for market in markets:
        if len({rack for _, rack in market}) > 1:
            changed.update(_Market(spec, assignment, before, [(key, members[key]) for key in market]).trade())
    return {**assignment, **changed} if changed else None


class _Market:
    """Members that may swap with each other, in places.

    Args:
        places: ((subscription, rack), member ids); rack "" if it is not known.
    """

    def __init__(
        self,
        spec: GroupSpec,
        assignment: TargetAssignment,
        before: TargetAssignment,
        places: Sequence[tuple[tuple[tuple[UUID, ...], str], list[str]]],
    ) -> None:
        self._assignment: Final = assignment
        self._before: Final = before
        self._members: Final = [member_ids for _, member_ids in places]
        racks = [rack for (_, rack), _ in places]
        numbers: dict[tuple[UUID, ...], int] = {}
        subscriptions = [numbers.setdefault(subscription, len(numbers)) for (subscription, _), _ in places]
        self._kinds: Final[list[int]] = []
        """The kind of every partition."""
        self._first: Final[dict[UUID, Partition]] = {}
        """The number of each topic's partition 0."""
        self._wanted: Final[list[frozenset[int]]] = []
        self._local: Final[list[frozenset[int]]] = []
        self._counts: Final = spec.topics
        self._set_kinds(spec, numbers, racks)
        self._topic_ids: Final = list(self._first)
        self._firsts: Final = list(self._first.values())
        self._places: Final = [Place(subscription) for subscription in subscriptions]
        self._sizes: Final = {
            member_id: sum(map(len, assignment[member_id].values()))
            for members in self._members
            for member_id in members
        }
        self._count()
        self._find_slack()

    def trade(self) -> dict[str, TopicPartitions]:
        """Swap partitions, and return the new partitions of each member whose share changed."""
        held = [dict(place.held) for place in self._places]
        larger = [place.large for place in self._places]
        if not exchange(self._places, local=self._local, wanted=self._wanted):
            return {}
        return self._hand_over(held, larger)

    # --- counting

    def _set_kinds(self, spec: GroupSpec, numbers: Mapping[tuple[UUID, ...], int], racks: Sequence[str]) -> None:
        wanted: dict[UUID, set[int]] = defaultdict(set)
        for subscription, number in numbers.items():
            for topic_id in subscription:
                wanted[topic_id].add(number)
        known = frozenset(racks) - {""}
        kinds: dict[tuple[frozenset[int], frozenset[str]], int] = {}
        for topic_id in sorted(wanted):
            self._first[topic_id] = len(self._kinds)
            by, count = frozenset(wanted[topic_id]), spec.topics[topic_id]
            cached: dict[frozenset[str], int] = {}
            all_racks = spec.partition_racks.get(topic_id, ())[:count]
            for partition_racks in all_racks:
                kind = cached.get(partition_racks)
                if kind is None:
                    kind = cached[partition_racks] = kinds.setdefault((by, partition_racks & known), len(kinds))
                self._kinds.append(kind)
            if len(all_racks) < count:
                self._kinds.extend([kinds.setdefault((by, _NO_RACKS), len(kinds))] * (count - len(all_racks)))
        for by, partition_racks in kinds:
            self._wanted.append(by)
            self._local.append(frozenset(number for number, rack in enumerate(racks) if rack in partition_racks))

    def _count(self) -> None:
        kinds = self._kinds
        for place, members in zip(self._places, self._members, strict=True):
            settled: list[Partition] = []
            moved: list[Partition] = []
            for member_id in members:
                share = self._assignment[member_id]
                (settled if share is self._before.get(member_id) else moved).extend(self._numbers(share))
            place.held = dict(Counter([kinds[partition] for partition in settled + moved]))
            if moved:
                at_home = self._owned_before(members)
                place.uprooted = dict(Counter([kinds[one] for one in moved if one not in at_home]))

    def _find_slack(self) -> None:
        """Find pairs of members with one subscription whose loads differ by one: either may have the larger load."""
        loads: dict[int, Counter[int]] = defaultdict(Counter)
        for place, members in zip(self._places, self._members, strict=True):
            loads[place.subscription].update(self._sizes[member_id] for member_id in members)
        for place, members in zip(self._places, self._members, strict=True):
            sizes = loads[place.subscription]
            if max(sizes) - min(sizes) == 1:
                place.large = sum(self._sizes[member_id] == max(sizes) for member_id in members)
                place.small = len(members) - place.large

    def _numbers(self, share: TopicPartitions) -> list[Partition]:
        """The partitions of a share, without topics that no member subscribes to."""
        numbers: list[Partition] = []
        for topic_id, partitions in share.items():
            first = self._first.get(topic_id)
            if first is not None:
                numbers += [first + partition for partition in partitions]
        return numbers

    def _owned_before(self, members: Iterable[str]) -> set[Partition]:
        return {one for member_id in members for one in self._numbers(self._valid_before(member_id))}

    def _valid_before(self, member_id: str) -> TopicPartitions:
        """The member's previous partitions that still exist. Numbers past a topic's end would mean other partitions."""
        return {
            topic_id: tuple(one for one in partitions if one < self._counts[topic_id])
            if partitions and partitions[-1] >= self._counts.get(topic_id, 0)
            else partitions
            for topic_id, partitions in self._before.get(member_id, {}).items()
            if topic_id in self._first
        }

    # --- handing over

    def _hand_over(self, held: Sequence[Mapping[int, int]], larger: Sequence[int]) -> dict[str, TopicPartitions]:
        """Pick the partitions that go, and give every place what its counts say."""
        touched = [
            number
            for number, place in enumerate(self._places)
            if place.held != held[number] or place.large != larger[number]
        ]
        stock: dict[int, list[Partition]] = defaultdict(list)
        stays: dict[int, list[Partition]] = {}
        at_home = {number: self._owned_before(self._members[number]) for number in touched}
        for number in touched:
            stays[number], gone = self._pick(number, at_home[number])
            for kind, partitions in gone.items():
                stock[kind] += partitions
        for partitions in stock.values():
            partitions.sort()
        for number in touched:  # first partitions that return to their owner, then the others
            stays[number] += self._take(number, stays[number], stock, only=at_home[number])
        for number in touched:
            stays[number] += self._take(number, stays[number], stock, only=None)
        assert not any(stock.values())
        shares: dict[str, TopicPartitions] = {}
        for number in touched:
            shares.update(self._share_out(number, stays[number], grown=self._places[number].large - larger[number]))
        return {member_id: share for member_id, share in shares.items() if share != self._assignment[member_id]}

    def _pick(self, number: int, at_home: set[Partition]) -> tuple[list[Partition], dict[int, list[Partition]]]:
        """Split a place into partitions that stay and, by kind, those that go: newcomers first, the last ones first."""
        by_kind: dict[int, list[Partition]] = defaultdict(list)
        for member_id in self._members[number]:
            for partition in self._numbers(self._assignment[member_id]):
                by_kind[self._kinds[partition]].append(partition)
        stays: list[Partition] = []
        gone: dict[int, list[Partition]] = {}
        for kind, partitions in by_kind.items():
            partitions.sort()
            keep = min(self._places[number].held.get(kind, 0), len(partitions))
            if keep < len(partitions) and at_home:
                partitions.sort(key=lambda partition: partition not in at_home)
            stays += partitions[:keep]
            gone[kind] = partitions[keep:]
        return stays, gone

    def _take(
        self,
        number: int,
        has: Sequence[Partition],
        stock: dict[int, list[Partition]],
        *,
        only: set[Partition] | None,
    ) -> list[Partition]:
        """Take the partitions that a place lacks from the stock; with *only*, no other partitions than these."""
        counts = Counter([self._kinds[partition] for partition in has])
        taken: list[Partition] = []
        for kind, count in sorted(self._places[number].held.items()):
            missing = count - counts[kind]
            if missing <= 0:
                continue
            if only is None:
                taken += stock[kind][:missing]
                stock[kind] = stock[kind][missing:]
            elif chosen := [one for one in stock[kind] if one in only][:missing]:
                out = set(chosen)
                stock[kind] = [one for one in stock[kind] if one not in out]
                taken += chosen
        return taken

    def _share_out(self, number: int, partitions: list[Partition], *, grown: int) -> dict[str, TopicPartitions]:
        """Give a place's partitions to its members, as many to each as `uniform` did; who had one keeps it."""
        members = self._members[number]
        sizes = {member_id: self._sizes[member_id] for member_id in members}
        # Loads are two neighbours where the place as a whole owns more or less now.
        by_size = sorted(members, key=sizes.__getitem__, reverse=grown < 0)
        for member_id in by_size[: abs(grown)]:
            sizes[member_id] += 1 if grown > 0 else -1
        partitions.sort()
        owner_before = {one: member_id for member_id in members for one in self._numbers(self._valid_before(member_id))}
        shares: dict[str, list[Partition]] = {member_id: [] for member_id in members}
        homeless: list[Partition] = []
        for partition in partitions:
            owner = owner_before.get(partition)
            if owner is not None and len(shares[owner]) < sizes[owner]:
                shares[owner].append(partition)
            else:
                homeless.append(partition)
        start = 0
        for member_id in members:
            missing = sizes[member_id] - len(shares[member_id])
            shares[member_id] += homeless[start : start + missing]
            start += missing
        assert start == len(homeless)
        return {member_id: self._share(numbers) for member_id, numbers in shares.items()}

    def _share(self, numbers: list[Partition]) -> TopicPartitions:
        numbers.sort()
        share: dict[UUID, tuple[int, ...]] = {}
        start = 0
        while start < len(numbers):
            topic = bisect_right(self._firsts, numbers[start]) - 1
            first, topic_id = self._firsts[topic], self._topic_ids[topic]
            stop = bisect_left(numbers, first + self._counts[topic_id], start)
            share[topic_id] = tuple([one - first for one in numbers[start:stop]])
            start = stop
        return share
