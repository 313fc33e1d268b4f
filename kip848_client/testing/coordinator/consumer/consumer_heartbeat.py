"""ConsumerGroupHeartbeat of a member that joins or stays: find the member, apply its fields, take the steps, answer.

All records of a heartbeat are one atomic batch. The steps are in `member_steps`, leaving is in `consumer_departure`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kip848_client.assignors.server.spec import ServerAssignor, TopicPartitions
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicGroup
from kip848_client.testing.coordinator.consumer.consumer_conversion import is_settled, upgrade
from kip848_client.testing.coordinator.consumer.consumer_departure import leave
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.consumer_member import ConsumerMember, ConsumerMetadata, OwnedPartitions
from kip848_client.testing.coordinator.consumer.heartbeat_answer import (
    Waiting,
    extended_assignment,
    plain_assignment,
    waiting,
)
from kip848_client.testing.coordinator.consumer.member_steps import MemberSteps
from kip848_client.testing.coordinator.consumer.subscriptions import Subscriptions
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.refusal import Refused, invalid_request
from kip848_client.testing.coordinator.core.result import ArmTimer, CoordinatorResult, Reply
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.testing.coordinator.modern.client_assignors import read_offers
from kip848_client.testing.coordinator.modern.member_lookup import find_member
from kip848_client.testing.coordinator.modern.member_record import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ClientAssignor,
    ReconciliationState,
)
from kip848_client.testing.coordinator.modern.refused_heartbeat import refuse_heartbeat
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle_heartbeat(
    state: CoordinatorState, request: ApiRequest, message: ConsumerGroupHeartbeatRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one ConsumerGroupHeartbeat. One that is refused changes nothing.

    Source:
        KIP-848 "Heartbeat Handling"; Kafka's ``GroupMetadataManager.consumerGroupHeartbeat``.
    """
    try:
        validate_heartbeat(message, api_version=request.api_version, assignors=state.assignors)
        if message.member_epoch < 0:
            return leave(state, request, message, now_ms=now_ms)
        steady = steady_member(state, request, message)
        if steady is not None:
            return answer_steady(state, request, steady, now_ms=now_ms)
        return take_steps(state, request, message, now_ms=now_ms)
    except Refused as refused:
        response = ConsumerGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)
        group = state.find(ConsumerGroup, message.group_id)
        return refuse_heartbeat(state, request, message, refused, response, group=group)


def take_steps(
    state: CoordinatorState, request: ApiRequest, message: ConsumerGroupHeartbeatRequest, *, now_ms: int
) -> CoordinatorResult:
    """Find the member and take the three steps, for a heartbeat that may change something.

    Raises:
        Refused: the code for the answer; nothing changed.
    """
    return _ConsumerHeartbeat(state, request, message, now_ms=now_ms).run()


def validate_heartbeat(
    message: ConsumerGroupHeartbeatRequest, *, api_version: int, assignors: Mapping[str, ServerAssignor]
) -> None:
    """Refuse what the protocol does not allow. The order of these checks is Kafka's.

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


def steady_member(
    state: CoordinatorState, request: ApiRequest, message: ConsumerGroupHeartbeatRequest
) -> ConsumerMember | None:
    """The member if it reports no change, and there is none for it, as in most heartbeats; else None.

    A shortcut that decides nothing: `take_steps` comes to the same result in four times the time. The tests with random
    groups compare the two for every heartbeat that takes it.
    """
    group = state.find(ConsumerGroup, message.group_id)
    member = None if group is None else group.members.get(message.member_id)
    if group is None or member is None:
        return None
    epoch, current, metadata = message.member_epoch, member.current, member.metadata
    is_up_to_date = (
        epoch == current.member_epoch == group.target_epoch == group.group_epoch
        and current.state is ReconciliationState.STABLE
        and not group.regex_subscribers
        and message.group_id not in state.part(Subscriptions).metadata_check_due
    )
    says_nothing_new = (
        message.topic_partitions is None
        and message.subscribed_topic_names is None
        and message.subscribed_topic_regex is None
        and message.server_assignor is None
        and message.client_assignors is None
        and message.rack_id is None
        and message.rebalance_timeout_ms == -1
        and message.instance_id in (None, metadata.instance_id)
        and metadata.classic is None
        and request.client_id == metadata.client_id
        and request.client_host == metadata.client_host
    )
    return member if is_up_to_date and says_nothing_new and epoch > JOIN_EPOCH else None


def answer_steady(
    state: CoordinatorState, request: ApiRequest, member: ConsumerMember, *, now_ms: int
) -> CoordinatorResult:
    """Answer with the member's epoch and interval, and restart its session."""
    assert isinstance(request.message, ConsumerGroupHeartbeatRequest)
    group_id, epoch = request.message.group_id, member.current.member_epoch
    config = state.group_config(group_id)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id, member_epoch=epoch, heartbeat_interval_ms=config.heartbeat_interval_ms
    )
    session = ArmTimer(
        TimerKey(TimerKind.SESSION, group_id, member.member_id),
        deadline_ms=now_ms + config.session_timeout_ms,
        member_epoch=epoch,
    )
    return CoordinatorResult(replies=(Reply(request.request_id, response),), soft=(session,))


