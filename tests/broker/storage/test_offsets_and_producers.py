"""ListOffsets and OffsetForLeaderEpoch, without a network."""

from __future__ import annotations

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.testing.broker.apis import list_offsets, offset_for_leader_epoch
from kip848_client.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
)
from tests.broker.storage.harness import QuietBroker, a_batch, a_broker, answer_of


def a_filled_broker() -> QuietBroker:
    """orders-0 holds offsets 2 to 4 at times 1300, 1200 and 1400; orders-1 is empty. Both at leader epoch 1."""
    broker = a_broker({"orders": 2})
    topic = broker.topics.get("orders")
    assert topic is not None
    broker.topics.append(topic, 0, a_batch(b"a", b"b", timestamps=(1000, 1100)))
    for log in topic.partitions:
        log.set_leader_epoch(1)
    broker.topics.append(topic, 0, a_batch(b"c", b"d", b"e", timestamps=(1300, 1200, 1400)))
    broker.topics.delete_records(topic, 0, 2)
    return broker


def listed(
    broker: QuietBroker,
    *partitions: tuple[int, int],
    topic: str = "orders",
    version: int = 11,
    leader_epoch: int = -1,
    isolation_level: int = 0,
) -> list[ListOffsetsPartitionResponse]:
    """Answers for (partition, timestamp)."""
    asked = [
        {"partition_index": index, "timestamp": at, "current_leader_epoch": leader_epoch} for index, at in partitions
    ]
    topics = [{"name": topic, "partitions": asked}]
    request = {"replica_id": -1, "isolation_level": isolation_level, "topics": topics}
    response = answer_of(broker, list_offsets, request, version=version)
    return [partition for answer in response.topics for partition in answer.partitions]


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (list_offsets.LATEST, (-1, 5, 1)),
        (list_offsets.EARLIEST, (-1, 2, 1)),
        (list_offsets.MAX_TIMESTAMP, (1400, 4, 1)),
        (list_offsets.EARLIEST_LOCAL, (-1, 2, 1)),
        (list_offsets.LATEST_TIERED, (-1, -1, -1)),
        (list_offsets.EARLIEST_PENDING_UPLOAD, (-1, -1, -1)),
        (0, (1300, 2, 1)),
        (1301, (1400, 4, 1)),
        (1401, (-1, -1, -1)),
    ],
)
def test_every_way_to_ask_for_an_offset_is_answered(timestamp: int, expected: tuple[int, int, int]) -> None:
    """Broken: auto.offset.reset, offsets_for_times or lag read the wrong place."""
    (answer,) = listed(a_filled_broker(), (0, timestamp))

    assert (answer.error_code, (answer.timestamp, answer.offset, answer.leader_epoch)) == (0, expected)


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(-1, (-1, 0, 1)), (-2, (-1, 0, 1)), (-3, (-1, -1, -1)), (1000, (-1, -1, -1))],
)
def test_an_empty_partition_begins_and_ends_at_0(timestamp: int, expected: tuple[int, int, int]) -> None:
    """Broken: the first consumer of a new topic has no position."""
    for isolation_level in (0, 1):
        (answer,) = listed(a_filled_broker(), (1, timestamp), isolation_level=isolation_level)

        assert (answer.timestamp, answer.offset, answer.leader_epoch) == expected


@pytest.mark.parametrize(
    ("timestamp", "first_version"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99)]
)
def test_a_question_of_a_later_version_is_refused(timestamp: int, first_version: int) -> None:
    """Broken: an old client's nonsense is answered as if it were a later version's question."""
    for version in (first_version - 1, first_version):
        if 1 <= version <= 11:
            (answer,) = listed(a_filled_broker(), (0, timestamp), version=version)
            refused = answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert refused is (version < first_version)
    assert listed(a_filled_broker(), (0, -7))[0].error_code == ErrorCode.UNSUPPORTED_VERSION


def test_each_partition_is_refused_by_itself() -> None:
    """Broken: one unknown partition hides the offsets of all others."""
    broker = a_filled_broker()

    known, unknown, negative = listed(broker, (0, -1), (2, -1), (-1, -1))
    twice = listed(broker, (0, -1), (1, -1), (0, -2))

    assert [known.error_code, unknown.error_code, negative.error_code] == [0, 3, 3]
    assert [answer.error_code for answer in twice] == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
    assert listed(broker, (0, -1), topic="nowhere")[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("claimed", "error"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (1, 0), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_another_leader_epoch_is_told_so(claimed: int, error: int) -> None:
    """Broken: a client with stale metadata takes offsets from the wrong leader."""
    broker = a_filled_broker()

    assert listed(broker, (0, -1), leader_epoch=claimed)[0].error_code == error
    asked = [{"topic": "orders", "partitions": [{"leader_epoch": 0, "current_leader_epoch": claimed}]}]
    ends = answer_of(broker, offset_for_leader_epoch, {"topics": asked}).topics[0].partitions
    assert [end.error_code for end in ends] == [error]
