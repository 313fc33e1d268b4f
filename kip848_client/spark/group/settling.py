"""Tells whether a query may still get partitions from its group, and describes which members hold them. Pure.

The coordinator decides whether a group is stable (ConsumerGroupDescribe; DescribeGroups for a classic group). A member
that crashed stays in the group until its session ends; until then the group is not stable.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kip848_client.admin import GroupDescription
from kip848_client.common.model import NamedPartition, describe_partitions
from kip848_client.common.plain_text import printable
from kip848_client.errors import Kip848Error


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
    group: GroupDescription | None,
    *,
    member_id: str,
    owned: frozenset[NamedPartition],
    wanted: Iterable[NamedPartition],
) -> Outlook:
    """Whether the member *member_id* may still get partitions.

    Args:
        group: None if there is no such group.
        owned: partitions that the query has.
        wanted: partitions that it subscribes to.
    """
    members = () if group is None else group.members
    own = next((member for member in members if member.member_id == member_id), None)
    others = sorted((member for member in members if member is not own), key=lambda one: (one.client_id, one.member_id))
    missing = frozenset(wanted) - owned
    told = [
        f"{describe_partitions(held)} by {printable(member.client_id)} ({member.client_host.removeprefix('/')})"
        for member in others
        if (held := missing & set(member.assigned))
    ]
    stable = group is not None and group.state == "Stable"
    settled = stable and own is not None and frozenset(own.target) == owned
    return Outlook(settled, bool(owned), "; ".join(told) or "none")
