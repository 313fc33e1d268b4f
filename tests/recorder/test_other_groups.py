"""Share groups and streams groups in an event log: their members and states."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kip848_client.tools.recorder import RawRecord, Recorder
from kip848_client.wire.messages import share_group_records as share
from kip848_client.wire.messages.group_records import RecordKey, RecordValue, encode_record_key, encode_record_value


def told(recorder: Recorder, records: Sequence[tuple[bytes, bytes | None]]) -> list[tuple[str, object]]:
    events = [
        event for number, (key, value) in enumerate(records) for event in recorder.add(RawRecord(0, number, key, value))
    ]
    return [(event.event, event.fields.get("new", event.client_id)) for event in events]


def shared(key: RecordKey, value: RecordValue | None) -> tuple[bytes, bytes | None]:
    return encode_record_key(key), None if value is None else encode_record_value(value)


def test_a_share_group_has_members_and_is_empty_without_them() -> None:
    """Consumers of a queue were left out of every picture."""
    member = share.ShareGroupMemberMetadataKey("queue", "m-1")
    recorder = Recorder()
    records = [
        shared(member, share.ShareGroupMemberMetadataValue(client_id="app", client_host="/10.0.0.1")),
        shared(share.ShareGroupMetadataKey("queue"), share.ShareGroupMetadataValue(epoch=1)),
        shared(share.ShareGroupMetadataKey("queue"), share.ShareGroupMetadataValue(epoch=2)),
        shared(member, None),
    ]
    assert told(recorder, records) == [
        *(("member_joined", "app"), ("group_state_changed", "Stable")),
        *(("member_left", "app"), ("group_state_changed", "Empty")),
    ]
    assert recorder.kind_of("queue") == "share"
    assert told(recorder, [shared(share.ShareGroupMetadataKey("queue"), None)]) == [("group_state_changed", "Dead")]


def _streams(record_type: int, value: bytes | None, *names: str) -> tuple[bytes, bytes | None]:
    key = b"".join(struct.pack(">h", len(name)) + name.encode() for name in names)
    return struct.pack(">h", record_type) + key, value


def test_a_streams_group_reconciles_until_every_member_has_its_epoch() -> None:
    """Kafka Streams moves state for minutes; a group that only looked stable would hide that."""
    metadata = b"\0\0" + b"\0" + b"\0" + b"\x04app" + b"\x0a/10.0.0.1" + struct.pack(">ii", 300_000, 0) + b"\x02p\0\1\0"
    recorder = Recorder()
    records = [
        _streams(19, metadata, "sums", "m-1"),
        _streams(17, struct.pack(">hiqb", 0, 3, 0, 0), "sums"),
        _streams(22, struct.pack(">hiib", 0, 2, 1, 1) + b"\1\1\1\1\1\1\0", "sums", "m-1"),
        _streams(22, struct.pack(">hiib", 0, 3, 2, 0) + b"\1\1\1\1\1\1\0", "sums", "m-1"),
        _streams(17, struct.pack(">hiqb", 0, 4, 0, 0), "sums"),
        _streams(19, None, "sums", "m-1"),
        _streams(19, b"\0", "sums", "m-2"),
    ]
    assert told(recorder, records) == [
        *(("member_joined", "app"), ("group_state_changed", "Reconciling")),
        *(("group_state_changed", "Stable"), ("group_epoch_bumped", None), ("group_state_changed", "Reconciling")),
        *(("member_left", "app"), ("group_state_changed", "Empty")),
    ]
    assert (recorder.kind_of("sums"), recorder.counts.skipped["damaged"]) == ("streams", 1)
