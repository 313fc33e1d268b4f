"""ConsumerGroupHeartbeat of a member that joins or stays: find the member, apply its fields, take the steps, answer.

All records of a heartbeat are one atomic batch. The steps are in `member_steps`, leaving is in `departure`.
"""

from __future__ import annotations

from kip848_client.assignors import TopicPartitions
from kip848_client.coordinator.consumer import consumer_records
from kip848_client.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.coordinator.consumer.heartbeat_answer import Waiting, extended_assignment, plain_assignment, waiting
from kip848_client.coordinator.consumer.heartbeat_validation import validate_heartbeat
from kip848_client.coordinator.consumer.member_steps import MemberSteps
from kip848_client.coordinator.consumer.steady_heartbeat import answer_steady, steady_member
from kip848_client.coordinator.core.batch import Batch
from kip848_client.coordinator.core.config import CoordinatorConfig
from kip848_client.coordinator.core.refusal import Refused, invalid_request
from kip848_client.coordinator.core.requests import ApiRequest
from kip848_client.coordinator.core.result import CoordinatorResult, Reply
from kip848_client.coordinator.core.state import CoordinatorState
from kip848_client.coordinator.migration.conversion import is_settled, upgrade
from kip848_client.coordinator.modern.client_assignors import read_offers
from kip848_client.coordinator.modern.current_assignment import OwnedPartitions
from kip848_client.coordinator.modern.departure import leave
from kip848_client.coordinator.modern.member_lookup import find_member
from kip848_client.coordinator.modern.member_record import JOIN_EPOCH, ClientAssignor, GroupMember, MemberMetadata
from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle_heartbeat(
    state: CoordinatorState, request: ApiRequest, message: ConsumerGroupHeartbeatRequest, *, now_ms: int
) -> CoordinatorResult:
    """Answer one ConsumerGroupHeartbeat.

    Raises:
        Refused: the code for the answer; nothing changed.

    Source:
        KIP-848 "Heartbeat Handling"; Kafka's ``GroupMetadataManager.consumerGroupHeartbeat``.
    """
    validate_heartbeat(message, api_version=request.api_version, assignors=state.assignors)
    if message.member_epoch < 0:
        return leave(state, request, message, now_ms=now_ms)
    steady = steady_member(state, request, message)
    if steady is not None:
        return answer_steady(state, request, steady, now_ms=now_ms)
    return take_steps(state, request, message, now_ms=now_ms)


def take_steps(
    state: CoordinatorState, request: ApiRequest, message: ConsumerGroupHeartbeatRequest, *, now_ms: int
) -> CoordinatorResult:
    """Find the member and take the three steps, for a heartbeat that may change something.

    Raises:
        Refused: as `handle_heartbeat`.
    """
    return _Heartbeat(state, request, message, now_ms=now_ms).run()


class _Heartbeat:
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

    # Who it is

    def _find_group(self) -> ConsumerGroup:
        group_id = self._message.group_id
        group = self._state.groups.get(group_id)
        if group is not None:
            return group
        is_classic = self._state.is_classic(group_id)
        if self._message.member_epoch != JOIN_EPOCH:
            raise Refused(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {group_id} is not a consumer group." if is_classic else f"Consumer group {group_id} not found.",
            )
        self._state.check_not_connect(group_id)
        classic = self._state.classic.get(group_id)
        if classic is not None and classic.members:
            group = upgrade(self._state, classic, self._batch, now_ms=self._now_ms, wall_ms=self._request.wall_ms)
            self._is_unsettled = not is_settled(self._state, classic, group)
            return group
        if is_classic:
            # A classic group without members, or offsets alone, make room for the new group; the offsets stay.
            self._batch.records.append(consumer_records.classic_group_tombstone(group_id))
        return ConsumerGroup(group_id)

    # What it says

    def _updated_metadata(self, before: MemberMetadata) -> MemberMetadata:
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
        after = MemberMetadata(
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

    # How it is answered

    def _answered_assignment(
        self, member: GroupMember, *, before: GroupMember, target: TopicPartitions
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

    def _waiting(self, member: GroupMember, *, target: TopicPartitions) -> Waiting:
        subscribed = self._state.topic_ids(self._group, member.metadata)
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
