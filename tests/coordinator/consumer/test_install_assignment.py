"""What a member is told when it prepares, what it may install, and what becomes of errors and metadata."""

from __future__ import annotations

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.modern.member_record import AssignmentMetadata
from kip848_client.wire.messages.consumer_group_install_assignment import Member, TopicPartition
from kip848_client.wire.messages.group_records import (
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupRecord,
    decode_record,
    encode_record_key,
    encode_record_value,
)
from tests.support.coordinator_harness import AssignmentHarness, Parts, offer, spread, told


def _prepared() -> tuple[AssignmentHarness, int]:
    """m1 and m2 of six and two partitions; m1 is chosen and prepared. Also the epoch."""
    h = AssignmentHarness()
    h.create_topic("bar", partitions=2)
    h.enter("m1", topics=["foo", "bar"])
    h.enter("m2", topics=["foo"])
    return h, h.prepare("m1").group_epoch


# --- the snapshot


def test_the_chosen_member_is_told_everything_an_assignor_needs() -> None:
    """KIP-848: members with their epochs, subscriptions, metadata and targets, and the topics of all of them."""
    h = AssignmentHarness()
    h.create_topic("bar", partitions=2)
    h.create_topic("other", partitions=9)
    h.join("m1", ["foo", "gone"], offers=[offer(versions=(0, 3), version=2, reason=7, data=b"x")], rack="r1")
    h.compute()
    h.settle()
    h.enter("m2", offer(versions=(0, 3), version=1, data=b"y"), topics=["foo", "bar"], instance="i2")
    prepared = h.prepare("m2")
    assert (prepared.error_code, prepared.group_epoch, prepared.assignor_name) == (0, h.group.group_epoch, "a")
    m1, m2 = prepared.members
    foo, bar = h.topic_id("foo"), h.topic_id("bar")
    assert (m1.member_id, m1.member_epoch, m1.instance_id, m1.rack_id) == ("m1", 2, None, "r1")
    assert (m2.member_id, m2.member_epoch, m2.instance_id, m2.rack_id) == ("m2", 2, "i2", None)
    assert (m1.subscribed_topic_ids, m2.subscribed_topic_ids) == ((foo,), (foo, bar))
    assert (m1.assignor.reason, m1.assignor.metadata_version, m1.assignor.metadata_bytes) == (7, 2, b"x")
    assert (m2.assignor.reason, m2.assignor.metadata_version, m2.assignor.metadata_bytes) == (0, 1, b"y")
    assert [(part.topic_id, part.partitions) for part in m1.topic_partitions] == [(foo, (0, 1, 2, 3, 4, 5))]
    assert m2.topic_partitions == ()
    assert [(topic.topic_id, topic.topic_name, topic.num_partitions) for topic in prepared.topics] == [
        (foo, "foo", 6),
        (bar, "bar", 2),
    ]
    assert h.results[-1].records == (), "the snapshot is soft state"


def test_topics_that_a_pattern_matched_are_in_the_snapshot() -> None:
    """An assignor works for members that subscribe by pattern too."""
    h = AssignmentHarness()
    h.join("m1", None, regex="f.*", offers=[offer()])
    h.run_tasks()
    h.beat("m1")
    prepared = h.prepare("m1")
    assert [topic.topic_name for topic in prepared.topics] == ["foo"]
    assert prepared.members[0].subscribed_topic_ids == (h.topic_id("foo"),)
    h.settle()


