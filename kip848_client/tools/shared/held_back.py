"""Which partitions a group cannot read on, since a transaction is open there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kip848_client.admin import Admin, Progress
from kip848_client.common.model import NamedPartition
from kip848_client.errors import Kip848Error


def stable_offsets(admin: Admin, progress: Iterable[Progress], *, timeout_s: float) -> dict[NamedPartition, int]:
    """How far readers of committed records get, where records wait.

    Partitions whose leaders do not answer are left out.
    """
    waiting = {item.partition for item in progress if item.lag and not item.is_shared}
    if not waiting:
        return {}
    try:
        found = admin.list_offsets(sorted(waiting), isolation_level="read_committed", timeout_s=timeout_s)
    except Kip848Error:
        return {}
    return {partition: offset for partition, offset in found.values.items() if offset is not None}


def held_back(progress: Iterable[Progress], stable: Mapping[NamedPartition, int]) -> dict[NamedPartition, int]:
    """The partitions where a group is at the first record of an open transaction, and its offset."""
    return {
        item.partition: stable[item.partition]
        for item in progress
        if item.partition in stable and _is_at(item, stable[item.partition])
    }


def _is_at(item: Progress, stable: int) -> bool:
    if item.committed is None or item.end is None or stable >= item.end:
        return False
    return stable - 1 <= item.committed <= stable  # the marker of the transaction before may stand between


def held_back_sentence(held: Mapping[NamedPartition, int]) -> str:
    """Say where readers are held back."""
    places = ", ".join(f"{partition} at {offset:,}" for partition, offset in sorted(held.items()))
    return f"held back by an open transaction (kip848 transactions list): {places}"
