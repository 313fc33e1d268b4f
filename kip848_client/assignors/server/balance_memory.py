"""The last balanced groups of `uniform`, so that a member that joins or leaves does not cost a look at all others.

In a balanced group every member owns `small` partitions or one more. When one member joins or leaves, the order of the
members alone decides which ones give or take partitions. This is only a shortcut: after any other change the whole
group is assigned again, with the same result.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from kip848_client.assignors.server.partitions import NOTHING, PartitionRun, fill, split_at
from kip848_client.assignors.server.spec import GroupSpec, TargetAssignment, TopicPartitions

_KEPT: Final = 3
"""Groups that are remembered; the least recently used one is forgotten first."""


class _Balanced(msgspec.Struct, frozen=True):
    """A balanced group, all of whose members subscribe to *subscription*.

    Args:
        counts: partitions of each of *topics*, in its order, because the mapping may have changed since.
        member_ids: ascending.
        shares: what each of them owns.
        small: the smaller of the two loads.
        large: per member, 1 if it owns one more.
        result: member id -> share.
        returned: its copy that was handed out.
    """

    topics: Mapping[UUID, int]
    counts: list[int]
    subscription: tuple[UUID, ...]
    partition_count: int
    member_ids: list[str]
    shares: list[TopicPartitions]
    small: int
    large: bytearray
    result: dict[str, TopicPartitions]
    returned: dict[str, TopicPartitions]


class BalanceMemory:
    """Remembers the last balanced assignments of one assignor. Threads may share it: what it holds is never changed.

    Args:
        members_min: smaller groups are not remembered, and nothing of theirs is kept alive.
    """

    def __init__(self, *, members_min: int = 500) -> None:
        self._members_min: Final = members_min
        self._known: tuple[_Balanced, ...] = ()

    def recall(self, spec: GroupSpec) -> TargetAssignment | None:
        """The new target, if *spec* is a known group with one member more or less, or none; else None."""
        count = len(spec.subscriptions)
        if count < self._members_min:
            return None
        subscriptions = list(spec.subscriptions.values())
        # Try groups with as many members as the target first; the target may still contain a member that left.
        for known in sorted(self._known, key=lambda known: len(known.member_ids) != len(spec.target)):
            if abs(len(known.member_ids) - count) > 1 or known.topics is not spec.topics:
                continue
            if known.counts != list(spec.topics.values()):
                continue
            if subscriptions.count(known.subscription) != count:  # compares by identity first
                continue
            changed = _change(known, spec)
            if changed is not None:
                self._keep(changed, used=known)
                # A caller may have changed a result that it was given, so it gets a copy the second time.
                return changed.result.copy() if changed.returned is known.returned else changed.returned
        return None

    def remember(
        self,
        spec: GroupSpec,
        *,
        subscription: tuple[UUID, ...],
        member_ids: list[str],
        shares: list[TopicPartitions],
        quotas: Sequence[int],
        partition_count: int,
        returned: dict[str, TopicPartitions],
    ) -> None:
        """Keep what a whole run ended with.

        Args:
            subscription: of every member.
            member_ids: ascending; *shares* and *quotas* are theirs.
            returned: the target that is handed out, in that order.
        """
        if len(member_ids) >= self._members_min:
            small = partition_count // len(member_ids)
            self._keep(
                _Balanced(
                    topics=spec.topics,
                    counts=list(spec.topics.values()),
                    subscription=subscription,
                    partition_count=partition_count,
                    member_ids=member_ids,
                    shares=shares,
                    small=small,
                    large=bytearray(map(small.__lt__, quotas)),
                    result=returned.copy(),
                    returned=returned,
                )
            )

    def _keep(self, newest: _Balanced, *, used: _Balanced | None = None) -> None:
        others = [
            known
            for known in self._known
            if known is not used
            and known is not newest
            and (known.topics is not newest.topics or known.member_ids != newest.member_ids)
        ]
        recent = [newest] if used is None or used is newest else [newest, used]
        self._known = tuple([*recent, *others][:_KEPT])


def _change(known: _Balanced, spec: GroupSpec) -> _Balanced | None:
    """The group after the change, or *known* itself if there was none; None if more than that changed."""
    member_ids = list(spec.subscriptions)
    difference = len(member_ids) - len(known.member_ids)
    fewer, more = (known.member_ids, member_ids) if difference >= 0 else (member_ids, known.member_ids)
    at = _odd_one(fewer, more)
    if at is None:
        member_ids.sort()
        at = _odd_one(fewer, more)
    if at is None:
        return None
    match difference:
        case 0:
            return _with_target(known, spec.target)
        case 1:
            found = _with_target(known, spec.target)
            if found is None or spec.target.get(member_ids[at]):
                return None
            return _joined(found, member_ids, at)
        case _:
            shares = known.shares.copy()
            free = shares.pop(at)
            left = [NOTHING if share is None else share for share in map(spec.target.get, member_ids)]
            return _left(known, member_ids, left, at=at, free=free) if left == shares else None


def _odd_one(fewer: list[str], more: list[str]) -> int | None:
    """The place in *more* of what *fewer* has not; the length of both if they are equal; None if it is not so.

    *more* must ascend there, so that the place is the one where a sorted list would have it.
    """
    low, high = 0, len(fewer)
    while low < high:
        middle = (low + high) // 2
        if fewer[middle] == more[middle]:
            low = middle + 1
        else:
            high = middle
    if len(fewer) == len(more):
        return low if fewer == more else None
    if more[:low] != fewer[:low] or more[low + 1 :] != fewer[low:]:
        return None
    if (low and more[low - 1] >= more[low]) or (low + 1 < len(more) and more[low] >= more[low + 1]):
        return None
    return low


def _with_target(known: _Balanced, target: TargetAssignment) -> _Balanced | None:
    """The known group, if every member still has the partitions that it was given last, else None.

    Shares become those of *target*: who compares by identity, as this module does first, should find them next time.
    """
    if target is known.returned:
        return known if list(target.values()) == list(known.result.values()) else None
    shares = [NOTHING if share is None else share for share in map(target.get, known.member_ids)]
    if shares != known.shares:
        return None
    if all(map(operator.is_, shares, known.shares)):
        return known
    return replace(known, shares=shares, result=dict(zip(known.member_ids, shares, strict=True)))


def _joined(known: _Balanced, member_ids: list[str], at: int) -> _Balanced | None:
    small, larger = divmod(known.partition_count, len(member_ids))
    last = len(known.member_ids)
    quotas: dict[int, int]
    if small == known.small:
        # Of the members with the larger load, the first ones keep it.
        large = known.large.copy()
        quotas = dict.fromkeys(_last_ones(large, large.count(1) - larger), small)
        for index in quotas:
            large[index] = 0
    elif small == known.small - 1:
        # All own more than the smaller load now; the first ones keep one more than that.
        quotas = dict.fromkeys(_last_ones(known.large[:larger], last), small + 1)
        quotas.update(dict.fromkeys(range(larger, last), small))
        large = bytearray(b"\1") * larger + bytearray(last - larger)
    else:
        return None
    shares = known.shares.copy()
    pool: list[PartitionRun] = []
    for index, quota in sorted(quotas.items()):
        shares[index], released = split_at(shares[index], quota)
        pool += released
    changed = {known.member_ids[index]: shares[index] for index in quotas}
    shares.insert(at, NOTHING)
    large.insert(at, 0)
    fill(shares, missing=[(at, small)] if small else [], pool=pool)
    changed[member_ids[at]] = shares[at]
    return _after(known, member_ids, shares, small=small, large=large, result={**known.result, **changed})


def _left(
    known: _Balanced, member_ids: list[str], shares: list[TopicPartitions], *, at: int, free: TopicPartitions
) -> _Balanced | None:
    if not member_ids:
        return None
    small, larger = divmod(known.partition_count, len(member_ids))
    large = known.large.copy()
    del large[at]
    missing: dict[int, int]
    if small == known.small:
        # Members with the larger load keep it; then the first of the other members get one more.
        missing = dict.fromkeys(_first_ones(large, 0, larger - large.count(1)), 1)
        for index in missing:
            large[index] = 1
    elif small == known.small + 1:
        # No member owns more than the smaller load now: fill all up to it, and give the first ones one more.
        missing = dict.fromkeys(_first_ones(large, 0, len(large)), 1)
        for index in range(larger):
            missing[index] = missing.get(index, 0) + 1
        large = bytearray(b"\1") * larger + bytearray(len(member_ids) - larger)
    else:
        return None
    fill(
        shares,
        missing=sorted(missing.items()),
        pool=[PartitionRun(topic_id, free[topic_id]) for topic_id in sorted(free)],
    )
    result = dict(zip(member_ids, shares, strict=True))
    return _after(known, member_ids, shares, small=small, large=large, result=result)


def _after(
    known: _Balanced,
    member_ids: list[str],
    shares: list[TopicPartitions],
    *,
    small: int,
    large: bytearray,
    result: dict[str, TopicPartitions],
) -> _Balanced:
    return _Balanced(
        topics=known.topics,
        counts=known.counts,
        subscription=known.subscription,
        partition_count=known.partition_count,
        member_ids=member_ids,
        shares=shares,
        small=small,
        large=large,
        result=result,
        returned=result.copy(),
    )


def _last_ones(flags: bytearray, count: int) -> Iterable[int]:
    """Places of the last *count* ones, or of as many as there are."""
    place = len(flags)
    for _ in range(count):
        place = flags.rfind(1, 0, place)
        if place < 0:
            return
        yield place


def _first_ones(flags: bytearray, flag: int, count: int) -> Iterable[int]:
    """Places of the first *count* occurrences of *flag*, or of as many as there are."""
    place = -1
    for _ in range(count):
        place = flags.find(flag, place + 1)
        if place < 0:
            return
        yield place
