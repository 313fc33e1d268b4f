"""ShareGroupHeartbeat: a member joins or stays. All records of a heartbeat are one atomic batch.

A new topic takes two heartbeats: the first one has the state of its partitions made, the next one assigns them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from kip848_client.assignors.server.simple import SIMPLE, assign_shared
from kip848_client.assignors.server.spec import TargetAssignment
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState, StatePart
from kip848_client.testing.coordinator.core.group_events import GroupEvent
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.refusal import Refused, invalid_request
from kip848_client.testing.coordinator.core.result import ArmTimer, CoordinatorResult, Reply
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.testing.coordinator.modern.member_lookup import check_room, fenced
from kip848_client.testing.coordinator.modern.member_record import JOIN_EPOCH
from kip848_client.testing.coordinator.modern.modern_group import GroupState
from kip848_client.testing.coordinator.share.begun_partitions import begin_partitions
from kip848_client.testing.coordinator.share.share_departure import leave, unknown_member
from kip848_client.testing.coordinator.share.share_group import (
    Partitions,
    ShareGroup,
    ShareGroupMember,
    write_partitions,
)
from kip848_client.wire.messages import share_group_records as wire
from kip848_client.wire.messages.group_records import GroupRecord
from kip848_client.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_MEMBER_ID_MAX: Final = 36


class ComparedTopics(StatePart):
    """At which version of the topics each group was last compared with them."""

    def __init__(self, state: CoordinatorState) -> None:
        super().__init__(state)
        self.versions: dict[str, int] = {}

    def forget(self, group_id: str) -> None:
        """Drop the version of a group that no longer exists."""
        self.versions.pop(group_id, None)


class TopicsCompared(msgspec.Struct, frozen=True):
    """A group was compared with the topics of this version."""

    group_id: str
    version: int

    def apply(self, state: CoordinatorState) -> None:
        """Remember it."""
        state.part(ComparedTopics).versions[self.group_id] = self.version


def handle_heartbeat(
    state: CoordinatorState, request: ApiRequest, message: ShareGroupHeartbeatRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one ShareGroupHeartbeat. One that is refused changes nothing.

    Source:
        KIP-932; Kafka's ``GroupMetadataManager.shareGroupHeartbeat``.
    """
    try:
        _validate(message)
        if message.member_epoch < 0:
            return leave(state, request, message)
        return _Heartbeat(state, request, message, now_ms=now_ms).run()
    except Refused as refused:
        event = GroupEvent(
            event="member_fenced",
            group_id=message.group_id,
            member_id=message.member_id,
            client_id=request.client_id,
            fields={"error": refused.code.name, "sent_epoch": message.member_epoch},
        )
        response = ShareGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)
        return CoordinatorResult(replies=(Reply(request.request_id, response),), events=(event,))


def _validate(message: ShareGroupHeartbeatRequest) -> None:
    """Refuse what the protocol does not allow. The order of these checks is Kafka's."""
    if not 0 < len(message.member_id) <= _MEMBER_ID_MAX:
        raise invalid_request("Invalid member id in the request.")
    if not message.member_id.strip():
        raise invalid_request("MemberId can't be empty.")
    if not message.group_id.strip():
        raise invalid_request("GroupId can't be empty.")
    if message.rack_id is not None and not message.rack_id.strip():
        raise invalid_request("RackId can't be empty.")
    if message.member_epoch == JOIN_EPOCH and not message.subscribed_topic_names:
        raise invalid_request("SubscribedTopicNames must be set in first request.")
    if message.member_epoch < -1:
        raise invalid_request("MemberEpoch is invalid.")


