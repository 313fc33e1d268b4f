"""The topic of the groups' records, as readers get it from the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kip848_client.testing.broker.topics import offsets_topic
from kip848_client.testing.broker.topics.append_watchers import AppendWatchers
from kip848_client.testing.broker.topics.offsets_topic import OffsetsTopic
from kip848_client.testing.partitions.partition_log import PartitionLog
from kip848_client.testing.transactions.transaction import offsets_partition
from kip848_client.wire.record_batch import Record, batches_of, records_of


def readable(log: PartitionLog) -> Iterator[Record]:
    data = log.read(log.log_start_offset, 2**31 - 1)
    for position, _ in batches_of(data):
        yield from records_of(data, position)


@pytest.mark.parametrize("read_first", [True, False])
def test_a_partition_stays_small_and_keeps_the_last_record_of_every_key(
    read_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that runs for weeks would fill the memory with offsets that were replaced long ago."""
    monkeypatch.setattr(offsets_topic, "PARTITION_RECORDS_MAX", 100)
    topic = OffsetsTopic(AppendWatchers())
    if read_first:
        topic.readable()
    for number in range(1_000):
        records = [(b"rare", b"kept")] if number == 0 else [(b"often", b"%d" % number), (b"gone", None)]
        topic.append("orders", records, timestamp_ms=number)
    log = topic.readable().partitions[offsets_partition("orders")[1]]
    shown = list(readable(log))
    assert len(shown) < 400
    latest = {record.key: (record.value, record.timestamp) for record in shown}
    assert latest == {b"rare": (b"kept", 0), b"often": (b"999", 999), b"gone": (None, 999)}
