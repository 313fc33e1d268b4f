"""`client/hand_kept.py`: positions of a member whose records are read elsewhere."""

from __future__ import annotations

from uuid import UUID

import pytest

from kip848_client.client.hand_kept import HandKeptRecords
from kip848_client.errors import IllegalStateError
from kip848_client.model import OffsetAndMetadata, TopicIdPartition, TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def records() -> HandKeptRecords:
    """orders-0 from 10 and orders-1 from 20 may be read."""
    records = HandKeptRecords()
    records.start({TopicIdPartition("orders", p, UUID(int=1)): OffsetAndMetadata(10 * (p + 1)) for p in (0, 1)})
    return records


def test_what_was_processed_is_what_is_committed(records: HandKeptRecords) -> None:
    """A batch reader reports how far it came; auto-commit takes it from here."""
    records.advance(P0, OffsetAndMetadata(15))

    assert records.positions() == {P0: OffsetAndMetadata(15), P1: OffsetAndMetadata(20)}


def test_a_partition_that_is_being_revoked_is_closed_but_may_be_reported(records: HandKeptRecords) -> None:
    """The batch in flight may end and be committed; no new one may begin."""
    records.hold([P0])
    records.advance(P0, OffsetAndMetadata(12))

    assert records.open == {P1: OffsetAndMetadata(20)}
    assert records.positions()[P0] == OffsetAndMetadata(12)


def test_progress_of_a_partition_that_is_gone_is_refused(records: HandKeptRecords) -> None:
    """Its next owner reads it from the last commit; a late report must not pass unnoticed."""
    records.let_go([P0])

    with pytest.raises(IllegalStateError, match="orders-0 is not owned"):
        records.advance(P0, OffsetAndMetadata(12))
    records.let_go_all()
    assert records.positions() == {}


def test_a_revocation_that_was_called_off_opens_the_partition_again(records: HandKeptRecords) -> None:
    """The member starts it anew, at the position that it last heard."""
    records.hold([P0])

    records.start({TopicIdPartition("orders", 0, UUID(int=1)): OffsetAndMetadata(12)})

    assert records.open[P0] == OffsetAndMetadata(12)
