"""Records without a client: EmbeddedBroker.produce, records and wait_for_records."""

from __future__ import annotations

import threading

import confluent_kafka
import pytest
from confluent_kafka import Producer

from kip848_client import EmbeddedBroker
from kip848_client.common.clock import ManualClock
from kip848_client.errors import BrokerError, ConfigError, ErrorCode, MessageValueError, RequestTimeoutError
from kip848_client.testing import NewRecord
from kip848_client.testing.broker.topics.records import partition_for

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def test_a_record_is_read_by_a_client_as_it_was_given(kip848_broker: EmbeddedBroker) -> None:
    """A test feeds records to a service and compares key, value, headers and timestamp."""
    kip848_broker.topics.create("orders", partitions=2)
    at_ms = 1_700_000_000_123
    written = kip848_broker.produce("orders", "tea", b"ann", {"trace": "1"}, partition=1, timestamp_ms=at_ms)
    reader = confluent_kafka.Consumer({"bootstrap.servers": kip848_broker.bootstrap_servers, "group.id": "r"})
    reader.assign([confluent_kafka.TopicPartition("orders", 1, 0)])
    message = reader.poll(20)
    reader.close()
    assert message is not None
    assert (message.key(), message.value(), message.headers()) == (b"ann", b"tea", [("trace", b"1")])
    assert message.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, at_ms)
    assert (written.partition, written.offset) == (1, 0) == (message.partition(), message.offset())
    assert kip848_broker.records("orders") == (written,)


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_a_client_are_seen_in_any_compression(kip848_broker: EmbeddedBroker, codec: str) -> None:
    """A test looks at what the service wrote, and the service chooses its codec."""
    kip848_broker.topics.create("orders")
    producer = Producer(
        {"bootstrap.servers": kip848_broker.bootstrap_servers, "compression.type": codec, "linger.ms": 50}
    )
    for number in range(100):
        producer.produce("orders", key=str(number), value=b"tea " * 100, headers={"n": str(number)})
    assert producer.flush(20) == 0
    records = kip848_broker.records("orders", 0)
    assert [(record.offset, record.key, record.headers) for record in records] == [
        (number, str(number).encode(), (("n", str(number).encode()),)) for number in range(100)
    ]
    assert {record.value for record in records} == {b"tea " * 100}


def test_records_of_an_aborted_transaction_are_seen_only_on_request(kip848_broker: EmbeddedBroker) -> None:
    """A test must not count records that the service under test took back."""
    kip848_broker.topics.create("orders")
    producer = Producer({"bootstrap.servers": kip848_broker.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(20)
    for value, end in ((b"taken back", producer.abort_transaction), (b"kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("orders", value)
        producer.flush(20)
        end(20)
    assert [record.value for record in kip848_broker.records("orders")] == [b"kept"]
    assert [record.value for record in kip848_broker.records("orders", committed=False)] == [b"taken back", b"kept"]


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829), (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)  # fmt: skip
def test_keys_go_where_javas_producer_sends_them(key: bytes, hashed: int) -> None:
    """Services that join topics by key rely on it. The hashes are those of Kafka's own test."""
    assert partition_for(key, 1_000_003) == (hashed & 0x7FFFFFFF) % 1_000_003


def test_many_records_are_returned_in_their_order_and_spread_without_keys() -> None:
    """Each with its offset, so that a test can say which one the service is to see."""
    with EmbeddedBroker({"orders": 3}, clock=ManualClock(wall_ms=5_000)) as broker:
        written = broker.produce_many("orders", ["a", NewRecord("b", partition=2), "c", "d", None])
        assert [(record.value, record.partition, record.offset) for record in written] == [
            (b"a", 0, 0), (b"b", 2, 0), (b"c", 2, 1), (b"d", 0, 1), (None, 1, 0),
        ]  # fmt: skip
        assert {record.timestamp_ms for record in written} == {5_000}
        assert not list(broker.requests)


def test_waiting_ends_with_the_record_that_was_missing(kip848_broker: EmbeddedBroker) -> None:
    """A wait ends with the awaited record and not at an interval, so the test is as fast as the service."""
    kip848_broker.topics.create("orders", partitions=2)
    kip848_broker.produce("orders", "tea", partition=0)
    later = threading.Timer(0.05, kip848_broker.produce, ("orders", "milk"), {"partition": 1})
    later.start()
    assert [record.value for record in kip848_broker.wait_for_records("orders", 2)] == [b"tea", b"milk"]
    later.join()
    with pytest.raises(RequestTimeoutError, match=r"orders-0 has 1 records, not 2, after 0.01 s"):
        kip848_broker.wait_for_records("orders", 2, partition=0, timeout_s=0.01)


def test_a_wrong_topic_partition_or_value_is_told(kip848_broker: EmbeddedBroker) -> None:
    """A typing mistake costs a minute, not an hour; nothing is written."""
    kip848_broker.topics.create("orders", partitions=2)
    for call in (
        lambda: kip848_broker.produce("order", "tea"),
        lambda: kip848_broker.records("orders", 2),
        lambda: kip848_broker.produce_many("orders", ["tea", NewRecord("milk", partition=2)]),
    ):
        with pytest.raises(BrokerError) as refused:
            call()
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(MessageValueError, match="the value is dict"):
        kip848_broker.produce("orders", {"what": "tea"})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"clock is the class ManualClock; give an instance of it: ManualClock\(\)"):
        EmbeddedBroker(clock=ManualClock)  # type: ignore[arg-type]
    with pytest.raises(MessageValueError, match=r"the headers have 'trace'; give pairs"):
        kip848_broker.produce("orders", "tea", headers=["trace"])  # type: ignore[list-item]
    with pytest.raises(MessageValueError, match="takes several records"):
        kip848_broker.produce_many("orders", "tea")
    assert kip848_broker.records("orders") == ()


def test_committed_offsets_are_found_by_any_topic_partition(kip848_broker: EmbeddedBroker) -> None:
    """confluent-kafka's type is the one that a test has at hand."""
    kip848_broker.topics.create("orders")
    reader = confluent_kafka.Consumer({"bootstrap.servers": kip848_broker.bootstrap_servers, "group.id": "billing"})
    reader.commit(offsets=[confluent_kafka.TopicPartition("orders", 0, 3)], asynchronous=False)
    reader.close()
    committed = kip848_broker.groups.committed("billing")
    assert committed == {("orders", 0): 3}
    assert committed[confluent_kafka.TopicPartition("orders", 0)] == committed["orders", 0] == 3
    assert confluent_kafka.TopicPartition("orders", 1) not in committed


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_waits_are_awaited(anyio_backend: str) -> None:
    """A test of an asynchronous service must not stop the loop in which the service runs."""
    import anyio

    with EmbeddedBroker({"orders": 1}) as broker:
        found: list[object] = []

        async def wait() -> None:
            found.extend(await broker.aio.wait_for_records("orders", 1))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            broker.produce("orders", "tea")
        assert len(found) == 1


def test_its_repr_says_where_it_is_and_what_it_has() -> None:
    """The first thing that is printed when a test goes wrong."""
    broker = EmbeddedBroker({"orders": 6})
    assert repr(broker) == "<EmbeddedBroker, not started>"
    with broker:
        assert repr(broker) == f"<EmbeddedBroker {broker.bootstrap_servers}, topics orders:6>"
    assert repr(broker) == f"<EmbeddedBroker on port {broker.port}, stopped>"
