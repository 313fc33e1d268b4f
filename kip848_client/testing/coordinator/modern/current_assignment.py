"""One step of one member from its current assignment towards its target: revoke first, then assign. Pure arithmetic.

Every kind of group uses it: a partition is a pair of a key and a number. The key is a topic id in a consumer group, and
the name of a unit in a connect group. The caller gives the partitions that the member confirmed to own, and those that
are free; the result is the member's next `Current`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, Generic, TypeAlias, assert_never

import msgspec

from kip848_client.testing.coordinator.modern.member_record import (
    NO_METADATA,
    AssignmentMetadata,
    Current,
    Held,
    KeyT,
    ReconciliationState,
)

Owned: TypeAlias = Mapping[KeyT, AbstractSet[int]]
"""Key -> numbers that a member says it owns."""

_NONE: Final[Collection[int]] = ()


class Target(msgspec.Struct, Generic[KeyT], frozen=True):
    """The target of one member.

    Args:
        epoch: epoch of the group's target.
        partitions: the member's part of it.
        live: filters the numbers of a key that the member may own at all: partitions of topics that exist and that it
            subscribes to, units that are in the catalogue. The rest of *partitions* is ignored.
        is_free: whether no other member holds a partition: (key, number) -> bool.
        metadata: what the member's client-side assignor gets once the member is at *epoch*.
    """

    epoch: int
    partitions: Mapping[KeyT, Collection[int]]
    live: Callable[[KeyT, Collection[int]], Collection[int]]
    is_free: Callable[[KeyT, int], bool]
    metadata: AssignmentMetadata = NO_METADATA

    def wanted(self) -> Mapping[KeyT, Collection[int]]:
        """The part of the target that the member may own."""
        return {key: live for key, numbers in self.partitions.items() if (live := self.live(key, numbers))}


class MustRejoinError(Exception):
    """This coordinator cannot read the member's stored state: the member must abandon its partitions and rejoin."""


def reconcile(
    current: Current[KeyT], target: Target[KeyT], *, owned: Owned[KeyT] | None, subscription_changed: bool
) -> Current[KeyT]:
    """Take the next step.

    Args:
        owned: what the member says it owns; None if its heartbeat did not say.
        subscription_changed: the member may own partitions that it does not subscribe to: its heartbeat
            changed its subscription, or a unit left the catalogue.

    Returns:
        *current* itself if there is nothing to do. Otherwise `previous_member_epoch` is the epoch before the step,
        even if the epoch stays. Kept partitions keep their assignment epoch, new ones get that of the target.

    Raises:
        MustRejoinError: the state is UNKNOWN and the member does not say that it owns nothing.

    Source:
        Kafka's ``CurrentAssignmentBuilder``; KAFKA-19974 (no epoch is skipped after a revocation); KIP-1251.
    """
    match current.state:
        case ReconciliationState.STABLE:
            if current.member_epoch != target.epoch:
                return _revoke_then_assign(current, target, owned=owned)
            if subscription_changed:
                return _unsubscribe(current, target, owned=owned)
            return current
        case ReconciliationState.UNREVOKED_PARTITIONS:
            if not _owns_any(owned, current.pending_revocation):
                return _revoke_then_assign(current, target, owned=owned)
            if subscription_changed:
                return _unsubscribe(current, target, owned=owned)
            return current
        case ReconciliationState.UNRELEASED_PARTITIONS:
            return _revoke_then_assign(current, target, owned=owned)
        case ReconciliationState.UNKNOWN:
            if owned is None or owned:
                raise MustRejoinError
            return _revoke_then_assign(current, target, owned=owned)
        case _:
            assert_never(current.state)


def is_subset(owned: Owned[KeyT], assigned: Held[KeyT]) -> bool:
    """Whether every key of *owned*, even without a number, and every number is in *assigned*; Kafka's rule."""
    return all(key in assigned and numbers <= assigned[key].keys() for key, numbers in owned.items())


