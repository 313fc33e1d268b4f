"""`client/records/fetcher.py`: what librdkafka is told, and what counts as handed out."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from uuid import UUID

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kip848_client.common.model import ZERO_UUID, NamedPartition, OffsetAndMetadata, TopicIdPartition
from kip848_client.consumer.records import fetcher as fetcher_module
from kip848_client.consumer.records.data_plane import RecordConsumer
from kip848_client.consumer.records.fetcher import Fetcher
from kip848_client.errors import BrokerError, TopicAuthorizationError
from tests.client.fakes import FakePlane, needs_own_messages

pytestmark = needs_own_messages

T = UUID(int=1)
P0, P1 = NamedPartition("orders", 0), NamedPartition("orders", 1)


@pytest.fixture
def plane() -> FakePlane:
    return FakePlane()


@pytest.fixture
def fetcher(plane: FakePlane) -> Fetcher:
    """Fetches orders-0 from 10 and orders-1 from 20."""
    fetcher = Fetcher(plane.as_consumer())
    fetcher.start({_tip(P0): OffsetAndMetadata(10), _tip(P1): OffsetAndMetadata(20)})
    return fetcher


def _tip(partition: NamedPartition) -> TopicIdPartition:
    return TopicIdPartition(partition.topic, partition.partition, T)


def _read(fetcher: Fetcher, count: int = 100) -> None:
    """Read into the buffer, as poll() does."""
    fetcher.ready.extend(fetcher.read(count, timeout_s=0))
    fetcher.on_the_way = False


def test_a_topic_is_asked_about_before_its_first_fetch(plane: FakePlane, fetcher: Fetcher) -> None:
    """librdkafka otherwise waits 500 ms before it fetches a topic that it does not know."""
    names = [name for name, _ in plane.calls]

    assert names == ["list_topics", "incremental_assign"]
    assert plane.assigned == {("orders", 0): 10, ("orders", 1): 20}


def test_nothing_is_read_while_all_partitions_are_held(plane: FakePlane, fetcher: Fetcher) -> None:
    """What came would be dropped, and look like records that librdkafka has left out: process() reads meanwhile."""
    fetcher.hold([P0, P1])
    plane.deliver("orders", 0, 10, 11)
    assert fetcher.read(10, timeout_s=0) == []
    assert len(plane.queue) == 2


def test_a_seek_that_librdkafka_refuses_begins_anew(plane: FakePlane, fetcher: Fetcher) -> None:
    """It refuses one of a partition that was started a moment ago, such as after a Ctrl-C."""

    def refuse(partition: TopicPartition) -> None:
        raise KafkaException(KafkaError(KafkaError._STATE))

    plane.seek = refuse  # type: ignore[method-assign]
    assert fetcher.seek(P0, OffsetAndMetadata(5))

    assert plane.assigned == {("orders", 0): 5, ("orders", 1): 20}
    assert fetcher.positions()[P0].offset == 5


def test_a_held_partition_delivers_nothing_and_keeps_its_position(plane: FakePlane, fetcher: Fetcher) -> None:
    """Records that are buffered when a revocation begins belong to the next owner."""
    plane.deliver("orders", 0, 10, 11)
    plane.deliver("orders", 1, 20)
    _read(fetcher)
    fetcher.ready.popleft()

    fetcher.hold([P0])

    assert [(m.partition(), m.offset()) for m in fetcher.ready] == [(1, 20)]
    assert plane.paused == {("orders", 0)}
    assert fetcher.positions([P0]) == {P0: OffsetAndMetadata(11)}


def test_letting_go_drops_what_was_read(plane: FakePlane, fetcher: Fetcher) -> None:
    """A lost partition's records may be processed by another member already."""
    plane.deliver("orders", 0, 10, 11)
    plane.deliver("orders", 1, 20)
    _read(fetcher)

    fetcher.stop([P0])

    assert [message.partition() for message in fetcher.ready] == [1]
    assert fetcher.positions() == {P1: OffsetAndMetadata(20)}


