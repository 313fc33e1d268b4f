"""A share group as a test sees it: its members, and what it has of its partitions."""

from __future__ import annotations

import msgspec

from kip848_client.testing.broker.coordinators.group_shards import GroupShards
from kip848_client.testing.broker.coordinators.snapshots import MemberSnapshot
from kip848_client.testing.broker.share.share_partition_manager import SharePartitionManager, SharePartitionSnapshot


class ShareGroupSnapshot(msgspec.Struct, frozen=True):
    """A share group at one moment.

    Attributes:
        state: ``Stable``, or ``Empty`` without members.
        members: by member id, ascending. A partition may be assigned to several of them.
        partitions: those that the group has begun, by topic and number.
    """

    group_id: str
    state: str
    group_epoch: int
    members: tuple[MemberSnapshot, ...]
    partitions: tuple[SharePartitionSnapshot, ...]

    def partition(self, topic: str, partition: int) -> SharePartitionSnapshot:
        """One partition.

        Raises:
            KeyError: the group has not begun it.
        """
        for found in self.partitions:
            if (found.topic, found.partition) == (topic, partition):
                return found
        raise KeyError(f"share group {self.group_id!r} has not begun {topic}-{partition}")


def share_group(groups: GroupShards, shares: SharePartitionManager, group_id: str) -> ShareGroupSnapshot | None:
    """A share group as it is now; None if there is none of that id."""
    group = groups.snapshot(group_id)
    if group is None or group.type != "share":
        return None
    return ShareGroupSnapshot(
        group_id=group_id,
        state=group.state,
        group_epoch=group.group_epoch,
        members=group.members,
        partitions=shares.snapshots(group_id),
    )
