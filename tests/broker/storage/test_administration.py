"""DeleteRecords, AlterConfigs and DescribeLogDirs, and a Fetch whose past is not the log's."""

from __future__ import annotations

from kip848_client.errors import ErrorCode
from kip848_client.testing.broker.apis import alter_configs, delete_records, describe_log_dirs, fetch, list_offsets
from kip848_client.wire.messages.fetch import PartitionData
from tests.broker.storage.harness import QuietBroker, a_batch, a_broker, answer_of

TOPIC = 2
EARLIEST = -2


def with_records(count: int) -> QuietBroker:
    """A broker whose topic `t` has *count* batches of one record, and one partition more."""
    broker = a_broker({"t": 2})
    topic = broker.topics.get("t")
    assert topic is not None
    for number in range(count):
        broker.topics.append(topic, 0, a_batch(str(number).encode()))
    return broker


def fetched(broker: QuietBroker, **asked: int) -> PartitionData:
    """What a Fetch of partition 0 is answered."""
    topics = [{"topic": "t", "partitions": [{"partition_max_bytes": 1000} | asked]}]
    data: PartitionData = answer_of(broker, fetch, {"topics": topics}, version=12).responses[0].partitions[0]
    return data


def test_deleted_records_are_gone_for_readers_and_the_beginning_moves() -> None:
    """Broken: tests of auto.offset.reset, which delete the records that a consumer stood at, test nothing."""
    broker = with_records(5)
    asked = [{"name": "t", "partitions": [{"offset": 3}, {"partition_index": 7, "offset": 1}]}]
    done, missing = answer_of(broker, delete_records, {"topics": asked}).topics[0].partitions
    assert (done.low_watermark, done.error_code) == (3, ErrorCode.NONE)
    assert (missing.low_watermark, missing.error_code) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert fetched(broker, fetch_offset=2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    earliest = [{"name": "t", "partitions": [{"timestamp": EARLIEST}]}]
    answer = answer_of(broker, list_offsets, {"topics": earliest})
    assert answer.topics[0].partitions[0].offset == 3


def test_what_a_replaced_configuration_does_not_name_is_a_default_again() -> None:
    """Broken: tools of the older way leave settings behind that they mean to take back."""
    broker = with_records(0)
    broker.topics.set_configs("t", {"retention.ms": "1", "cleanup.policy": "compact"})
    configs = [{"name": "retention.ms", "value": "2"}]
    resource = {"resource_type": TOPIC, "resource_name": "t", "configs": configs}
    answer = answer_of(broker, alter_configs, {"resources": [resource]})
    topic = broker.topics.get("t")
    assert answer.responses[0].error_code == ErrorCode.NONE
    assert topic is not None
    assert topic.configs == {"retention.ms": "2"}


def test_a_folder_is_described_with_the_bytes_of_the_partitions_that_were_asked_for() -> None:
    """Broken: administrators see no sizes, or those of partitions that they did not ask for."""
    broker = with_records(3)
    asked = [{"topic": "t", "partitions": [0, 9]}]
    (folder,) = answer_of(broker, describe_log_dirs, {"topics": asked}).results
    (partition,) = folder.topics[0].partitions
    assert (partition.partition_index, partition.partition_size) == (0, 3 * len(a_batch(b"0")))
    (everything,) = answer_of(broker, describe_log_dirs, {"topics": None}).results
    assert [item.partition_index for item in everything.topics[0].partitions] == [0, 1]


def test_a_reader_beyond_the_end_of_its_epoch_is_told_where_it_ended() -> None:
    """Broken: a reader of records that were truncated reads on behind the new ones."""
    broker = with_records(2)
    topic = broker.topics.get("t")
    assert topic is not None
    topic.partitions[0].set_leader_epoch(4)
    broker.topics.append(topic, 0, a_batch(b"new"))
    answer = fetched(broker, fetch_offset=3, last_fetched_epoch=0)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 2)
    assert (answer.error_code, answer.records) == (ErrorCode.NONE, b"")