def test_records_that_come_in_spite_of_a_pause_wait_behind_the_earlier_ones(plane: FakePlane, fetcher: Fetcher) -> None:
    """librdkafka delivers after a pause what it fetched just before; handed out at once, it would overtake."""
    plane.deliver("orders", 0, 10)
    _read(fetcher)
    fetcher.pause([P0])
    plane.deliver("orders", 0, 11, 12)
    _read(fetcher)
    assert not fetcher.ready

    fetcher.resume([P0])

    assert [message.offset() for message in fetcher.ready] == [10, 11, 12]


def test_pausing_before_fetching_begins_holds_from_the_first_record(plane: FakePlane) -> None:
    """pause() inside on_partitions_assigned is common: state is loaded before records are wanted."""
    fetcher = Fetcher(plane.as_consumer())
    fetcher.pause([P0])

    fetcher.start({_tip(P0): OffsetAndMetadata(10)})

    assert plane.paused == {("orders", 0)}


def test_starting_a_fetched_partition_begins_there_anew(plane: FakePlane, fetcher: Fetcher) -> None:
    """A revocation that was called off, or a reset: librdkafka refuses a second assign, so it is let go first."""
    fetcher.hold([P0])

    fetcher.start({_tip(P0): OffsetAndMetadata(11)})

    assert plane.assigned["orders", 0] == 11
    assert plane.paused == set()


def test_giving_up_all_partitions_asks_librdkafka_for_each_of_them_only_once(
    plane: FakePlane, fetcher: Fetcher
) -> None:
    """close() with 10,000 partitions took three times as long as in librdkafka, which searches for each of them."""
    before = len(plane.calls)

    fetcher.hold([P0, P1])
    fetcher.stop([P0, P1])

    assert [name for name, _ in plane.calls[before:]] == ["unassign"]
    assert plane.assigned == {}


def test_a_partition_that_was_paused_when_it_went_is_read_when_it_comes_back(
    plane: FakePlane, fetcher: Fetcher
) -> None:
    """The pause mark outlives the assignment in librdkafka: the partition would never be read again."""
    fetcher.hold([P0])
    fetcher.stop([P0])
    assert plane.paused == {("orders", 0)}

    fetcher.start({_tip(P0): OffsetAndMetadata(11)})

    assert plane.paused == set()


def test_errors_in_place_of_records_are_kept_for_raising(plane: FakePlane, fetcher: Fetcher) -> None:
    """Errors are raised, never returned as messages; the records around them must survive."""
    plane.deliver("orders", 0, 10)
    plane.deliver_error(KafkaError.TOPIC_AUTHORIZATION_FAILED, topic="orders", partition=1)
    plane.deliver_error(KafkaError.KAFKA_STORAGE_ERROR)

    batch = fetcher.read(10, timeout_s=0)
    first, second, third = fetcher.take_error(), fetcher.take_error(), fetcher.take_error()

    assert [message.offset() for message in batch] == [10]
    assert isinstance(first, TopicAuthorizationError)
    assert "orders-1" in str(first)
    assert isinstance(second, BrokerError)
    assert third is None


def test_only_readable_partitions_stay_in_the_buffer(plane: FakePlane, fetcher: Fetcher) -> None:
    """The member's word counts before librdkafka was told anything: a fence takes effect at once, and loses nothing."""
    plane.deliver("orders", 0, 10)
    plane.deliver("orders", 1, 20)
    _read(fetcher)

    fetcher.keep_readable(frozenset({P1}))

    assert [message.partition() for message in fetcher.ready] == [1]
    assert fetcher.positions([P0]) == {P0: OffsetAndMetadata(10)}


def test_a_fetcher_without_open_partitions_is_idle(fetcher: Fetcher) -> None:
    """Waiting inside librdkafka for what cannot come would delay the next assignment by a slice."""
    idle = [fetcher.idle]
    fetcher.pause([P0])
    idle.append(fetcher.idle)
    fetcher.hold([P1])
    idle.append(fetcher.idle)
    fetcher.stop_all()
    idle.append(fetcher.idle)

    assert idle == [False, False, True, True]
    assert fetcher.positions() == {}


