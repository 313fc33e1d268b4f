"""A rebalance from join to sync, and what each request means in each state (s13 to s20, s23)."""

from __future__ import annotations

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.classic.classic_group import ClassicState, to_value
from kip848_client.wire.messages.delete_groups import DeleteGroupsRequest
from kip848_client.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue
from kip848_client.wire.messages.leave_group import LeaveGroupRequest
from kip848_client.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.support.classic_harness import FOO, ClassicHarness
from tests.support.coordinator_harness import FailedAppend

NONE = ErrorCode.NONE
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_s13_a_sole_member_goes_from_join_to_sync() -> None:
    """The first thing that any classic consumer does."""
    h = ClassicHarness()
    a, call = h.joining()
    answer = call.answer
    assert (answer.generation_id, answer.protocol_type, answer.protocol_name) == (1, "consumer", "range")
    assert h.state_is(ClassicState.COMPLETING)
    assert h.beat(a, 1) == NONE
    assert h.commit_code(a, 1) == REBALANCE
    assert h.record_names() == []
    sync = h.sync_group(a, 1, {a: b"mine", "stranger": b"?"})
    assert (sync.answer.assignment, sync.answer.protocol_type, sync.answer.protocol_name) == (
        b"mine",
        "consumer",
        "range",
    )
    assert h.record_names() == ["classic"]
    assert h.commit_code(a, 1) == NONE
    described = h.describe()
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (member,) = described.members
    assert (member.member_id, member.client_id, member.client_host) == (a, "client", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (FOO, b"mine")
    h.verify_log()


def test_s14_a_sync_has_to_fit_the_generation_and_the_protocol() -> None:
    """A member that was left behind must not get another generation's partitions."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    assert h.sync_group(a, 7).code == ILLEGAL
    assert h.sync_group("zz", 1).code == UNKNOWN
    assert h.sync_group(a, 1, protocol="roundrobin").code == INCONSISTENT
    assert h.sync_group(a, 1, protocol_type="connect").code == INCONSISTENT
    assert h.sync_group(a, 1, protocol_type=None, protocol=None, version=4).answer.assignment == b"a"


def test_s16_before_the_sync_an_equal_join_is_answered_again_and_another_one_rebalances() -> None:
    """The answer may have been lost; but a new subscription has to reach the leader."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    h.join_group(a)
    again = h.join_group(a).answer
    assert (again.generation_id, len(again.members)) == (2, 1)
    assert h.join_group(a, protocols={"range": FOO + b"?"}).answer.generation_id == 3


def test_s17_members_hear_of_a_rebalance_and_joins_wait_for_all() -> None:
    """A partition is given away only after its owner has heard that it must give it up."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    b, call = h.joining()
    assert call.is_parked
    assert h.state_is(ClassicState.PREPARING)
    assert h.beat(a, 1) == REBALANCE
    assert h.beat(a, 7) == ILLEGAL
    assert h.sync_group(a, 1).code == REBALANCE
    assert h.commit_code(a, 1) == NONE
    leader = h.join_group(a).answer
    assert (leader.generation_id, leader.leader, [m.member_id for m in leader.members]) == (2, a, [a, b])
    assert (call.answer.generation_id, call.answer.leader, call.answer.members) == (2, a, ())
    follower = h.sync_group(b, 2)
    assert follower.is_parked
    assert h.sync_group(a, 2, {a: b"A", b: b"B"}).answer.assignment == b"A"
    assert follower.answer.assignment == b"B"
    assert h.sync_group(b, 2, {b: b"ignored"}).answer.assignment == b"B"


def test_s18_a_follower_that_joins_again_unchanged_does_not_disturb() -> None:
    """A follower that reconnects costs the others nothing."""
    h = ClassicHarness()
    a, b = h.stable("a", "b")
    answer = h.join_group(b).answer
    assert (answer.generation_id, answer.leader, answer.members) == (2, a, ())
    assert h.beat(a, 2) == NONE
    assert h.join_group(b, protocols={"range": FOO + b"?"}).is_parked
    assert h.beat(a, 2) == REBALANCE


def test_s19_the_last_members_leave_and_the_group_is_empty() -> None:
    """One request may name several members, and each has its own code."""
    h = ClassicHarness()
    a, b = h.stable("a", "b")
    assert h.leave_group(a, "zz", b) == [NONE, UNKNOWN, NONE]
    (record,) = h.results[-1].records
    assert record.key == GroupMetadataKey("g")
    assert isinstance(record.value, GroupMetadataValue)
    assert (record.value.generation, record.value.members) == (3, ())
    assert (record.value.protocol, record.value.leader) == (None, None)
    assert h.listed() == {"g": ("Empty", "classic", "consumer")}
    assert h.beat(a, 2) == h.sync_group(a, 2).code == h.join_group(a).code == UNKNOWN
    h.verify_log()


def test_a_member_that_leaves_costs_the_others_one_rebalance() -> None:
    """Its partitions are given away at once, and not when its session ends."""
    h = ClassicHarness()
    a, b, c = h.stable("a", "b", "c")
    assert h.leave_group(a, c) == [NONE, NONE]
    assert h.beat(b, 2) == REBALANCE
    answer = h.join_group(b).answer
    assert (answer.generation_id, answer.leader) == (3, b)


@pytest.mark.parametrize(("known", "code"), [(True, NONE), (False, UNKNOWN)])
def test_before_version_3_one_member_leaves_and_its_code_is_the_whole_answer(known: bool, code: ErrorCode) -> None:
    """librdkafka sends version 1, which has no list of members, and must be able to leave."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    response = h.send(LeaveGroupRequest(group_id="g", member_id=a if known else "zz"), version=1)
    assert (response.error_code, response.members) == (code, ())
    assert h.describe().group_state == ("Empty" if known else "Stable")


def test_who_leaves_while_its_join_waits_is_told_there() -> None:
    """A parked request must not be forgotten: its client would wait until its own time-out."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    b, call = h.joining()
    assert h.leave_group(b) == [NONE]
    assert (call.code, call.answer.member_id) == (UNKNOWN, "")
    assert h.join_group(a).answer.generation_id == 2


def test_who_leaves_while_its_sync_waits_is_told_there() -> None:
    """A member that leaves gets an answer to its waiting sync, and the others are told to join again."""
    h = ClassicHarness()
    a, b, c = h.stable("a", "b", "c")
    for member_id in (a, b, c):
        h.join_group(member_id)
    leaving, staying = h.sync_group(b, 3), h.sync_group(c, 3)
    assert h.leave_group(b) == [NONE]
    assert (leaving.code, staying.code) == (UNKNOWN, REBALANCE)


def test_a_request_that_is_sent_twice_answers_the_older_one() -> None:
    """Apache Kafka never answers it, and its client waits for nothing."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    b, older = h.joining()
    younger = h.join_group(b)
    assert (older.code, older.answer.member_id) == (REBALANCE, b)
    h.join_group(a)
    assert younger.code == NONE
    first, second = h.sync_group(b, 2), h.sync_group(b, 2)
    h.sync_group(a, 2, {b: b"B"})
    assert (first.code, second.answer.assignment) == (REBALANCE, b"B")


@pytest.mark.parametrize(
    ("state", "anonymous", "named"),
    [("stable", UNKNOWN, ILLEGAL), ("completing", UNKNOWN, ILLEGAL), ("empty", NONE, NONE)],
)
def test_s20_commits_without_a_generation_are_for_groups_without_members(
    state: str, anonymous: ErrorCode, named: ErrorCode
) -> None:
    """An administrator may move the offsets of an empty group, and of no other."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    if state == "completing":
        h.join_group(a)
    if state == "empty":
        h.leave_group(a)
    assert h.commit_code("", 0) == UNKNOWN
    assert h.commit_code("", -1) == anonymous
    assert h.commit_code(a, -1) == named


def test_a_commit_has_to_fit_the_generation_and_is_a_sign_of_life() -> None:
    """A late commit of an old generation would undo the progress of the member that took over."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    assert h.commit_code(a, 7) == ILLEGAL
    assert h.commit_code("zz", 1) == UNKNOWN
    h.advance(9_000)
    assert h.commit_code(a, 1, version=2) == NONE
    h.advance(9_000)
    assert h.beat(a, 1) == NONE


def test_anybody_may_read_the_offsets_of_a_classic_group() -> None:
    """As in Kafka, a classic group's offsets are read without a check of member and generation."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    h.commit_code(a, 1)
    assert h.fetch({"foo": [0]}, member_id="zz", epoch=99) == {("foo", 0): 5}


def _delete_offset(h: ClassicHarness) -> tuple[int, int]:
    message = OffsetDeleteRequest(
        group_id="g",
        topics=(OffsetDeleteRequestTopic(name="foo", partitions=(OffsetDeleteRequestPartition(partition_index=0),)),),
    )
    response = h.send(message, version=0)
    return response.error_code, response.topics[0].partitions[0].error_code if response.topics else 0


def _delete_group(h: ClassicHarness) -> int:
    return h.send(DeleteGroupsRequest(groups_names=("g",)), version=2).results[0].error_code


@pytest.mark.parametrize("said", [FOO, b"?"])
def test_s23_a_group_that_lives_cannot_be_deleted_nor_its_offsets(said: bytes) -> None:
    """A tool must not take the positions away that members are about to use, or may be."""
    h = ClassicHarness()
    h.joining(protocols={"range": said})
    assert _delete_offset(h) == (NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    assert _delete_group(h) == ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_a_group_that_is_not_of_consumers_cannot_be_deleted_while_it_lives() -> None:
    """The coordinator cannot know which offsets Connect's workers still need."""
    h = ClassicHarness()
    h.newcomer(protocol_type="connect")
    assert _delete_offset(h) == (ErrorCode.NON_EMPTY_GROUP, 0)


def test_an_empty_group_is_deleted_with_its_offsets_and_the_ids_it_has_handed_out() -> None:
    """After that nothing of it comes back, from the log neither."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    h.commit_code(a, 1)
    h.leave_group(a)
    pending = h.join_group().answer.member_id
    assert _delete_offset(h) == (NONE, NONE)
    assert _delete_group(h) == NONE
    assert h.listed() == {}
    assert h.join_group(pending).code == UNKNOWN
    h.advance(60_000)
    h.verify_log()


@pytest.mark.parametrize(("version", "state", "code"), [(6, "Dead", 69), (5, "Dead", 0)])
def test_a_group_that_is_not_there_is_dead_or_not_found(version: int, state: str, code: int) -> None:
    """Version 6 of DescribeGroups can say which; older ones show a state."""
    h = ClassicHarness()
    described = h.describe(version=version)
    assert (described.group_state, described.error_code) == (state, code)


def test_while_a_group_rebalances_its_members_are_shown_without_their_metadata() -> None:
    """The metadata may be of no use any more; the assignments are those of the last generation."""
    h = ClassicHarness()
    (a,) = h.stable("a")
    h.newcomer()
    described = h.describe()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [(m.member_metadata, m.member_assignment) for m in described.members] == [(b"", b"a"), (b"", b"")]
    h.join_group(a)
    h.newcomer()
    assert [member.member_assignment for member in h.describe().members] == [b"", b"", b""]


def test_a_failed_append_changes_nothing_and_the_leader_may_try_again() -> None:
    """The followers go on waiting, as if the leader were slow."""
    h = ClassicHarness()
    a, _ = h.joining()
    b = h.newcomer()
    h.join_group(a)
    follower = h.sync_group(b, 2)
    before = h.classic
    h.fail_next_append = True
    with pytest.raises(FailedAppend):
        h.sync_group(a, 2, {b: b"B"})
    assert h.classic == before
    assert follower.is_parked
    assert h.join_group(a).answer.generation_id == 2
    assert h.sync_group(a, 2, {b: b"B"}).code == NONE
    assert follower.answer.assignment == b"B"
    assert to_value(h.classic) == h.log[-1].value