# --- validation


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"m1": {"bar": [0, 1], "foo": [0, 1, 2]}, "m2": {"foo": [3, 4]}}, "5"),
        ({"m1": {"foo": range(6)}}, "0, 1"),
        ({}, "have no member"),
        ({"m1": {"bar": [0, 1], "foo": [0, 1, 2, 3]}, "m2": {"foo": [3, 4, 5]}}, "twice"),
        ({"m1": {"bar": [0, 1, 1], "foo": [0, 1, 2]}, "m2": {"foo": [3, 4, 5]}}, "twice"),
        ({"m1": {"bar": [0, 1], "foo": [0, 1, 2]}, "m9": {"foo": [3, 4, 5]}}, "m9"),
        ({"m1": {"bar": [0, 1], "foo": [0, 1, 2]}, "m2": {"foo": [3, 4, 5]}, "m9": {}}, "m9"),
        ({"m1": {"bar": [0, 1], "foo": [0, 1, 2]}, "m2": {"foo": [3, 4, 5, 6]}}, "6"),
        ({"m1": {"bar": [0, 1], "foo": [0, 1, 2]}, "m2": {"foo": [-1, 3, 4, 5]}}, "-1"),
        ({"m1": {"foo": [0, 1, 2]}, "m2": {"foo": [3, 4, 5], "bar": [0, 1]}}, "does not subscribe"),
    ],
)
def test_a_target_that_breaks_an_invariant_is_refused_by_name_and_changes_nothing(parts: Parts, named: str) -> None:
    """KIP-848 "Assignment Validation": all partitions, each once, known members only. The author reads why."""
    h, epoch = _prepared()
    before = h.state(), h.flying()
    answer = h.install("m1", epoch, parts)
    assert answer.error_code == ErrorCode.INVALID_ASSIGNMENT
    assert answer.error_message is not None
    assert named in answer.error_message
    assert (h.state(), h.flying()) == before
    assert [event.event for event in h.results[-1].events] == ["assignment_refused"]
    right: Parts = {"m1": {"bar": [0, 1], "foo": [0, 1, 2]}, "m2": {"foo": [3, 4, 5]}}
    assert h.install("m1", epoch, right).error_code == 0, "the member may try again until its time is up"


def test_an_unknown_topic_or_a_member_that_is_there_twice_is_refused() -> None:
    """An assignment with an unknown topic id, or with a member listed twice, must not become the target."""
    h, epoch = _prepared()
    stranger = TopicPartition(topic_id=h.create_topic("later", partitions=1), partitions=(0,))
    all_of_it = h.part("m1", {"bar": [0, 1], "foo": range(6)})
    for members in (
        (all_of_it, Member(member_id="m2", partitions=(stranger,))),
        (all_of_it, Member(member_id="m1")),
    ):
        assert h.install_members("m1", epoch, members).error_code == ErrorCode.INVALID_ASSIGNMENT


def test_one_topic_in_several_pieces_is_as_good_as_in_one() -> None:
    """The arrays of the request are sets to the coordinator."""
    h, epoch = _prepared()
    foo, bar = h.topic_id("foo"), h.topic_id("bar")
    pieces = (
        TopicPartition(topic_id=foo, partitions=(5, 1)),
        TopicPartition(topic_id=bar, partitions=(1, 0)),
        TopicPartition(topic_id=foo, partitions=(3,)),
    )
    members = (Member(member_id="m1", partitions=pieces), h.part("m2", {"foo": [4, 2, 0]}))
    assert h.install_members("m1", epoch, members).error_code == 0
    assert (h.target("m1"), h.target("m2")) == ({"foo": [1, 3, 5], "bar": [0, 1]}, {"foo": [0, 2, 4]})
    h.verify_log()


def test_what_members_are_told_has_a_limit() -> None:
    """The metadata of a group is kept in memory and in its log; one assignor must not fill both."""
    h, epoch = _prepared()
    parts: Parts = {"m1": {"bar": [0, 1], "foo": range(6)}}
    refused = h.install("m1", epoch, parts, metadata={"m1": (0, bytes(65_537))})
    assert refused.error_code == ErrorCode.INVALID_ASSIGNMENT
    assert refused.error_message is not None
    assert "65537" in refused.error_message
    assert "65536" in refused.error_message
    assert h.install("m1", epoch, parts, metadata={"m1": (0, bytes(65_536))}).error_code == 0


def test_a_group_without_topics_has_an_empty_target() -> None:
    """A topic may be created later; until then there is nothing to validate."""
    h = AssignmentHarness()
    h.enter("m1", topics=["later"])
    prepared = h.prepare("m1")
    assert prepared.topics == ()
    assert h.install("m1", prepared.group_epoch, {}).error_code == 0
    assert h.beat("m1").member_epoch == 2
    assert h.group.state == "Stable"


