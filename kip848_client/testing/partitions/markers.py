"""The control batch that ends a transaction in one partition, written and read. It always has the same form.

Source:
    apache/kafka ``EndTransactionMarker``, ``ControlRecordType``; KIP-98.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from kip848_client.wire.record_batch import BatchHeader, crc32c

_UNCHECKED: Final = struct.Struct(">qiibI")
_CHECKED_FORMAT: Final = "hiqqqhii"
_RECORD_FORMAT: Final = "bbbbbhhbhib"
_CHECKED: Final = struct.Struct(f">{_CHECKED_FORMAT}{_RECORD_FORMAT}")
"""The rest of the header and the only record: its key is a version and the kind, its value a version and an epoch."""
_RECORD: Final = struct.Struct(f">{_RECORD_FORMAT}")
_SIZE: Final = _UNCHECKED.size + _CHECKED.size
_LENGTH: Final = _SIZE - 12
"""Base offset and length itself are not counted by the length."""

_MAGIC: Final = 2
_TRANSACTIONAL_CONTROL: Final = 0x30
_ABORT: Final = 0
_COMMIT: Final = 1
# Lengths are in zigzag: 16 bytes of record, 4 of key, 6 of value.
_BEFORE_KIND: Final = (32, 0, 0, 0, 8, 0)
_BEFORE_EPOCH: Final = (12, 0)


class Marker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that ended it."""

    is_abort: bool
    coordinator_epoch: int


def build_marker(
    *,
    base_offset: int,
    leader_epoch: int,
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    timestamp_ms: int,
    coordinator_epoch: int,
) -> tuple[bytes, BatchHeader]:
    """The batch, as it is stored, and its header."""
    checked = _CHECKED.pack(
        _TRANSACTIONAL_CONTROL,
        *(0, timestamp_ms, timestamp_ms, producer_id, producer_epoch, -1, 1),
        *_BEFORE_KIND,
        _COMMIT if commit else _ABORT,
        *_BEFORE_EPOCH,
        coordinator_epoch,
        0,
    )
    crc = crc32c(checked)
    header = BatchHeader(
        *(base_offset, _LENGTH, leader_epoch, _MAGIC, crc),
        *(_TRANSACTIONAL_CONTROL, 0, timestamp_ms, timestamp_ms, producer_id, producer_epoch, -1, 1),
    )
    return _UNCHECKED.pack(base_offset, _LENGTH, leader_epoch, _MAGIC, crc) + checked, header


def read_marker(batch: bytes) -> Marker | None:
    """What a control batch says; None if it does not end a transaction."""
    if len(batch) != _SIZE:
        return None
    *before_kind, kind, length, version, coordinator_epoch, headers = _RECORD.unpack_from(batch, _SIZE - _RECORD.size)
    if (*before_kind, length, version, headers) != (*_BEFORE_KIND, *_BEFORE_EPOCH, 0) or kind not in (_ABORT, _COMMIT):
        return None
    return Marker(kind == _ABORT, coordinator_epoch)