def _revoke_then_assign(current: Current[KeyT], target: Target[KeyT], *, owned: Owned[KeyT] | None) -> Current[KeyT]:
    """If partitions must go and the member may still own them: ask for them back, and keep the member's epoch.

    Otherwise move to the target's epoch, with all partitions of the target that are free.
    """
    wanted = target.wanted()
    keep, revoke = _split(current.assigned, wanted)
    # keep = assigned ∩ target, revoke = assigned - target
    if revoke and _owns_any(owned, revoke):
        return Current(
            member_epoch=current.member_epoch,
            previous_member_epoch=current.member_epoch,
            state=ReconciliationState.UNREVOKED_PARTITIONS,
            assigned=keep,
            pending_revocation=revoke,
            metadata=current.metadata,
        )
    # want = target - keep, free ⊆ want, blocked = want - free
    free, blocked = _find_free(wanted, keep=keep, target=target)
    step = Current(
        member_epoch=target.epoch,
        previous_member_epoch=current.member_epoch,
        state=ReconciliationState.UNRELEASED_PARTITIONS if blocked else ReconciliationState.STABLE,
        assigned=_merge(keep, free) if free else keep,
        pending_revocation={},
        metadata=target.metadata,
    )
    return current if step == current else step


def _unsubscribe(current: Current[KeyT], target: Target[KeyT], *, owned: Owned[KeyT] | None) -> Current[KeyT]:
    """Revoke partitions that are no longer live, such as those of topics that the member just unsubscribed from.

    This does not wait for a new target. A member confirms all its revocations together: while it owns any of these
    partitions, old or new, it counts as the holder of all. Source: Kafka's ``updateCurrentAssignment``.
    """
    live = {key: target.live(key, epochs) for key, epochs in current.assigned.items()}
    keep, gone = _split(current.assigned, live)
    if not gone:
        return current
    pending = _merge(current.pending_revocation, gone)
    waits = _owns_any(owned, pending)
    return Current(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.member_epoch,
        state=ReconciliationState.UNREVOKED_PARTITIONS if waits else current.state,
        assigned=keep,
        pending_revocation=pending if waits else current.pending_revocation,
        metadata=current.metadata,
    )


def _owns_any(owned: Owned[KeyT] | None, partitions: Held[KeyT]) -> bool:
    """Whether the member may still use any of *partitions*: it lists one, or its heartbeat lists nothing."""
    if owned is None:
        return True
    return any(not epochs.keys().isdisjoint(owned.get(key, ())) for key, epochs in partitions.items())


def _split(assigned: Held[KeyT], wanted: Mapping[KeyT, Collection[int]]) -> tuple[Held[KeyT], Held[KeyT]]:
    """(assigned ∩ wanted, assigned - wanted); *assigned* itself if all of it is wanted."""
    keep: dict[KeyT, Mapping[int, int]] = {}
    revoke: dict[KeyT, Mapping[int, int]] = {}
    for key, epochs in assigned.items():
        target = frozenset(wanted.get(key, _NONE))
        if target >= epochs.keys():
            keep[key] = epochs
        elif target.isdisjoint(epochs.keys()):
            revoke[key] = epochs
        else:
            keep[key] = {number: epoch for number, epoch in epochs.items() if number in target}
            revoke[key] = {number: epoch for number, epoch in epochs.items() if number not in target}
    return (keep, revoke) if revoke else (assigned, {})


def _find_free(
    wanted: Mapping[KeyT, Collection[int]], *, keep: Held[KeyT], target: Target[KeyT]
) -> tuple[Held[KeyT], bool]:
    """The wanted partitions that can be given now, and whether others have to be waited for."""
    free: dict[KeyT, Mapping[int, int]] = {}
    blocked = False
    for key, numbers in wanted.items():
        kept = keep.get(key, {})
        if len(kept) == len(numbers):
            continue
        found = [number for number in numbers if number not in kept and target.is_free(key, number)]
        if found:
            free[key] = dict.fromkeys(found, target.epoch)
        if len(found) + len(kept) < len(numbers):
            blocked = True
    return free, blocked


def _merge(one: Held[KeyT], other: Held[KeyT]) -> Held[KeyT]:
    merged = dict(one)
    for key, epochs in other.items():
        merged[key] = {**merged.get(key, {}), **epochs}
    return merged
