"""Tells whether a query may still get partitions from its group, and describes which members hold them. Pure.

The coordinator decides whether a group is stable (ConsumerGroupDescribe; DescribeGroups for a classic group). A member
that crashed stays in the group until its session ends; until then the group is not stable.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kip848_client.client.records.log_offsets import GroupNow
from kip848_client.errors import Kip848Error
from kip848_client.model import NamedPartition, describe_partitions
from kip848_client.plain_text import printable


class NotOwnedError(Kip848Error):
    """A query would have ended without reading its partitions. The message names the members that hold them."""


class Outlook(msgspec.Struct, frozen=True):
    """Whether a query may still get partitions.

    Args:
        settled: the query gets no more partitions unless the group changes.
        owns: whether the query has any partitions.
        holders: other members with partitions that the query could read, as text for messages.
    """

    settled: bool
    owns: bool
    holders: str


def outlook(
    group: GroupNow, *, member_id: str, owned: frozenset[NamedPartition], wanted: Iterable[NamedPartition]
) -> Outlook:
    """Whether the member *member_id* may still get partitions.

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
        f"{describe_partitions(held)} by {printable(member.client_id)} ({member.host})"
        for member in others
        if (held := member.assigned & missing)
    ]
    settled = group.settled and own is not None and own.target == owned
    return Outlook(settled, bool(owned), "; ".join(told) or "none")
