"""Who may commit and fetch what: the epoch rule of KIP-848 and the assignment-epoch rule of KIP-1251."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest
from msgspec.structs import replace

from kip848_client.common.model import ZERO_UUID
from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.core.inputs import OffsetRetentionDue, TransactionEnded
from kip848_client.testing.coordinator.core.result import CoordinatorRecord
from kip848_client.testing.coordinator.core.topics_image import TopicInfo
from kip848_client.testing.judge.broker.messages import build
from kip848_client.wire.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
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
    OffsetFetchRequestTopics,
)
from kip848_client.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.support.classic_harness import ClassicHarness
from tests.support.coordinator_harness import FAST, Harness

DAY_MS = 86_400_000


def _one(codes: Mapping[tuple[str, int], ErrorCode]) -> ErrorCode:
    (code,) = set(codes.values())
    return code


def _member_at_2() -> Harness:
    """m at epoch 2 with foo 0 and 1, both given at epoch 1."""
    h = Harness()
    h.create_topic("foo", partitions=2)
    h.create_topic("bar", partitions=1)
    h.join("m", ["foo"])
    h.heartbeat("m", 1, topics=["foo", "absent"])
    assert h.member("m").member_epoch == 2
    assert h.member("m").assigned == {h.topic_id("foo"): {0: 1, 1: 1}}
    return h


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize(
    ("epoch", "code"),
    [(2, ErrorCode.NONE), (1, ErrorCode.NONE), (0, ErrorCode.STALE_MEMBER_EPOCH), (3, ErrorCode.STALE_MEMBER_EPOCH)],
)
def test_an_epoch_since_which_the_partition_is_held_may_commit(epoch: int, code: ErrorCode, version: int) -> None:
    """A commit on its way while the epoch moves is not lost; one from before the partition was given is refused."""
    h = _member_at_2()
    assert _one(h.commit("m", epoch, {"foo": {0: 10, 1: 11}}, version=version)) == code
    expected = {("foo", 0): 10, ("foo", 1): 11} if code == ErrorCode.NONE else {}
    assert h.fetch(None) == expected


def test_a_partition_that_was_given_again_refuses_the_older_epoch() -> None:
    """A late commit of the time before cannot rewind what another member did in between."""
    h = _member_at_2()
    h.join("n", ["foo"])
    h.heartbeat("m", 2)
    h.heartbeat("m", 2, owned={"foo": [0]})
    h.heartbeat("n", 3)
    assert h.assigned("n") == {"foo": [1]}
    h.heartbeat("n", -1)
    h.heartbeat("m", 3, owned={"foo": [0]})
    assert h.member("m").assigned[h.topic_id("foo")] == {0: 1, 1: 4}
    assert _one(h.commit("m", 3, {"foo": {1: 5}})) == ErrorCode.STALE_MEMBER_EPOCH
    assert _one(h.commit("m", 3, {"foo": {0: 5}})) == ErrorCode.NONE
    assert _one(h.commit("m", 3, {"foo": {0: 6, 1: 6}})) == ErrorCode.STALE_MEMBER_EPOCH, "all or nothing"
    assert h.fetch({"foo": [0, 1]}) == {("foo", 0): 5, ("foo", 1): -1}


def test_a_partition_that_is_being_revoked_may_still_be_committed() -> None:
    """The commit before a revocation always has its place."""
    h = _member_at_2()
    h.join("n", ["foo"])
    h.heartbeat("m", 2)
    assert h.pending("m") == {"foo": [1]}
    assert _one(h.commit("m", 2, {"foo": {1: 5}})) == ErrorCode.NONE
    assert _one(h.commit("m", 1, {"foo": {1: 6}})) == ErrorCode.NONE


def test_a_partition_that_is_not_owned_needs_the_exact_epoch() -> None:
    """Applications that commit for others in the group may, but never with an old epoch."""
    h = _member_at_2()
    assert _one(h.commit("m", 2, {"bar": {0: 5}})) == ErrorCode.NONE
    assert _one(h.commit("m", 1, {"bar": {0: 6}})) == ErrorCode.STALE_MEMBER_EPOCH


def test_a_member_of_a_consumer_group_needs_version_9() -> None:
    """An older request has no error code for a stale epoch, so it is refused as a whole."""
    h = _member_at_2()
    assert _one(h.commit("m", 2, {"foo": {0: 5}}, version=8)) == ErrorCode.UNSUPPORTED_VERSION


def test_an_administrator_may_commit_for_an_empty_group_and_not_for_a_living_one() -> None:
    """A reset under running consumers would be overwritten by their next commit, so it is refused."""
    h = _member_at_2()
    assert _one(h.commit("", -1, {"foo": {0: 5}})) == ErrorCode.UNKNOWN_MEMBER_ID
    h.heartbeat("m", -1)
    assert _one(h.commit("m", 0, {"foo": {0: 5}})) == ErrorCode.UNKNOWN_MEMBER_ID
    assert _one(h.commit("", -1, {"foo": {0: 5}})) == ErrorCode.NONE
    assert h.fetch(None) == {("foo", 0): 5}


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (9, 0, ErrorCode.GROUP_ID_NOT_FOUND),
        (10, 3, ErrorCode.GROUP_ID_NOT_FOUND),
        (8, 0, ErrorCode.ILLEGAL_GENERATION),
        (9, -1, ErrorCode.NONE),
        (2, -1, ErrorCode.NONE),
    ],
)
def test_a_commit_to_an_unknown_group(version: int, epoch: int, code: ErrorCode) -> None:
    """Consumers that assign partitions themselves need no group; members of one that is gone are told."""
    h = Harness()
    h.create_topic("foo", partitions=1)
    assert _one(h.commit("" if epoch < 0 else "m", epoch, {"foo": {0: 5}}, version=version)) == code
    assert h.fetch(None) == ({("foo", 0): 5} if code == ErrorCode.NONE else {})


def test_offsets_survive_when_their_group_gets_its_first_member() -> None:
    """An application that goes over from assign() to subscribe() keeps its position."""
    h = Harness()
    h.create_topic("foo", partitions=1)
    h.commit("", -1, {"foo": {0: 5}})
    h.join("m", ["foo"])
    assert h.record_names()[:2] == ["classic†", "member"]
    assert h.fetch({"foo": [0]}, member_id="m", epoch=1) == {("foo", 0): 5}
    h.verify_log()


def test_a_static_member_may_commit_with_its_old_epochs_after_its_return() -> None:
    """A restart of a static member does not lose the commits that were on their way (KIP-1251)."""
    h = Harness()
    h.create_topic("foo", partitions=1)
    h.join("m", ["foo"], instance="i")
    h.heartbeat("m", 1, topics=["foo", "absent"], instance="i")
    h.heartbeat("m", -2, instance="i")
    assert _one(h.commit("m", 2, {"foo": {0: 4}}, instance="i")) == ErrorCode.STALE_MEMBER_EPOCH
    h.join("n", ["foo", "absent"], instance="i")
    assert _one(h.commit("n", 1, {"foo": {0: 5}}, instance="i")) == ErrorCode.NONE
    assert _one(h.commit("m", 2, {"foo": {0: 6}}, instance="i")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_record_without_assignment_epochs_means_the_strict_rule() -> None:
    """A log from before KIP-1251 does not open a door to late commits."""
    h = _member_at_2()
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=2,
        previous_member_epoch=1,
        assigned_partitions=(TopicPartitions(topic_id=h.topic_id("foo"), partitions=(0, 1)),),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
    h.finish(replace(h.results[-1], replies=(), records=(CoordinatorRecord(key, value),), soft=(), events=()))
    assert _one(h.commit("m", 1, {"foo": {0: 5}})) == ErrorCode.STALE_MEMBER_EPOCH
    assert _one(h.commit("m", 2, {"foo": {0: 5}})) == ErrorCode.NONE


def test_long_metadata_fails_its_partition_only() -> None:
    """One partition's metadata does not stop the others; the limit itself is allowed."""
    h = _member_at_2()
    assert _one(h.commit("m", 2, {"foo": {0: 5}}, metadata="x" * 4097)) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert _one(h.commit("m", 2, {"foo": {1: 5}}, metadata="x" * 4096)) == ErrorCode.NONE
    assert h.fetch(None) == {("foo", 1): 5}


