"""Messages and facts in plain words, one short line each: in a judge's conversations, and in transcripts of tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from kip848_client.common.model import TopicIdPartition
from kip848_client.errors import ProtocolError, error_name
from kip848_client.testing.coordinator.core.group_events import GroupEvent
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)
from kip848_client.wire.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
)
from kip848_client.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from kip848_client.wire.messages.share_acknowledge import AcknowledgementBatch as ShareAcknowledgementBatch
from kip848_client.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from kip848_client.wire.messages.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kip848_client.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_EPOCHS: Final = {0: "epoch 0 (join)", -1: "epoch -1 (leave)", -2: "epoch -2 (leave, keep the instance's place)"}

_ACKNOWLEDGEMENTS: Final = {0: "gap", 1: "accepted", 2: "released", 3: "rejected", 4: "renewed"}

_LEFT: Final = {
    "leave": "left the group",
    "session_timeout": "is removed: its session timed out",
    "rebalance_timeout": "is removed: it did not give up its partitions in time",
    "replaced": "is replaced by another process with its instance id",
    "static_leave": "left; its partitions wait for its instance to come back",
}
"""Reason of ``member_left`` -> how it reads."""


def is_steady(request: object, response: object) -> bool:
    """Whether a heartbeat told nothing new and was told nothing new."""
    if isinstance(response, HeartbeatResponse):
        return not response.error_code
    return (
        isinstance(request, ConsumerGroupHeartbeatRequest)
        and isinstance(response, ConsumerGroupHeartbeatResponse)
        and request.topic_partitions is None
        and request.subscribed_topic_names is None
        and request.member_epoch == response.member_epoch > 0
        and response.error_code == 0
        and response.assignment is None
        and not response.should_compute_assignment
    )


def partitions_text(partitions: Iterable[TopicIdPartition]) -> str:
    """Partitions by name, sorted, without spaces at the ends."""
    return ", ".join(f"{item.topic}-{item.partition}" for item in sorted(partitions))


class Wording:
    """Texts for messages and facts.

    Args:
        name_of: the name of a topic id; None if there never was one, and its id is told.
    """

    def __init__(self, name_of: Callable[[UUID], str | None]) -> None:
        self._name_of: Final = name_of

    def message(self, message: object) -> str:
        """One line for a request or an answer."""
        match message:
            case ConsumerGroupHeartbeatRequest():
                return self._heartbeat(message)
            case ConsumerGroupHeartbeatResponse():
                return self._heartbeat_answer(message)
            case OffsetCommitRequest():
                offsets = [
                    f"{self._topic(topic)}-{item.partition_index} at {item.committed_offset}"
                    for topic in message.topics
                    for item in topic.partitions
                ]
                return f"OffsetCommit: epoch {message.generation_id_or_member_epoch}, {', '.join(sorted(offsets))}"
            case OffsetCommitResponse():
                codes = {item.error_code for topic in message.topics for item in topic.partitions}
                return "offsets committed" if codes == {0} else ", ".join(sorted(map(error_name, codes)))
            case OffsetFetchRequest(groups=(group,)):
                wanted = [
                    f"{self._topic(topic)}-{index}" for topic in group.topics or () for index in topic.partition_indexes
                ]
                # On the classic protocol a member asks without its id and generation.
                epoch = f"epoch {group.member_epoch}, " if group.member_id is not None else ""
                return f"OffsetFetch: {epoch}{', '.join(sorted(wanted)) or 'everything'}"
            case OffsetFetchResponse(groups=(group,)):
                return self._fetched(group)
            case ConsumerGroupPrepareAssignmentRequest():
                return f"PrepareAssignment: epoch {message.member_epoch}"
            case ConsumerGroupPrepareAssignmentResponse():
                if message.error_code:
                    return error_name(message.error_code)
                members = ", ".join(sorted(member.member_id for member in message.members))
                return f"group epoch {message.group_epoch}, members {members}, assignor {message.assignor_name}"
            case ConsumerGroupInstallAssignmentRequest():
                if message.error:
                    return f"InstallAssignment: group epoch {message.group_epoch}, error {message.error}"
                targets = [f"{member.member_id} gets {self._held(member.partitions)}" for member in message.members]
                return f"InstallAssignment: group epoch {message.group_epoch}, {'; '.join(sorted(targets))}"
            case ConsumerGroupInstallAssignmentResponse():
                return error_name(message.error_code) if message.error_code else "installed"
            case JoinGroupRequest() | SyncGroupRequest() | HeartbeatRequest() | LeaveGroupRequest():
                return _classic_request(message)
            case JoinGroupResponse() | SyncGroupResponse() | HeartbeatResponse() | LeaveGroupResponse():
                return error_name(message.error_code) if message.error_code else _classic_answer(message)
            case ShareGroupHeartbeatRequest():
                parts = [_EPOCHS.get(message.member_epoch, f"epoch {message.member_epoch}")]
                if message.subscribed_topic_names:
                    parts.append(f"subscribed to {', '.join(sorted(message.subscribed_topic_names))}")
                return f"share heartbeat: {', '.join(parts)}"
            case ShareGroupHeartbeatResponse():
                if message.error_code:
                    return error_name(message.error_code)
                given = message.assignment
                return f"epoch {message.member_epoch}" + (
                    f", assignment {self._held(given.topic_partitions)}" if given is not None else ""
                )
            case ShareFetchRequest() | ShareAcknowledgeRequest():
                return self._share_request(message)
            case ShareFetchResponse():
                return self._share_answer(message)
            case _:
                return type(message).__name__.removesuffix("Request").removesuffix("Response")

    def fact(self, event: GroupEvent) -> str | None:
        """One line for what the coordinator did; None for what messages show anyway."""
        fields = event.fields
        match event.event:
            case "group_epoch_bumped":
                return f"group epoch {event.group_epoch} ({str(fields['reason']).partition(' ')[0].replace('_', ' ')})"
            case "classic_generation_began":
                return f"generation {event.group_epoch} begins, led by {fields['leader']}"
            case "group_converted":
                return f"the group becomes a {fields['type']} group"
            case "target_assignment_computed":
                members: Mapping[str, Mapping[UUID, Iterable[int]]] = fields["members"]  # type: ignore[assignment]
                targets = [f"{name} gets {self._mapped(held)}" for name, held in sorted(members.items())]
                return f"target of epoch {event.group_epoch}: {'; '.join(targets) or 'for no member'}"
            case "member_left":
                return f"{event.member_id} {_LEFT[str(fields['reason'])]}"
            case "member_fenced":
                return f"refuses {event.member_id}'s epoch {fields['sent_epoch']}"
            case "assignment_requested":
                return f"asks {event.member_id} to compute the target with {fields['assignor']} ({fields['reason']})"
            case "assignment_refused":
                return f"does not install the target ({fields['reason']})"
            case "assignor_failed":
                return f"assignor {fields['assignor']} gave up with error {fields['error']}"
            case _:
                return None

    # --- heartbeats

    def _heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> str:
        epoch = request.member_epoch
        parts = [_EPOCHS.get(epoch, f"epoch {epoch}")]
        if request.instance_id is not None and epoch <= 0:
            parts.append(f"instance {request.instance_id}")
        if request.subscribed_topic_names:
            parts.append(f"subscribed to {', '.join(sorted(request.subscribed_topic_names))}")
        if request.subscribed_topic_regex:
            parts.append(f"pattern {request.subscribed_topic_regex}")
        if request.client_assignors:
            parts.append(f"assignors {', '.join(assignor.name for assignor in request.client_assignors)}")
        if request.topic_partitions is not None:
            parts.append(f"owns {self._held(request.topic_partitions)}")
        return f"heartbeat: {', '.join(parts)}"

    def _heartbeat_answer(self, response: ConsumerGroupHeartbeatResponse) -> str:
        if response.error_code:
            return error_name(response.error_code)
        parts = [f"epoch {response.member_epoch}"]
        if response.assignment is not None:
            parts.append(f"assignment {self._held(response.assignment.topic_partitions)}")
            if response.assignment.pending_topic_partitions:
                parts.append(f"later {self._held(response.assignment.pending_topic_partitions)}")
        if response.should_compute_assignment:
            parts.append("compute the target")
        return ", ".join(parts)

    def _fetched(self, group: OffsetFetchResponseGroup) -> str:
        if group.error_code:
            return error_name(group.error_code)
        offsets = []
        for topic in group.topics:
            for item in topic.partitions:
                found = f"at {item.committed_offset}" if item.committed_offset >= 0 else "none"
                outcome = error_name(item.error_code) if item.error_code else found
                offsets.append(f"{self._topic(topic)}-{item.partition_index} {outcome}")
        return f"committed offsets: {', '.join(sorted(offsets))}"

    # --- share groups

    def _share_request(self, request: ShareFetchRequest | ShareAcknowledgeRequest) -> str:
        api = "ShareFetch" if isinstance(request, ShareFetchRequest) else "ShareAcknowledge"
        said = [
            f"{self._topic(topic)}-{item.partition_index} {_offsets(batch)} {_kinds(batch.acknowledge_types)}"
            for topic in request.topics
            for item in topic.partitions
            for batch in item.acknowledgement_batches
        ]
        return f"{api}: session epoch {request.share_session_epoch}" + (f", {'; '.join(said)}" if said else "")

    def _share_answer(self, response: ShareFetchResponse) -> str:
        if response.error_code:
            return error_name(response.error_code)
        acquired = [
            f"{self._topic(topic)}-{item.partition_index} {_offsets(batch)}"
            for topic in response.responses
            for item in topic.partitions
            for batch in item.acquired_records
        ]
        return f"acquired {', '.join(acquired) or 'nothing'}"

    # --- partitions

    def _held(self, topics: Iterable[Any]) -> str:
        return self._mapped({topic.topic_id: topic.partitions for topic in topics})

    def _mapped(self, partitions: Mapping[UUID, Iterable[int]]) -> str:
        names = [
            f"{self._name_of(topic_id) or topic_id}-{index}" for topic_id, held in partitions.items() for index in held
        ]
        return ", ".join(sorted(names)) or "nothing"

    def _topic(self, topic: Any) -> str:
        return getattr(topic, "name", "") or self._name_of(topic.topic_id) or str(topic.topic_id)


def _offsets(batch: AcknowledgementBatch | AcquiredRecords | ShareAcknowledgementBatch) -> str:
    one = batch.first_offset == batch.last_offset
    return f"{batch.first_offset}" if one else f"{batch.first_offset} to {batch.last_offset}"


def _kinds(types: Iterable[int]) -> str:
    return " and ".join(dict.fromkeys(_ACKNOWLEDGEMENTS.get(kind, str(kind)) for kind in types))


def _classic_request(request: JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest) -> str:
    match request:
        case JoinGroupRequest():
            parts = [f"JoinGroup: {request.member_id or 'without an id'}"]
            if request.group_instance_id is not None:
                parts.append(f"instance {request.group_instance_id}")
            subscription = read_subscription(request.protocols[0].metadata if request.protocols else b"")
            if subscription is not None:
                parts.append(f"subscribed to {', '.join(subscription.topics)}")
            parts.append(f"assignor {', '.join(protocol.name for protocol in request.protocols) or 'none'}")
            if subscription is not None:
                parts.append(f"owns {_listed(subscription.owned_partitions)}")
            return ", ".join(parts)
        case SyncGroupRequest():
            given = [f"{one.member_id} gets {_assigned(one.assignment)}" for one in request.assignments]
            return f"SyncGroup: generation {request.generation_id}" + (f", {'; '.join(sorted(given))}" if given else "")
        case HeartbeatRequest():
            return f"Heartbeat: generation {request.generation_id}"
        case LeaveGroupRequest():
            return "LeaveGroup"


def _classic_answer(answer: JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | LeaveGroupResponse) -> str:
    match answer:
        case JoinGroupResponse(leader=""):
            return f"generation {answer.generation_id}, the coordinator assigns"
        case JoinGroupResponse() if answer.leader == answer.member_id:
            members = ", ".join(sorted(member.member_id for member in answer.members))
            return f"generation {answer.generation_id}, leader of {members}"
        case JoinGroupResponse():
            return f"generation {answer.generation_id}, led by {answer.leader}"
        case SyncGroupResponse():
            return f"assignment {_assigned(answer.assignment)}"
        case HeartbeatResponse():
            return "in step"
        case LeaveGroupResponse():
            return "gone"


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """What a member of a classic group tells its assignor; None for bytes of another protocol."""
    try:
        return decode_subscription(metadata)
    except ProtocolError:
        return None


def _assigned(assignment: bytes) -> str:
    try:
        return _listed(decode_assignment(assignment).assigned_partitions) if assignment else "nothing"
    except ProtocolError:
        return f"{len(assignment)} bytes"


def _listed(topics: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic.topic}-{index}" for topic in topics for index in topic.partitions) or "nothing"
