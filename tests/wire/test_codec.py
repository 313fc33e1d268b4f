"""Headers, versions, tags, and what is refused."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest

from kip848_client.errors import MessageValueError, ProtocolError, UnsupportedVersionError
from kip848_client.wire.codec import (
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    frame,
    peek_correlation_id,
    peek_request_header,
)
from kip848_client.wire.compiler.primitives import encode_uvarint
from kip848_client.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignment,
    Assignor,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kip848_client.wire.messages.describe_groups import DescribeGroupsRequest
from kip848_client.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kip848_client.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kip848_client.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC = uuid.UUID(int=7)


def encode(message: Any, version: int, *, client_id: str | None = "c") -> bytes:
    return encode_request(message, api_version=version, correlation_id=5, client_id=client_id)


# --- headers


def test_a_flexible_request_has_header_v2_with_a_classic_client_id() -> None:
    """A compact client id here would make every broker close the connection."""
    data = encode(ConsumerGroupHeartbeatRequest(), 1, client_id="me")

    assert data.startswith(b"\x00\x44\x00\x01\x00\x00\x00\x05\x00\x02me\x00")


def test_a_request_before_its_flexible_version_has_header_v1() -> None:
    """One byte too many shifts the whole body."""
    assert encode(MetadataRequest(topics=()), 1).hex() == "000300010000000500016300000000"


def test_a_flexible_response_has_a_tag_section_in_its_header() -> None:
    """Without it librdkafka and Java read every field one byte early."""
    data = encode_response(OffsetCommitResponse(), api_version=8, correlation_id=9)

    assert data.hex() == "0000000900000000000100"
    assert encode_response(OffsetCommitResponse(), api_version=7, correlation_id=9).hex() == "00000009" + "0" * 16


def test_unknown_tags_in_a_response_header_are_skipped() -> None:
    """A newer broker that adds one must not cut old clients off."""
    data = b"\x00\x00\x00\x09\x01\x7f\x01x\x00\x00\x00\x00\x01\x00"

    assert decode_response(8, data, api_version=8) == (9, OffsetCommitResponse())


def test_the_header_of_an_unknown_api_can_still_be_read() -> None:
    """A broker must be able to say what it refuses."""
    data = b"\x7f\x00\x00\x63\x00\x00\x00\x01\x00\x01xwhatever"

    assert peek_request_header(data) == RequestHeader(0x7F00, 99, 1, "x")
    assert peek_request_header(memoryview(data)).api_version == 99
    with pytest.raises(UnsupportedVersionError, match="32512"):
        decode_request(data)


def test_a_frame_starts_with_its_size() -> None:
    """Sizes off by four make a peer wait for ever."""
    assert frame(b"abc") == b"\x00\x00\x00\x03abc"
    assert peek_correlation_id(memoryview(b"\x00\x00\x00\x2arest")) == 42
    with pytest.raises(ProtocolError):
        peek_correlation_id(b"abc")


# --- ApiVersions


def test_api_versions_responses_never_have_a_tagged_header() -> None:
    """It is read before versions are agreed on; a tag byte there breaks every client."""
    data = encode_response(ApiVersionsResponse(error_code=0), api_version=4, correlation_id=1)

    assert data.hex() == "000000010000010000000000"
    assert decode_response(18, data, api_version=4) == (1, ApiVersionsResponse())


def test_a_too_new_api_versions_request_is_answered_in_version_0() -> None:
    """KIP-511: otherwise a newer client cannot learn what we speak."""
    refusal = ApiVersionsResponse(error_code=35, api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),))

    data = encode_response(refusal, api_version=9, correlation_id=1)

    assert data.hex() == "00000001002300000001001200000004"
    assert decode_response(18, data, api_version=4) == (1, refusal)


def test_a_refusal_in_the_version_that_was_asked_is_read_too() -> None:
    """Some peers answer UNSUPPORTED_VERSION in the layout of the request."""
    refusal = ApiVersionsResponse(error_code=35, api_keys=(ApiVersion(api_key=18, min_version=0, max_version=3),))

    data = encode_response(refusal, api_version=3, correlation_id=1)

    assert decode_response(18, data, api_version=3) == (1, refusal)


# --- versions


def test_a_version_that_we_do_not_speak_is_refused_both_ways() -> None:
    """Better a clear error than bytes that mean something else."""
    with pytest.raises(UnsupportedVersionError, match="OffsetCommitRequest version 11: only 2-10"):
        encode(OffsetCommitRequest(), 11)
    with pytest.raises(UnsupportedVersionError):
        decode_response(8, b"\0" * 20, api_version=11)
    with pytest.raises(UnsupportedVersionError):
        decode_response(1234, b"\0" * 20, api_version=0)
    with pytest.raises(UnsupportedVersionError):
        decode_request(b"\x00\x08\x00\x63" + b"\0" * 20)


def test_a_set_field_that_the_version_lacks_is_refused_by_name() -> None:
    """A pattern silently dropped would leave the member without any topic."""
    with pytest.raises(UnsupportedVersionError, match=r"subscribed_topic_regex='a\.\*'"):
        encode(ConsumerGroupHeartbeatRequest(subscribed_topic_regex="a.*"), 0)


def test_a_set_field_that_may_be_ignored_is_left_out() -> None:
    """Leader epochs are advice; an old broker must still take the commit."""
    with_epoch = _commit(committed_leader_epoch=4)

    assert encode(with_epoch, 5) == encode(_commit(committed_leader_epoch=-1), 5)
    assert encode(with_epoch, 6) != encode(_commit(committed_leader_epoch=-1), 6)


def test_a_field_that_was_not_on_the_wire_has_its_default() -> None:
    """The cores read one class whatever the version; a gap would be an AttributeError at run time."""
    _, message = decode_request(encode(_commit(), 2))

    assert isinstance(message, OffsetCommitRequest)
    assert message.group_instance_id is None
    assert message.topics[0].topic_id == uuid.UUID(int=0)
    assert message.topics[0].partitions[0].committed_leader_epoch == -1


# --- our private tags


def test_the_client_side_assignor_fields_travel_as_tags() -> None:
    """Without them KIP-848's client-side assignors do not exist."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", client_assignors=(Assignor(name="a", maximum_version=1, metadata_bytes=b"m"),)
    )
    response = ConsumerGroupHeartbeatResponse(
        assignment=Assignment(
            topic_partitions=(TopicPartitions(TOPIC, (0, 1)),),
            error=3,
            pending_topic_partitions=(TopicPartitions(TOPIC, (2,)),),
            metadata_version=1,
            metadata_bytes=b"x",
        ),
        should_compute_assignment=True,
    )

    assert decode_request(encode(request, 1))[1] == request
    data = encode_response(response, api_version=1, correlation_id=1)
    assert decode_response(68, data, api_version=1)[1] == response


