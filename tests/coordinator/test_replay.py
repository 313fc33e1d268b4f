"""Records make the state: in any legal order, twice, and compacted. A damaged log is found."""

from __future__ import annotations

from uuid import UUID

import pytest

from kip848_client.errors import IllegalStateError
from kip848_client.testing.coordinator.consumer.consumer_group import ConsumerGroup
from kip848_client.testing.coordinator.consumer.consumer_member import ConsumerMetadata, CurrentAssignment
from kip848_client.testing.coordinator.consumer.consumer_records import (
    current_record,
    current_tombstone,
    group_epoch_record,
    group_epoch_tombstone,
    member_metadata_record,
    member_metadata_tombstone,
    target_epoch_record,
    target_epoch_tombstone,
    target_record,
    target_tombstone,
)
from kip848_client.testing.coordinator.modern.member_record import AssignmentMetadata, ReconciliationState
from kip848_client.testing.coordinator.modern.modern_group import GroupState
from kip848_client.wire.messages.group_records import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    GroupRecord,
    decode_record,
    encode_record_key,
    encode_record_value,
)
from tests.support.coordinator_harness import Harness, compacted

FOO = UUID(int=1)


def _replay(*records: GroupRecord) -> ConsumerGroup:
    group = ConsumerGroup("g")
    for record in records:
        group.replay(record.key, record.value)
    return group


def _holding(member_id: str, epoch: int, *partitions: int) -> GroupRecord:
    assigned = {FOO: dict.fromkeys(partitions, epoch)} if partitions else {}
    return current_record("g", member_id=member_id, current=CurrentAssignment(epoch, epoch - 1, assigned=assigned))


def test_a_partition_that_moved_is_with_its_new_member_in_any_order_of_records() -> None:
    """After a load from a compacted log, no partition counts as free while a member reads it."""
    group = _replay(_holding("a", 1, 0, 1), _holding("b", 2, 1), _holding("a", 2, 0))
    assert group.holders(FOO) == {0: "a", 1: "b"}


def test_a_member_s_records_may_come_in_any_order() -> None:
    """Compaction keeps the last record of each key, wherever it stands."""
    metadata = ConsumerMetadata(instance_id="i", subscribed_topic_names=("foo",))
    member = member_metadata_record("g", member_id="m", metadata=metadata)
    epoch = group_epoch_record("g", epoch=3, metadata_hash=7)
    target = target_record("g", member_id="m", target={FOO: (0,)})
    target_epoch = target_epoch_record("g", epoch=3, timestamp_ms=0)
    current = _holding("m", 3, 0)
    one = _replay(member, epoch, target, target_epoch, current)
    other = _replay(current, target_epoch, target, epoch, member)
    for group in (one, other):
        assert (group.group_epoch, group.target_epoch, group.metadata_hash) == (3, 3, 7)
        assert group.members == one.members
        assert group.static_members == {"i": "m"}
        assert group.subscribed_topics == {"foo"}
        assert group.state is GroupState.STABLE
        group.check_invariants()


@pytest.mark.parametrize(
    "told",
    [
        AssignmentMetadata(data=b"x", assignor="a"),
        AssignmentMetadata(version=1, assignor="a"),
        AssignmentMetadata(error=1, assignor="a"),
    ],
)
def test_what_an_assignor_told_a_member_goes_with_its_target(told: AssignmentMetadata) -> None:
    """A member that comes back under the same id is not told what was meant for another assignment."""
    target = target_record("g", member_id="m", target={FOO: (0,)}, metadata=told)
    assert _replay(target).target_metadata_of("m") == told
    for last in (target_tombstone("g", member_id="m"), target_record("g", member_id="m", target={FOO: (0,)})):
        assert _replay(target, last).target_metadata == {}


def test_tombstones_of_what_is_not_there_are_ignored() -> None:
    """Compaction may keep a tombstone longer than what it removes."""
    h = Harness()
    for record in (
        current_tombstone("g", member_id="m"),
        target_tombstone("g", member_id="m"),
        member_metadata_tombstone("g", member_id="m"),
        target_epoch_tombstone("g"),
        group_epoch_tombstone("g"),
    ):
        h.coordinator.replay(record)
    assert h.coordinator.groups() == ()
    group = _replay(
        group_epoch_record("g", epoch=1, metadata_hash=0),
        current_tombstone("g", member_id="m"),
        target_tombstone("g", member_id="m"),
        member_metadata_tombstone("g", member_id="m"),
    )
    assert not group.members


@pytest.mark.parametrize(
    "tombstones",
    [
        [member_metadata_tombstone("g", member_id="m")],
        [group_epoch_tombstone("g")],
        [target_epoch_tombstone("g")],
        [current_tombstone("g", member_id="m"), member_metadata_tombstone("g", member_id="m")],
        [target_tombstone("g", member_id="m"), member_metadata_tombstone("g", member_id="m")],
        [
            current_tombstone("g", member_id="m"),
            target_tombstone("g", member_id="m"),
            member_metadata_tombstone("g", member_id="m"),
            group_epoch_tombstone("g"),
        ],
    ],
)
def test_a_log_that_no_coordinator_writes_is_damaged(tombstones: list[GroupRecord]) -> None:
    """A broken log stops the load with a reason instead of making a group that cannot be."""
    with pytest.raises(IllegalStateError, match="log of group 'g' is damaged"):
        _replay(_holding("m", 1, 0), target_record("g", member_id="m", target={FOO: (0,)}), *tombstones)


def test_a_log_of_kafka_4_0_is_read() -> None:
    """Its record of the topics' metadata is known and not needed."""
    value = ConsumerGroupPartitionMetadataValue()
    group = _replay(GroupRecord(ConsumerGroupPartitionMetadataKey(group_id="g"), value), _holding("m", 1, 0))
    assert set(group.members) == {"m"}


def test_all_records_survive_their_bytes() -> None:
    """A restarted coordinator loads exactly the decisions that it wrote."""
    h = Harness()
    h.create_topic("foo", partitions=3)
    h.join("a", ["foo"], instance="i", rack="r", assignor="range")
    h.join("b", None, regex="f.*")
    h.run_tasks()
    h.heartbeat("a", 1, instance="i")
    assert h.member("a").state is ReconciliationState.UNREVOKED_PARTITIONS
    h.heartbeat("b", -1)
    restored = [
        decode_record(encode_record_key(r.key), None if r.value is None else encode_record_value(r.value))
        for r in h.log
    ]
    assert restored == h.log


def test_a_compacted_log_is_smaller_and_equal() -> None:
    """A group that has lived long loads fast, and into the same state."""
    h = Harness()
    h.create_topic("foo", partitions=3)
    for round_ in range(20):
        h.join(f"m{round_}", ["foo"])
        h.heartbeat(f"m{round_}", -1)
    h.join("last", ["foo"])
    assert len(compacted(h.log)) == 5
    h.verify_log()
