"""The three steps of KIP-848 for one member that joins or stays, whichever protocol it speaks.

(1) A change of the member's metadata may bump the group epoch; (2) a target older than the group epoch is computed
again; (3) the member takes one step towards its target. The arithmetic of step 3 is in `current_assignment`.
"""

from __future__ import annotations

import uuid
from typing import Final

from kip848_client.assignors.server.spec import TopicPartitions
from kip848_client.testing.coordinator.consumer import consumer_records, subscriptions
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.consumer_member import (
    ConsumerMember,
    ConsumerMetadata,
    CurrentAssignment,
    FoundMember,
    OwnedPartitions,
)
from kip848_client.testing.coordinator.consumer.subscriptions import MetadataChecked, Subscriptions
from kip848_client.testing.coordinator.consumer.target_assignment import choose_assignor, compute_target
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.result import CancelTimer
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.testing.coordinator.modern.assignment_round import Rounds, TargetComputed
from kip848_client.testing.coordinator.modern.client_assignment import RoundPlanner, client_assignor
from kip848_client.testing.coordinator.modern.client_assignors import AssignorChoice, asks_for_a_target, check_versions
from kip848_client.testing.coordinator.modern.current_assignment import MustRejoinError, Target, reconcile
from kip848_client.testing.coordinator.modern.member_lookup import fenced, returned
from kip848_client.testing.coordinator.modern.member_record import (
    NO_METADATA,
    STATIC_LEAVE_EPOCH,
    MemberRecord,
    ReconciliationState,
)
from kip848_client.testing.coordinator.modern.member_timers import arm_member_timers

_MEMBERS_PER_MS: Final = 100
"""A target of a hundred members may be computed every millisecond, one of 5,000 every 50 ms."""


