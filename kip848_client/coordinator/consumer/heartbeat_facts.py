"""The events of a heartbeat for the event log. Decides nothing."""

from __future__ import annotations

from kip848_client.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.coordinator.core.batch import Batch
from kip848_client.coordinator.modern.member_lookup import FoundMember
from kip848_client.coordinator.modern.member_record import GroupMember


def note_heartbeat(
    batch: Batch,
    group: ConsumerGroup,
    *,
    found: FoundMember,
    updated: GroupMember,
    is_join: bool,
    group_epoch: int,
    target_epoch: int,
) -> None:
    """Add an event for each change.

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
            fields={"topics": list(metadata.subscribed_topic_names), "instance_id": metadata.instance_id},
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
