"""A flood by one peer: memory stays bounded and other clients are served."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from msgspec.structs import replace

from kip848_client import EmbeddedBroker
from kip848_client.errors import ErrorCode, ProtocolError
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import decode_request, encode_request
from kip848_client.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kip848_client.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.init_producer_id import InitProducerIdRequest
from kip848_client.wire.messages.list_groups import ListGroupsRequest
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.group_requests import commit_offset, heartbeat, join

pytestmark = pytest.mark.kip848_broker(
    topics={"t": 2},
    config={
        "kip848.members.max": 20,
        "kip848.groups.max": 10,
        "kip848.transactional.ids.max": 2,
    },
)


def test_members_of_all_groups_together_are_limited(connection: RawConnection) -> None:
    """The member above the limit gets an error; the others go on, and a freed place is given again."""
    epoch = connection.ask(join("m", group="mine", topics=("t",)), version=1).member_epoch
    answers = [connection.ask(join(f"f{number}", group="flooded", topics=("t",)), version=1) for number in range(30)]
    assert [answer.error_code for answer in answers].count(ErrorCode.NONE) == 19
    assert answers[-1].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "kip848.members.max" in (answers[-1].error_message or "")
    assert connection.ask(heartbeat(epoch, "m", group="mine"), version=1).error_code == ErrorCode.NONE
    assert connection.ask(heartbeat(-1, "f3", group="flooded"), version=1).error_code == ErrorCode.NONE
    assert connection.ask(join("n", group="mine", topics=("t",)), version=1).error_code == ErrorCode.NONE


def test_groups_are_limited_also_those_that_are_empty_or_only_offsets(connection: RawConnection) -> None:
    """A client that makes up group ids, by joining and leaving or by commits, does not fill the memory with them."""
    assert commit_offset(connection, 1, group="mine", topic="t") == ErrorCode.NONE
    for number in range(30):
        connection.ask(join("m", group=f"g{number}", topics=("t",)), version=1)
        connection.ask(heartbeat(-1, "m", group=f"g{number}"), version=1)
    assert commit_offset(connection, 1, group="another", topic="t") == ErrorCode.POLICY_VIOLATION
    refused = connection.ask(join("m", group="another", topics=("t",)), version=1)
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "kip848.groups.max" in (refused.error_message or "")
    assert len(connection.ask(ListGroupsRequest(), version=5).groups) == 10
    assert commit_offset(connection, 1, group="mine", topic="t") == ErrorCode.NONE
    assert connection.ask(join("m", group="g3", topics=("t",)), version=1).error_code == ErrorCode.NONE


def test_a_transactional_id_too_many_takes_the_place_of_an_idle_one(
    broker: EmbeddedBroker, connection: RawConnection
) -> None:
    """A broker of a test suite that makes up ids would refuse them after some time, for seven days."""
    for number in range(5):
        request = InitProducerIdRequest(transactional_id=f"t{number}", transaction_timeout_ms=60_000)
        assert connection.ask(request, version=5).error_code == ErrorCode.NONE
    assert [known.transactional_id for known in tuple(broker.transactions)] == ["t3", "t4"]


def test_a_flood_of_joins_leaves_memory_bounded_and_others_served() -> None:
    """Thousands of members that join and are never heard of again: the coordinator grows to its limit, no further."""
    config = {
        "kip848.members.max": 300,
        "kip848.request.log.max.entries": 100,
        "group.consumer.session.timeout.ms": 60_000,  # those that joined stay, however slow the machine is
    }
    with EmbeddedBroker({"t": 4}, config=config) as broker, RawConnection(broker.bootstrap_servers) as connection:
        epoch = connection.ask(join("m", group="mine", topics=("t",)), version=1).member_epoch
        for number in range(300):
            connection.ask(join(f"first{number}", group=f"g{number % 7}", topics=("t",)), version=1)

        def flood(count: int) -> int:
            """Join in vain; the bytes that the process has afterwards."""
            for number in range(count):
                answer = connection.ask(join(f"second{number}", group=f"g{number % 7}", topics=("t",)), version=1)
                assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        tracemalloc.start()
        try:
            warm = flood(300)
            assert flood(1_200) - warm < 600_000, "each request that was refused left 500 bytes or more"
        finally:
            tracemalloc.stop()
        assert connection.ask(heartbeat(epoch, "m", group="mine"), version=1).error_code == ErrorCode.NONE


def test_a_request_of_60_000_partitions_is_answered(connection: RawConnection) -> None:
    """Kafka answers it. An administrator who asks for the ends of a large cluster would lose the connection."""
    asked = [{"partition_index": number, "timestamp": -1} for number in range(60_000)]
    (topic,) = connection.call(ApiKey.LIST_OFFSETS, 7, topics=[{"name": "large", "partitions": asked}]).topics
    answered = {(item.partition_index, item.error_code) for item in topic.partitions}
    assert answered == {(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for number in range(60_000)}


def test_a_request_with_more_elements_than_the_broker_shall_read_loses_its_connection() -> None:
    """A request of two million group ids takes hundreds of megabytes and seconds, in which others wait."""
    asked = DescribeGroupsRequest(groups=tuple(f"g{number}" for number in range(31)))
    with EmbeddedBroker(config={"kip848.request.max.elements": 30}) as broker:
        with RawConnection(broker.bootstrap_servers) as connection:
            assert len(connection.ask(replace(asked, groups=asked.groups[:30]), version=6).groups) == 30
        with RawConnection(broker.bootstrap_servers) as flooding:
            flooding.send(asked, version=6)
            assert flooding.is_closed_by_peer()


@pytest.mark.parametrize("version", [9, 10])
def test_offsets_of_20_000_partitions_are_committed_in_one_request(version: int) -> None:
    """Kafka takes it. A client of so many partitions could commit none of them."""
    with EmbeddedBroker({"a": 9_000, "b": 9_000, "c": 2_000}) as broker, RawConnection(broker.bootstrap_servers) as raw:
        names = {topic.name: topic for topic in raw.call(ApiKey.METADATA, 12, topics=None).topics}
        topics = [
            {
                "name": name,
                "topic_id": topic.topic_id,
                "partitions": [{"partition_index": number, "committed_offset": 7} for number in range(partitions)],
            }
            for name, topic in names.items()
            for partitions in (len(topic.partitions),)
        ]
        answer = raw.call(ApiKey.OFFSET_COMMIT, version, group_id="g", topics=topics)
        answered = [
            (topic.name or topic.topic_id, item.partition_index, item.error_code)
            for topic in answer.topics
            for item in topic.partitions
        ]
        asked = [
            (topic["name" if version < 10 else "topic_id"], item["partition_index"], 0)
            for topic in topics
            for item in topic["partitions"]
        ]
        assert answered == asked
        assert len(broker.groups.committed("g")) == 20_000


def test_elements_of_all_arrays_together_are_counted_and_tagged_fields_with_them() -> None:
    """Many short arrays, or a million tags that are only stepped over, take as long as one long array."""
    partitions = (OffsetCommitRequestPartition(committed_offset=1),) * 5
    topics = (OffsetCommitRequestTopic(name="t", partitions=partitions),) * 6
    commit_of_36 = encode_request(
        OffsetCommitRequest(group_id="g", topics=topics), api_version=9, correlation_id=1, client_id=None
    )
    assert decode_request(commit_of_36, elements_max=36)
    with pytest.raises(ProtocolError, match="more elements together"):
        decode_request(commit_of_36, elements_max=35)
    plain = encode_request(ListGroupsRequest(), api_version=5, correlation_id=1, client_id=None)
    tagged = plain[:-1] + b"\x28" + b"\x01\x00" * 40
    assert decode_request(tagged, elements_max=40)
    with pytest.raises(ProtocolError, match="more elements together"):
        decode_request(tagged, elements_max=39)


def test_a_group_that_is_named_many_times_is_described_once(connection: RawConnection) -> None:
    """A thousand names of one large group would be a thousand descriptions, and others wait for all of them."""
    connection.ask(join("m", group="g", topics=("t",)), version=1)
    described = connection.ask(ConsumerGroupDescribeRequest(group_ids=("g",) * 20), version=1)
    assert [group.group_id for group in described.groups] == ["g"]


def test_one_request_creates_so_many_topics_and_partitions_and_no_more() -> None:
    """A thousand topics of ten thousand partitions each take more memory than any machine of a test has."""
    many = CreatableTopic(num_partitions=6_000, replication_factor=1)
    with EmbeddedBroker() as broker, RawConnection(broker.bootstrap_servers) as connection:
        request = CreateTopicsRequest(topics=(replace(many, name="a"), replace(many, name="b")))
        results = connection.ask(request, version=7).topics
        assert [topic.error_code for topic in results] == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
        topics = tuple(CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=1) for n in range(1_001))
        results = connection.ask(CreateTopicsRequest(topics=topics, validate_only=True), version=7).topics
        assert [topic.error_code for topic in results] == [ErrorCode.NONE] * 1_000 + [ErrorCode.POLICY_VIOLATION]
