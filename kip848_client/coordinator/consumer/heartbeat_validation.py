"""Checks of a ConsumerGroupHeartbeat that need no state. Their order is Kafka's."""

from __future__ import annotations

from collections.abc import Mapping

from kip848_client.assignors import ServerAssignor
from kip848_client.coordinator.core.refusal import Refused, invalid_request
from kip848_client.coordinator.modern.member_record import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def validate_heartbeat(
    message: ConsumerGroupHeartbeatRequest, *, api_version: int, assignors: Mapping[str, ServerAssignor]
) -> None:
    """Refuse what the protocol does not allow.

    Raises:
        Refused: INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR for an assignor that is not configured.

    Source:
        Kafka's ``GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid``; KIP-848 (a rebalance timeout
        must be positive); KIP-1082 (from v1 on the member makes its own id).
    """
    epoch = message.member_epoch
    if not message.member_id.strip() and (api_version >= 1 or epoch != JOIN_EPOCH):
        raise invalid_request("MemberId can't be empty.")
    if not message.group_id.strip():
        raise invalid_request("GroupId can't be empty.")
    if message.instance_id is not None and not message.instance_id.strip():
        raise invalid_request("InstanceId can't be empty.")
    if message.rack_id is not None and not message.rack_id.strip():
        raise invalid_request("RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _validate_join(message)
    elif epoch < 0:
        if epoch == STATIC_LEAVE_EPOCH and message.instance_id is None:
            raise invalid_request("InstanceId can't be null.")
        if epoch < STATIC_LEAVE_EPOCH:
            raise invalid_request("MemberEpoch is invalid.")
    if message.server_assignor is not None and message.server_assignor not in assignors:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {message.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _validate_join(message: ConsumerGroupHeartbeatRequest) -> None:
    if message.rebalance_timeout_ms <= 0:
        raise invalid_request("RebalanceTimeoutMs must be provided in first request.")
    if message.topic_partitions is None or message.topic_partitions:
        raise invalid_request("TopicPartitions must be empty when (re-)joining.")
    if message.subscribed_topic_names is None and message.subscribed_topic_regex is None:
        raise invalid_request("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
