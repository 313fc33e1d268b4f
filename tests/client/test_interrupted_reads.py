"""Ctrl-C in the middle of reading: records that librdkafka delivered, but the application did not get, come again."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Message

from kip848_client.common.model import ZERO_UUID, NamedPartition, OffsetAndMetadata, TopicIdPartition
from kip848_client.consumer.records.fetcher import Fetcher
from tests.client.fakes import FakePlane, needs_own_messages

pytestmark = needs_own_messages

P0, P1 = NamedPartition("t", 0), NamedPartition("t", 1)


def at(**offsets: int) -> dict[TopicIdPartition, OffsetAndMetadata]:
    return {TopicIdPartition("t", int(name[1:]), ZERO_UUID): OffsetAndMetadata(at) for name, at in offsets.items()}


class InterruptedPlane(FakePlane):
    """Counts the records as delivered, and raises in their place, as confluent_kafka does."""

    interrupt = False

    def consume(self, count: int, timeout: float) -> list[Message]:
        batch = super().consume(count, timeout)
        if self.interrupt and batch:
            self.interrupt = False
            raise KeyboardInterrupt
        return batch


@pytest.fixture
def plane() -> InterruptedPlane:
    return InterruptedPlane()


def a_fetcher(plane: InterruptedPlane, **positions: int) -> Fetcher:
    fetcher = Fetcher(plane.as_consumer())
    fetcher.start(at(**positions))
    return fetcher


@pytest.fixture
def fetcher(plane: InterruptedPlane) -> Fetcher:
    return a_fetcher(plane, p0=5, p1=7)


def offsets(fetcher: Fetcher) -> dict[NamedPartition, int]:
    return {partition: position.offset for partition, position in fetcher.positions().items()}


def hand_out(fetcher: Fetcher, count: int = 100) -> list[Message]:
    """What poll() and consume() do."""
    batch = fetcher.read(count, timeout_s=0.01)
    fetcher.on_the_way = False
    return batch


def interrupt(fetcher: Fetcher, plane: InterruptedPlane, *, timeout_s: float = 0) -> None:
    """Ctrl-C comes while records are read; what was read is lost."""
    plane.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        fetcher.read(100, timeout_s=timeout_s)


@pytest.mark.parametrize("waiting", [True, False])
def test_records_that_were_not_handed_out_are_not_committed_and_come_again(
    fetcher: Fetcher, plane: InterruptedPlane, waiting: bool
) -> None:
    """close() after Ctrl-C commits; it must not commit over what was lost on the way."""
    plane.deliver("t", 0, 5, 6)
    assert len(hand_out(fetcher)) == 2
    hand_out(fetcher)  # it waits, and nothing comes
    plane.deliver("t", 0, 7, 8, 9)
    interrupt(fetcher, plane, timeout_s=0.01 if waiting else 0)
    assert offsets(fetcher) == {P0: 7, P1: 7}
    assert plane.assigned["t", 0] == 7
    plane.deliver("t", 0, 7, 8, 9)
    assert [message.offset() for message in hand_out(fetcher)] == [7, 8, 9]
    assert offsets(fetcher) == {P0: 10, P1: 7}


def test_an_interrupted_reader_that_lost_nothing_repeats_nothing(fetcher: Fetcher, plane: InterruptedPlane) -> None:
    """Notebooks interrupt a waiting cell again and again."""
    plane.deliver("t", 0, 5, 6)
    hand_out(fetcher)
    hand_out(fetcher)  # it waits, and looks where it is
    fetcher.on_the_way = True
    assert offsets(fetcher) == {P0: 7, P1: 7}
    assert plane.assigned == {("t", 0): 7, ("t", 1): 7}


def test_an_error_that_was_lost_on_the_way_is_told_again(fetcher: Fetcher, plane: InterruptedPlane) -> None:
    """After "no such offset" librdkafka fetches a partition no more: unheard, it would be silent for ever."""
    plane.deliver_error(KafkaError._AUTO_OFFSET_RESET, topic="t", partition=0, offset=5)
    interrupt(fetcher, plane)
    plane.calls.clear()
    fetcher.read(100, timeout_s=0)
    assert plane.named("incremental_assign") == [[("t", 0, 5), ("t", 1, 7)]]


def test_what_was_handed_out_does_not_come_again(fetcher: Fetcher, plane: InterruptedPlane) -> None:
    """Up to 256 records were processed twice after Ctrl-C, although the consumer itself had handed them out."""
    for first in (5, 6, 7):
        plane.deliver("t", 0, first)
        assert len(hand_out(fetcher)) == 1
    plane.deliver("t", 0, 8)
    interrupt(fetcher, plane)
    assert offsets(fetcher) == {P0: 8, P1: 7}


def test_with_many_partitions_some_records_come_again_rather_than_never(plane: InterruptedPlane) -> None:
    """A busy reader of many partitions does not look at its positions with every batch."""
    fetcher = a_fetcher(plane, **{f"p{index}": 5 for index in range(20)})
    for first in (5, 6, 7):
        plane.deliver("t", 0, first)
        assert len(hand_out(fetcher)) == 1
    plane.deliver("t", 0, 8)
    interrupt(fetcher, plane)
    assert offsets(fetcher)[P0] <= 8
    assert offsets(fetcher)[P1] == 5


def test_a_busy_reader_looks_at_its_positions_now_and_then(plane: InterruptedPlane) -> None:
    """So that an interruption after a million records does not repeat a million."""
    fetcher = a_fetcher(plane, **{f"p{index}": 5 for index in range(20)})
    for number in range(200):
        plane.deliver("t", 0, 5 + number)
        hand_out(fetcher)
    plane.deliver("t", 0, 205)
    interrupt(fetcher, plane)
    assert 205 - 40 <= offsets(fetcher)[P0] <= 205


def test_a_position_that_was_told_is_not_taken_back(fetcher: Fetcher, plane: InterruptedPlane) -> None:
    """A committed position stays: after Ctrl-C only records behind it are read again."""
    plane.deliver("t", 0, 5, 6)
    hand_out(fetcher)
    assert offsets(fetcher) == {P0: 7, P1: 7}
    plane.deliver("t", 0, 7)
    hand_out(fetcher)
    assert fetcher.positions([P0]) == {P0: OffsetAndMetadata(8)}
    plane.deliver("t", 0, 8)
    plane.deliver("t", 1, 7)
    interrupt(fetcher, plane)
    assert offsets(fetcher) == {P0: 8, P1: 7}


def test_seek_moves_the_place_to_begin_again(fetcher: Fetcher, plane: InterruptedPlane) -> None:
    """Sought back and interrupted: not from where it was before the seek."""
    plane.deliver("t", 0, *range(5, 50))
    hand_out(fetcher)
    hand_out(fetcher)
    fetcher.seek(P0, OffsetAndMetadata(10))
    plane.deliver("t", 0, *range(10, 20))
    interrupt(fetcher, plane)
    assert offsets(fetcher)[P0] == 10