class _ConsumerHeartbeat:
    """One heartbeat: finds its member, applies its fields, and builds the answer."""

    def __init__(
        self, state: CoordinatorState, request: ApiRequest, message: ConsumerGroupHeartbeatRequest, *, now_ms: int
    ) -> None:
        self._state = state
        self._request = request
        self._message = message
        self._now_ms = now_ms
        self._batch = Batch(message.group_id)
        self._offers = _offers(message, config=state.config)
        self._is_unsettled = False
        self._group = self._find_group()

    def run(self) -> CoordinatorResult:
        group, message = self._group, self._message
        owned = _owned_partitions(message)
        found = find_member(self._state, group, message, owned=owned, size_max=self._state.config.consumer_max_size)
        steps = MemberSteps(
            self._state,
            self._request,
            group,
            self._batch,
            owned=owned,
            now_ms=self._now_ms,
            offers_assignors=self._offers is not None,
            is_unsettled=self._is_unsettled,
        )
        metadata = self._updated_metadata(found.member.metadata)
        updated = steps.run(found, metadata, is_join=message.member_epoch == JOIN_EPOCH)
        planner = steps.planner
        response = ConsumerGroupHeartbeatResponse(
            member_id=updated.member_id,
            member_epoch=updated.current.member_epoch,
            heartbeat_interval_ms=self._state.group_config(group.group_id).heartbeat_interval_ms,
            assignment=self._answered_assignment(updated, before=found.member, target=steps.target),
            should_compute_assignment=planner is not None and planner.notify(updated, now_ms=self._now_ms),
        )
        return self._batch.result(Reply(self._request.request_id, response))

    # --- the sender

    def _find_group(self) -> ConsumerGroup:
        group_id = self._message.group_id
        known = self._state.known_group(group_id)
        if isinstance(known, ConsumerGroup):
            return known
        if known is None and self._message.member_epoch != JOIN_EPOCH:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        if known is None:
            return ConsumerGroup(group_id)
        if self._message.member_epoch != JOIN_EPOCH or not isinstance(known, ClassicGroup):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if known.members:
            group = upgrade(self._state, known, self._batch, now_ms=self._now_ms, wall_ms=self._request.wall_ms)
            self._is_unsettled = not is_settled(self._state, known, group)
            return group
        # A classic group without members, or offsets alone, make room for the new group; the offsets stay.
        self._batch.records += known.tombstones()
        return ConsumerGroup(group_id)

    # --- checking the fields

    def _updated_metadata(self, before: ConsumerMetadata) -> ConsumerMetadata:
        """Apply the fields that are given: null, and -1 for the timeout, mean unchanged."""
        message, request = self._message, self._request
        names, regex = message.subscribed_topic_names, message.subscribed_topic_regex
        if (
            names is None
            and regex is None
            and message.server_assignor is None
            and message.rack_id is None
            and message.rebalance_timeout_ms == -1
            and message.instance_id in (None, before.instance_id)
            and (self._offers is None or self._offers == before.client_assignors)
            and before.classic is None
            and request.client_id == before.client_id
            and request.client_host == before.client_host
        ):
            return before
        after = ConsumerMetadata(
            instance_id=before.instance_id if message.instance_id is None else message.instance_id,
            rack_id=before.rack_id if message.rack_id is None else message.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=(
                before.rebalance_timeout_ms if message.rebalance_timeout_ms == -1 else message.rebalance_timeout_ms
            ),
            subscribed_topic_names=before.subscribed_topic_names if names is None else tuple(sorted(set(names))),
            subscribed_topic_regex=before.subscribed_topic_regex if regex is None else regex or None,
            server_assignor=before.server_assignor if message.server_assignor is None else message.server_assignor,
            client_assignors=before.client_assignors if self._offers is None else self._offers,
        )
        return before if after == before else after

    # --- the answer

    def _answered_assignment(
        self, member: ConsumerMember, *, before: ConsumerMember, target: TopicPartitions
    ) -> Assignment | None:
        if not member.metadata.client_assignors or not self._state.config.client_assignors:
            return plain_assignment(self._message, before=before.current, after=member.current)
        return extended_assignment(
            self._message,
            before=before.current,
            after=member.current,
            waited=self._waiting(before, target=self._group.target_of(member.member_id)),
            waits=self._waiting(member, target=target),
        )

    def _waiting(self, member: ConsumerMember, *, target: TopicPartitions) -> Waiting:
        subscribed = self._state.part(Subscriptions).of_member(self._group, member.metadata)
        return waiting(member.current, target=target, subscribed=subscribed)


def _owned_partitions(message: ConsumerGroupHeartbeatRequest) -> OwnedPartitions | None:
    if message.topic_partitions is None:
        return None
    return {topic.topic_id: frozenset(topic.partitions) for topic in message.topic_partitions}


def _offers(message: ConsumerGroupHeartbeatRequest, *, config: CoordinatorConfig) -> tuple[ClientAssignor, ...] | None:
    """The client-side assignors that the member offers; None: unchanged. A join without any clears them."""
    if message.client_assignors is not None and config.client_assignors:
        if message.client_assignors and message.server_assignor is not None:
            raise invalid_request("ServerAssignor and ClientAssignors can't be used together.")
        return read_offers(message.client_assignors, bytes_max=config.client_assignors_bytes_max)
    return () if message.member_epoch == JOIN_EPOCH else None