def test_only_members_whose_part_is_new_get_a_record() -> None:
    """The log of a large group grows with what changed."""
    h = AssignmentHarness()
    h.settled("m1", "m2", "m3")
    h.heartbeat("m1", h.member("m1").member_epoch, offers=[offer(reason=1)])
    h.compute()
    assert h.record_names() == ["target_epoch"]


# --- errors


def test_an_assignor_s_error_keeps_the_target_and_reaches_every_member() -> None:
    """KIP-848 "Assignment Error": nothing moves, and each member's assignor hears why."""
    h = AssignmentHarness()
    h.settled("m1", "m2")
    before = {member_id: h.target(member_id) for member_id in ("m1", "m2")}
    h.heartbeat("m1", h.member("m1").member_epoch, offers=[offer(reason=1)])
    assert h.compute({}, error=3).error_code == 0
    assert {member_id: h.target(member_id) for member_id in ("m1", "m2")} == before
    assert h.group.target_epoch == h.group.group_epoch
    assert h.flying() is None, "the group does not loop"
    for member_id in ("m1", "m2"):
        answer = h.beat(member_id)
        assert answer.member_epoch == h.group.group_epoch
        assert answer.assignment is not None, "the error is news although the partitions are not"
        assert answer.assignment.error == 3
        assert h.received(answer) == before[member_id]
        assert h.beat(member_id).assignment is None, "it is told once"
    assert h.group.state == "Stable"
    h.verify_log()


@pytest.mark.parametrize(("assignor", "kept"), [("a", b"told"), ("b", b"")])
def test_an_error_keeps_what_the_same_assignor_told_before(assignor: str, kept: bytes) -> None:
    """After an error members keep the metadata of the same assignor, but not that of another one."""
    h = AssignmentHarness()
    h.enter("m1")
    h.install("m1", h.prepare("m1").group_epoch, {"m1": {"foo": range(6)}}, metadata={"m1": (1, b"told")})
    h.settle()
    h.heartbeat("m1", h.member("m1").member_epoch, offers=[offer(assignor, reason=1)])
    assert h.compute({}, error=3).error_code == 0
    assert (h.member("m1").target_metadata.data, h.member("m1").target_metadata.assignor) == (kept, assignor)


def test_an_error_keeps_nothing_of_a_topic_that_a_member_dropped() -> None:
    """Broken: what the member gave up stays its own in the target, and no other member is given it."""
    h = AssignmentHarness()
    h.create_topic("bar", partitions=2)
    h.enter("m1", topics=["foo", "bar"])
    h.settle()
    h.heartbeat("m1", h.member("m1").member_epoch, topics=["foo"], owned={"foo": range(6)})
    assert h.compute({}, error=3).error_code == 0

    assert h.target("m1") == {"foo": [0, 1, 2, 3, 4, 5]}
    h.settle()
    h.verify_log()


def test_a_later_change_tries_again_and_clears_the_error() -> None:
    """A change of metadata is how an author of an assignor gets the group out of an error."""
    h = AssignmentHarness()
    h.settled("m1", "m2")
    h.heartbeat("m1", h.member("m1").member_epoch, offers=[offer(reason=1)])
    h.compute({}, error=3)
    h.settle()
    assert h.heartbeat("m2", h.member("m2").member_epoch, offers=[offer(data=b"new")]).should_compute_assignment
    h.compute()
    for member_id in ("m1", "m2"):
        answer = h.beat(member_id)
        assert told(answer).error == 0
    h.verify_log()


def test_an_error_reaches_members_that_joined_since_the_snapshot() -> None:
    """They reach the same epoch, and the target of that epoch failed."""
    h = AssignmentHarness()
    h.settled("m1")
    h.heartbeat("m1", h.member("m1").member_epoch, offers=[offer(reason=1)])
    prepared = h.prepare("m1")
    h.enter("m2")
    h.install("m1", prepared.group_epoch, {}, error=9)
    answer = h.beat("m2")
    assert told(answer).error == 9


