"""Client-side mode of a group: which member is asked to compute the target, and when another one is.

One round per group is in flight at most. It starts when the group epoch moved past the target and every member offers a
common assignor, and it ends with an accepted target (`install_assignment`), with a member that offers nothing (the
server computes again), or with the last member. It moves on to another member if the chosen one leaves, is fenced or
takes too long; the slow one is not fenced.

A round is soft state: decisions become `RoundChanged` and timers in a batch.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final, Generic

from msgspec.structs import replace

from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.result import ArmTimer, CancelTimer
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.testing.coordinator.modern.assignment_round import AssignmentRound, Prepared, RoundChanged, Rounds
from kip848_client.testing.coordinator.modern.client_assignors import AssignorChoice, choice_after, pick_member
from kip848_client.testing.coordinator.modern.member_record import (
    STATIC_LEAVE_EPOCH,
    AssignorVersions,
    KeyT,
    MemberRecord,
    MetadataT,
)
from kip848_client.testing.coordinator.modern.modern_group import ModernGroup


def client_assignor(
    state: CoordinatorState,
    group: ModernGroup[KeyT, MetadataT],
    *,
    gone: AbstractSet[str] = frozenset(),
    joined: str | None = None,
    metadata: MetadataT | None = None,
) -> AssignorChoice | None:
    """The client-side assignor in use; None in server mode. Arguments as of `client_assignors.choice_after`."""
    if not state.config.client_assignors:
        return None
    return choice_after(group, gone=gone, joined=joined, metadata=metadata)


class RoundPlanner(Generic[KeyT, MetadataT]):
    """The effect of one event on a group's round.

    Args:
        group_epoch: after the event.
        speaker: the member as its heartbeat leaves it, which *group* may not know yet.
    """

    def __init__(
        self,
        state: CoordinatorState,
        group: ModernGroup[KeyT, MetadataT],
        batch: Batch,
        *,
        group_epoch: int,
        speaker: MemberRecord[KeyT, MetadataT] | None = None,
    ) -> None:
        self._state: Final = state
        self._group: Final = group
        self._batch: Final = batch
        self._group_epoch: Final = group_epoch
        self._speaker: Final = speaker
        self.round = state.part(Rounds).in_flight.get(group.group_id)

    def end(self) -> None:
        """End the round: no member computes a target."""
        if self.round is not None:
            self._cancel_timer(self.round.member_id)
            self._set(None)

    def suits(self, member: MemberRecord[KeyT, MetadataT]) -> bool:
        """Whether the round in flight is still valid with the changed *member*, decided without the other members."""
        flying, group = self.round, self._group
        if flying is None or flying.member_id == member.member_id:
            return False
        if not self.is_for_all():
            return False
        chosen = group.members[flying.member_id]
        theirs = _versions(member, flying.assignor_name)
        own = _versions(chosen, flying.assignor_name)
        return theirs is not None and own is not None and own.reads(theirs.written, theirs.written)

    def is_for_all(self) -> bool:
        """Whether all members offer the assignor of the round."""
        assert self.round is not None
        offered = self._group.client_assignors.get(self.round.assignor_name, {})
        return sum(offered.values()) == len(self._group.members)

    def go_on(self, choice: AssignorChoice, *, first: str | None, may_start: bool) -> None:
        """Keep the round if it is still valid; else start a new one, if *may_start* or one was in flight.

        Args:
            first: see `client_assignors.pick_member`.
        """
        flying = self.round
        if flying is None:
            if may_start:
                self._start(choice, first=first, tried=frozenset(), reason="group_epoch_bumped")
        elif flying.prepared is None and not (
            flying.assignor_name == choice.assignor_name and choice.can_run(flying.member_id)
        ):
            # An assignment that is being computed will be installed although the group changed; others start over.
            self._start(choice, first=first, tried=flying.tried, reason="assignor_changed")

    def move_on(self, choice: AssignorChoice | None, *, failed: str, reason: str, leaves: bool = False) -> None:
        """Choose another member in the place of *failed*, if it is the chosen one.

        Args:
            leaves: it cannot be chosen again; otherwise it can, once all others have failed too.
        """
        flying = self.round
        if flying is None or flying.member_id != failed:
            return
        if choice is None:
            self.end()
        else:
            left = frozenset({failed} if leaves else ())
            self._start(choice, first=None, left=left, tried=flying.tried | {failed}, reason=reason)

    def start_next(self, choice: AssignorChoice | None) -> None:
        """The round ended with a target; start another one if *choice* is given."""
        self.end()
        if choice is not None:
            self._start(choice, first=None, tried=frozenset(), reason="group_epoch_bumped")

    def renew(self, choice: AssignorChoice | None, *, member_id: str) -> str | None:
        """The assignor for a new snapshot, as the group is now; None if *member_id* should not run it."""
        flying = self.round
        if flying is None or choice is None:
            self.end()
            return None
        if not choice.can_run(member_id):
            self._start(choice, first=None, tried=flying.tried | {member_id}, reason="assignor_changed")
            return None
        if flying.assignor_name != choice.assignor_name:
            self._set(replace(flying, assignor_name=choice.assignor_name, prepared=None))
        return choice.assignor_name

    def prepared(self, member: MemberRecord[KeyT, MetadataT], group: Prepared, *, now_ms: int) -> None:
        """Remember the snapshot of the chosen member, and start its timer unless it runs."""
        self.notify(member, now_ms=now_ms)
        if self.round is not None:
            self._set(replace(self.round, prepared=group))

    def notify(self, member: MemberRecord[KeyT, MetadataT], *, now_ms: int) -> bool:
        """Whether the answer asks *member* to compute the target; the first such answer starts its timer."""
        flying = self.round
        if flying is None or flying.member_id != member.member_id:
            return False
        if not flying.is_notified:
            self._set(replace(flying, is_notified=True))
            timeout_ms = self._state.config.client_assignment_timeout_ms or member.metadata.rebalance_timeout_ms
            self._batch.soft.append(
                ArmTimer(
                    self._key(member.member_id),
                    deadline_ms=now_ms + timeout_ms,
                    member_epoch=member.current.member_epoch,
                )
            )
        return True

    def _start(
        self,
        choice: AssignorChoice,
        *,
        first: str | None,
        tried: frozenset[str],
        reason: str,
        left: AbstractSet[str] = frozenset(),
    ) -> None:
        if self.round is not None:
            self._cancel_timer(self.round.member_id)
        away = {
            member_id
            for member_id in self._group.static_members.values()
            if self._group.members[member_id].current.member_epoch == STATIC_LEAVE_EPOCH
        }
        if self._speaker is not None:
            away.discard(self._speaker.member_id)  # it is back
        picked = pick_member(choice, first=first or self._group.last_installer or None, tried=tried, away=away | left)
        if picked is None:
            self._set(None)
            return
        member_id, still_tried = picked
        self._set(AssignmentRound(choice.assignor_name, member_id, tried=still_tried))
        speaker = self._speaker
        self._batch.happened(
            "assignment_requested",
            member=speaker if speaker and speaker.member_id == member_id else self._group.members.get(member_id),
            group_epoch=self._group_epoch,
            fields={"assignor": choice.assignor_name, "reason": reason},
        )

    def _set(self, round_: AssignmentRound | None) -> None:
        self.round = round_
        self._batch.soft.append(RoundChanged(self._group.group_id, round_))

    def _cancel_timer(self, member_id: str) -> None:
        self._batch.soft.append(CancelTimer(self._key(member_id)))

    def _key(self, member_id: str) -> TimerKey:
        return TimerKey(TimerKind.CLIENT_ASSIGNMENT, self._group.group_id, member_id)


def members_gone(
    state: CoordinatorState,
    group: ModernGroup[KeyT, MetadataT],
    batch: Batch,
    *,
    member_ids: AbstractSet[str],
    group_epoch: int,
) -> None:
    """Members left for good: if the assigning member was one of them, another takes over, or the coordinator does."""
    if group.group_id not in state.part(Rounds).in_flight:
        return
    planner = RoundPlanner(state, group, batch, group_epoch=group_epoch)
    if planner.round is None or (planner.round.member_id not in member_ids and planner.is_for_all()):
        return  # the assignor is still common to all, and the assigning member is still there
    choice = client_assignor(state, group, gone=member_ids)
    if choice is None:
        planner.end()  # without the members that left, no member reads the metadata of all
    elif planner.round.member_id in member_ids:
        planner.move_on(choice, failed=planner.round.member_id, leaves=True, reason="member_left")


def member_away(state: CoordinatorState, group: ModernGroup[KeyT, MetadataT], batch: Batch, *, member_id: str) -> None:
    """A static member leaves for a while: choose another member if it was to compute the target."""
    if group.group_id in state.part(Rounds).in_flight:
        planner = RoundPlanner(state, group, batch, group_epoch=group.group_epoch)
        planner.move_on(client_assignor(state, group), failed=member_id, leaves=True, reason="member_left")


def member_failed(
    state: CoordinatorState, group: ModernGroup[KeyT, MetadataT], batch: Batch, *, member_id: str, reason: str
) -> None:
    """The chosen member was fenced, or took too long. It stays a member."""
    planner = RoundPlanner(state, group, batch, group_epoch=group.group_epoch)
    planner.move_on(client_assignor(state, group), failed=member_id, reason=reason)


def _versions(member: MemberRecord[KeyT, MetadataT], assignor_name: str) -> AssignorVersions | None:
    offered = (item.versions for item in member.metadata.client_assignors if item.name == assignor_name)
    return next(offered, None)