def test_defaults_of_tagged_fields_are_not_written() -> None:
    """An ordinary broker sees exactly the shipped message; an empty list is not the same as "unchanged"."""
    unchanged = encode(ConsumerGroupHeartbeatRequest(), 1)
    none_any_more = encode(ConsumerGroupHeartbeatRequest(client_assignors=()), 1)

    assert unchanged.endswith(b"\x00")
    assert none_any_more == unchanged[:-1] + b"\x01\x90\x4e\x01\x01"
    assert decode_request(none_any_more)[1] == ConsumerGroupHeartbeatRequest(client_assignors=())


@pytest.mark.parametrize("version", [0, 1])
def test_unknown_tags_are_skipped_at_every_depth(version: int) -> None:
    """A broker may add a tagged field in any release; a client that stumbles over one is dead on that day."""
    response = ConsumerGroupHeartbeatResponse(assignment=Assignment((TopicPartitions(TOPIC, (3,)),)))
    data = encode_response(response, api_version=version, correlation_id=1)
    assert data.endswith(b"\x02\x00\x00\x00\x03\x00\x00\x00")
    unknown = b"\x02\x04\x03abc\xff\x01\x00"  # tag 4 of three bytes, tag 255 of none

    tagged = data[:-3] + unknown * 3

    assert decode_response(68, tagged, api_version=version)[1] == response


def test_many_unknown_tags_and_large_ones_are_skipped() -> None:
    """Counts and sizes of more than one varint byte take another path."""
    data = encode(ConsumerGroupHeartbeatRequest(group_id="g"), 1)
    many = b"\xc8\x01" + b"".join(bytes([0x80 | i & 127, 1 + (i >> 7), 1]) + b"z" for i in range(200))
    large = b"\x01\x05\xac\x02" + b"y" * 300

    assert decode_request(data[:-1] + many)[1] == ConsumerGroupHeartbeatRequest(group_id="g")
    assert decode_request(data[:-1] + large)[1] == ConsumerGroupHeartbeatRequest(group_id="g")


def test_a_tag_whose_size_lies_is_a_protocol_error() -> None:
    """A size that does not match would make the fields behind it garbage."""
    data = encode(ConsumerGroupHeartbeatRequest(client_assignors=()), 1)

    for wrong in (b"\x01\x90\x4e\x02\x01\x00", b"\x01\x90\x4e\x7f\x01", b"\x01\x05\x7f"):
        with pytest.raises(ProtocolError):
            decode_request(data[:-5] + wrong)


# --- bad bytes


def test_bytes_after_the_last_field_of_a_response_are_refused() -> None:
    """They mean that both sides do not speak of the same version."""
    data = encode_response(OffsetCommitResponse(), api_version=9, correlation_id=1)

    with pytest.raises(ProtocolError, match="followed by 1 unexpected bytes"):
        decode_response(8, data + b"\0", api_version=9)