def test_with_an_error_the_members_of_the_request_are_not_read() -> None:
    """A crashed assignor has no result to be checked."""
    h, epoch = _prepared()
    assert h.install("m1", epoch, {"m9": {"foo": [99]}}, error=1).error_code == 0


def test_an_error_still_needs_the_snapshot_of_its_epoch() -> None:
    """A failure of an older computation says nothing about the present one."""
    h, epoch = _prepared()
    assert h.install("m1", epoch - 1, {}, error=1).error_code == ErrorCode.INVALID_ASSIGNMENT


# --- metadata


def test_metadata_reaches_a_member_when_it_reaches_the_epoch() -> None:
    """A member that must give partitions up first hears the new metadata with its new epoch, not before."""
    h = AssignmentHarness()
    h.settled("m1")
    h.enter("m2")
    prepared = h.prepare("m2")
    parts = spread(prepared)
    h.install("m2", prepared.group_epoch, parts, metadata={"m1": (1, b"one"), "m2": (2, b"two")})
    assert h.member("m1").target_metadata == AssignmentMetadata(version=1, data=b"one", assignor="a")
    revoking = h.beat("m1")
    assert (told(revoking).metadata_version, told(revoking).metadata_bytes) == (0, b"")
    done = h.beat("m1")
    assert done.member_epoch == prepared.group_epoch
    assert done.assignment is not None, "the metadata is news although the partitions are not"
    assert (done.assignment.metadata_version, done.assignment.metadata_bytes) == (1, b"one")
    assert done.assignment.assignor_name == "a", "a member with several assignors must know whose bytes these are"
    joined = h.beat("m2")
    assert (told(joined).metadata_version, told(joined).metadata_bytes) == (2, b"two")
    h.verify_log()


def test_metadata_survives_the_coordinator_also_that_of_an_epoch_that_is_over() -> None:
    """A member that asks again after a fail-over is told what belongs to the epoch it is at."""
    h = AssignmentHarness()
    h.enter("m1")
    h.enter("m2")
    prepared = h.prepare(h.chosen)
    h.install(h.chosen, prepared.group_epoch, spread(prepared), metadata={"m1": (1, b"old"), "m2": (1, b"old")})
    h.settle()
    h.heartbeat("m1", h.member("m1").member_epoch, offers=[offer(reason=1)])
    prepared = h.prepare("m1")
    h.install("m1", prepared.group_epoch, {"m1": {}, "m2": {"foo": range(6)}}, metadata={"m1": (1, b"new")})
    h.restart()
    answer = h.heartbeat(
        "m1", h.member("m1").member_epoch, owned=h.assigned("m1"), topics=["foo"], rebalance_timeout_ms=5_000
    )
    assert (h.received(answer), told(answer).metadata_bytes) == ({}, b"old")
    answer = h.beat("m1")
    assert told(answer).metadata_bytes == b"new"
    h.verify_log()


def test_metadata_alone_is_a_new_target() -> None:
    """An assignor that only tells its members something else writes that, and they hear it."""
    h = AssignmentHarness()
    h.settled("m1", "m2")
    h.heartbeat("m1", h.member("m1").member_epoch, offers=[offer(reason=1)])
    prepared = h.prepare("m1")
    h.install("m1", prepared.group_epoch, spread(prepared), metadata={"m2": (0, b"stand by")})
    assert h.record_names() == ["target", "target_epoch"]
    assert h.beat("m1").assignment is None
    answer = h.beat("m2")
    assert told(answer).metadata_bytes == b"stand by"


