"""What of a classic group survives, and how it lives beside offsets and consumer groups (s46, s48, s57, s60)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kip848_client.errors import ErrorCode, IllegalStateError
from kip848_client.testing.coordinator.classic.classic_group import (
    ClassicGroup,
    ClassicState,
    from_value,
    group_record,
    to_value,
)
from kip848_client.testing.coordinator.consumer import consumer_records as records
from kip848_client.testing.coordinator.core.inputs import CoordinatorStops, OffsetRetentionDue
from kip848_client.testing.coordinator.core.result import CoordinatorResult
from kip848_client.wire.messages.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kip848_client.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
    decode_record,
    encode_record_key,
    encode_record_value,
)
from tests.support.classic_harness import FOO, SESSION_MS, ClassicHarness

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


def test_s60_a_restart_in_the_middle_of_a_round_leads_back_to_the_generation_in_the_log() -> None:
    """Members must not go on with a generation that the log does not have."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    h.join_group(a)
    pending = h.join_group().answer.member_id
    h.restart()
    assert h.state_is(ClassicState.STABLE)
    assert (h.beat(a, 2), h.beat(a, 1)) == (ErrorCode.ILLEGAL_GENERATION, NONE)
    assert h.sync_group(a, 1).answer.assignment == b"a"
    assert h.join_group(pending).code == UNKNOWN


def test_after_a_restart_every_session_begins_anew() -> None:
    """A member that died with the coordinator is noticed; one that did not has its whole session to come back."""
    h = ClassicHarness()
    a, _ = h.stable("a", "b")
    h.advance(SESSION_MS - 1)
    h.restart()
    h.advance(SESSION_MS - 1)
    assert h.beat(a, 2) == NONE
    h.advance(1)
    assert list(h.classic.members) == [a]


def test_after_a_restart_members_have_one_protocol() -> None:
    """The record holds the selected one; the others come with the next join."""
    h = ClassicHarness()
    (a,) = h.stable("a", protocols=["range", "sticky"])
    h.restart()
    assert h.join_group(protocols=["sticky"]).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    h.join_group(a, protocols=["range", "sticky"])
    assert h.join_group(protocols=["sticky"]).code == ErrorCode.MEMBER_ID_REQUIRED


def test_requests_that_wait_are_answered_when_the_coordinator_stops() -> None:
    """Their clients look for a coordinator at once, and not when their own time is up."""
    h = ClassicHarness()
    a, b = h.stable("a", "b")
    h.join_group(a)
    h.join_group(b)
    sync = h.sync_group(b, 3)
    h.group_id = "other"
    h.stable("c")
    _, join = h.joining()
    h.step(CoordinatorStops())
    assert sync.code == join.code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_the_record_is_read(version: int) -> None:
    """A log of an older Kafka can be served; before version 1 the session timeout is the rebalance timeout."""
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m",
        current_state_timestamp=7,
        members=(
            MemberMetadata(
                member_id="m",
                group_instance_id="i",
                client_id="c",
                client_host="/h",
                rebalance_timeout=20,
                session_timeout=10,
                subscription=FOO,
                assignment=b"A",
            ),
        ),
    )
    record = decode_record(encode_record_key(GroupMetadataKey("g")), encode_record_value(value, version=version))
    assert isinstance(record, GroupRecord)
    assert isinstance(record.value, GroupMetadataValue)
    group = from_value("g", record.value)
    (member,) = group.members.values()
    assert (group.state, group.generation, group.leader, group.protocol) == (ClassicState.STABLE, 3, "m", "range")
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10, 10 if version == 0 else 20)
    assert member.instance_id == ("i" if version >= 3 else None)
    assert group.state_timestamp_ms == (7 if version >= 2 else -1)
    assert group.subscribed_topics == frozenset({"foo"})
    group.check_invariants()
    if version >= 3:
        assert to_value(group) == value


@pytest.mark.parametrize("first", ["classic", "consumer"])
def test_a_log_in_which_a_group_is_of_both_kinds_is_damaged(first: str) -> None:
    """No coordinator writes that; guessing which one it is would give partitions away twice."""
    h = ClassicHarness()
    both = [
        group_record(ClassicGroup("g", protocol_type="consumer", generation=1)),
        records.group_epoch_record("g", epoch=1, metadata_hash=0),
    ]
    one, other = both if first == "classic" else both[::-1]
    h.coordinator.replay(one)
    with pytest.raises(IllegalStateError, match="'g'"):
        h.coordinator.replay(other)


