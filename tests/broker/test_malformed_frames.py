"""What the embedded broker does with frames that no client should send: as Kafka 4.3.1 does, to which all were sent.

A frame that cannot be read has no answer: its connection is closed, and no other member notices. Everything that can be
read is answered, however odd.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from uuid import UUID

import pytest

from kip848_client.broker import EmbeddedBroker
from kip848_client.errors import ErrorCode
from kip848_client.wire.codec import decode_response, encode_request, frame
from kip848_client.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kip848_client.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kip848_client.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from kip848_client.wire.schema import Request, Response
from tests.support.raw_connection import RawConnection

ID = UUID(int=77)
LIST_KEY, HEARTBEAT_KEY, DESCRIBE_KEY, FETCH_KEY, COMMIT_KEY = 16, 68, 69, 9, 8


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"t": 2}, config={"socket.request.max.bytes": "65536"}) as running:
        yield running


def bytes_of(request: Request[Response], version: int) -> bytes:
    return encode_request(request, api_version=version, correlation_id=7, client_id="cid")


def outcome(broker: EmbeddedBroker, data: bytes) -> str:
    """``closed`` or ``answered``."""
    with RawConnection(broker.bootstrap_servers) as opened:
        opened.socket.sendall(frame(data))
        try:
            opened.read_frame()
        except (EOFError, ConnectionResetError):
            return "closed"
        return "answered"


def header(key: int, version: int, *, correlation_id: int = 7, client_id: bytes | None = b"cid") -> bytes:
    length = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, correlation_id, length) + (client_id or b"")


REQUESTS: dict[str, tuple[Request[Response], int]] = {
    "heartbeat v0": (
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=5,
            rack_id="r",
            topic_partitions=(TopicPartitions(ID, (0, 1)),),
            subscribed_topic_names=("t",),
            server_assignor="range",
        ),
        0,
    ),
    "heartbeat v1": (
        ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=5, subscribed_topic_regex="a.*"),
        1,
    ),
    "describe v1": (ConsumerGroupDescribeRequest(group_ids=("g", "h"), include_authorized_operations=True), 1),
    "commit v2": (
        OffsetCommitRequest(
            group_id="g",
            topics=(OffsetCommitRequestTopic(name="t", partitions=(OffsetCommitRequestPartition(partition_index=0),)),),
        ),
        2,
    ),
    "commit v10": (
        OffsetCommitRequest(
            group_id="g",
            topics=(
                OffsetCommitRequestTopic(topic_id=ID, partitions=(OffsetCommitRequestPartition(partition_index=0),)),
            ),
        ),
        10,
    ),
    "fetch v5": (
        OffsetFetchRequest(group_id="g", topics=(OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1)),)),
        5,
    ),
    "fetch v9": (OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),)), 9),
    "list v5": (ListGroupsRequest(states_filter=("Stable",), types_filter=("consumer",)), 5),
    "classic describe v6": (DescribeGroupsRequest(groups=("g",)), 6),
    "delete v0": (DeleteGroupsRequest(groups_names=("g", "")), 0),
    "delete offsets v0": (
        OffsetDeleteRequest(
            group_id="g",
            topics=(OffsetDeleteRequestTopic(name="t", partitions=(OffsetDeleteRequestPartition(partition_index=0),)),),
        ),
        0,
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_cut_off_anywhere_closes_its_connection(broker: EmbeddedBroker, name: str) -> None:
    """Half a request must not be taken for a whole one with defaults: it would be a leave, or a commit of nothing."""
    whole = bytes_of(*REQUESTS[name])
    assert outcome(broker, whole) == "answered"
    assert {outcome(broker, whole[:size]) for size in range(len(whole))} == {"closed"}


@pytest.mark.parametrize("name", REQUESTS)
def test_bytes_behind_the_last_field_are_not_looked_at(broker: EmbeddedBroker, name: str) -> None:
    """librdkafka sends some with one of its requests; Kafka does not look."""
    assert outcome(broker, bytes_of(*REQUESTS[name]) + b"\1\2\3") == "answered"


UNREADABLE: dict[str, bytes] = {
    "nothing": b"",
    "half a key": b"\x00",
    "a key without a version": struct.pack(">h", HEARTBEAT_KEY),
    "an unknown key": header(9999, 0),
    "a key of controllers": header(62, 0) + b"\0",
    "a negative key": header(-1, 0),
    "classic groups, which are not served": header(11, 5),
    "heartbeat of a version to come": header(HEARTBEAT_KEY, 2) + b"\0" * 30,
    "heartbeat of a negative version": header(HEARTBEAT_KEY, -1) + b"\0" * 30,
    "commit of a version that is gone": header(COMMIT_KEY, 1) + b"\0" * 30,
    "fetch of a version that is gone": header(FETCH_KEY, 0) + b"\0" * 30,
    "a client id longer than the frame": struct.pack(">hhih", LIST_KEY, 0, 1, 200) + b"abc",
    "a group id that is null": header(HEARTBEAT_KEY, 1) + b"\0" + b"\0" + b"\0" * 30,
    "an array that is null and must not be": header(DESCRIBE_KEY, 1) + b"\0" + b"\0" + b"\0\0",
    "an array of two thousand million": header(DESCRIBE_KEY, 0) + b"\0" + b"\xff\xff\xff\xff\x07" + b"\0\0",
    "an array of a hundred million in the old form": header(42, 0) + struct.pack(">i", 100_000_000),
    "a string longer than the frame": header(DESCRIBE_KEY, 0) + b"\0" + b"\x02" + b"\x7fab" + b"\0\0",
    "a number of more than five bytes": header(DESCRIBE_KEY, 0) + b"\0" + b"\xff\xff\xff\xff\xff\xff\x01",
    "a tag longer than the frame": header(LIST_KEY, 3) + b"\x01\x00\x7f\x00" + b"\0",
    "tags without their values": header(LIST_KEY, 3) + b"\x05",
    "an http request": b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS hello": bytes.fromhex("16030100c8010000c40303") + bytes(190),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_closes_its_own_connection_only(
    broker: EmbeddedBroker, connection: RawConnection, name: str
) -> None:
    """There is no answer that such a peer could read; a member beside it must not lose its session for it."""
    assert outcome(broker, UNREADABLE[name]) == "closed"
    assert connection.ask(ListGroupsRequest(), version=5).error_code == ErrorCode.NONE


@pytest.mark.parametrize("size", [-1, -(2**31), 65_537, 2**31 - 1])
def test_a_frame_that_claims_an_impossible_size_is_refused_at_once(broker: EmbeddedBroker, size: int) -> None:
    """Two gigabytes are not waited for, and not allocated."""
    with RawConnection(broker.bootstrap_servers) as opened:
        opened.socket.sendall(struct.pack(">i", size))
        assert opened.is_closed_by_peer()


def test_requests_before_the_unreadable_one_are_answered_and_those_behind_it_are_not(broker: EmbeddedBroker) -> None:
    """A pipeline ends where it cannot be understood; it does not go on in the middle of garbage."""
    good = frame(bytes_of(ListGroupsRequest(), 5))
    with RawConnection(broker.bootstrap_servers) as opened:
        opened.socket.sendall(good)
        opened.read_frame()
        opened.socket.sendall(frame(header(9999, 0)) + good)
        assert opened.is_closed_by_peer()


TAG = b"\x63\x03abc"  # tag 99 of three bytes
READABLE: dict[str, tuple[int, int, bytes]] = {
    "no client id": (LIST_KEY, 0, header(LIST_KEY, 0, client_id=None)),
    "an empty client id": (LIST_KEY, 0, header(LIST_KEY, 0, client_id=b"")),
    "a client id beyond ascii": (LIST_KEY, 0, header(LIST_KEY, 0, client_id="größe".encode())),
    "a negative correlation id": (LIST_KEY, 0, header(LIST_KEY, 0, correlation_id=-5)),
    "an unknown tag in the header": (LIST_KEY, 3, header(LIST_KEY, 3) + b"\x01" + TAG + b"\0"),
    "an unknown tag in the body": (LIST_KEY, 3, header(LIST_KEY, 3) + b"\0" + b"\x01" + TAG),
    "two unknown tags in both": (
        LIST_KEY,
        3,
        header(LIST_KEY, 3) + b"\x02" + TAG + b"\x64\x00" + b"\x02" + TAG + b"\x64\x00",
    ),
    "a number written longer than it is": (
        DESCRIBE_KEY,
        0,
        header(DESCRIBE_KEY, 0) + b"\0" + b"\x82\x00\x02g" + b"\0\0",
    ),
    "a truth of 2": (DESCRIBE_KEY, 0, header(DESCRIBE_KEY, 0) + b"\0" + b"\x02\x02g" + b"\x02" + b"\0"),
    "no group at all": (DESCRIBE_KEY, 0, header(DESCRIBE_KEY, 0) + b"\0" + b"\x01" + b"\0\0"),
    "topics that are null": (FETCH_KEY, 2, header(FETCH_KEY, 2) + b"\0\x01g" + struct.pack(">i", -1)),
}


@pytest.mark.parametrize("name", READABLE)
def test_what_can_be_read_is_answered_however_odd(broker: EmbeddedBroker, name: str) -> None:
    """A newer client may add tags that we do not know; its requests stay valid."""
    key, version, data = READABLE[name]
    (sent_id,) = struct.unpack_from(">i", data, 4)
    with RawConnection(broker.bootstrap_servers) as opened:
        opened.socket.sendall(frame(data))
        correlation_id, response = decode_response(key, opened.read_frame(), api_version=version)
    assert correlation_id == sent_id
    assert not getattr(response, "error_code", 0)


def test_an_unknown_tag_of_a_nested_struct_is_skipped(broker: EmbeddedBroker) -> None:
    """Tags may come anywhere, in each partition of each topic of a heartbeat, too."""
    plain = bytes_of(*REQUESTS["heartbeat v0"])
    entry = ID.bytes + b"\x03" + struct.pack(">ii", 0, 1)
    at = plain.index(entry) + len(entry)
    assert plain[at] == 0
    with RawConnection(broker.bootstrap_servers) as opened:
        for data in (plain, plain[:at] + b"\x01" + TAG + plain[at + 1 :]):
            opened.socket.sendall(frame(data))
            _, response = decode_response(HEARTBEAT_KEY, opened.read_frame(), api_version=0)
            assert getattr(response, "error_code", 0) == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ((), (), True),
        (("Stable",), (), True),
        (("sTaBlE",), ("CONSUMER",), True),
        ((" Stable ",), (), True),
        ((), (" consumer ",), False),
        (("Empty",), (), False),
        (("nonsense",), (), False),
        (("nonsense", "Stable"), (), True),
        ((), ("classic",), False),
        ((), ("nonsense",), False),
        (("",), (), False),
        (("Stable",), ("classic",), False),
    ],
)
def test_filters_of_a_list_of_groups_are_read_as_kafka_reads_them(
    broker: EmbeddedBroker, connection: RawConnection, states: tuple[str, ...], types: tuple[str, ...], found: bool
) -> None:
    """Case means nothing; blanks around a state mean nothing and around a type all; what is unknown matches nothing."""
    connection.ask(
        ConsumerGroupHeartbeatRequest(
            group_id="listed",
            member_id="m",
            rebalance_timeout_ms=5_000,
            subscribed_topic_names=("t",),
            topic_partitions=(),
        ),
        version=1,
    )
    answer = connection.ask(ListGroupsRequest(states_filter=states, types_filter=types), version=5)
    assert isinstance(answer, ListGroupsResponse)
    # Other tests of the same broker may have left groups of their own.
    assert ("listed" in [group.group_id for group in answer.groups]) == found