@pytest.mark.parametrize(("topic", "kept"), [("foo", [0, 1, 2]), ("bar", [0, 1, 2, 3, 4, 5])], ids=["moves", "stays"])
def test_metadata_goes_with_the_server_s_target(topic: str, kept: list[int]) -> None:
    """A server-side assignor tells nothing; what a member's assignor said no longer holds, though nothing may move."""
    h = AssignmentHarness()
    h.create_topic("bar", partitions=1)
    h.enter("m1")
    prepared = h.prepare("m1")
    h.install("m1", prepared.group_epoch, spread(prepared), metadata={"m1": (4, b"told")})
    h.settle()
    assert h.member("m1").metadata_told == AssignmentMetadata(version=4, data=b"told", assignor="a")
    h.join("plain", [topic])
    answer = h.beat("m1")
    while h.member("m1").member_epoch < h.group.target_epoch:
        answer = h.beat("m1")
    assert (told(answer).metadata_version, told(answer).metadata_bytes) == (0, b"")
    assert (h.assigned("m1"), h.member("m1").target_metadata) == ({"foo": kept}, AssignmentMetadata())
    h.verify_log()


def test_a_static_member_s_successor_without_assignors_is_told_nothing() -> None:
    """The old process had metadata, the new one does not know what that is."""
    h = AssignmentHarness()
    h.enter("m1", instance="i1")
    prepared = h.prepare("m1")
    h.install("m1", prepared.group_epoch, spread(prepared), metadata={"m1": (0, b"told")})
    h.settle()
    h.heartbeat("m1", -2, instance="i1")
    answer = h.join("m1b", ["foo"], instance="i1")
    assert h.received(answer) == {"foo": [0, 1, 2, 3, 4, 5]}
    assert h.member("m1b").target_metadata == h.member("m1b").metadata_told == AssignmentMetadata()
    h.verify_log()


def test_a_static_member_that_comes_back_hears_its_metadata_again() -> None:
    """The new process starts with what its assignor was told."""
    h = AssignmentHarness()
    h.enter("m1", instance="i1")
    prepared = h.prepare("m1")
    h.install("m1", prepared.group_epoch, spread(prepared), metadata={"m1": (0, b"told")})
    h.settle()
    h.heartbeat("m1", -2, instance="i1")
    answer = h.enter("m1b", instance="i1")
    assert (h.received(answer), told(answer).metadata_bytes) == ({"foo": [0, 1, 2, 3, 4, 5]}, b"told")
    assert h.member("m1b").target_metadata == h.member("m1b").metadata_told
    h.verify_log()


def test_members_without_assignors_get_no_tags() -> None:
    """librdkafka and Kafka's own clients see exactly the answers of Kafka."""
    h = AssignmentHarness()
    h.enter("m1")
    h.join("plain", ["foo"])
    answer = h.heartbeat("plain", h.member("plain").member_epoch, owned={}, topics=["foo"], rebalance_timeout_ms=5_000)
    assert told(answer).pending_topic_partitions == ()


def test_members_with_assignors_hear_what_they_wait_for_in_server_mode_too() -> None:
    """``on_assignment`` has the complete target of a client and of the server."""
    h = AssignmentHarness()
    h.join("plain", ["foo"])
    joined = h.enter("m1")
    assert (h.received(joined), h.awaited(joined)) == ({}, h.target("m1"))


def test_what_a_member_waits_for_is_told_again_when_it_changes() -> None:
    """Same partitions, other epoch: the pending part moved, and the assignor must know."""
    h = AssignmentHarness()
    h.settled("m1")
    h.enter("m2")
    h.compute()
    assert h.awaited(h.beat("m2")) == {"foo": [1, 3, 5]}
    h.heartbeat("m2", h.member("m2").member_epoch, offers=[offer(reason=1)])
    h.compute({"m1": {"foo": [0, 1, 2]}, "m2": {"foo": [3, 4, 5]}})
    answer = h.beat("m2")
    assert (h.received(answer), h.awaited(answer)) == ({}, {"foo": [3, 4, 5]})
    assert h.beat("m2").assignment is None


def test_a_member_does_not_wait_for_what_it_unsubscribed_from() -> None:
    """Until the next target it is in the old one, which is not what the member shall own."""
    h = AssignmentHarness()
    h.create_topic("bar", partitions=1)
    h.enter("m1", topics=["foo", "bar"])
    h.settle()
    h.enter("m2", topics=["foo", "bar"])
    h.compute({"m1": {"foo": [0]}, "m2": {"foo": range(1, 6), "bar": [0]}})
    assert h.awaited(h.beat("m2")) == {"foo": [1, 2, 3, 4, 5], "bar": [0]}
    answer = h.heartbeat("m2", h.member("m2").member_epoch, topics=["foo"], owned={}, rebalance_timeout_ms=5_000)
    assert h.awaited(answer) == {"foo": [1, 2, 3, 4, 5]}