def test_offsets_without_members_become_those_of_a_classic_group() -> None:
    """A consumer that assigned by hand, and now subscribes, goes on where it was."""
    h = ClassicHarness()
    h.commit_code("", -1)
    assert h.listed() == {"g": ("Empty", "classic", "")}
    h.stable("a")
    assert h.classic.generation == 1
    assert h.fetch({"foo": [0]}) == {("foo", 0): 5}


def test_s48_an_empty_classic_group_becomes_a_consumer_group_with_its_offsets() -> None:
    """After all classic members have stopped, no migration is needed."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    h.commit_code(a, 1)
    h.leave_group(a)
    assert h.consumer_heartbeat("n", 0) == NONE
    assert h.record_names()[0] == "classic†"
    assert h.listed()["g"][1] == "consumer"
    assert h.fetch({"foo": [0]}) == {("foo", 0): 5}
    assert h.describe().error_message == "Group g is not a classic group."
    h.verify_log()


def test_an_empty_consumer_group_becomes_a_classic_group_with_the_first_join() -> None:
    """Even with the first of the two rounds, as in Kafka; its offsets stay."""
    h = ClassicHarness()
    h.consumer_heartbeat("n", 0)
    h.commit_code("n", 1)
    h.consumer_heartbeat("n", -1)
    assert h.join_group("somebody").code == UNKNOWN
    assert h.listed()["g"][1] == "consumer"
    assert h.join_group(protocols=()).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert h.listed()["g"][1] == "consumer"
    member_id = h.join_group().answer.member_id
    assert h.listed()["g"] == ("Empty", "classic", "")
    assert h.join_group(member_id).answer.generation_id == 1
    assert h.fetch({"foo": [0]}) == {("foo", 0): 5}
    h.verify_log()


@pytest.mark.parametrize("epoch", [5, -1, -2])
def test_s46_a_heartbeat_of_the_other_protocol_finds_no_group(epoch: int) -> None:
    """Only a join may change what a group is."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    assert h.consumer_heartbeat(a, epoch, instance="i" if epoch == -2 else None) == NOT_FOUND
    assert h.beat(a, 1) == NONE


def test_expired_offsets_of_an_empty_group_count_from_when_its_last_member_went() -> None:
    """A group that stood still over a long holiday keeps its positions while it has members, and for a while after."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    h.commit_code(a, 1)
    retention_ms = h.config.offsets_retention_ms
    h.now_ms += retention_ms
    h.step(OffsetRetentionDue(h.wall_ms))
    assert h.fetch({"foo": [0]}) == {("foo", 0): 5}
    h.leave_group(a)
    h.now_ms += retention_ms - 1
    h.step(OffsetRetentionDue(h.wall_ms))
    assert h.fetch({"foo": [0]}) == {("foo", 0): 5}
    h.now_ms += 1
    h.step(OffsetRetentionDue(h.wall_ms))
    assert h.listed() == {}
    h.verify_log()


def test_offsets_of_an_empty_group_of_an_old_log_count_from_their_commit() -> None:
    """Such a log does not say since when the group is empty."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    h.commit_code(a, 1)
    h.now_ms += 1_000
    h.leave_group(a)
    written = h.results[-1].records[-1]
    assert isinstance(written.value, GroupMetadataValue)
    old = replace(written, value=replace(written.value, current_state_timestamp=-1))
    h.finish(CoordinatorResult(records=(old,)))
    for left_ms, offset in ((1, 5), (0, -1)):
        h.step(OffsetRetentionDue(h.wall_ms - 1_000 + h.config.offsets_retention_ms - left_ms))
        assert h.fetch({"foo": [0]}) == {("foo", 0): offset}


@pytest.mark.parametrize("rebalances", [False, True])
def test_offsets_of_topics_without_subscribers_expire_in_a_stable_group_only(rebalances: bool) -> None:
    """A group that moved on to other topics does not keep what it read years ago; a rebalance may bring them back."""
    h = ClassicHarness()
    h.create_topic("bar", partitions=1)
    bar = encode_subscription(ConsumerProtocolSubscription(topics=("bar",)))
    member_id, _ = h.joining(protocols={"range": bar})
    h.sync_group(member_id, 1)
    h.commit_code(member_id, 1)
    if rebalances:
        h.joining(protocols={"range": bar})
    h.now_ms += h.config.offsets_retention_ms
    h.step(OffsetRetentionDue(h.wall_ms))
    assert (h.fetch({"foo": [0]}) == {("foo", 0): -1}) is not rebalances
    assert h.state_is(ClassicState.STABLE) is not rebalances