class MemberSteps:
    """Takes one member through the three steps, and collects the results in *batch*.

    Args:
        owned: what the member says it owns; None if it does not say.
        offers_assignors: it said which client-side assignors it offers.
        is_unsettled: the group was a classic one, and its members must join again, even if this one changes nothing.
    """

    def __init__(
        self,
        state: CoordinatorState,
        request: ApiRequest,
        group: ConsumerGroup,
        batch: Batch,
        *,
        owned: OwnedPartitions | None,
        now_ms: int,
        offers_assignors: bool = False,
        is_unsettled: bool = False,
    ) -> None:
        self._state = state
        self._request = request
        self._group = group
        self._batch = batch
        self._owned = owned
        self._now_ms = now_ms
        self._offers_assignors = offers_assignors
        self._is_unsettled = is_unsettled
        self._group_epoch = group.group_epoch
        self._target_epoch = group.target_epoch
        self._target_metadata = NO_METADATA
        self.target: TopicPartitions = {}
        """The member's part of the target, after `run`."""
        self.planner: RoundPlanner[uuid.UUID, ConsumerMetadata] | None = None
        """The round in which a member computes the target, if one does, after `run`."""

    def run(self, found: FoundMember, metadata: ConsumerMetadata, *, is_join: bool) -> ConsumerMember:
        """Take the steps.

        Args:
            metadata: the member's metadata after this heartbeat; the object of *found* if it did not change.
            is_join: it joins, or joins again.

        Returns:
            The member as it will be.

        Raises:
            Refused: the code for the answer; the batch is to be dropped.
        """
        group, member = self._group, found.member
        if found.replaced is not None:
            self._write_replacement(found.replaced, member)
        self._check_versions(found, metadata)
        subscription_changed = not metadata.subscribes_like(member.metadata)
        updated = member
        if metadata is not member.metadata or found.is_new:
            updated = MemberRecord(member.member_id, metadata, member.current)
            self._batch.records.append(
                consumer_records.member_metadata_record(group.group_id, member_id=member.member_id, metadata=metadata)
            )
        self._subscribe(found, metadata)
        self._bump_group_epoch(found, updated)
        self.target = self._update_target(found, updated)
        current = self._reconcile(updated, target=self.target, subscription_changed=subscription_changed)
        if current is not updated.current:
            updated = MemberRecord(updated.member_id, updated.metadata, current)
        arm_member_timers(
            self._state, group, self._batch, updated, changed=current is not member.current, now_ms=self._now_ms
        )
        if member.metadata.classic is not None and metadata.classic is None:
            kinds = (TimerKind.MIXED_JOIN, TimerKind.MIXED_SYNC)
            self._batch.soft += [CancelTimer(TimerKey(kind, group.group_id, member.member_id)) for kind in kinds]
        if self._batch.records or is_join:
            _note_heartbeat(
                self._batch,
                group,
                found=found,
                updated=updated,
                is_join=is_join,
                group_epoch=self._group_epoch,
                target_epoch=self._target_epoch,
            )
        return updated

    # --- step 1

    def _check_versions(self, found: FoundMember, metadata: ConsumerMetadata) -> None:
        if metadata.client_assignors and self._offers_assignors:
            check_versions(self._group, old=found.counted, new=metadata)

    def _subscribe(self, found: FoundMember, metadata: ConsumerMetadata) -> None:
        """Start matching the patterns of the group, including this member's, if that is due."""
        group, batch = self._group, self._batch
        regex = metadata.subscribed_topic_regex
        if regex is None and not group.regex_subscribers:
            return
        if regex is not None and regex not in group.regex_subscribers:
            subscriptions.check_regex(regex)
        for forgotten in subscriptions.forgotten_regexes(group, old=_counted(found), new=metadata):
            batch.records.append(consumer_records.regex_tombstone(group.group_id, regex=forgotten))
        task = subscriptions.resolution_due(
            self._state, group, old=found.counted, new=metadata, wall_ms=self._request.wall_ms
        )
        if task is not None:
            subscriptions.started(task, batch)

    def _bump_group_epoch(self, found: FoundMember, updated: ConsumerMember) -> None:
        """Bump the group epoch if what the target depends on has changed."""
        state, group = self._state, self._group
        reason = self._reason_to_bump(found, updated.metadata)
        if reason is None and group.group_id not in state.part(Subscriptions).metadata_check_due:
            return
        topics = group.subscribed_topics_after(old=_counted(found), new=updated.metadata)
        metadata_hash = state.part(Subscriptions).metadata_hash(topics)
        if reason is None and metadata_hash != group.metadata_hash:
            reason = "topics_changed"
        self._batch.soft.append(MetadataChecked(group.group_id))
        if reason is None:
            return
        self._group_epoch = group.group_epoch + 1
        if not group.group_epoch and self._client_assignor(found, updated.metadata) is not None:
            self._group_epoch += 1  # the target of epoch 1 is empty: a join is not answered with 0
        self._batch.records.append(
            consumer_records.group_epoch_record(group.group_id, epoch=self._group_epoch, metadata_hash=metadata_hash)
        )
        self._batch.happened("group_epoch_bumped", group_epoch=self._group_epoch, fields={"reason": reason})

    def _reason_to_bump(self, found: FoundMember, after: ConsumerMetadata) -> str | None:
        group, before = self._group, found.member.metadata
        if not group.group_epoch:
            return "group_created"  # a join is never answered with epoch 0
        if self._is_unsettled:
            return "group_converted"
        if after is found.counted:
            return None
        regex = after.subscribed_topic_regex
        # For a new pattern, the bump comes with its topics.
        is_known = regex is None or regex in group.resolved_regexes
        if before.subscribed_topic_names != after.subscribed_topic_names or (
            before.subscribed_topic_regex != regex and is_known
        ):
            return "member_joined" if found.is_new else "subscription_changed"
        if self._state.config.client_assignors and self._asks_for_other_client_assignor(found, after):
            return "client_assignors_changed"
        assignors = self._state.assignors
        if choose_assignor(group, assignors=assignors) is not choose_assignor(
            group, assignors=assignors, old=found.counted, new=after
        ):
            return "assignor_changed"
        return None

    def _asks_for_other_client_assignor(self, found: FoundMember, after: ConsumerMetadata) -> bool:
        """Whether the member's offer changed, or its join changes which assignor is common to all."""
        offered, counted = after.client_assignors, found.counted
        if asks_for_a_target(old=found.member.metadata.client_assignors, new=offered):
            return True
        if counted is not None and counted.client_assignors == offered:
            return False
        before, now = client_assignor(self._state, self._group), self._client_assignor(found, after)
        return (before and before.assignor_name) != (now and now.assignor_name)

    def _client_assignor(self, found: FoundMember, after: ConsumerMetadata) -> AssignorChoice | None:
        gone = frozenset(() if found.replaced is None else (found.replaced.member_id,))
        return client_assignor(self._state, self._group, gone=gone, joined=found.member.member_id, metadata=after)

    # --- step 2

    def _update_target(self, found: FoundMember, updated: ConsumerMember) -> TopicPartitions:
        """Compute a new target if the group epoch is ahead of it; the member's own target after that."""
        group, state = self._group, self._state
        own_before = group.target_of((found.replaced or updated).member_id)
        self._target_metadata = group.target_metadata_of((found.replaced or updated).member_id)
        if self._group_epoch <= group.target_epoch:
            return own_before
        if state.config.client_assignors and self._ask_a_member(found, updated):
            return own_before
        if not self._may_compute():
            return own_before
        computed = compute_target(state, group, member=updated, replaced=found.replaced)
        batch = self._batch
        batch.records += [
            consumer_records.target_record(group.group_id, member_id=member_id, target=computed.assignment[member_id])
            for member_id in computed.changed
        ]
        batch.records.append(
            consumer_records.target_epoch_record(
                group.group_id, epoch=self._group_epoch, timestamp_ms=self._request.wall_ms
            )
        )
        batch.soft.append(TargetComputed(group.group_id, self._now_ms))
        batch.happened(
            "target_assignment_computed",
            group_epoch=self._group_epoch,
            fields={"assignor": computed.assignor_name, "members": computed.assignment},
        )
        self._target_epoch = self._group_epoch
        self._target_metadata = NO_METADATA
        return computed.assignment[updated.member_id]

    def _ask_a_member(self, found: FoundMember, updated: ConsumerMember) -> bool:
        """Let a member compute the target if all offer a common client-side assignor; False if they do not."""
        group, batch = self._group, self._batch
        planner = RoundPlanner(self._state, group, batch, group_epoch=self._group_epoch, speaker=updated)
        counted, offered = found.counted, updated.metadata.client_assignors
        is_same = found.replaced is None and counted is not None and counted.client_assignors == offered
        if planner.round is None or not (is_same or planner.suits(updated)):
            choice = self._client_assignor(found, updated.metadata)
            if choice is None:
                planner.end()
                return False
            moved_the_group = self._group_epoch > group.group_epoch
            planner.go_on(
                choice,
                first=updated.member_id if moved_the_group else None,
                may_start=self._may_compute(),
            )
        self.planner = planner
        if not self._target_epoch:
            self._target_epoch = self._group_epoch - 1
            batch.records += [
                consumer_records.target_record(group.group_id, member_id=updated.member_id, target={}),
                consumer_records.target_epoch_record(
                    group.group_id, epoch=self._target_epoch, timestamp_ms=self._request.wall_ms
                ),
            ]
        return True

    def _may_compute(self) -> bool:
        """Whether the assignment interval has passed; the first target of a group never waits.

        The interval grows with the group, so that members that join a large one together share a target.
        """
        computed_ms = self._state.part(Rounds).computed_ms.get(self._group.group_id)
        if computed_ms is None or not self._group.target_epoch:
            return True
        interval_ms = self._state.group_config(self._group.group_id).assignment_interval_ms
        return self._now_ms - computed_ms >= max(interval_ms, len(self._group.members) // _MEMBERS_PER_MS)

    # --- step 3

    def _reconcile(
        self, updated: ConsumerMember, *, target: TopicPartitions, subscription_changed: bool
    ) -> CurrentAssignment:
        group = self._group
        start = updated.current
        if start.member_epoch == STATIC_LEAVE_EPOCH:
            start = returned(start)
        if not start.assigned.keys() <= self._state.image.by_id.keys():
            subscription_changed = True  # the new target is still to come, and a topic is gone: as if unsubscribed
        if (
            start.state is ReconciliationState.STABLE
            and start.member_epoch == self._target_epoch
            and not subscription_changed
        ):
            return start

        def is_free(topic_id: uuid.UUID, partition: int) -> bool:
            holder = group.holders(topic_id).get(partition)
            return holder is None or holder == updated.member_id

        subscribed = frozenset(self._state.part(Subscriptions).of_member(group, updated.metadata))
        try:
            current = reconcile(
                start,
                Target(
                    epoch=self._target_epoch,
                    partitions=target,
                    live=lambda topic_id, partitions: partitions if topic_id in subscribed else (),
                    is_free=is_free,
                    metadata=self._target_metadata,
                ),
                owned=self._owned,
                subscription_changed=subscription_changed,
            )
        except MustRejoinError:
            raise fenced(
                f"The state of member {updated.member_id} is unknown to this coordinator. The member must abandon all "
                "its partitions and rejoin."
            ) from None
        if current is not start or start is not updated.current:
            self._batch.records.append(
                consumer_records.current_record(group.group_id, member_id=updated.member_id, current=current)
            )
        return current

    # --- replacing a static member

    def _write_replacement(self, replaced: ConsumerMember, member: ConsumerMember) -> None:
        """Move a static member's place to its new id, before anything of its heartbeat is applied."""
        group, batch = self._group, self._batch
        batch.records += [
            consumer_records.current_tombstone(group.group_id, member_id=replaced.member_id),
            consumer_records.target_tombstone(group.group_id, member_id=replaced.member_id),
            consumer_records.member_metadata_tombstone(group.group_id, member_id=replaced.member_id),
            consumer_records.member_metadata_record(
                group.group_id, member_id=member.member_id, metadata=member.metadata
            ),
            consumer_records.target_record(
                group.group_id,
                member_id=member.member_id,
                target=group.target_of(replaced.member_id),
                metadata=group.target_metadata_of(replaced.member_id),
            ),
            consumer_records.current_record(group.group_id, member_id=member.member_id, current=member.current),
        ]
        batch.cancel_timers(replaced.member_id)
        batch.happened("member_left", member=replaced, group_epoch=group.group_epoch, fields={"reason": "replaced"})


def _counted(found: FoundMember) -> tuple[ConsumerMetadata, ...]:
    return () if found.counted is None else (found.counted,)


def _note_heartbeat(
    batch: Batch,
    group: ConsumerGroup,
    *,
    found: FoundMember,
    updated: ConsumerMember,
    is_join: bool,
    group_epoch: int,
    target_epoch: int,
) -> None:
    """Add an event to the event log for each change.

    Args:
        updated: the member as the heartbeat leaves it.
        group_epoch: after the heartbeat, as *target_epoch*.
    """
    current, metadata = updated.current, updated.metadata
    if is_join:
        batch.happened(
            "member_joined",
            member=updated,
            group_epoch=group_epoch,
            fields={
                "topics": list(metadata.subscribed_topic_names),
                "instance_id": metadata.instance_id,
                "client_host": metadata.client_host,
            },
        )
    elif not metadata.subscribes_like(found.member.metadata):
        batch.happened(
            "subscription_changed",
            member=updated,
            group_epoch=group_epoch,
            fields={"topics": list(metadata.subscribed_topic_names), "regex": metadata.subscribed_topic_regex},
        )
    if current is not found.member.current:
        batch.happened(
            "member_assignment_changed",
            member=updated,
            group_epoch=group_epoch,
            fields={
                "state": current.state.name,
                "assigned": current.assigned,
                "pending_revocation": current.pending_revocation,
            },
        )
    batch.state_changed(
        old=group.state,
        new=group.state_after(updated, group_epoch=group_epoch, target_epoch=target_epoch, replaced=found.replaced),
        group_epoch=group_epoch,
    )