def test_what_a_member_waits_for_is_told_again_after_it_gave_something_up() -> None:
    """A member that owes a revocation waits for nothing; afterwards it waits again, at the same epoch."""
    both = ["foo", "bar"]
    h = AssignmentHarness()
    h.create_topic("bar", partitions=1)
    for member_id in ("m1", "m2", "m3"):
        h.enter(member_id, topics=both)
    h.compute({"m1": {"foo": range(6)}, "m2": {}, "m3": {"bar": [0]}})
    h.settle()
    h.heartbeat("m2", h.member("m2").member_epoch, offers=[offer(reason=1)])
    h.compute({"m1": {"foo": [0]}, "m2": {"foo": range(1, 6), "bar": [0]}, "m3": {}})
    h.beat("m3")
    h.heartbeat("m3", h.member("m3").member_epoch, owned={})
    answer = h.beat("m2")
    assert (h.received(answer), h.awaited(answer)) == ({"bar": [0]}, {"foo": [1, 2, 3, 4, 5]})
    epoch = answer.member_epoch
    answer = h.heartbeat("m2", epoch, topics=["foo"], owned={"bar": [0]}, rebalance_timeout_ms=5_000)
    assert (h.received(answer), h.awaited(answer)) == ({}, {})
    answer = h.heartbeat("m2", epoch, owned={})
    assert (answer.member_epoch, h.received(answer), h.awaited(answer)) == (epoch, {}, {"foo": [1, 2, 3, 4, 5]})


# --- records


def test_records_carry_the_extension_in_private_tags_and_nothing_else_changes() -> None:
    """Kafka's own tools skip the tags; a log without client-side assignors is byte for byte Kafka's."""
    h = AssignmentHarness()
    h.enter("m1", offer(versions=(-1, 3), version=2, reason=7, data=b"x"))
    prepared = h.prepare("m1")
    h.install("m1", prepared.group_epoch, {"m1": {"foo": range(6)}}, metadata={"m1": (5, b"told")})
    values = [record.value for record in h.log]
    member = next(value for value in values if isinstance(value, ConsumerGroupMemberMetadataValue))
    (assignor,) = member.client_assignors
    assert (assignor.name, assignor.minimum_version, assignor.maximum_version) == ("a", -1, 3)
    assert (assignor.reason, assignor.metadata_version, assignor.metadata_bytes) == (7, 2, b"x")
    target = [value for value in values if isinstance(value, ConsumerGroupTargetAssignmentMemberValue)][-1]
    assert (target.error, target.metadata_version, target.metadata_bytes) == (0, 5, b"told")
    epoch = [value for value in values if isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)][-1]
    assert (epoch.assignment_epoch, epoch.assignor_name) == (2, "a")
    for record in h.log:
        assert record.value is not None
        assert decode_record(encode_record_key(record.key), encode_record_value(record.value)) == GroupRecord(
            record.key, record.value
        )


def test_events_say_who_was_asked_and_what_came_of_it() -> None:
    """The event log of a group tells a computation from beginning to end."""
    h = AssignmentHarness()
    h.enter("m1")
    h.prepare("m1")
    h.install("m1", 2, {})
    h.compute()
    h.heartbeat("m1", 1, offers=[offer(reason=1)])
    h.compute(error=4)
    events = [
        (event.event, event.member_id, event.fields.get("assignor"), event.fields.get("reason"))
        for event in h.events
        if event.event.startswith(("assign", "target"))
    ]
    assert events[0] == ("assignment_requested", "m1", "a", "group_epoch_bumped")
    assert events[1][0] == "assignment_refused"
    assert [event for event, *_ in events[2:]] == [
        "target_assignment_computed",
        "assignment_requested",
        "assignor_failed",
    ]
