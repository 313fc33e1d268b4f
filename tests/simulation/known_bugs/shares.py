"""Bugs of share partitions: what their invariants are there for."""

from __future__ import annotations

from typing import Any

from kip848_client.testing.share_partitions import share_partition
from kip848_client.testing.share_partitions.share_partition import Change, RecordState, SharePartition
from kip848_client.testing.share_partitions.share_state import ShareStates
from tests.simulation.known_bugs.registry import Patch, known_bug


@known_bug("a member acknowledges the records of another", "Q1", scenario="shares")
def _(patch: Patch) -> None:
    patch.setattr(share_partition, "_check_owner", lambda *_: None)


@known_bug("a lock ends half a second too soon", "Q1", scenario="shares")
def _(patch: Patch) -> None:
    original = SharePartition.expire

    def expire(partition: SharePartition, *, now_ms: int, settings: Any) -> Change:
        return original(partition, now_ms=now_ms + 500, settings=settings)

    patch.setattr(SharePartition, "expire", expire)


@known_bug("accepted records are not kept", "Q2", "Q3", scenario="shares")
def _(patch: Patch) -> None:
    original = ShareStates.write

    def write(states: ShareStates, key: Any, batches: Any, **fields: Any) -> Any:
        kept = [batch for batch in batches if batch.state is not RecordState.ACKNOWLEDGED]
        return original(states, key, kept, **fields)

    patch.setattr(ShareStates, "write", write)


@known_bug("a change that the disk refused is not taken back", "Q1", "Q2", "Q3", scenario="shares")
def _(patch: Patch) -> None:
    original = SharePartition.settle

    def settle(partition: SharePartition, change: Change, *, kept: bool) -> None:
        del kept
        original(partition, change, kept=True)

    patch.setattr(SharePartition, "settle", settle)


@known_bug("released records are never found again", "Q3", scenario="shares")
def _(patch: Patch) -> None:
    patch.setattr(SharePartition, "next_fetch_offset", lambda partition: partition.end_offset)


@known_bug("a record is delivered again as if for the first time", "Q4", scenario="shares")
def _(patch: Patch) -> None:
    original = share_partition._Taking._acquire

    def acquire(taking: Any, run: Any, **fields: Any) -> int:
        run.count = run.count if run.count < 2 else 0
        return original(taking, run, **fields)

    patch.setattr(share_partition._Taking, "_acquire", acquire)
