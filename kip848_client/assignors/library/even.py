"""Spreads one set of partitions over one set of members, evenly and with few moves; the step that several share."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from kip848_client.assignors.client.plan import AssignmentPlan
from kip848_client.common.model import TopicIdPartition

Ranked = Callable[[TopicIdPartition], Iterable[str]]
"""Preferred new owners of a partition: member ids, best first. Members that are left out come last."""


def spread_over(
    plan: AssignmentPlan,
    partitions: Sequence[TopicIdPartition],
    members: Sequence[str],
    *,
    already: Mapping[str, int] = MappingProxyType({}),
    ranked: Ranked | None = None,
    level_totals: bool = False,
) -> None:
    """Give *partitions*, which have no owner in *plan* yet, to *members*.

    Counts of these partitions, with *already* added, end up as equal as they can be. If they cannot be
    equal, the larger share goes to members that can keep more, then to members with fewer partitions in all.

    Args:
        already: member id -> number of such partitions that it has already, 0 if left out.
        ranked: preferred members for partitions that no member keeps.
        level_totals: prefer members with fewer partitions in all to members that can keep more. The totals become
            even, at the price of moves.
    """
    if not members:
        return
    wanted = frozenset(partitions)
    held = {m: [p for p in plan.spec.members[m].target if p in wanted] for m in members}
    room = _rooms(plan, len(partitions), members, held, already, level_totals=level_totals)
    for member in members:
        for partition in held[member][: room[member]]:
            if plan.owner(partition) is None:
                plan.give(partition, member)
                room[member] -= 1
    queue = deque(member for member in members if room[member])
    for partition in partitions:
        if plan.owner(partition) is not None:
            continue
        preferred = () if ranked is None else ranked(partition)
        member = next((m for m in preferred if room.get(m, 0) > 0), "")
        if not member:
            while not room[queue[0]]:
                queue.popleft()
            member = queue[0]
        room[member] -= 1
        plan.give(partition, member)


def _rooms(
    plan: AssignmentPlan,
    count: int,
    members: Sequence[str],
    held: Mapping[str, Sequence[TopicIdPartition]],
    already: Mapping[str, int],
    *,
    level_totals: bool,
) -> dict[str, int]:
    def turn(member: str, room: int) -> tuple[int, int, int, str]:
        total = plan.count(member) + room
        keeps = 0 if len(held[member]) > room else 1
        second, third = (total, keeps) if level_totals else (keeps, total)
        return already.get(member, 0) + room, second, third, member

    room = dict.fromkeys(members, 0)
    heap = [turn(member, 0) for member in members]
    heapq.heapify(heap)
    for _ in range(count):
        member = heap[0][-1]
        room[member] += 1
        heapq.heapreplace(heap, turn(member, room[member]))
    return room