def test_a_reader_that_waits_does_not_ask_for_its_positions(
    plane: FakePlane, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka takes 4 us for each: an idle consumer of 1,500 partitions spent 14 ms of CPU a second on that."""
    plane.deliver("orders", 0, 10)
    _read(fetcher)
    fetcher.ready.clear()
    monkeypatch.setattr(fetcher_module, "_LOOK_S_PER_PARTITION", 0.0)
    fetcher.read(1, timeout_s=0.01)  # looks once
    monkeypatch.delattr(FakePlane, "position")

    for _ in range(3):
        assert fetcher.read(1, timeout_s=0.01) == []

    assert fetcher.positions() == {P0: OffsetAndMetadata(11), P1: OffsetAndMetadata(20)}


def test_what_is_at_hand_is_handed_out_at_once_and_all_else_is_looked_at_in_between(
    plane: FakePlane, fetcher: Fetcher
) -> None:
    """Looking at it each time took a fifth of a batch's time."""
    smooth = 0
    for offset in range(10, 30):
        plane.deliver("orders", 0, offset)
        if fetcher.smooth:
            smooth += 1
            assert len(fetcher.read_at_hand(1)) == 1
            fetcher.on_the_way = False
        else:
            _read(fetcher, 1)
            fetcher.ready.clear()

    assert smooth in range(16, 20)
    assert fetcher.positions()[P0] == OffsetAndMetadata(30)


def test_a_wait_of_less_than_a_millisecond_is_a_wait(
    plane: FakePlane, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """confluent_kafka takes whole milliseconds. With 0 each poll(1.0) spun for the last part of its time."""
    waits: list[float] = []

    def consume(count: int, timeout: float) -> list[object]:
        waits.append(timeout)
        return []

    monkeypatch.setattr(plane, "consume", consume)

    fetcher.read(1, timeout_s=0.0004)

    assert waits[-1] >= 0.001


def test_records_of_a_resumed_partition_are_no_gap(plane: FakePlane, fetcher: Fetcher) -> None:
    """They are handed out without a read. The next record would seem to follow a gap that is checked and reported."""
    plane.deliver("orders", 0, 10, 11)
    _read(fetcher)
    fetcher.pause([P0])
    fetcher.read(100, timeout_s=0.01)
    fetcher.resume([P0])
    fetcher.ready.clear()

    assert fetcher.positions() == {P0: OffsetAndMetadata(12), P1: OffsetAndMetadata(20)}


def test_many_new_topics_cost_one_request(plane: FakePlane) -> None:
    """A pattern over hundreds of topics must not ask hundreds of times."""
    plane.topics = [f"topic-{number}" for number in range(100)]
    fetcher = Fetcher(plane.as_consumer())

    fetcher.warm(plane.topics)
    fetcher.warm(["topic-1"])

    assert plane.named("list_topics") == [None]


class RenewedPlane(FakePlane):
    """Made in place of another one."""

    end = 0

    def get_watermark_offsets(self, _partition: object, *, timeout: float) -> tuple[int, int]:
        return (0, self.end)


def created_again(topic: str, *partitions: int) -> dict[TopicIdPartition, OffsetAndMetadata]:
    return {TopicIdPartition(topic, partition, UUID(int=2)): OffsetAndMetadata(0) for partition in partitions}


@pytest.fixture
def renewed() -> list[RenewedPlane]:
    return []


@pytest.fixture
def renewing(plane: FakePlane, renewed: list[RenewedPlane]) -> Fetcher:
    """Fetches orders-0 and payments-0; makes `renewed` planes."""

    def make() -> RecordConsumer:
        renewed.append(RenewedPlane())
        return renewed[-1].as_consumer()

    fetcher = Fetcher(plane.as_consumer(), make_plane=make)
    fetcher.start({_tip(P0): OffsetAndMetadata(10), _tip(NamedPartition("payments", 0)): OffsetAndMetadata(20)})
    return fetcher


def test_a_topic_that_comes_back_under_another_id_is_read_with_a_new_handle(
    plane: FakePlane, renewing: Fetcher, renewed: list[RenewedPlane]
) -> None:
    """librdkafka keeps the old topic's leader epoch as long as it lives; the others go on where they were."""
    told: list[Sequence[str]] = []
    renewing.on_renewed = told.append
    plane.deliver("payments", 0, 20, 21, 22)
    _read(renewing)
    renewing.ready.popleft()
    renewing.stop([P0])

    renewing.start(created_again("orders", 0))

    assert told == [["orders"]]
    assert plane.named("close") == [None]
    assert renewed[0].assigned == {("orders", 0): 0, ("payments", 0): 21}
    assert renewing.positions() == {P0: OffsetAndMetadata(0), NamedPartition("payments", 0): OffsetAndMetadata(21)}


def test_the_same_topic_is_read_on_with_the_same_handle(renewing: Fetcher, renewed: list[RenewedPlane]) -> None:
    """A new handle in each rebalance would cost new connections to the brokers."""
    renewing.stop([P0])
    renewing.start({_tip(P0): OffsetAndMetadata(10)})

    assert renewed == []


def test_a_topic_that_is_assigned_by_hand_again_after_it_was_missing_is_read_with_a_new_handle(
    plane: FakePlane, renewing: Fetcher, renewed: list[RenewedPlane]
) -> None:
    """Without a group the client knows no topic ids; librdkafka's error says the same."""
    plane.deliver_error(KafkaError.UNKNOWN_TOPIC_OR_PART, topic="orders", partition=0)
    renewing.read(10, timeout_s=0)
    renewing.stop([P0])
    renewing.start({TopicIdPartition("orders", 0, ZERO_UUID): OffsetAndMetadata(0)})

    assert len(renewed) == 1


def test_a_handle_that_reads_nothing_of_a_new_topic_is_replaced_in_bounded_time(
    renewing: Fetcher, renewed: list[RenewedPlane], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that lags behind names the old leader epoch to the new handle as well: it would be silent for ever."""
    now_s = 1_000.0
    monkeypatch.setattr("kip848_client.consumer.records.fetcher.time.monotonic", lambda: now_s)
    renewing.stop([P0])
    renewing.start(created_again("orders", 0))
    renewed[0].end = 3

    renewing.read(10, timeout_s=0)
    early = len(renewed)
    now_s += 5.0
    renewing.read(10, timeout_s=0)
    after_5_s = len(renewed)
    renewed[1].deliver("orders", 0, 0, 1, 2)
    handed_out = renewing.read(10, timeout_s=0)
    renewing.on_the_way = False
    renewed[1].end = 3
    now_s += 60.0
    renewing.read(10, timeout_s=0)

    assert len(handed_out) == 3
    assert (early, after_5_s, len(renewed)) == (1, 2, 2)
    assert renewed[1].assigned == {("orders", 0): 0, ("payments", 0): 20}


def test_a_consumer_of_thousands_of_partitions_does_not_wait_for_librdkafka(
    plane: FakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes seconds to stop them, in which a deploy waits for nothing: the group has been left."""
    monkeypatch.setattr(fetcher_module, "_CLOSE_MANY_S", 0.0)
    stopped, closed = threading.Event(), threading.Event()

    def close() -> None:
        assert stopped.wait(60)
        closed.set()

    plane.close = close  # type: ignore[method-assign]
    fetcher = Fetcher(plane.as_consumer())
    fetcher.start({_tip(NamedPartition("orders", number)): OffsetAndMetadata(0) for number in range(2_001)})
    fetcher.stop_all()
    fetcher.close()
    assert not closed.is_set()
    stopped.set()
    assert closed.wait(60)