class _Heartbeat:
    """One heartbeat of a member that stays."""

    def __init__(
        self, state: CoordinatorState, request: ApiRequest, message: ShareGroupHeartbeatRequest, *, now_ms: int
    ) -> None:
        self._state = state
        self._request = request
        self._message = message
        self._now_ms = now_ms
        self._batch = Batch(message.group_id)
        self._group = self._find_group()
        self._group_epoch = self._group.group_epoch

    def run(self) -> CoordinatorResult:
        group, message, batch = self._group, self._message, self._batch
        before = self._find_member()
        member = replace(
            before,
            rack_id=before.rack_id if message.rack_id is None else message.rack_id,
            client_id=self._request.client_id,
            client_host=self._request.client_host,
            subscribed_topic_names=before.subscribed_topic_names
            if message.subscribed_topic_names is None
            else tuple(sorted(set(message.subscribed_topic_names))),
        )
        topics = group.subscribed_topics_with(member)
        is_bumped = self._settle_epoch(before, member, topics)
        target_epoch, target = self._settle_target(member)
        member = self._reconciled(member, target_epoch, target, is_bumped=is_bumped)
        self._note(before, member)
        config = self._state.group_config(group.group_id)
        batch.soft.append(
            ArmTimer(
                TimerKey(TimerKind.SESSION, group.group_id, member.member_id),
                deadline_ms=self._now_ms + config.share_session_timeout_ms,
                member_epoch=member.member_epoch,
            )
        )
        begin_partitions(self._state, group, batch, topics=topics, group_epoch=self._group_epoch)
        tells_all = message.member_epoch == JOIN_EPOCH or message.subscribed_topic_names is not None
        response = ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=config.share_heartbeat_interval_ms,
            assignment=Assignment(topic_partitions=write_partitions(member.assigned))
            if tells_all or member.assigned != before.assigned
            else None,
        )
        return batch.result(Reply(self._request.request_id, response))

    # --- who it is

    def _find_group(self) -> ShareGroup:
        group_id = self._message.group_id
        if self._message.member_epoch == JOIN_EPOCH and self._state.known_group(group_id) is None:
            return ShareGroup(group_id)
        if self._state.known_group(group_id) is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return self._state.existing(ShareGroup, group_id)

    def _find_member(self) -> ShareGroupMember:
        group, message = self._group, self._message
        member = group.members.get(message.member_id)
        size_max = self._state.config.share_max_size
        if member is None and group.size >= size_max:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {size_max} members.",
            )
        if member is None and message.member_epoch != JOIN_EPOCH:
            raise unknown_member(group, message.member_id)
        if member is None:
            check_room(self._state, group.group_id)
            return ShareGroupMember(message.member_id)
        received = message.member_epoch
        if received not in (JOIN_EPOCH, member.member_epoch, member.previous_member_epoch):
            what, why = (
                ("greater", "")
                if received > member.member_epoch
                else (
                    "smaller",
                    f", and it does not match the previous member epoch ({member.previous_member_epoch})",
                )
            )
            raise fenced(
                f"The share group member has a {what} member epoch ({received}) than the one known by the group "
                f"coordinator ({member.member_epoch}){why}. The member must abandon all its partitions and rejoin."
            )
        return member

    # --- the steps

    def _settle_epoch(self, before: ShareGroupMember, member: ShareGroupMember, topics: frozenset[str]) -> bool:
        """Move the group epoch on if the subscription, the topics or the partitions that may be assigned changed."""
        state, group, batch = self._state, self._group, self._batch
        if member != before or member.member_id not in group.members:
            batch.records.append(
                GroupRecord(
                    wire.ShareGroupMemberMetadataKey(group_id=group.group_id, member_id=member.member_id),
                    wire.ShareGroupMemberMetadataValue(
                        rack_id=member.rack_id,
                        client_id=member.client_id,
                        client_host=member.client_host,
                        subscribed_topic_names=member.subscribed_topic_names,
                    ),
                )
            )
        reason = ""
        if member.subscribed_topic_names != before.subscribed_topic_names:
            reason = "member_joined" if member.member_id not in group.members else "subscription_changed"
        elif group.target_epoch >= group.group_epoch and self._has_unassigned_partitions():
            reason = "partitions_initialized"
        is_compared = state.part(ComparedTopics).versions.get(group.group_id) == state.image.version
        if not reason and is_compared:
            return False
        metadata_hash = state.image.metadata_hash(topics)
        if not reason and metadata_hash != group.metadata_hash:
            reason = "topics_changed"
        batch.soft.append(TopicsCompared(group.group_id, state.image.version))
        if not reason:
            return False
        self._group_epoch += 1
        batch.records.append(
            GroupRecord(
                wire.ShareGroupMetadataKey(group_id=group.group_id),
                wire.ShareGroupMetadataValue(epoch=self._group_epoch, metadata_hash=metadata_hash),
            )
        )
        batch.happened("group_epoch_bumped", group_epoch=self._group_epoch, fields={"reason": reason})
        return True

    def _has_unassigned_partitions(self) -> bool:
        """Whether the target lacks partitions of subscribed topics whose state is there since."""
        group = self._group
        if group.is_empty:
            return False
        assigned: dict[UUID, set[int]] = {}
        for partitions in group.target.values():
            for topic_id, numbers in partitions.items():
                assigned.setdefault(topic_id, set()).update(numbers)
        subscribed = group.subscribed_topics_with()
        return any(
            topic.name in subscribed and topic.partitions != assigned.get(topic_id, set())
            for topic_id, topic in group.partitions.initialized.items()
        )

    def _settle_target(self, member: ShareGroupMember) -> tuple[int, Partitions]:
        """The member's target and its epoch; computed anew if the group has moved on, and the interval allows it."""
        group, epoch, wall_ms = self._group, self._group_epoch, self._request.wall_ms
        interval_ms = self._state.group_config(group.group_id).share_assignment_interval_ms
        if group.target_epoch >= epoch or 0 <= wall_ms - group.target_timestamp_ms < interval_ms:
            return group.target_epoch, group.target.get(member.member_id, {})
        target = self._compute_target(member)
        batch = self._batch
        for member_id in sorted(target):
            if target[member_id] != group.target.get(member_id):
                batch.records.append(
                    GroupRecord(
                        wire.ShareGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id),
                        wire.ShareGroupTargetAssignmentMemberValue(
                            topic_partitions=write_partitions(target[member_id])
                        ),
                    )
                )
        batch.records.append(
            GroupRecord(
                wire.ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id),
                wire.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms),
            )
        )
        batch.happened("target_assignment_computed", group_epoch=epoch, fields={"assignor": SIMPLE, "members": target})
        return epoch, target[member.member_id]

    def _compute_target(self, member: ShareGroupMember) -> TargetAssignment:
        image, group = self._state.image, self._group
        members: Mapping[str, ShareGroupMember] = {**group.members, member.member_id: member}
        return assign_shared(
            {member_id: image.ids_of(each.subscribed_topic_names) for member_id, each in members.items()},
            {topic_id: sorted(topic.partitions) for topic_id, topic in group.partitions.initialized.items()},
            group.target,
            is_alike=len({each.subscribed_topic_names for each in members.values()}) == 1,
        )

    def _reconciled(
        self, member: ShareGroupMember, target_epoch: int, target: Partitions, *, is_bumped: bool
    ) -> ShareGroupMember:
        """The member with its target: at once, since partitions are shared."""
        subscribed = frozenset(self._state.image.ids_of(member.subscribed_topic_names))
        wanted = {topic_id: numbers for topic_id, numbers in target.items() if topic_id in subscribed}
        after = member
        if target_epoch != member.member_epoch:
            after = replace(
                member, assigned=wanted, member_epoch=target_epoch, previous_member_epoch=member.member_epoch
            )
        elif is_bumped:
            after = replace(member, assigned=wanted)
        if after != member:
            self._batch.records.append(
                GroupRecord(
                    wire.ShareGroupCurrentMemberAssignmentKey(
                        group_id=self._group.group_id, member_id=member.member_id
                    ),
                    wire.ShareGroupCurrentMemberAssignmentValue(
                        member_epoch=after.member_epoch,
                        previous_member_epoch=after.previous_member_epoch,
                        assigned_partitions=write_partitions(after.assigned),
                    ),
                )
            )
        return after

    def _note(self, before: ShareGroupMember, member: ShareGroupMember) -> None:
        batch, epoch = self._batch, self._group_epoch
        topics = list(member.subscribed_topic_names)
        if before.member_id not in self._group.members:
            batch.happened(
                "member_joined", member=member, group_epoch=epoch, fields={"topics": topics, "instance_id": None}
            )
        elif member.subscribed_topic_names != before.subscribed_topic_names:
            batch.happened(
                "subscription_changed", member=member, group_epoch=epoch, fields={"topics": topics, "regex": None}
            )
        if member.member_epoch != before.member_epoch or member.assigned != before.assigned:
            batch.happened(
                "member_assignment_changed",
                member=member,
                group_epoch=epoch,
                fields={"state": "STABLE", "assigned": member.assigned, "pending_revocation": {}},
            )
        batch.state_changed(old=self._group.state, new=GroupState.STABLE, group_epoch=epoch)
