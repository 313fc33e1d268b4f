"""Which server-side assignor a group uses, by the votes of its members."""

from __future__ import annotations

from collections.abc import Sequence

from kip848_client.testing.coordinator.modern.member_record import KeyT, MetadataT
from kip848_client.testing.coordinator.modern.modern_group import ModernGroup


def choose_name(
    group: ModernGroup[KeyT, MetadataT],
    *,
    names: Sequence[str],
    old: MetadataT | None = None,
    new: MetadataT | None = None,
) -> str:
    """The assignor that most members ask for; if votes are equal or there are none, the first one configured.

    Args:
        names: the configured ones, in order.
        old: metadata of a member that changes, as counted in *group*; None if it is new.
        new: its metadata after the change.

    Source:
        Kafka's ``ConsumerGroup.computePreferredServerAssignor``; the tie is ours, Kafka leaves it to a map's order.
    """
    votes = dict(group.assignor_votes)
    for metadata, change in ((old, -1), (new, 1)):
        if metadata is not None and metadata.server_assignor is not None:
            votes[metadata.server_assignor] = votes.get(metadata.server_assignor, 0) + change
    return max(names, key=lambda name: votes.get(name, 0))
