"""Chooses a client-side assignor for a group, and the members that can run it. Pure functions of the members' offers.

A client-side assignor is used if every member offers it and some member reads the metadata of all. Otherwise the group
is in server mode. Because offers carry version ranges, no assignor has to ask others to downgrade (KIP-268).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.refusal import Refused, invalid_request
from kip848_client.testing.coordinator.modern.member_record import (
    ClientAssignor,
    KeyT,
    MetadataT,
    SharedMetadata,
    read_assignors,
)
from kip848_client.testing.coordinator.modern.modern_group import ModernGroup

Offers: TypeAlias = Mapping[str, tuple[ClientAssignor, ...]]
"""Member id -> client-side assignors that it offers, the most preferred first."""


class AssignorChoice(msgspec.Struct, frozen=True):
    """The client-side assignor that a group uses.

    Args:
        spanning: members whose range of versions holds the whole range of every member, ascending.
        able: the other members whose range holds the version of every member's metadata, ascending.
    """

    assignor_name: str
    spanning: tuple[str, ...]
    able: tuple[str, ...]

    def can_run(self, member_id: str) -> bool:
        """Whether the member reads the metadata of all."""
        return member_id in self.spanning or member_id in self.able


def read_offers(offers: Iterable[object], *, bytes_max: int) -> tuple[ClientAssignor, ...]:
    """The assignors that a heartbeat offers.

    Args:
        offers: as the heartbeat has them, of any kind of group.
        bytes_max: of all names and metadata together.

    Raises:
        Refused: INVALID_REQUEST; a name is empty or there twice, versions make no sense, or it is too long.

    Source:
        KIP-848 "ConsumerGroupHeartbeat API", request validation. That names are unique, and the limit, are ours.
    """
    read = read_assignors(offers)
    size = sum(len(assignor.name.encode()) + len(assignor.metadata_bytes) for assignor in read)
    if size > bytes_max:
        raise invalid_request(
            f"The client assignors have {size} bytes of names and metadata; at most {bytes_max} are allowed "
            "(kip848.client.assignors.max.bytes of the broker)."
        )
    names: set[str] = set()
    for assignor in read:
        name, low, high = assignor.name, assignor.minimum_version, assignor.maximum_version
        if not name.strip():
            raise invalid_request("The name of a client assignor can't be empty.")
        if name in names:
            raise invalid_request(f"Client assignor {name} is offered twice.")
        names.add(name)
        if low < -1:
            raise invalid_request(f"MinimumVersion of client assignor {name} is {low}; it must be -1 or more.")
        if high < 0 or high < low:
            raise invalid_request(
                f"MaximumVersion of client assignor {name} is {high}; it must be 0 or more, and {low} or more."
            )
        if not low <= assignor.metadata_version <= high:
            raise invalid_request(
                f"MetadataVersion of client assignor {name} is {assignor.metadata_version}; "
                f"it must be within [{low}, {high}]."
            )
    return read


def choice_after(
    group: ModernGroup[KeyT, MetadataT],
    *,
    gone: AbstractSet[str] = frozenset(),
    joined: str | None = None,
    metadata: MetadataT | None = None,
) -> AssignorChoice | None:
    """The result of `choose` once the members in *gone* have left and *joined* (new or not) has *metadata*.

    A worker on the classic protocol has offers of version -1 (KIP-848); a classic member of a consumer group has none.
    Counts show whether an assignor can be common to all, so a group in server mode costs nothing.
    """
    if not can_be_common(group, gone=len(gone)):
        return None
    offers = {
        member_id: member.metadata.client_assignors
        for member_id, member in group.members.items()
        if member_id not in gone
    }
    if joined is not None and metadata is not None:
        offers[joined] = metadata.client_assignors
    return choose(offers)


def can_be_common(group: ModernGroup[KeyT, MetadataT], *, gone: int = 0) -> bool:
    """Whether all members but at most one offer the same assignor; if not, a change of one member has no effect.

    Args:
        gone: how many leave, if several do at once.
    """
    counts = [sum(offered.values()) for offered in group.client_assignors.values()]
    return len(group.members) <= max(1, gone) + max(counts, default=0)


def choose(offers: Offers) -> AssignorChoice | None:
    """The assignor that every member offers and some member can run for all; None means server mode.

    If there are several, the one with the lowest sum of positions in the members' lists; if equal, by name. KIP-848
    says that the members' precedence decides, but not how if they differ: the sum is our choice.
    """
    if not offers:
        return None
    ranks: dict[str, int] = {}
    common: set[str] | None = None
    for offered in offers.values():
        names = {assignor.name for assignor in offered}
        common = names if common is None else common & names
        if not common:
            return None
        for position, assignor in enumerate(offered):
            ranks[assignor.name] = ranks.get(assignor.name, 0) + position
    for name in sorted(common or (), key=lambda name: (ranks[name], name)):
        choice = _choose_members(name, offers)
        if choice is not None:
            return choice
    return None


def pick_member(
    choice: AssignorChoice, *, first: str | None, tried: AbstractSet[str], away: AbstractSet[str]
) -> tuple[str, frozenset[str]] | None:
    """The member to compute the target.

    Members that read every version that any member offers come before those that read only the versions in use.

    Args:
        first: the member that is being answered; preferred among equals, since its answer can ask it at once.
        tried: members that were asked already; once all were, every member may be chosen again.
        away: static members that left for a while; never chosen.

    Returns:
        The member, and who counts as tried from now on; None if all that could are away.
    """
    for excluded in (frozenset(tried), frozenset[str]()):
        for members in (choice.spanning, choice.able):
            left = [member_id for member_id in members if member_id not in excluded and member_id not in away]
            if left:
                return (first if first is not None and first in left else left[0]), excluded
    return None


def check_versions(group: ModernGroup[KeyT, MetadataT], *, old: SharedMetadata | None, new: SharedMetadata) -> None:
    """Refuse versions with which no member could compute a target for all.

    Checks only assignors whose versions are new or changed: a member must not be refused because another one left.

    Args:
        old: the metadata that *group* counts for the member; None if it is new.

    Raises:
        Refused: UNSUPPORTED_ASSIGNOR; for some assignor no member, this one included, reads the metadata of all members
            that offer it.

    Source:
        KIP-848 "Metadata Version Handling": a joining member whose range overlaps with no other member's is rejected.
    """
    before = {} if old is None else {assignor.name: assignor.versions for assignor in old.client_assignors}
    for assignor in new.client_assignors:
        own, own_before = assignor.versions, before.get(assignor.name)
        if own == own_before:
            continue
        offered = dict(group.client_assignors.get(assignor.name, ()))
        if own_before is not None:
            offered[own_before] -= 1
        others = [versions for versions, count in offered.items() if count]
        low = min([own.written, *(versions.written for versions in others)])
        high = max([own.written, *(versions.written for versions in others)])
        if not any(versions.reads(low, high) for versions in (own, *others)):
            raise Refused(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"Client assignor {assignor.name} with versions [{own.minimum}, {own.maximum}] and metadata of version "
                f"{own.written} does not fit the group: its members use versions {low} to {high}, and none of them "
                "reads all of these.",
            )


def asks_for_a_target(*, old: tuple[ClientAssignor, ...], new: tuple[ClientAssignor, ...]) -> bool:
    """Whether a changed offer needs a new target. A reason that is only reset to 0 does not.

    So a member can ask twice for the same reason, by resetting it in between.
    """
    if len(old) != len(new):
        return True
    return any(
        before != after and not (after.reason == 0 and replace(before, reason=0) == after)
        for before, after in zip(old, new, strict=True)
    )


def _choose_members(name: str, offers: Offers) -> AssignorChoice | None:
    offered = {
        member_id: next(assignor.versions for assignor in assignors if assignor.name == name)
        for member_id, assignors in sorted(offers.items())
    }
    distinct = set(offered.values())
    low, high = min(versions.written for versions in distinct), max(versions.written for versions in distinct)
    lowest, highest = min(versions.minimum for versions in distinct), max(versions.maximum for versions in distinct)
    able = {versions for versions in distinct if versions.maximum >= 0 and versions.reads(low, high)}  # no classic one
    if not able:
        return None
    spanning = {versions for versions in able if versions.reads(lowest, highest)}
    return AssignorChoice(
        name,
        spanning=tuple([member_id for member_id, versions in offered.items() if versions in spanning]),
        able=tuple([member_id for member_id, versions in offered.items() if versions in able - spanning]),
    )