def test_bytes_after_the_last_field_of_a_request_are_ignored() -> None:
    """librdkafka's list_topics() sends such requests, and Kafka's broker takes them."""
    assert decode_request(encode(_commit(), 9) + b"\0")[1] == _commit()


def header(key: int, version: int, *, correlation_id: int = 5, client_id: bytes | None = b"c") -> bytes:
    """A request header as a foreign client writes it; those of flexible versions go on with a count of tags."""
    length = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, correlation_id, length) + (client_id or b"")


LIST, DESCRIBE, COMMIT, FETCH = 16, 69, 8, 9
LIST_3, DESCRIBE_0, COMMIT_8 = header(LIST, 3), header(DESCRIBE, 0) + b"\0", header(COMMIT, 8) + b"\0"
UNREADABLE: dict[str, bytes] = {
    "nothing": b"",
    "half a header": b"\x00\x10\x00\x03\x00\x00",
    "a client id longer than the frame": struct.pack(">hhih", LIST, 0, 1, 200) + b"abc",
    "a client id of length -2": struct.pack(">hhih", LIST, 0, 1, -2),
    "a client id that is not UTF-8": header(LIST, 0, client_id=b"\xff\xff"),
    "a group id that is null": COMMIT_8 + b"\0" + b"\0" * 30,
    "a group id that is not UTF-8": COMMIT_8 + b"\x03\xff\xff" + b"\0" * 30,
    "an array that is null and must not be": COMMIT_8 + b"\x02g\0\0\0\x01\x01\0" + b"\0",
    "an array of two thousand million": DESCRIBE_0 + b"\xff\xff\xff\xff\x07" + b"\0\0",
    "an array of 2**32 - 2 elements": DESCRIBE_0 + b"\xff\xff\xff\xff\x0f" + b"\0\0",
    "an array of a hundred million in the old form": header(42, 0) + struct.pack(">i", 100_000_000),
    "an array that ends early": DESCRIBE_0 + b"\x03\x02g",
    "a string longer than the frame": DESCRIBE_0 + b"\x02" + b"\x7fab" + b"\0\0",
    "a number longer than 32 bits": DESCRIBE_0 + b"\xff\xff\xff\xff\x10" + b"\0\0",
    "a number of more than five bytes": DESCRIBE_0 + b"\xff\xff\xff\xff\xff\xff\x01",
    "a tag longer than the frame": LIST_3 + b"\x01\x00\x7f\x00" + b"\0",
    "tags without their values": LIST_3 + b"\x05",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_request_that_cannot_be_read_is_a_protocol_error(name: str) -> None:
    """The broker closes one connection on it, as Kafka does with all of these; anything else would end its loop.

    Lengths are refused before anything is allocated: five bytes from a stranger may not cost 34 GB of memory.
    """
    with pytest.raises(ProtocolError):
        decode_request(UNREADABLE[name])


TAG = b"\x63\x03abc"  # tag 99 of three bytes
READABLE: dict[str, bytes] = {
    "no client id": header(LIST, 0, client_id=None),
    "an empty client id": header(LIST, 0, client_id=b""),
    "a client id beyond ascii": header(LIST, 0, client_id="größe".encode()),
    "a negative correlation id": header(LIST, 0, correlation_id=-5),
    "an unknown tag in the header": LIST_3 + b"\x01" + TAG + b"\0",
    "an unknown tag in the body": LIST_3 + b"\0" + b"\x01" + TAG,
    "two unknown tags in both": LIST_3 + (b"\x02" + TAG + b"\x64\x00") * 2,
    "a number written longer than it is": DESCRIBE_0 + b"\x82\x00\x02g" + b"\0\0",
    "a truth of 2": DESCRIBE_0 + b"\x02\x02g" + b"\x02" + b"\0",
    "no group at all": DESCRIBE_0 + b"\x01" + b"\0\0",
    "topics that are null": header(FETCH, 2) + b"\0\x01g" + struct.pack(">i", -1),
}


@pytest.mark.parametrize("name", READABLE)
def test_a_request_that_is_only_odd_is_read(name: str) -> None:
    """Kafka answers each of these; a newer client may add tags that we do not know."""
    assert decode_request(READABLE[name])[0].correlation_id == (-5 if "negative" in name else 5)


# --- bad values


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (OffsetCommitRequest(generation_id_or_member_epoch=2**31), "generation_id_or_member_epoch is 2147483648"),
        (OffsetCommitRequest(group_id="x" * 32768), "group_id has 32768 bytes"),
        (OffsetCommitRequest(group_id="\ud800"), "group_id cannot be written as UTF-8"),
        (OffsetCommitRequest(group_id=None), "group_id is None"),  # type: ignore[arg-type]
        (OffsetCommitRequest(group_id=b"g"), "group_id is b'g', not str"),  # type: ignore[arg-type]
        (OffsetCommitRequest(topics=None), "topics is None"),  # type: ignore[arg-type]
        (OffsetCommitRequest(topics=(3,)), r"topics\[0\] is 3"),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("version", [7, 8])
def test_a_value_that_does_not_fit_is_refused_by_name(message: OffsetCommitRequest, told: str, version: int) -> None:
    """struct.error: 'i' format requires ... does not say which of ten thousand offsets it was."""
    with pytest.raises(MessageValueError, match=told):
        encode(message, version)


def test_the_path_of_a_bad_value_leads_into_arrays() -> None:
    """One bad offset among many must be found."""
    with pytest.raises(
        MessageValueError, match=r"topics\[0\]\.partitions\[0\]\.committed_offset is 9223372036854775808"
    ):
        encode(_commit(committed_offset=2**63), 9)


def test_a_null_in_a_version_without_it_is_refused() -> None:
    """Metadata v0 has no null list: "all topics" is the empty list there, and that differs."""
    with pytest.raises(MessageValueError, match="topics is None"):
        encode(MetadataRequest(topics=None), 0)


def test_correlation_ids_and_client_ids_that_do_not_fit_are_refused() -> None:
    """They are the caller's, so the error is as well."""
    with pytest.raises(MessageValueError):
        encode_request(MetadataRequest(), api_version=1, correlation_id=2**31, client_id=None)
    with pytest.raises(MessageValueError):
        encode_request(MetadataRequest(), api_version=1, correlation_id=1, client_id="x" * 40_000)
    with pytest.raises(MessageValueError):
        encode_response(OffsetCommitResponse(), api_version=2, correlation_id=2**40)


# --- sizes


def test_lengths_of_more_than_one_varint_byte_survive() -> None:
    """Real groups have thousands of partitions and real batches are megabytes."""
    names = tuple(f"topic-{i}" for i in range(1000))
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="g" * 32767,
        subscribed_topic_names=names,
        topic_partitions=(TopicPartitions(TOPIC, tuple(range(20_000))),),
    )
    produce = ProduceRequest(
        acks=-1, topic_data=(TopicProduceData("t", partition_data=(PartitionProduceData(0, b"r" * 3_000_000),)),)
    )

    assert decode_request(encode(heartbeat, 1))[1] == heartbeat
    assert decode_request(encode(produce, 9))[1] == produce
    assert decode_request(encode(produce, 3))[1] == produce


