"""What a share group may configure, with Kafka's defaults."""

from __future__ import annotations

import msgspec


class ShareSettings(msgspec.Struct, frozen=True):
    """The settings of one share group.

    Attributes:
        record_lock_duration_ms: how long a member has an acquired record to itself.
        delivery_count_limit: a record that comes back after so many deliveries is archived.
        partition_max_record_locks: offsets between SPSO and SPEO at most.
        auto_offset_reset: where a partition starts: ``earliest``, ``latest`` or ``by_duration:PT1H``.
        isolation_level: ``read_uncommitted`` or ``read_committed``.
        renew_acknowledge_enable: members may renew the lock of a record (KIP-1222).
        dead_letter_topic: takes the records that are given up (KIP-1191); empty for none.
        dead_letter_copy_record: it gets key and value of the record, too, and not only headers about it.
    """

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000
    auto_offset_reset: str = "latest"
    isolation_level: str = "read_uncommitted"
    renew_acknowledge_enable: bool = True
    dead_letter_topic: str = ""
    dead_letter_copy_record: bool = False
