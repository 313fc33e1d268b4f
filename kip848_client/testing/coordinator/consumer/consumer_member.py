"""One member of a consumer group: what its records hold of its subscription, and names of its types. No decisions."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

from kip848_client.testing.coordinator.modern.current_assignment import Owned
from kip848_client.testing.coordinator.modern.member_lookup import Found
from kip848_client.testing.coordinator.modern.member_record import Current, Held, MemberRecord, SharedMetadata


class ConsumerMetadata(SharedMetadata, frozen=True):
    """The metadata of a member of a consumer group.

    Args:
        subscribed_topic_names: ascending, each once.
        subscribed_topic_regex: RE2 pattern, or None.
    """

    rack_id: str | None = None
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None

    def subscribes_like(self, other: ConsumerMetadata) -> bool:
        """Whether both have the same names and the same pattern."""
        return (
            self.subscribed_topic_names == other.subscribed_topic_names
            and self.subscribed_topic_regex == other.subscribed_topic_regex
        )


PartitionEpochs: TypeAlias = Held[UUID]
"""Topic id -> partition -> assignment epoch (KIP-1251)."""
OwnedPartitions: TypeAlias = Owned[UUID]
"""Topic id -> partitions that a member says it owns."""
CurrentAssignment: TypeAlias = Current[UUID]
"""`Current` of a member of a consumer group. For annotations: to make one, call `Current`, which is faster."""
ConsumerMember: TypeAlias = MemberRecord[UUID, ConsumerMetadata]
"""One member of a consumer group. For annotations: to make one, call `MemberRecord`, which is faster."""
FoundMember: TypeAlias = Found[UUID, ConsumerMetadata]
"""The member of a consumer group that a heartbeat is about."""
