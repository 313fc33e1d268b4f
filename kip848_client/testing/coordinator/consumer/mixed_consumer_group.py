"""A consumer group with members on the classic protocol: their decoded subscriptions, and their assignments."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from kip848_client.testing.coordinator.classic.classic_group import Parked
from kip848_client.testing.coordinator.classic.rebalance import ClassicOutcome
from kip848_client.testing.coordinator.consumer.consumer_conversion import (
    assignment_bytes,
    begin_downgrade,
    classic_metadata,
    partitions_by_id,
)
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.consumer_member import ConsumerMember, ConsumerMetadata, FoundMember
from kip848_client.testing.coordinator.consumer.member_steps import MemberSteps
from kip848_client.testing.coordinator.consumer.subscriptions import Subscriptions
from kip848_client.testing.coordinator.core.coordinator_state import CoordinatorState
from kip848_client.testing.coordinator.core.inputs import ApiRequest
from kip848_client.testing.coordinator.core.result_batch import Batch
from kip848_client.testing.coordinator.migration.mixed_group import MixedGroup
from kip848_client.testing.coordinator.modern.member_record import ClassicProtocols, SharedMetadata
from kip848_client.wire.messages.consumer_protocol import (
    CONSUMER_PROTOCOL,
    ConsumerProtocolSubscription,
    decode_subscription,
)
from kip848_client.wire.messages.join_group import JoinGroupRequest


class MixedConsumerGroup(MixedGroup[UUID, ConsumerMetadata, ConsumerProtocolSubscription]):
    """See the module."""

    protocol_type: ClassVar[str] = CONSUMER_PROTOCOL

    def __init__(self, state: CoordinatorState, group: ConsumerGroup) -> None:
        super().__init__(state, group)
        self._group = group

    @property
    def size_max(self) -> int:
        """``group.consumer.max.size``."""
        return self.state.config.consumer_max_size

    def read(self, message: JoinGroupRequest) -> ConsumerProtocolSubscription:
        """The subscription."""
        return decode_subscription(bytes(message.protocols[0].metadata))

    def metadata(self, said: ConsumerProtocolSubscription, common: SharedMetadata) -> ConsumerMetadata:
        """The member with its subscription."""
        return classic_metadata(said, common)

    def take_steps(
        self,
        request: ApiRequest,
        batch: Batch,
        found: FoundMember,
        metadata: ConsumerMetadata,
        said: ConsumerProtocolSubscription,
        *,
        is_join: bool,
        now_ms: int,
    ) -> ConsumerMember:
        """The steps, with what the member says it owns."""
        owned = partitions_by_id(said.owned_partitions, image=self.state.image)
        steps = MemberSteps(self.state, request, self._group, batch, owned=owned, now_ms=now_ms)
        return steps.run(found, metadata, is_join=is_join)

    def downgrade_for(
        self,
        batch: Batch,
        *,
        replaced: ConsumerMember,
        joining: ConsumerMember,
        now_ms: int,
        wall_ms: int,
        parked: Parked,
    ) -> ClassicOutcome:
        """Turn a consumer group into a classic one; its members join again unless everything is in its place.

        If the target is that of the group and of the topics as they are now, and all others have their part of it,
        nothing moves, and the group is stable. Otherwise all join again, and the request of the joining member is
        parked.
        """
        group = self._group
        members = [joining if one == replaced.member_id else member for one, member in group.members.items()]
        targets = {
            member.member_id: group.target_of(replaced.member_id if member is joining else member.member_id)
            for member in members
        }
        outcome = begin_downgrade(
            self.state, group, batch, members=members, targets=targets, now_ms=now_ms, wall_ms=wall_ms
        )
        is_settled = (
            group.group_epoch == group.target_epoch
            and self.state.part(Subscriptions).metadata_hash(group.subscribed_topics) == group.metadata_hash
            and all(member is joining or member.is_reconciled_to(group.group_epoch) for member in members)
        )
        if not is_settled or not joining.metadata.subscribes_like(replaced.metadata):
            outcome.park_join(joining.member_id, parked)
            outcome.prepare()
        return outcome

    def protocol_of(self, classic: ClassicProtocols) -> str:
        """The first protocol that the member offers. Others need not offer it: no member assigns here."""
        return classic.protocols[0][0]

    def assignment_of(self, member: ConsumerMember, classic: ClassicProtocols) -> bytes:
        """All that the member may read now."""
        return assignment_bytes(classic, member.current.assigned, image=self.state.image)

    def exists(self, key: UUID, number: int) -> bool:
        """Whether there is such a topic."""
        return key in self.state.image.by_id
