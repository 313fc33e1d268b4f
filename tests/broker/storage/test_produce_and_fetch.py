"""Produce and Fetch, handler against handler, without a network."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from kip848_client.common.model import ZERO_UUID
from kip848_client.errors import ErrorCode, ProtocolError
from kip848_client.testing.broker.apis import fetch, produce
from kip848_client.wire.messages.fetch import FetchResponse, PartitionData
from kip848_client.wire.record_batch import batches_of, records_of
from tests.broker.storage.harness import Asked, QuietBroker, a_batch, a_broker, answer_of, ask
from tests.support.damaged_batches import sealed


def a_produce(
    topic: str, *batches: bytes | None, acks: int = -1, first_partition: int = 0, topic_id: uuid.UUID = ZERO_UUID
) -> dict[str, Any]:
    data = [{"index": index, "records": batch} for index, batch in enumerate(batches, start=first_partition)]
    topics = [{"name": topic, "topic_id": topic_id, "partition_data": data}]
    return {"acks": acks, "timeout_ms": 1000, "topic_data": topics}


def produced(broker: QuietBroker, request: dict[str, Any], *, version: int = 12) -> list[Any]:
    response = answer_of(broker, produce, request, version=version)
    return [partition for topic in response.responses for partition in topic.partition_responses]


def a_fetch(
    topic: str,
    *offsets: int,
    partition_max_bytes: int = 1_000_000,
    topic_id: uuid.UUID = ZERO_UUID,
    current_leader_epoch: int = -1,
    **fields: int,
) -> dict[str, Any]:
    of_each = {"partition_max_bytes": partition_max_bytes, "current_leader_epoch": current_leader_epoch}
    partitions = [{"partition": index, "fetch_offset": offset} | of_each for index, offset in enumerate(offsets)]
    topics = [{"topic": topic, "topic_id": topic_id, "partitions": partitions}]
    return {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50_000_000, "topics": topics} | fields


def fetched(response: FetchResponse) -> list[PartitionData]:
    return [partition for topic in response.responses for partition in topic.partitions]


def fetched_now(broker: QuietBroker, request: dict[str, Any], *, version: int = 12) -> list[PartitionData]:
    return fetched(answer_of(broker, fetch, request, version=version))


def values_of(data: PartitionData) -> list[tuple[int, bytes | None]]:
    records = data.records or b""
    return [
        (record.offset, record.value)
        for position, _ in batches_of(records, check_crc=True)
        for record in records_of(records, position)
    ]


def answer_to(asked: Asked) -> FetchResponse:
    (response,) = asked.answers
    assert isinstance(response, FetchResponse)
    return response


def test_what_was_produced_is_fetched_with_its_offsets_and_a_right_checksum() -> None:
    """Broken: consumers see wrong offsets, or refuse batches whose checksum no longer fits."""
    broker = a_broker({"orders": 1})

    first = produced(broker, a_produce("orders", a_batch(b"a", b"b")))[0]
    second = produced(broker, a_produce("orders", a_batch(b"c")))[0]

    assert (first.error_code, first.base_offset, first.log_append_time_ms, first.log_start_offset) == (0, 0, -1, 0)
    assert second.base_offset == 2
    (data,) = fetched_now(broker, a_fetch("orders", 0))
    assert values_of(data) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (3, 3, 0)


def test_a_fetch_parked_for_records_is_answered_by_the_next_produce() -> None:
    """Broken: every record reaches its consumer only after fetch.max.wait.ms."""
    broker = a_broker({"orders": 1})
    asked = ask(broker, fetch, a_fetch("orders", 0, max_wait_ms=500), version=12)
    assert not asked.answered

    produced(broker, a_produce("orders", a_batch(b"a")))
    broker.run_timers()

    assert values_of(fetched(answer_to(asked))[0]) == [(0, b"a")]
    assert (broker.pending_timers, broker.topics.watched_partitions) == (0, 0)


def test_a_fetch_without_new_records_is_answered_when_its_time_is_up() -> None:
    """Broken: consumers without traffic run into request time-outs."""
    broker = a_broker({"orders": 1})
    asked = ask(broker, fetch, a_fetch("orders", 0, max_wait_ms=500), version=12)

    broker.run_timers(after_ms=499)
    assert not asked.answered
    broker.run_timers(after_ms=1)

    (data,) = fetched(answer_to(asked))
    assert (data.error_code, data.records) == (0, b"")
    assert broker.topics.watched_partitions == 0


def test_records_below_min_bytes_do_not_wake_a_fetch_until_they_add_up() -> None:
    """Broken: fetch.min.bytes is ignored and consumers are answered record by record."""
    broker = a_broker({"orders": 2})
    batch = a_batch(b"x" * 100)
    asked = ask(broker, fetch, a_fetch("orders", 0, 0, max_wait_ms=500, min_bytes=len(batch) + 1), version=12)

    produced(broker, a_produce("orders", batch))
    broker.run_timers()
    assert not asked.answered
    produced(broker, a_produce("orders", batch, first_partition=1))
    broker.run_timers()

    assert [values_of(data) for data in fetched(answer_to(asked))] == [[(0, b"x" * 100)]] * 2


def test_one_produce_to_many_partitions_is_one_answer_with_all_of_them() -> None:
    """Broken: a fetch is answered with the first partition of a produce request alone, and a round trip is wasted."""
    broker = a_broker({"orders": 3})
    asked = ask(broker, fetch, a_fetch("orders", 0, 0, 0, max_wait_ms=500), version=12)

    produced(broker, a_produce("orders", a_batch(b"a"), a_batch(b"b"), a_batch(b"c")))
    broker.run_timers()

    assert [values_of(data)[0][1] for data in fetched(answer_to(asked))] == [b"a", b"b", b"c"]


def test_a_parked_fetch_is_forgotten_with_its_connection() -> None:
    """Broken: each lost consumer leaves a waiter behind, and the broker's memory grows."""
    broker = a_broker({"orders": 1})
    asked = ask(broker, fetch, a_fetch("orders", 0, max_wait_ms=500), version=12)

    asked.context.cancel()

    assert (broker.pending_timers, broker.topics.watched_partitions) == (0, 0)
    produced(broker, a_produce("orders", a_batch(b"a")))
    broker.run_timers(after_ms=1000)
    assert not asked.answered


