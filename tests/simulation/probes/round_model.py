"""Who computes a target, told a second time from docs/client-side-assignors.md ("Who computes, and when").

Plain and slow: it looks at all members for each answer. Does not own: when it is asked (`round_walk`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

from kip848_client.coordinator.consumer_group import ConsumerGroup
from kip848_client.coordinator.group_member import STATIC_LEAVE_EPOCH, ClientAssignor

Offers: TypeAlias = Mapping[str, tuple[ClientAssignor, ...]]
"""Member id -> what it offers, the most preferred first."""


class Asked(NamedTuple):
    """Who is asked, for which assignor, and who failed before."""

    assignor_name: str
    member_id: str
    tried: frozenset[str]


class Runners(NamedTuple):
    """An assignor, and the members that can run it, each list ascending.

    Args:
        spanning: read all that others may come to write.
        able: read only what others write now.
    """

    assignor_name: str
    spanning: list[str]
    able: list[str]

    def include(self, member_id: str) -> bool:
        """Whether it can run it."""
        return member_id in self.spanning or member_id in self.able


def offers_of(group: ConsumerGroup) -> Offers:
    """What its members offer."""
    return {member_id: member.metadata.client_assignors for member_id, member in group.members.items()}


def away_of(group: ConsumerGroup) -> set[str]:
    """Static members that left for a while."""
    return {
        member_id for member_id, member in group.members.items() if member.current.member_epoch == STATIC_LEAVE_EPOCH
    }


def runners(offers: Offers) -> Runners | None:
    """The assignor that all offer and a member can run for all: the lowest sum of places, then by name."""
    if not offers:
        return None
    places: dict[str, list[int]] = {}
    for offered in offers.values():
        for place, assignor in enumerate(offered):
            places.setdefault(assignor.name, []).append(place)
    common = sorted((sum(found), name) for name, found in places.items() if len(found) == len(offers))
    able = (runners_of(offers, name) for _, name in common)
    return next((found for found in able if found.spanning or found.able), None)


def runners_of(offers: Offers, name: str) -> Runners:
    """The members that can run the assignor *name* for all that offer it."""
    own = {
        member_id: assignor for member_id in sorted(offers) for assignor in offers[member_id] if assignor.name == name
    }
    able = [member_id for member_id, assignor in own.items() if _reads(assignor, own.values())]
    spanning = [member_id for member_id in able if _spans(own[member_id], own.values())]
    return Runners(name, spanning, [member_id for member_id in able if member_id not in spanning])


def ask(found: Runners | None, *, first: str | None, tried: Collection[str], never: Collection[str]) -> Asked | None:
    """Who is asked next: *first* if it is among the best, else the lowest id; once all had their turn, anybody."""
    if found is None:
        return None
    for had in (frozenset(tried), frozenset[str]()):
        for members in (found.spanning, found.able):
            left = [member_id for member_id in members if member_id not in had and member_id not in never]
            if left:
                return Asked(found.assignor_name, first if first in left else left[0], had)
    return None


def is_understood(offers: Offers, member_id: str, before: tuple[ClientAssignor, ...]) -> bool:
    """Whether, for each assignor that a member offers in new versions, some member reads what all others write."""
    for own in offers[member_id]:
        if any(old.name == own.name and old.versions == own.versions for old in before):
            continue
        everybody = [one for offered in offers.values() for one in offered if one.name == own.name]
        if not any(_reads(one, everybody) for one in everybody):
            return False
    return True


def _reads(own: ClientAssignor, others: Collection[ClientAssignor]) -> bool:
    return all(own.minimum_version <= other.metadata_version <= own.maximum_version for other in others)


def _spans(own: ClientAssignor, others: Collection[ClientAssignor]) -> bool:
    return all(
        own.minimum_version <= other.minimum_version and other.maximum_version <= own.maximum_version
        for other in others
    )
