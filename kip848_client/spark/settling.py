"""What a query still waits for in its group, in words. Pure.

Whether a group is at rest is its coordinator's word (ConsumerGroupDescribe; DescribeGroups for a classic group): a
member that died stays in the group until its session ends, and until then the group is not at rest.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kip848_client.client.log_offsets import GroupNow
from kip848_client.errors import Kip848Error
from kip848_client.model import TopicPartition, describe_partitions


class NotOwnedError(Kip848Error):
    """A query was to end without having had its partitions. The message names who holds them."""


class Outlook(msgspec.Struct, frozen=True):
    """What may still come to a query.

    Args:
        settled: nothing will come while the group stays as it is.
        owns: whether the query has any partitions.
        holders: who else has partitions that the query could read, for people.
    """

    settled: bool
    owns: bool
    holders: str


def outlook(
    group: GroupNow, *, member_id: str, owned: frozenset[TopicPartition], wanted: Iterable[TopicPartition]
) -> Outlook:
    """What may come to the member *member_id*.

    Args:
        owned: partitions that the query has.
        wanted: partitions that it subscribes to.
    """
    own = next((member for member in group.members if member.member_id == member_id), None)
    others = sorted(
        (member for member in group.members if member is not own), key=lambda one: (one.client_id, one.member_id)
    )
    missing = frozenset(wanted) - owned
    told = [
        f"{describe_partitions(held)} by {member.client_id} ({member.host})"
        for member in others
        if (held := member.assigned & missing)
    ]
    settled = group.settled and own is not None and own.target == owned
    return Outlook(settled, bool(owned), "; ".join(told) or "nobody")