@pytest.mark.parametrize(
    ("version", "error"), [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_deleting_a_topic_wakes_the_fetches_that_wait_for_it(version: int, error: ErrorCode) -> None:
    """Broken: consumers of a deleted topic hear of it only at the end of their wait."""
    broker = a_broker({"orders": 2})
    topic = broker.topics.get("orders")
    assert topic is not None
    request = a_fetch("orders", 0, 0, max_wait_ms=500, topic_id=topic.topic_id)
    asked = ask(broker, fetch, request, version=version)

    broker.topics.delete("orders")
    broker.run_timers()

    assert [data.error_code for data in fetched(answer_to(asked))] == [error, error]
    assert broker.topics.watched_partitions == 0


def test_an_unknown_topic_alone_is_answered_at_once_but_beside_others_it_waits_with_them() -> None:
    """Broken: a consumer that still asks for a deleted topic spins, or a lone one waits without need."""
    broker = a_broker({"orders": 1})
    assert fetched_now(broker, a_fetch("nowhere", 0, max_wait_ms=500))[0].error_code == 3
    both = a_fetch("orders", 0, max_wait_ms=500)
    both["topics"] += a_fetch("nowhere", 0)["topics"]

    asked = ask(broker, fetch, both, version=12)
    assert not asked.answered
    broker.run_timers(after_ms=500)

    assert [data.error_code for data in fetched(answer_to(asked))] == [0, 3]


def test_topics_are_found_by_id_from_version_13() -> None:
    """Broken: current clients cannot consume, or read a re-created topic as if it were the old one."""
    broker = a_broker({"orders": 1})
    topic = broker.topics.get("orders")
    assert topic is not None
    request = a_produce("", a_batch(b"a"), topic_id=topic.topic_id)
    assert produced(broker, request, version=13)[0].error_code == 0
    stale = a_produce("", a_batch(b"a"), topic_id=uuid.UUID(int=5))
    assert produced(broker, stale, version=13)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    response = answer_of(broker, fetch, a_fetch("", 0, topic_id=topic.topic_id), version=18)

    assert response.responses[0].topic_id == topic.topic_id
    assert values_of(response.responses[0].partitions[0]) == [(0, b"a")]
    (unknown,) = fetched_now(broker, a_fetch("", 0, topic_id=uuid.UUID(int=5)), version=13)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_whole_batches_are_returned_up_to_the_limits_and_the_first_one_always() -> None:
    """Broken: a batch larger than the limit blocks its partition for ever, or limits are overrun."""
    broker = a_broker({"orders": 3})
    batch = a_batch(b"x" * 1000)
    for _ in range(3):
        produced(broker, a_produce("orders", batch, batch, batch))

    small = fetched_now(broker, a_fetch("orders", 0, 0, 0, partition_max_bytes=10))
    by_partition = fetched_now(broker, a_fetch("orders", 0, 0, 0, partition_max_bytes=2 * len(batch)))
    by_total = fetched_now(broker, a_fetch("orders", 0, 0, 0, max_bytes=4 * len(batch) + 1))

    assert [len(values_of(data)) for data in small] == [1, 0, 0]
    assert [len(values_of(data)) for data in by_partition] == [2, 2, 2]
    assert [len(values_of(data)) for data in by_total] == [3, 1, 0]


@pytest.mark.parametrize(
    ("claimed", "error"), [(-1, 0), (0, ErrorCode.FENCED_LEADER_EPOCH), (1, 0), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_a_client_with_another_leader_epoch_is_told_so(claimed: int, error: int) -> None:
    """Broken: a client with stale metadata is served by a leader that it does not know."""
    broker = a_broker({"orders": 1})
    topic = broker.topics.get("orders")
    assert topic is not None
    topic.partitions[0].set_leader_epoch(1)

    asked = ask(broker, fetch, a_fetch("orders", 0, current_leader_epoch=claimed, max_wait_ms=100), version=12)
    broker.run_timers(after_ms=0 if error else 100)

    assert fetched(answer_to(asked))[0].error_code == error


def test_acks_0_has_no_answer() -> None:
    """Broken: the client takes the unexpected answer for that of its next request."""
    broker = a_broker({"orders": 1})

    asked = ask(broker, produce, a_produce("orders", a_batch(b"a"), acks=0), version=9)

    assert asked.answers == [None]
    assert values_of(fetched_now(broker, a_fetch("orders", 0))[0]) == [(0, b"a")]


def test_acks_0_that_fails_closes_the_connection() -> None:
    """Broken: a fire-and-forget producer to a topic that is gone never refreshes its metadata."""
    broker = a_broker({"orders": 1})

    with pytest.raises(ProtocolError, match="acks=0 to nowhere-0 failed: UNKNOWN_TOPIC_OR_PARTITION"):
        ask(broker, produce, a_produce("nowhere", a_batch(b"a"), acks=0), version=9)


def test_each_partition_of_a_produce_request_fails_by_itself() -> None:
    """Broken: one bad partition loses the records of all others."""
    broker = a_broker({"orders": 1})

    good, no_partition = produced(broker, a_produce("orders", a_batch(b"a"), a_batch(b"b")))
    (empty,) = produced(broker, a_produce("orders", None))
    (bad_acks,) = produced(broker, a_produce("orders", a_batch(b"a"), acks=2))

    assert (good.error_code, good.base_offset) == (0, 0)
    assert (no_partition.error_code, no_partition.base_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert empty.error_code == ErrorCode.INVALID_RECORD
    assert bad_acks.error_code == ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize(
    ("attributes", "version", "error"),
    [
        (0x04, 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (0x04, 7, ErrorCode.UNKNOWN_SERVER_ERROR),  # its records are not packed at all
        (0x10, 12, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (0x20, 12, ErrorCode.INVALID_RECORD),
        (0x08, 12, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_batches_that_a_client_may_not_send_are_refused(attributes: int, version: int, error: ErrorCode) -> None:
    """Broken: consumers meet control batches, or compressions that their version cannot read."""
    broker = a_broker({"orders": 1})
    batch = bytearray(a_batch(b"a"))
    batch[22] = attributes

    assert produced(broker, a_produce("orders", sealed(batch)), version=version)[0].error_code == error


def test_a_topic_says_how_long_its_batches_may_be() -> None:
    """Broken: max.message.bytes has no effect, and a test of MESSAGE_TOO_LARGE cannot be written."""
    broker = a_broker(config={"message.max.bytes": 500})
    broker.topics.create("small", 1, configs={"max.message.bytes": "200"})
    broker.topics.create("usual", 1)
    batch = a_batch(b"x" * 300)

    assert produced(broker, a_produce("small", batch))[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produced(broker, a_produce("usual", batch))[0].error_code == 0
    assert produced(broker, a_produce("usual", a_batch(b"x" * 500)))[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
