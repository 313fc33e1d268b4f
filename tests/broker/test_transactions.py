"""Transactions by raw requests: what the broker adds to the coordinator of transactions and the logs of partitions.

The answers of Kafka to producers of every version, zombies among them, are compared in
tests/interop/differential/test_transactions.py; that no order of events breaks a transaction is shown in
tests/properties/test_transaction_machine.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.common.clock import ManualClock
from kip848_client.errors import ErrorCode, IllegalStateError, RequestTimeoutError
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.describe_transactions import DescribedTransactionTopic, DescribeTransactionsRequest
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from kip848_client.wire.messages.list_transactions import ListTransactionsRequest
from kip848_client.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kip848_client.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kip848_client.wire.record_batch import batches_of, records_of
from tests.support.group_requests import commit_offset, join
from tests.support.transactions import (
    CONTROL,
    TOPIC,
    TRANSACTIONAL,
    MakeProducer,
    RawProducer,
    aborted_in,
    begun,
    committed,
    end_offset,
    fetch_request,
    fetched,
    values_in,
)
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.kip848_broker(topics={TOPIC: 3})


@pytest.fixture
def reader(broker: EmbeddedBroker) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Iterator[RawProducer]:
    with begun(broker) as made:
        yield made


@pytest.fixture
def other(broker: EmbeddedBroker) -> Iterator[MakeProducer]:
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(begun(broker, name))


# --- records


@pytest.mark.parametrize("timeout_ms", [0, 900_001])
def test_a_timeout_out_of_bounds_is_refused(producer: RawProducer, timeout_ms: int) -> None:
    """Kafka refuses it, so a test against this broker has to see it."""
    assert producer.init(timeout_ms=timeout_ms) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)


def test_every_version_is_refused_in_its_own_words(producer: RawProducer) -> None:
    """Old clients know fewer codes: one that they do not know ends them, or makes them try for ever."""
    not_added, fenced = ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED
    unknown_fence = ErrorCode.INVALID_PRODUCER_EPOCH
    assert [producer.produce(version=v).error_code for v in (9, 11)] == [not_added, ErrorCode.TRANSACTION_ABORTABLE]
    assert [producer.commit_offset("g", 1, version=v) for v in (3, 4)] == [not_added, ErrorCode.TRANSACTION_ABORTABLE]
    producer.init()  # another life of it: this one is a zombie now
    old = {"producer_id": producer.producer_id, "epoch": producer.epoch}
    producer.init()
    assert [producer.init(**old, version=v)[0] for v in (5, 3)] == [fenced, unknown_fence]
    assert [producer.add(1, version=v) for v in (3, 1)] == [[fenced], [unknown_fence]]
    assert [producer.end(commit=True, version=v).error_code for v in (5, 4, 1)] == [fenced, fenced, unknown_fence]
    assert producer.produce().error_code == producer.commit_offset("g", 1) == unknown_fence


def test_an_open_transaction_is_invisible_to_readers_of_committed_records(
    producer: RawProducer, reader: RawConnection
) -> None:
    """Readers would act on results that are taken back."""
    assert producer.produce(b"a", b"b", b"c").base_offset == 0
    data = fetched(reader)
    assert (data.records, aborted_in(data), data.last_stable_offset, data.high_watermark) == (b"", [], 0, 3)
    assert (end_offset(reader, isolation=1), end_offset(reader, isolation=0)) == (0, 3)
    assert end_offset(reader, isolation=1, timestamp=-3) == -1
    plain = fetched(reader, isolation=0)
    assert [value for _, value in values_in(plain)] == [b"a", b"b", b"c"]
    assert (plain.aborted_transactions, plain.last_stable_offset) == (None, 0)


def test_the_marker_is_what_kafka_writes(producer: RawProducer, reader: RawConnection) -> None:
    """Clients decode it to know what to skip; another form is an aborted record that an application reads."""
    producer.produce()
    producer.end(commit=True)
    content = fetched(reader).records or b""
    position, header = list(batches_of(content, check_crc=True))[-1]
    (marker,) = records_of(content, position)
    assert (header.attributes, header.base_sequence, header.producer_epoch) == (TRANSACTIONAL | CONTROL, -1, 1)
    assert (marker.key, marker.value) == (b"\0\0\0\1", b"\0\0\0\0\0\0")


def test_an_answer_without_records_names_no_aborted_transaction(
    producer: RawProducer, other: MakeProducer, reader: RawConnection
) -> None:
    """A reader that waits for an open transaction is told of one that does not concern it, again and again."""
    producer.produce(b"taken back")
    other("open").produce(b"unfinished")
    producer.end(commit=False)
    data = fetched(reader, 1)
    assert (data.last_stable_offset, data.records, aborted_in(data)) == (1, b"", [])


def test_a_waiting_reader_is_woken_by_the_end_and_not_by_the_records(
    broker: EmbeddedBroker, producer: RawProducer, reader: RawConnection
) -> None:
    """A fetch that returns empty-handed at each append makes a loop of empty answers."""
    waiting = fetch_request(max_wait_ms=20_000, min_bytes=1)
    reader.send(waiting, version=12)
    broker.requests.wait_for("Fetch")
    producer.produce(b"a")
    assert [each.response for each in broker.requests.of("Fetch")] == [None]
    producer.end(commit=True)
    assert values_in(reader.read(waiting).responses[0].partitions[0]) == [(0, b"a")]


def test_a_transaction_begins_with_sequence_0(producer: RawProducer) -> None:
    """The first batch was lost: the producer must not go on as if it had been written."""
    for version in (12, 11):  # an older request neither: the partition waits for the transaction that a newer one began
        assert producer.produce(sequence=4, version=version).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.produce(sequence=0).error_code == ErrorCode.NONE


def test_a_batch_is_not_overtaken_by_the_one_after_it_when_a_transaction_begins(producer: RawProducer) -> None:
    """The first batch is refused for the moment and sent again: the second was written, and the first is lost."""
    assert producer.produce(sequence=3, version=11).error_code == ErrorCode.TRANSACTION_ABORTABLE
    assert producer.add(0) == [0]
    assert producer.produce(sequence=4, version=11).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.produce(sequence=3, version=11).error_code == ErrorCode.NONE
    assert producer.produce(sequence=4, version=11).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": None}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"transactional_id": "unknown"}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"epoch": 3}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"attributes": TRANSACTIONAL | CONTROL}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0}, ErrorCode.NONE),
    ],
)
def test_only_batches_of_the_transaction_get_in(producer: RawProducer, fields: dict[str, int], code: int) -> None:
    """A transaction that is never ended blocks every reader of its partition."""
    assert producer.produce(**fields).error_code == code  # type: ignore[arg-type]  # one table for fields of all types


# --- offsets


def test_offsets_of_a_transaction_count_from_its_commit_on(producer: RawProducer, reader: RawConnection) -> None:
    """A group that goes on from offsets whose results were taken back loses those results."""
    assert producer.commit_offset("g", 7) == 0
    assert committed(reader, "g") == (-1, 0)
    assert committed(reader, "g", stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert [group.group_id for group in reader.ask(ListGroupsRequest(), version=5).groups] == ["g"]
    producer.end(commit=True)
    assert committed(reader, "g", stable=True) == (7, 0)
    producer.commit_offset("g", 9)
    producer.end(commit=False)
    assert committed(reader, "g", stable=True) == (7, 0)


def test_a_later_commit_outside_of_the_transaction_stays(producer: RawProducer, reader: RawConnection) -> None:
    """An administrator who resets a group would be overruled by an earlier transaction."""
    producer.commit_offset("g", 9)
    assert commit_offset(reader, 3, topic=TOPIC) == 0
    producer.end(commit=True)
    assert committed(reader, "g", stable=True) == (3, 0)


def test_only_the_right_epoch_of_a_member_commits_in_a_transaction(
    broker: EmbeddedBroker, producer: RawProducer, reader: RawConnection
) -> None:
    """A member that lost its partitions would commit over their new owner."""
    epoch = reader.ask(join(topics=(TOPIC,)), version=1).member_epoch
    stale, unknown = ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID
    claims: list[tuple[dict[str, object], int]] = [
        ({"member_id": "m", "generation": epoch}, 0),
        ({"member_id": "m", "generation": epoch + 1}, stale),
        ({"member_id": "m"}, stale),
        ({"member_id": "x", "generation": epoch}, unknown),
        ({"generation": epoch}, unknown),
        ({"instance_id": "i"}, unknown),
        ({}, 0),
    ]
    found = [producer.commit_offset("g", 1, **fields) for fields, _ in claims]  # type: ignore[arg-type]
    assert found == [code for _, code in claims]


@pytest.mark.parametrize(("group", "code"), [("new", ErrorCode.ILLEGAL_GENERATION), ("g", ErrorCode.UNKNOWN_MEMBER_ID)])
def test_a_group_without_members_takes_offsets_only_of_those_who_claim_no_membership(
    producer: RawProducer, reader: RawConnection, group: str, code: ErrorCode
) -> None:
    """A member whose group has ended, or was never there, would commit over its successors."""
    assert commit_offset(reader, 3, topic=TOPIC) == 0  # so that group g is known
    assert producer.commit_offset(group, 1, member_id="m", generation=0) == code
    assert producer.commit_offset(group, 1) == 0


# --- time and restarts


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    """A process that died would block readers for ever; the clock of the broker says when."""
    with (
        EmbeddedBroker({TOPIC: 1}, clock=ManualClock()) as broker,
        begun(broker, timeout_ms=10_000) as producer,
    ):
        producer_id, epoch = producer.producer_id, producer.epoch
        producer.produce()
        with RawConnection(broker.bootstrap_servers) as reader:
            broker.clock.advance(10_000)
            assert fetched(reader).last_stable_offset == 0
            broker.clock.advance(1_000)
            assert fetched(reader).last_stable_offset == 2
            assert aborted_in(fetched(reader)) == [(producer_id, 0)]
        assert producer.end(commit=True, epoch=epoch).error_code == ErrorCode.INVALID_TXN_STATE
        assert producer.produce().error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert producer.init(producer_id=producer_id, epoch=epoch) == (0, producer_id, epoch + 1)


@pytest.mark.parametrize("durable", [True, False])
def test_a_producer_whose_id_was_forgotten_is_told_so_and_begins_anew(
    tmp_path: Path, raw_producer: MakeProducer, durable: bool
) -> None:
    """A program that writes once a week fails in production, because Kafka has forgotten it by then."""
    clock = ManualClock()
    with EmbeddedBroker({TOPIC: 1}, clock=clock, data_dir=tmp_path if durable else None, profile="kafka") as broker:
        producer = raw_producer(broker)
        producer_id, epoch = producer.begin()
        producer.produce()
        producer.end(commit=True, version=4)
        broker.clock.advance(604_800_000 - 1)
        assert producer.end(commit=True, version=4).error_code == 0
        broker.clock.advance(3_600_000)
        producer.sequence = 0
        codes = [producer.produce().error_code, producer.add_offsets("g"), producer.end(commit=True).error_code]
        assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3
        assert producer.add(0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        broker.stop()
        broker.start()
        assert tuple(broker.transactions) == ()
        producer.close()
        again = raw_producer(broker)
        error, other_id, other_epoch = again.init(producer_id=producer_id, epoch=epoch)
        assert (error, other_epoch) == (0, 0)
        assert other_id != producer_id


def test_an_id_is_forgotten_in_real_time() -> None:
    """A test of such a program sets a short time and waits."""
    with EmbeddedBroker({TOPIC: 1}, config={"transactional.id.expiration.ms": "1"}) as broker, begun(broker):
        wait_until(lambda: tuple(broker.transactions) == (), TIMEOUT_S, "the id to be forgotten")


@pytest.mark.parametrize("durable", [True, False])
def test_an_open_transaction_goes_on_after_a_crash(tmp_path: Path, raw_producer: MakeProducer, durable: bool) -> None:
    """A restart of the broker would take back what was written, or show it before its commit."""
    with EmbeddedBroker({TOPIC: 3}, data_dir=tmp_path if durable else None) as broker:
        before = raw_producer(broker)
        before.begin()
        before.produce(b"a")
        before.commit_offset("g", 5)
        before.close()
        broker.crash()
        broker.start()
        after = raw_producer(broker)
        after.producer_id, after.epoch, after.sequence = before.producer_id, before.epoch, 1
        with RawConnection(broker.bootstrap_servers) as reader:
            assert fetched(reader).last_stable_offset == 0
            assert committed(reader, "g", stable=True)[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert after.produce(b"b").base_offset == 1
            assert after.end(commit=True).error_code == 0
            assert values_in(fetched(reader)) == [(0, b"a"), (1, b"b")]
            assert committed(reader, "g", stable=True) == (5, 0)


def test_an_end_that_was_decided_before_a_crash_is_written_after_it(tmp_path: Path) -> None:
    """The producer was told that its commit succeeded."""
    config = {"kip848.transaction.marker.delay.ms": "600000"}
    with EmbeddedBroker({TOPIC: 1}, data_dir=tmp_path, config=config) as broker, begun(broker) as producer:
        producer.produce(b"a")
        assert producer.end(commit=True).error_code == 0
        broker.crash()
    with EmbeddedBroker(data_dir=tmp_path) as broker, RawConnection(broker.bootstrap_servers) as reader:
        assert values_in(fetched(reader)) == [(0, b"a")]


def test_aborted_transactions_are_known_after_a_restart(tmp_path: Path) -> None:
    """Otherwise readers of committed records would receive records of an aborted transaction."""
    with EmbeddedBroker({TOPIC: 1}, data_dir=tmp_path) as broker, begun(broker) as producer:
        producer.produce()
        producer.end(commit=False)
    with EmbeddedBroker(data_dir=tmp_path) as broker, RawConnection(broker.bootstrap_servers) as reader:
        assert aborted_in(fetched(reader)) == [(producer.producer_id, 0)]


def test_a_transaction_that_no_coordinator_knows_is_aborted_when_the_folder_is_loaded(tmp_path: Path) -> None:
    """Without transactions.log, which was lost, readers of committed records would wait for ever."""
    with EmbeddedBroker({TOPIC: 1}, data_dir=tmp_path) as broker, begun(broker) as producer:
        producer.produce()
    (tmp_path / "transactions.log").unlink()
    with EmbeddedBroker(data_dir=tmp_path) as broker, RawConnection(broker.bootstrap_servers) as reader:
        assert fetched(reader).last_stable_offset == 2


def test_delayed_markers_show_what_a_slow_cluster_does() -> None:
    """Programs that read what they have just committed, or begin again at once, meet this on a real Kafka."""
    config = {"kip848.transaction.marker.delay.ms": "60000"}
    with EmbeddedBroker({TOPIC: 1}, clock=ManualClock(), config=config) as broker, begun(broker) as producer:
        producer.produce(b"a")
        assert producer.end(commit=True, epoch=0).error_code == 0
        assert producer.end(commit=True, epoch=0).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert producer.produce(epoch=1, sequence=0).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert producer.init()[0] == ErrorCode.CONCURRENT_TRANSACTIONS
        with RawConnection(broker.bootstrap_servers) as reader:
            assert fetched(reader).last_stable_offset == 0
            broker.clock.advance(60_000)
            assert values_in(fetched(reader)) == [(0, b"a")]
        assert producer.produce(epoch=1, sequence=0).error_code == 0


def test_a_topic_that_was_deleted_meanwhile_does_not_hold_up_the_end(
    broker: EmbeddedBroker, producer: RawProducer, reader: RawConnection
) -> None:
    """The producer could never begin its next transaction."""
    producer.produce()
    broker.topics.delete(TOPIC)
    assert producer.end(commit=True).error_code == 0
    assert producer.end(commit=False).error_code == 0


# --- what a test sees and does


def test_a_transaction_is_shown_as_it_is(broker: EmbeddedBroker, producer: RawProducer) -> None:
    """A failing test has to say where a transaction stands."""
    producer.produce(partition=1)
    (shown,) = tuple(broker.transactions)
    assert (shown.transactional_id, shown.state, shown.partitions) == ("tx", "Ongoing", ((TOPIC, 1),))
    producer.end(commit=True)
    done = broker.transactions.wait_for("tx", "CompleteCommit", timeout_s=TIMEOUT_S)
    assert (done.epoch, done.partitions) == (1, ())


def test_a_transaction_is_aborted_by_hand(broker: EmbeddedBroker, producer: RawProducer, reader: RawConnection) -> None:
    """A test sees how a program behaves after a transaction time-out without waiting for one."""
    producer.produce()
    broker.transactions.abort("tx")
    assert aborted_in(fetched(reader)) == [(producer.producer_id, 0)]
    assert producer.produce().error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(IllegalStateError, match="its state is CompleteAbort"):
        broker.transactions.abort("tx")


def test_waiting_in_vain_for_a_transaction_says_how_it_stands(broker: EmbeddedBroker, producer: RawProducer) -> None:
    """Without that a test fails and shows nothing."""
    assert producer.epoch == 0
    with pytest.raises(RequestTimeoutError, match=r"not in state Ongoing within .*state='Empty'"):
        broker.transactions.wait_for("tx", "Ongoing", timeout_s=0.01)


# --- administrators


def test_administrators_see_transactional_ids(producer: RawProducer, reader: RawConnection) -> None:
    """An operator who looks for a hanging transaction begins with this list."""
    producer.produce(partition=1)
    request = DescribeTransactionsRequest(transactional_ids=("tx", "nobody", ""))
    shown, unknown, unnamed = reader.ask(request, version=0).transaction_states
    assert (shown.transaction_state, shown.producer_id, shown.producer_epoch) == ("Ongoing", producer.producer_id, 0)
    assert shown.topics == (DescribedTransactionTopic(topic=TOPIC, partitions=(1,)),)
    assert (unknown.error_code, unnamed.error_code) == (
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    )


@pytest.mark.parametrize(
    ("filters", "names", "unknown"),
    [
        ({}, ["idle", "tx"], ()),
        ({"state_filters": ("Ongoing", "Bogus")}, ["tx"], ("Bogus",)),
        ({"producer_id_filters": (10**6,)}, [], ()),
        ({"duration_filter": 3_600_000}, ["idle"], ()),
        ({"transactional_id_pattern": "t."}, ["tx"], ()),
        ({"transactional_id_pattern": "t"}, [], ()),
    ],
)
def test_transactional_ids_are_listed_by_filters(
    producer: RawProducer,
    other: MakeProducer,
    reader: RawConnection,
    filters: dict[str, Any],
    names: list[str],
    unknown: tuple[str, ...],
) -> None:
    """One that hangs is found among thousands by its state and age."""
    producer.produce()
    other("idle")
    answer = reader.ask(ListTransactionsRequest(**filters), version=2)
    assert [each.transactional_id for each in answer.transaction_states] == names
    assert answer.unknown_state_filters == unknown


def test_a_pattern_that_cannot_be_read_is_refused(reader: RawConnection) -> None:
    """As in Kafka; an empty list would look like an answer."""
    answer = reader.ask(ListTransactionsRequest(transactional_id_pattern="("), version=2)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_marker_by_hand_frees_readers_and_tells_the_coordinator_nothing(
    broker: EmbeddedBroker, producer: RawProducer, reader: RawConnection
) -> None:
    """So does `abortTransaction` of Kafka's Admin; the producer still ends its transaction."""
    producer.produce(b"a")
    topic = WritableTxnMarkerTopic(name=TOPIC, partition_indexes=(0, 9))
    marker = WritableTxnMarker(producer_id=producer.producer_id, producer_epoch=0, topics=(topic,))
    (result,) = reader.ask(WriteTxnMarkersRequest(markers=(marker,)), version=1).markers
    assert [each.error_code for each in result.topics[0].partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert fetched(reader).last_stable_offset == 2
    assert next(iter(broker.transactions)).state == "Ongoing"
    assert producer.end(commit=False).error_code == 0
    assert fetched(reader).high_watermark == 3


def test_a_marker_with_an_epoch_of_before_is_refused(producer: RawProducer, reader: RawConnection) -> None:
    """It would end a transaction that it does not belong to."""
    producer.produce()
    producer.end(commit=True)
    topic = WritableTxnMarkerTopic(name=TOPIC, partition_indexes=(0,))
    marker = WritableTxnMarker(producer_id=producer.producer_id, producer_epoch=0, topics=(topic,))
    (result,) = reader.ask(WriteTxnMarkersRequest(markers=(marker,)), version=1).markers
    assert result.topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_of_a_negative_producer_id_is_refused(reader: RawConnection) -> None:
    """No producer has one; the broker would close the connection on an error of its own."""
    topic = WritableTxnMarkerTopic(name=TOPIC, partition_indexes=(0,))
    marker = WritableTxnMarker(producer_id=-5, producer_epoch=0, topics=(topic,))
    (result,) = reader.ask(WriteTxnMarkersRequest(markers=(marker,)), version=1).markers
    assert result.topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_what_is_deleted_is_not_brought_back_by_a_commit(producer: RawProducer, reader: RawConnection) -> None:
    """An administrator who deletes a group or an offset would find it again."""
    producer.commit_offset("g", 9)
    producer.commit_offset("h", 9)
    topic = OffsetDeleteRequestTopic(name=TOPIC, partitions=(OffsetDeleteRequestPartition(partition_index=0),))
    reader.ask(OffsetDeleteRequest(group_id="g", topics=(topic,)), version=0)
    assert reader.ask(DeleteGroupsRequest(groups_names=("h",)), version=2).results[0].error_code == 0
    producer.end(commit=True)
    assert [committed(reader, group, stable=True) for group in ("g", "h")] == [(-1, 0), (-1, 0)]
