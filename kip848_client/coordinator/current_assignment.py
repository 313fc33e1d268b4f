"""One step of one member from what it holds towards its target: revoke first, then assign. Pure set arithmetic.

Nothing here knows about requests, records or time. The caller says what the member confirmed to own and which
partitions are free; the answer is the member's next `CurrentAssignment`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import assert_never
from uuid import UUID

import msgspec

from kip848_client.assignors import TopicPartitions
from kip848_client.coordinator.group_member import (
    NO_METADATA,
    NO_PARTITIONS,
    AssignmentMetadata,
    CurrentAssignment,
    MemberState,
    PartitionEpochs,
)

OwnedPartitions = Mapping[UUID, AbstractSet[int]]
"""Topic id -> partitions that a member says it owns."""


class Target(msgspec.Struct, frozen=True):
    """Where a member shall go.

    Args:
        epoch: epoch of the group's target.
        partitions: the member's part of it.
        subscribed_topic_ids: topics that exist and that the member subscribes to; the rest of *partitions* is ignored.
        is_free: whether nobody, or only this member, holds a partition: (topic id, partition) -> bool.
        metadata: what the member's client-side assignor hears once it is at *epoch*.
    """

    epoch: int
    partitions: TopicPartitions
    subscribed_topic_ids: AbstractSet[UUID]
    is_free: Callable[[UUID, int], bool]
    metadata: AssignmentMetadata = NO_METADATA


class MustRejoinError(Exception):
    """The member's stored state means nothing to this coordinator: it must give up everything and join again."""


def reconcile(
    current: CurrentAssignment, target: Target, *, owned: OwnedPartitions | None, subscription_changed: bool
) -> CurrentAssignment:
    """Take the next step.

    Args:
        owned: what the member says it owns; None if its heartbeat did not say.
        subscription_changed: its heartbeat changed its subscription.

    Returns:
        *current* itself if there is nothing to do. Otherwise `previous_member_epoch` is the epoch before the step,
        also if the epoch stays. Kept partitions keep their assignment epoch, new ones get that of the target.

    Raises:
        MustRejoinError: the state is UNKNOWN and the member does not say that it owns nothing.

    Source:
        Kafka's ``CurrentAssignmentBuilder``; KAFKA-19974 (no epoch is skipped after a revocation); KIP-1251.
    """
    match current.state:
        case MemberState.STABLE:
            if current.member_epoch != target.epoch:
                return _next(current, target, owned=owned)
            if subscription_changed:
                return _unsubscribe(current, target, owned=owned)
            return current
        case MemberState.UNREVOKED_PARTITIONS:
            if not _owns_any(owned, current.pending_revocation):
                return _next(current, target, owned=owned)
            if subscription_changed:
                return _unsubscribe(current, target, owned=owned)
            return current
        case MemberState.UNRELEASED_PARTITIONS:
            return _next(current, target, owned=owned)
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise MustRejoinError
            return _next(current, target, owned=owned)
        case _:
            assert_never(current.state)


def is_subset(owned: OwnedPartitions, assigned: PartitionEpochs) -> bool:
    """Whether every topic of *owned*, even with no partition, and every partition is in *assigned*; Kafka's rule."""
    return all(
        topic_id in assigned and partitions <= assigned[topic_id].keys() for topic_id, partitions in owned.items()
    )


def _next(current: CurrentAssignment, target: Target, *, owned: OwnedPartitions | None) -> CurrentAssignment:
    wanted = {topic: parts for topic, parts in target.partitions.items() if topic in target.subscribed_topic_ids}
    keep, revoke = _split(current.assigned, wanted)
    # keep = assigned ∩ target, revoke = assigned - target
    if revoke and _owns_any(owned, revoke):
        return CurrentAssignment(
            member_epoch=current.member_epoch,
            previous_member_epoch=current.member_epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=keep,
            pending_revocation=revoke,
            metadata=current.metadata,
        )
    # want = target - keep, free ⊆ want, blocked = want - free
    free, blocked = _find_free(wanted, keep=keep, target=target)
    step = CurrentAssignment(
        member_epoch=target.epoch,
        previous_member_epoch=current.member_epoch,
        state=MemberState.UNRELEASED_PARTITIONS if blocked else MemberState.STABLE,
        assigned=_merge(keep, free) if free else keep,
        pending_revocation=NO_PARTITIONS,
        metadata=target.metadata,
    )
    return current if step == current else step


def _unsubscribe(current: CurrentAssignment, target: Target, *, owned: OwnedPartitions | None) -> CurrentAssignment:
    """Take away topics that the member just unsubscribed from, before any target says so.

    A member confirms all that is to be given up at once: while it owns any of it, old or new, it counts as the holder
    of all of it, also of topics that it does not list. Source: Kafka's ``updateCurrentAssignment``.
    """
    gone = {t: parts for t, parts in current.assigned.items() if t not in target.subscribed_topic_ids}
    if not gone:
        return current
    keep = {t: parts for t, parts in current.assigned.items() if t in target.subscribed_topic_ids}
    pending = _merge(current.pending_revocation, gone)
    waits = _owns_any(owned, pending)
    return CurrentAssignment(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.member_epoch,
        state=MemberState.UNREVOKED_PARTITIONS if waits else current.state,
        assigned=keep,
        pending_revocation=pending if waits else current.pending_revocation,
        metadata=current.metadata,
    )


def _owns_any(owned: OwnedPartitions | None, partitions: PartitionEpochs) -> bool:
    """Whether the member may still use any of *partitions*: it says so, or it does not say."""
    if owned is None:
        return True
    return any(not epochs.keys().isdisjoint(owned.get(topic_id, ())) for topic_id, epochs in partitions.items())


def _split(assigned: PartitionEpochs, wanted: TopicPartitions) -> tuple[PartitionEpochs, PartitionEpochs]:
    """(assigned ∩ wanted, assigned - wanted); *assigned* itself if all of it is wanted."""
    keep: dict[UUID, Mapping[int, int]] = {}
    revoke: dict[UUID, Mapping[int, int]] = {}
    for topic_id, epochs in assigned.items():
        target = frozenset(wanted.get(topic_id, ()))
        if target >= epochs.keys():
            keep[topic_id] = epochs
        elif target.isdisjoint(epochs.keys()):
            revoke[topic_id] = epochs
        else:
            keep[topic_id] = {partition: epoch for partition, epoch in epochs.items() if partition in target}
            revoke[topic_id] = {partition: epoch for partition, epoch in epochs.items() if partition not in target}
    return (keep, revoke) if revoke else (assigned, NO_PARTITIONS)


def _find_free(wanted: TopicPartitions, *, keep: PartitionEpochs, target: Target) -> tuple[PartitionEpochs, bool]:
    """The wanted partitions that can be given now, and whether others have to be waited for."""
    free: dict[UUID, Mapping[int, int]] = {}
    blocked = False
    for topic_id, partitions in wanted.items():
        kept = keep.get(topic_id, {})
        if len(kept) == len(partitions):
            continue
        found = [partition for partition in partitions if partition not in kept and target.is_free(topic_id, partition)]
        if found:
            free[topic_id] = dict.fromkeys(found, target.epoch)
        if len(found) + len(kept) < len(partitions):
            blocked = True
    return free, blocked


def _merge(one: PartitionEpochs, other: PartitionEpochs) -> PartitionEpochs:
    merged = dict(one)
    for topic_id, epochs in other.items():
        merged[topic_id] = {**merged.get(topic_id, {}), **epochs}
    return merged
