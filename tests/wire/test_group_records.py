"""Records of ``__consumer_offsets``: layouts written out byte by byte, versions, tombstones, strangers."""

from __future__ import annotations

import uuid
from typing import Any, get_args

import pytest
from hypothesis import given, settings

from kip848_client.errors import ProtocolError, UnsupportedVersionError
from kip848_client.wire.compiler.compiler import decode_body, encode_body
from kip848_client.wire.messages import group_records as records
from kip848_client.wire.messages.group_records import (
    GroupRecord,
    UnknownRecord,
    decode_record,
    encode_record_key,
    encode_record_value,
)
from tests.wire.strategies import Case, messages

A = uuid.UUID(bytes=b"\x02" * 16)
B = uuid.UUID(bytes=b"\x03" * 16)


def test_a_current_assignment_has_kafkas_layout() -> None:
    """A log written by us must be readable by Kafka's own tools, and the other way round."""
    value = records.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=5,
        previous_member_epoch=4,
        state=1,
        assigned_partitions=(records.TopicPartitions(A, (7, 8), (3, 5)),),
        partitions_pending_revocation=(records.TopicPartitions(B, (1,)),),
    )

    assert encode_record_value(value).hex() == (
        "0000" "00000005" "00000004" "01"
        "02" + "02" * 16 + "03" "00000007" "00000008" "01" "00" "09" "03" "00000003" "00000005"
        "02" + "03" * 16 + "02" "00000001" "00" "00"
    )  # fmt: skip


def test_keys_start_with_their_type() -> None:
    """The type is all that a reader has to choose the layout."""
    assert encode_record_key(records.OffsetCommitKey("g", "t", 2)).hex() == "000100016700017400000002"
    assert encode_record_key(records.GroupMetadataKey("g")).hex() == "0002000167"
    assert encode_record_key(records.ConsumerGroupMemberMetadataKey("g", "m")).hex() == "000500016700016d"
    assert encode_record_key(records.ConsumerGroupRegularExpressionKey("g", "a")).hex() == "0010000167000161"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (records.ConsumerGroupMetadataValue(epoch=7), "0000" "00000007" "00"),
        (records.ConsumerGroupMetadataValue(7, 1), "0000" "00000007" "01" "00" "08" "0000000000000001"),
        (records.ConsumerGroupTargetAssignmentMetadataValue(7), "0000" "00000007" "00"),
        (
            records.ConsumerGroupTargetAssignmentMemberValue((records.TopicPartition(A, (0, 1)),)),
            "0000" "02" + "02" * 16 + "03" "00000000" "00000001" "00" "00",
        ),
        (records.ConsumerGroupRegularExpressionValue(("t",), 2, 3), "0000" "02" "0274" + f"{2:016x}{3:016x}" + "00"),
        (records.OffsetCommitValue(9, 1, "m", 5), "0003" + f"{9:016x}" "00000001" "00016d" f"{5:016x}"),
        (records.OffsetCommitValue(9, 1, "m", 5, 6), "0001" + f"{9:016x}" "00016d" f"{5:016x}" f"{6:016x}"),
        (
            records.OffsetCommitValue(9, 1, "m", 5, topic_id=A),
            "0004" + f"{9:016x}" "00000001" "026d" f"{5:016x}" "01" "00" "10" + "02" * 16,
        ),
        (records.GroupMetadataValue("c", 1), "0003" "000163" "00000001" "ffff" "ffff" + "f" * 16 + "00000000"),
    ],
)  # fmt: skip
def test_values_have_kafkas_layout_and_version(value: records.GroupRecordValue, expected: str) -> None:
    """Kafka's coordinator must be able to read these values, and writes the same version."""
    assert encode_record_value(value).hex() == expected


def test_a_tombstone_has_a_key_and_no_value() -> None:
    """Deletions travel as tombstones; a value in their place would bring the member back."""
    key = records.ConsumerGroupMemberMetadataKey("g", "m")

    assert decode_record(encode_record_key(key), None) == GroupRecord(key, None)


def test_a_struct_in_a_tag_may_be_null() -> None:
    """Kafka writes for each member of the new protocol that it has nothing of the old one, and says so by a 0."""
    key = records.ConsumerGroupMemberMetadataKey("g", "m")
    written = bytes.fromhex("000000000263022f02027400000000640001000100")

    found = decode_record(encode_record_key(key), written)

    assert found == GroupRecord(
        key,
        records.ConsumerGroupMemberMetadataValue(
            client_id="c", client_host="/", subscribed_topic_names=("t",), rebalance_timeout_ms=100
        ),
    )


def test_the_oldest_offset_keys_are_read() -> None:
    """Type 0 has the layout of type 1 and is still in old logs."""
    value = records.OffsetCommitValue(9, metadata="m", commit_timestamp=5)
    key = b"\x00\x00" + encode_record_key(records.OffsetCommitKey("g", "t", 2))[2:]

    assert decode_record(key, encode_record_value(value, version=0)) == GroupRecord(
        records.OffsetCommitKey("g", "t", 2), value
    )


@pytest.mark.parametrize("number", [17, 30_899])
def test_types_of_other_groups_are_handed_back_unread(number: int) -> None:
    """Streams groups live in the same topic: to be skipped, not to fail the load.

    Scenario 68 of connect groups: so an older version of this library reads a log that has them.
    """
    key = number.to_bytes(2) + b"\x00\x01g"
    assert decode_record(key, b"\x00\x00rest") == UnknownRecord(number, key, b"\x00\x00rest")


def test_a_newer_value_version_is_refused() -> None:
    """Reading a newer layout by guessing would corrupt the group."""
    with pytest.raises(UnsupportedVersionError, match="ConsumerGroupMetadataValue version 1"):
        decode_record(encode_record_key(records.ConsumerGroupMetadataKey("g")), b"\x00\x01\x00\x00\x00\x07\x00")


@pytest.mark.parametrize(("key", "value"), [(b"", None), (b"\x00", None), (b"\x00\x03\x00\x01g", b"\x00")])
def test_a_record_without_room_for_its_type_is_refused(key: bytes, value: bytes | None) -> None:
    """An empty key is what a producer that does not belong there writes."""
    with pytest.raises(ProtocolError):
        decode_record(key, value)


_PARTS = [*get_args(records.RecordKey), *get_args(records.RecordValue)]
_CASES = [
    Case(cls, version) for cls in _PARTS for version in range(cls.WIRE.versions.first, cls.WIRE.versions.last + 1)
]


@pytest.mark.parametrize("case", _CASES, ids=str)
def test_every_record_part_survives_a_round_trip(case: Case) -> None:
    """A coordinator loads after a restart exactly the fields that it wrote."""

    @settings(max_examples=max(10, settings().max_examples // 3))
    @given(messages(case))
    def check(message: Any) -> None:
        pieces: list[bytes] = []
        encode_body(message, case.version, pieces)
        assert decode_body(case.cls, case.version, b"".join(pieces), 0) == message

    check()
