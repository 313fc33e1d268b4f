"""``kip848 groups list --lag``: all groups at a glance, with those that are farthest behind first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

import msgspec

from kip848_client.admin import Admin, GroupDescription, GroupLag, GroupListing
from kip848_client.cli.shared.tables import name_partitions, number, table
from kip848_client.common.model import NamedPartition
from kip848_client.common.plain_text import counted
from kip848_client.errors import Kip848Error
from kip848_client.tools.shared.held_back import held_back, stable_offsets

_NAMED_MAX: Final = 6


class Overview(msgspec.Struct, frozen=True):
    """One group.

    Args:
        members, lag: None for groups of other types, and if they are not known.
        without_owner: partitions in which records wait, and that no member owns.
        held_back: partitions in which an open transaction holds the group back.
    """

    group_id: str
    type: str
    state: str
    members: int | None = None
    lag: int | None = None
    without_owner: Sequence[NamedPartition] = ()
    held_back: Sequence[NamedPartition] = ()


def ask_for_overview(
    admin: Admin, listed: Sequence[GroupListing], *, timeout_s: float
) -> tuple[list[Overview], list[Kip848Error]]:
    """Describe the groups of consumers, sharing ones too, among those listed; others are shown as they were listed."""
    of_consumers = [one.group_id for one in listed if one.type != "streams" and one.protocol_type != "connect"]
    described = admin.describe_groups(of_consumers, with_progress=True, timeout_s=timeout_s)
    groups = {one.group_id: one for one in described.values.values() if isinstance(one, GroupDescription)}
    waiting = chain.from_iterable(one.progress for one in groups.values())
    stable = stable_offsets(admin, waiting, timeout_s=timeout_s)
    rows = []
    for one in listed:
        group = groups.get(one.group_id)
        row = Overview(one.group_id, one.type, one.state)
        if group is not None:
            row = Overview(
                one.group_id,
                one.type,
                group.state,
                members=len(group.members),
                lag=GroupLag(one.group_id, group.progress).lag,
                without_owner=[item.partition for item in group.progress if item.lag and item.owner is None],
                held_back=sorted(held_back(group.progress, stable)),
            )
        rows.append(row)
    return sorted(rows, key=lambda row: (-(row.lag or 0), row.group_id)), list(described.errors.values())


def overview_table(rows: Iterable[Overview]) -> str:
    """Write the groups as a table."""
    header = ("GROUP", "TYPE", "STATE", "MEMBERS", "LAG", "WITHOUT OWNER", "HELD BACK BY A TRANSACTION")
    cells = [
        (
            *(row.group_id, row.type, row.state, number(row.members), number(row.lag)),
            *(_named(row.without_owner), _named(row.held_back)),
        )
        for row in rows
    ]
    return table(header, cells)


def _named(partitions: Sequence[NamedPartition]) -> str:
    if len(partitions) > _NAMED_MAX:
        return counted(len(partitions), "partition")
    return name_partitions(partitions) if partitions else ""