@pytest.mark.parametrize("version", [4, 5], ids=["classic", "compact"])
def test_an_array_may_have_a_million_elements_as_in_kafka(version: int) -> None:
    """A client would pass here with a request that Kafka refuses, or be refused with one that Kafka takes."""

    def describe(count: int) -> bytes:
        if version == 4:
            return header(15, version) + struct.pack(">i", count) + b"\0\0" * count + b"\0"
        return header(15, version) + b"\0" + encode_uvarint(count + 1) + b"\1" * count + b"\0\0"

    request = decode_request(describe(1_000_000))[1]
    assert request == DescribeGroupsRequest(groups=("",) * 1_000_000)
    with pytest.raises(ProtocolError, match="claims 1000001 elements; the limit is 1000000"):
        decode_request(describe(1_000_001))


@pytest.mark.parametrize("where", ["header", "body"])
def test_a_struct_may_have_ten_thousand_tagged_fields_as_in_kafka(where: str) -> None:
    """Kafka closes the connection of a client that sends more."""
    plain = encode(ConsumerGroupHeartbeatRequest(group_id="g"), 1)
    at = struct.calcsize(">hhih") + len("c") if where == "header" else len(plain) - 1
    assert plain[at : at + 1] == b"\0"

    def tagged(count: int) -> bytes:
        return plain[:at] + encode_uvarint(count) + b"\x7e\0" * count + plain[at + 1 :]

    assert decode_request(tagged(10_000))[1] == ConsumerGroupHeartbeatRequest(group_id="g")
    with pytest.raises(ProtocolError, match="10001 tagged fields"):
        decode_request(tagged(10_001))


def test_a_frame_may_come_as_a_memoryview() -> None:
    """Servers cut frames out of a larger buffer."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
    buffer = bytearray(b"junk" + encode(request, 12) + b"junk")

    assert decode_request(memoryview(buffer)[4:-4])[1] == request


def _commit(
    *, committed_offset: int = 3, committed_leader_epoch: int = -1, topic_id_sent: bool = False
) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=1, committed_offset=committed_offset, committed_leader_epoch=committed_leader_epoch
    )
    topic_id = TOPIC if topic_id_sent else uuid.UUID(int=0)
    topic = OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=(partition,))
    return OffsetCommitRequest(group_id="g", member_id="m", generation_id_or_member_epoch=2, topics=(topic,))
