"""Client-side mode: a member is chosen, asked, and what it computes becomes the target."""

from __future__ import annotations

from kip848_client.coordinator import MemberState
from kip848_client.errors import ErrorCode
from tests.support.assignment_harness import AssignmentHarness, offer


def test_the_first_member_is_asked_with_its_join_and_installs_what_it_computed() -> None:
    """A consumer with its own assignor starts reading after a join, two requests and a heartbeat."""
    h = AssignmentHarness()
    joined = h.enter("m1")
    assert joined.should_compute_assignment
    assert (joined.member_epoch, h.received(joined)) == (1, {})
    assert h.record_names() == ["member", "epoch", "target", "target_epoch", "current"]
    assert h.group.state == "Assigning"
    prepared = h.prepare("m1")
    assert (prepared.error_code, prepared.group_epoch, prepared.assignor_name) == (0, 2, "a")
    assert h.install("m1", 2, {"m1": {"foo": range(6)}}).error_code == 0
    assert h.record_names() == ["target", "target_epoch"]
    assert (h.group.target_epoch, h.group.target_assignor, h.flying()) == (2, "a", None)
    answer = h.heartbeat("m1", 1)
    assert (answer.member_epoch, h.received(answer)) == (2, {"foo": [0, 1, 2, 3, 4, 5]})
    assert not answer.should_compute_assignment
    assert h.group.state == "Stable"
    h.verify_log()


def test_all_members_offer_the_assignor_one_is_asked_and_the_others_are_not() -> None:
    """One member computes for all, once."""
    h = AssignmentHarness()
    h.settled("m1", "m2", "m3")
    answer = h.heartbeat("m2", h.member("m2").member_epoch, offers=[offer(data=b"load")])
    assert answer.should_compute_assignment
    assert not h.beat("m1").should_compute_assignment
    assert not h.beat("m3").should_compute_assignment
    assert h.beat("m2").should_compute_assignment, "the flag is repeated until the target is installed"


def test_one_member_without_client_assignors_puts_the_group_into_server_mode() -> None:
    """A consumer of another language joins: the group is served by the server's assignor at once."""
    h = AssignmentHarness()
    h.enter("m1")
    assert h.flying() is not None
    joined = h.join("m2", ["foo"])
    assert h.flying() is None
    assert not joined.should_compute_assignment
    assert (h.group.target_epoch, h.group.target_assignor) == (3, "")
    assert h.target("m1") == {"foo": [0, 1, 2]}
    assert h.prepare("m1").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    h.heartbeat("m2", -1)
    answer = h.beat("m1")
    assert answer.should_compute_assignment, "with the other one gone the group is back in client mode"
    h.settle()
    assert h.assigned("m1") == {"foo": [0, 1, 2, 3, 4, 5]}
    h.verify_log()


def test_a_member_waits_for_what_others_hold_and_is_told_what_that_is() -> None:
    """An assignor hears the whole target of its member, also the part that is still with others."""
    h = AssignmentHarness()
    h.settled("m1")
    h.enter("m2")
    h.compute()
    answer = h.beat("m2")
    assert (h.received(answer), h.awaited(answer)) == ({}, {"foo": [1, 3, 5]})
    assert h.member("m2").state is MemberState.UNRELEASED_PARTITIONS
    told = h.beat("m1")
    assert (h.received(told), h.awaited(told)) == ({"foo": [0, 2, 4]}, {})
    h.beat("m1")
    answer = h.beat("m2")
    assert (h.received(answer), h.awaited(answer)) == ({"foo": [1, 3, 5]}, {})
