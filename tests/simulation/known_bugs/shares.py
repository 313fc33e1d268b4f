"""Bugs of share partitions: what their invariants are there for."""

from __future__ import annotations

from typing import Any

from kip848_client.member.share import share_reader
from kip848_client.member.share.held_records import HeldRecords
from kip848_client.member.share.share_reader import ShareReader
from kip848_client.member.share.share_session import ShareSession
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


@known_bug("a lock counts from when the answer came", "Q5", scenario="queue_members")
def _(patch: Patch) -> None:
    original = HeldRecords.acquired

    def acquired(held: HeldRecords, records: Any) -> Any:
        records = list(records)
        for one in records:
            one.lock_until_ms += 1_000
        return original(held, records)

    patch.setattr(HeldRecords, "acquired", acquired)


@known_bug("what waits in a member is handed out although its lock has ended", "Q5", scenario="queue_members")
def _(patch: Patch) -> None:
    original = HeldRecords.take

    def take(held: HeldRecords, count: int, *, now_ms: int) -> Any:
        held._end_ms = None
        return original(held, count, now_ms=now_ms)

    patch.setattr(HeldRecords, "take", take)


@known_bug("what was acquired in a session that is over is kept", "Q5", scenario="queue_members")
def _(patch: Patch) -> None:
    patch.setattr(HeldRecords, "lose", lambda *_: [])


@known_bug("a renewal goes with other words", "Q6", scenario="queue_members")
def _(patch: Patch) -> None:
    patch.setattr(HeldRecords, "take_renewals", HeldRecords.take_said)


@known_bug("a lost answer counts as a refusal", "Q6", scenario="queue_members")
def _(patch: Patch) -> None:
    original = ShareReader.failed

    def failed(reader: ShareReader, request_id: int, error: Any, *, now_ms: int) -> None:
        del error
        original(reader, request_id, share_reader._session_gone(), now_ms=now_ms)

    patch.setattr(ShareReader, "failed", failed)


@known_bug("nobody hears what became of words of a closing member", "Q6", scenario="queue_members")
def _(patch: Patch) -> None:
    original = ShareReader._outcomes

    def outcomes(reader: ShareReader, said: Any, error: Any) -> None:
        if reader._closing_until_ms is None:
            original(reader, said, error)

    patch.setattr(ShareReader, "_outcomes", outcomes)


@known_bug("the first leader has the whole room", "Q3", scenario="queue_members")
def _(patch: Patch) -> None:
    patch.setattr(ShareReader, "_asked", property(lambda _: {}, lambda _, value: None), raising=False)


@known_bug("a member that closes keeps its sessions", "Q7", scenario="queue_members")
def _(patch: Patch) -> None:
    original = ShareSession.acknowledge

    def acknowledge(session: ShareSession, said: Any, *, closing: bool = False) -> Any:
        del closing
        return original(session, said)

    patch.setattr(ShareSession, "acknowledge", acknowledge)


@known_bug("a session that a leader forgot is a fatal error", "Q8", scenario="queue_members")
def _(patch: Patch) -> None:
    patch.setattr(share_reader, "_SESSION_GONE", frozenset())
    patch.setattr(share_reader, "RETRIABLE", frozenset())