def test_null_metadata_is_empty_metadata() -> None:
    """Clients send null when a commit has no metadata, and must not be refused for it."""
    h = _member_at_2()
    assert _one(h.commit("m", 2, {"foo": {0: 5}}, metadata=None)) == ErrorCode.NONE
    assert h.coordinator.committed("g")["foo"][0].metadata == ""


@pytest.mark.parametrize(
    ("version", "code"), [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (10, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_an_unknown_topic_fails_alone(version: int, code: ErrorCode) -> None:
    """A deleted topic neither stops the commit of the others, nor lets a zombie commit them."""
    h = _member_at_2()
    offsets = {"foo": {0: 5}, "gone": {0: 5}}
    assert h.commit("m", 2, offsets, version=version) == {("foo", 0): ErrorCode.NONE, ("gone", 0): code}
    assert h.commit("zombie", 2, offsets, version=version) == {
        ("foo", 0): ErrorCode.UNKNOWN_MEMBER_ID,
        ("gone", 0): code,
    }


@pytest.mark.parametrize("version", [8, 9])
def test_no_offset_is_minus_one_and_no_error(version: int) -> None:
    """A new group starts by its reset policy."""
    h = _member_at_2()
    assert h.fetch({"foo": [0, 7]}, version=version) == {("foo", 0): -1, ("foo", 7): -1}
    h.group_id = "other"
    assert h.fetch({"foo": [0]}) == {("foo", 0): -1}
    assert h.fetch(None) == {}


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        ("m", 2, {("foo", 0): 5}),
        (None, -1, {("foo", 0): 5}),
        ("m", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 3, ErrorCode.STALE_MEMBER_EPOCH),
        ("n", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 2, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_fetches_as_a_member_must_be_at_the_group_s_epoch(
    member_id: str | None, epoch: int, expected: object
) -> None:
    """A zombie does not start from an offset that is no longer its business."""
    h = _member_at_2()
    h.commit("m", 2, {"foo": {0: 5}})
    assert h.fetch({"foo": [0]}, member_id=member_id, epoch=epoch) == expected


def test_one_group_s_error_does_not_fail_the_others() -> None:
    """Batched fetches of an admin client are independent."""
    h = _member_at_2()
    message = OffsetFetchRequest(
        groups=(
            OffsetFetchRequestGroup(group_id="g", member_id="zombie", member_epoch=1, topics=None),
            OffsetFetchRequestGroup(group_id="none", topics=None),
        )
    )
    assert [(group.group_id, group.error_code) for group in h.send(message, version=9).groups] == [
        ("g", ErrorCode.UNKNOWN_MEMBER_ID),
        ("none", ErrorCode.NONE),
    ]


@pytest.mark.parametrize("version", [1, 5, 7])
def test_the_old_layout_answers_one_group(version: int) -> None:
    """Tools that speak old versions read the offsets of new groups."""
    h = _member_at_2()
    h.commit("m", 2, {"foo": {0: 5}})
    message = OffsetFetchRequest(group_id="g", topics=(OffsetFetchRequestTopic(name="foo", partition_indexes=(0, 1)),))
    response = h.send(message, version=version)
    (topic,) = response.topics
    assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [(0, 5), (1, -1)]
    assert not response.groups


def test_topic_ids_are_resolved_and_echoed_in_version_10() -> None:
    """Newer clients name topics by id only, and find their offsets by it."""
    h = _member_at_2()
    h.commit("m", 2, {"foo": {0: 5}}, version=10)
    assert h.fetch({"foo": [0]}, version=10) == {("foo", 0): 5}
    assert h.fetch(None, version=10) == {("foo", 0): 5}
    group = OffsetFetchRequestGroup(
        group_id="g", topics=(OffsetFetchRequestTopics(topic_id=UUID(int=999), partition_indexes=(0,)),)
    )
    (topic,) = h.send(OffsetFetchRequest(groups=(group,)), version=10).groups[0].topics
    assert topic.topic_id == UUID(int=999)
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_topics_have_no_id_in_an_answer_by_name() -> None:
    """Version 9 has no field for topic ids; a client would be answered by an error of encoding."""
    h = _member_at_2()
    h.commit("m", 2, {"foo": {0: 5}})
    everything = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),))
    (topic,) = h.send(everything, version=9).groups[0].topics
    assert (topic.name, topic.topic_id) == ("foo", ZERO_UUID)


def test_offsets_of_a_deleted_topic_go_with_it() -> None:
    """A topic created again under the old name is read from its beginning, not from a foreign position."""
    h = _member_at_2()
    h.commit("m", 2, {"foo": {0: 5}, "bar": {0: 6}})
    h.delete_topic("foo")
    assert h.fetch(None) == {("bar", 0): 6}
    h.create_topic("foo", partitions=2)
    assert h.fetch({"foo": [0]}) == {("foo", 0): -1}
    h.verify_log()


def test_a_topic_replaced_in_one_step_does_not_keep_its_offsets_either() -> None:
    """Deleting and creating may reach the coordinator as one change."""
    h = _member_at_2()
    h.commit("m", 2, {"foo": {0: 5}})
    old = h.image
    h.image = replace(old, topics=tuple(t for t in old.topics if t.name != "foo"), version=old.version)
    h.create_topic("foo", partitions=2)
    assert h.fetch({"foo": [0]}) == {("foo", 0): -1}


@pytest.mark.parametrize("version", [9, 10])
def test_offsets_of_a_topic_that_was_replaced_while_no_coordinator_ran_are_not_told(version: int) -> None:
    """If they stayed, a member would begin in the middle of the new topic."""
    h = _member_at_2()
    h.commit("m", 2, {"foo": {0: 5}, "bar": {0: 6}})
    rest = tuple(topic for topic in h.image.topics if topic.name != "foo")
    h.image = replace(h.image, topics=(*rest, TopicInfo("foo", UUID(int=77), 2)), version=h.image.version + 1)
    h.restart()
    assert h.fetch({"foo": [0], "bar": [0]}, version=version) == {("foo", 0): -1, ("bar", 0): 6}
    every = h.fetch(None, version=version)
    assert isinstance(every, dict)
    assert every[("foo", 0)] == -1
    h.image = replace(h.image, topics=rest, version=h.image.version + 1)
    h.restart()
    assert h.fetch(None, version=version) == {("bar", 0): 6} | ({} if version >= 10 else {("foo", 0): 5})


def test_offsets_expire_a_week_after_the_commit_and_only_without_subscribers() -> None:
    """Groups that are long gone do not fill the disk; a slow living group keeps its offsets."""
    h = _member_at_2()
    h.commit("m", 2, {"foo": {0: 5}, "bar": {0: 6}})
    h.step(OffsetRetentionDue(h.wall_ms + 7 * DAY_MS - 1))
    assert h.record_names() == []
    h.step(OffsetRetentionDue(h.wall_ms + 7 * DAY_MS))
    assert h.fetch(None) == {("foo", 0): 5}
    h.heartbeat("m", -1)
    h.advance(DAY_MS)
    h.commit("", -1, {"foo": {1: 5}})
    h.step(OffsetRetentionDue(h.wall_ms + 6 * DAY_MS))
    assert (h.record_names(), h.fetch(None)) == (["offset†"], {("foo", 1): 5}), "the group stays as long as an offset"
    h.step(OffsetRetentionDue(h.wall_ms + 7 * DAY_MS))
    assert h.record_names()[0] == "offset†"
    assert h.coordinator.groups() == ()
    h.verify_log()


@pytest.mark.parametrize("retention_ms", [0, 1_000])
def test_a_retention_time_in_the_request_wins(retention_ms: int) -> None:
    """Old clients say in the commit how long their offsets are kept, and rely on it."""
    h = Harness()
    h.create_topic("foo", partitions=2)
    h.commit("", -1, {"foo": {0: 5}}, version=4, retention_ms=retention_ms)
    h.commit("", -1, {"foo": {1: 5}}, version=5)
    kept = h.coordinator.committed("g")["foo"]
    assert (kept[0].topic_id, kept[1].topic_id) == (ZERO_UUID, h.topic_id("foo")), "one record has no room for the id"
    h.step(OffsetRetentionDue(h.wall_ms + retention_ms - 1))
    assert h.fetch(None) == {("foo", 0): 5, ("foo", 1): 5}
    h.step(OffsetRetentionDue(h.wall_ms + retention_ms))
    assert h.fetch(None) == {("foo", 1): 5}


def test_a_retention_time_longer_than_any_record_can_say_keeps_the_offset() -> None:
    """The record of it could not be written, and the client was told of an unknown error."""
    h = Harness()
    h.create_topic("foo", partitions=1)
    h.commit("", -1, {"foo": {0: 5}}, version=4, retention_ms=2**63 - 1)
    assert h.coordinator.committed("g")["foo"][0].expire_timestamp_ms == 2**63 - 1
    h.verify_log()


def test_commits_do_not_keep_a_member_alive() -> None:
    """Only heartbeats do: a consumer whose heartbeat thread died is replaced."""
    h = _member_at_2()
    for _ in range(4):
        h.advance(11_000)
        assert _one(h.commit("m", 2, {"foo": {0: 5}})) == ErrorCode.NONE
    h.advance(1_000)
    assert _one(h.commit("m", 2, {"foo": {0: 5}})) == ErrorCode.UNKNOWN_MEMBER_ID


# --- commits in a transaction


def _commit_in_transaction(
    h: Harness,
    member_id: str = "",
    epoch: int = -1,
    *,
    instance: str | None = None,
    offsets: Mapping[int, int] | None = None,
    version: int = 5,
) -> ErrorCode:
    """TxnOffsetCommit of producer 7 for partitions of foo."""
    partitions = [{"partition_index": at, "committed_offset": offset} for at, offset in (offsets or {0: 5}).items()]
    message = build(
        TxnOffsetCommitRequest,
        group_id=h.group_id,
        producer_id=7,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=instance,
        topics=[{"name": "foo", "topic_id": h.topic_id("foo"), "partitions": partitions}, {"name": "bar"}],
    )
    (topic,) = h.send(message, version=version).topics
    assert h.results[-1].soft == (), "a commit in a transaction keeps no member alive"
    (code,) = {partition.error_code for partition in topic.partitions}
    return ErrorCode(code)


def _with(scene: str) -> tuple[Harness, str]:
    """A group of this kind with topic foo, and the id of its member."""
    if scene == "member":
        return _member_at_2(), "m"
    if scene == "classic":
        classic = ClassicHarness()
        return classic, classic.stable("a")[0]
    h = Harness()
    h.create_topic("foo", partitions=2)
    if scene == "offsets":
        h.commit("", -1, {"foo": {1: 5}})
    elif scene == "emptied":
        h.join("m", ["foo"])
        h.heartbeat("m", -1)
    return h, "m"


@pytest.mark.parametrize(
    ("scene", "member", "epoch", "code"),
    [
        ("nothing", False, -1, ErrorCode.NONE),
        ("nothing", True, 0, ErrorCode.ILLEGAL_GENERATION),
        ("offsets", False, -1, ErrorCode.NONE),
        ("offsets", True, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("emptied", False, -1, ErrorCode.NONE),
        ("emptied", True, -1, ErrorCode.NONE),
        ("emptied", True, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("member", False, -1, ErrorCode.NONE),
        ("member", False, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("member", True, -1, ErrorCode.ILLEGAL_GENERATION),
        ("member", True, 1, ErrorCode.NONE),
        ("member", True, 2, ErrorCode.NONE),
        ("member", True, 3, ErrorCode.ILLEGAL_GENERATION),
        ("classic", False, -1, ErrorCode.NONE),
        ("classic", False, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("classic", True, -1, ErrorCode.ILLEGAL_GENERATION),
        ("classic", True, 1, ErrorCode.NONE),
        ("classic", True, 2, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_who_may_commit_in_a_transaction(scene: str, member: bool, epoch: int, code: ErrorCode) -> None:
    """KIP-447: a producer that names a member is fenced with it; one that names none may commit to any group."""
    h, member_id = _with(scene)
    assert _commit_in_transaction(h, member_id if member else "", epoch) == code


@pytest.mark.parametrize(
    ("scene", "epoch", "code"),
    [
        ("nothing", 0, ErrorCode.GROUP_ID_NOT_FOUND),
        ("offsets", 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("member", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("member", 2, ErrorCode.NONE),
        ("member", 3, ErrorCode.STALE_MEMBER_EPOCH),
        ("classic", 2, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_from_version_6_on_a_transaction_is_told_what_is_wrong_with_its_member(
    scene: str, epoch: int, code: ErrorCode
) -> None:
    """KIP-1319: a producer that hears of a stale epoch asks its consumer for the next one, and need not abort."""
    h, member_id = _with(scene)
    assert _commit_in_transaction(h, member_id, epoch, version=6) == code


@pytest.mark.parametrize("scene", ["member", "classic"])
def test_an_instance_id_alone_names_a_member(scene: str) -> None:
    """A producer of an old static member cannot commit as if it were outside of the group."""
    h, _ = _with(scene)
    assert _commit_in_transaction(h, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID


def test_what_a_transaction_commits_is_kept_by_partition() -> None:
    """A change to one partition of an open transaction leaves its other partitions alone."""
    h, _ = _with("nothing")
    _commit_in_transaction(h, offsets={0: 5, 1: 6})
    h.step(TransactionEnded(7, commit=False))
    _commit_in_transaction(h, offsets={0: 5})
    asked = OffsetFetchRequestTopics(name="foo", partition_indexes=(0, 1))
    group = OffsetFetchRequestGroup(group_id="g", topics=(asked,))
    for require_stable, code in ((False, ErrorCode.NONE), (True, ErrorCode.UNSTABLE_OFFSET_COMMIT)):
        (answer,) = h.send(OffsetFetchRequest(groups=(group,), require_stable=require_stable), version=9).groups
        assert [p.error_code for p in answer.topics[0].partitions] == [code, ErrorCode.NONE]

    _commit_in_transaction(h, offsets={1: 6})
    deleted = OffsetDeleteRequestTopic(name="foo", partitions=(OffsetDeleteRequestPartition(partition_index=0),))
    h.send(OffsetDeleteRequest(group_id="g", topics=(deleted,)), version=0)
    h.step(TransactionEnded(7, commit=True))
    assert h.fetch(None) == {("foo", 1): 6}
    h.step(TransactionEnded(7, commit=True))
    assert h.record_names() == [], "it has ended"


def test_a_group_that_a_transaction_would_make_counts_for_the_limit_until_it_is_aborted() -> None:
    """``kip848.groups.max`` bounds the stored groups, also those that only a transaction commits to."""
    h = Harness(config=replace(FAST, groups_max=1))
    h.create_topic("foo", partitions=2)
    h.group_id = "other"
    assert _commit_in_transaction(h) == ErrorCode.NONE
    assert _commit_in_transaction(h, offsets={1: 5}) == ErrorCode.NONE
    h.group_id = "g"
    assert _commit_in_transaction(h) == ErrorCode.POLICY_VIOLATION
    assert _one(h.commit("", -1, {"foo": {0: 5}})) == ErrorCode.POLICY_VIOLATION
    assert h.join("m", ["foo"]).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    h.step(TransactionEnded(7, commit=False))
    assert _one(h.commit("", -1, {"foo": {0: 5}})) == ErrorCode.NONE


def test_a_group_with_members_and_offsets_counts_once_for_the_limit() -> None:
    """The limit counts group ids, so a group that commits must not use up two places."""
    h = Harness(config=replace(FAST, groups_max=2))
    h.create_topic("foo", partitions=2)
    h.join("m", ["foo"])
    h.commit("m", 1, {"foo": {0: 5}})
    h.group_id = "other"
    assert h.join("m", ["foo"]).error_code == ErrorCode.NONE
    assert h.join("n", ["foo"]).error_code == ErrorCode.NONE, "the group is there already"
