"""Which client-side assignor a group uses, which member runs it, and which versions a group takes."""

from __future__ import annotations

import pytest

from kip848_client.errors import ErrorCode
from kip848_client.testing.coordinator.modern.client_assignors import Offers, asks_for_a_target, choose, pick_member
from kip848_client.testing.coordinator.modern.member_record import ClientAssignor
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor
from tests.support.coordinator_harness import AssignmentHarness, offer


def _offers(**members: str) -> Offers:
    """``m1="ab"``: m1 offers a, then b."""
    return {member_id: tuple(ClientAssignor(name) for name in names) for member_id, names in members.items()}


def _ranges(**members: tuple[int, int, int]) -> Offers:
    """``A=(1, 5, 4)``: A reads versions 1 to 5 and writes 4."""
    return {
        member_id: (ClientAssignor("a", minimum_version=low, maximum_version=high, metadata_version=version),)
        for member_id, (low, high, version) in members.items()
    }


# --- assignor selection


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        (_offers(m1="a", m2="a"), "a"),
        (_offers(m1="a", m2="b"), None),
        (_offers(m1="a", m2=""), None),
        (_offers(m1="ab", m2="ab"), "a"),
        (_offers(m1="ab", m2="b"), "b"),
        (_offers(m1="ba", m2="ab", m3="ba"), "b"),
        (_offers(m1="ab", m2="ba"), "a"),  # equal sums: by name
        (_offers(m1="xyab", m2="ba"), "a"),  # 2 + 1 and 3 + 0: what others do not offer counts as a position, too
        (_offers(m1="xyab", m2="ba", m3="ba"), "b"),
        (_offers(), None),
    ],
)
def test_the_assignor_that_all_offer_and_most_prefer_is_used(offers: Offers, chosen: str | None) -> None:
    """KIP-848: a client-side assignor must be supported by all; among several the members' precedence decides."""
    choice = choose(offers)
    assert (choice and choice.assignor_name) == chosen


def test_an_assignor_that_one_member_offers_besides_does_not_hide_the_common_one() -> None:
    """A rolling upgrade adds an assignor process by process; until all have it, the old one computes."""
    h = AssignmentHarness()
    h.enter("m1")
    h.enter("m2")
    h.enter("m3", offer("a"), offer("b"))
    assert h.compute().error_code == 0
    assert h.group.target_assignor == "a"


def test_an_assignor_that_no_member_can_run_for_all_gives_way_to_the_next() -> None:
    """After the one member left that read all versions, the group goes on with what it has."""
    a_old = ClientAssignor("a", minimum_version=0, maximum_version=1, metadata_version=1)
    a_new = ClientAssignor("a", minimum_version=5, maximum_version=6, metadata_version=6)
    b = ClientAssignor("b")
    choice = choose({"m1": (a_old, b), "m2": (a_new, b)})
    assert choice is not None
    assert choice.assignor_name == "b"
    assert choose({"m1": (a_old,), "m2": (a_new,)}) is None


# --- member selection


def test_a_member_that_cannot_read_the_metadata_of_all_is_never_chosen() -> None:
    """A leader that cannot decode what the others sent would have to probe versions, as in KIP-268."""
    choice = choose(_ranges(A=(1, 5, 5), B=(3, 4, 4)))
    assert choice is not None
    assert (choice.spanning, choice.able) == (("A",), ())
    assert pick_member(choice, first="B", tried={"A"}, away=frozenset()) == ("A", frozenset())


def test_a_member_that_reads_all_that_any_member_offers_comes_first() -> None:
    """It goes on reading the metadata of all when others begin to write older or newer versions."""
    choice = choose(_ranges(A=(0, 2, 1), B=(1, 3, 2), C=(0, 3, 2)))
    assert choice is not None
    assert (choice.spanning, choice.able) == (("C",), ("A", "B"))


@pytest.mark.parametrize(
    ("first", "tried", "away", "picked"),
    [
        (None, "", "", ("m1", "")),
        ("m2", "", "", ("m2", "")),
        ("m2", "m2", "", ("m1", "m2")),
        (None, "m1", "", ("m2", "m1")),
        (None, "m1 m2", "", ("m3", "m1 m2")),
        (None, "m1 m2 m3", "", ("m1", "")),
        (None, "", "m1", ("m2", "")),
        (None, "m2 m3", "m1", ("m2", "")),
        (None, "", "m1 m2 m3", None),
    ],
)
def test_members_get_their_turn(first: str | None, tried: str, away: str, picked: tuple[str, str] | None) -> None:
    """The member being answered goes first, then the lowest id that was not tried; after all were, from the start."""
    choice = choose(_offers(m1="a", m2="a", m3="a"))
    assert choice is not None
    expected = None if picked is None else (picked[0], frozenset(picked[1].split()))
    assert pick_member(choice, first=first, tried=set(tried.split()), away=set(away.split())) == expected


def test_a_member_that_moved_the_group_and_cannot_read_all_leaves_it_to_another() -> None:
    """The flag goes only to who can do the work."""
    h = AssignmentHarness()
    h.enter("m1", offer(versions=(1, 5), version=2))
    assert not h.enter("m2", offer(versions=(2, 2), version=2)).should_compute_assignment
    h.compute()
    h.settle()
    epoch = h.member("m2").member_epoch
    answer = h.heartbeat("m2", epoch, offers=[offer(versions=(2, 2), version=2, data=b"new")])
    assert not answer.should_compute_assignment
    assert h.chosen == "m1"


# --- versions


def test_a_joining_member_without_common_versions_is_refused() -> None:
    """KIP-848: A [1-5], B [3-4], C [2-4]; D [7-8] is refused, and the group does not notice."""
    h = AssignmentHarness()
    h.enter("A", offer(versions=(1, 5), version=4))
    h.enter("B", offer(versions=(3, 4), version=4))
    h.enter("C", offer(versions=(2, 4), version=4))
    before = h.group
    answer = h.enter("D", offer(versions=(7, 8), version=8))
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert answer.error_message is not None
    assert "a" in answer.error_message
    assert "[7, 8]" in answer.error_message
    assert h.group == before
    assert h.results[-1].records == ()


@pytest.mark.parametrize(
    ("versions", "version", "refused"),
    [
        ((1, 5), 5, False),  # reads what the others write
        ((5, 9), 5, False),  # A reads what it writes
        ((5, 9), 9, True),  # overlaps with A, but neither reads the other's metadata
        ((4, 9), 9, False),  # it reads the metadata of all
        ((6, 9), 9, True),
    ],
)
def test_some_member_must_read_the_metadata_of_all(versions: tuple[int, int], version: int, refused: bool) -> None:
    """If no member could compute a target for all, the newcomer is refused."""
    h = AssignmentHarness()
    h.enter("A", offer(versions=(1, 5), version=4))
    answer = h.enter("B", offer(versions=versions, version=version))
    assert answer.error_code == (ErrorCode.UNSUPPORTED_ASSIGNOR if refused else 0)


def test_a_member_that_changes_to_unreadable_versions_is_refused_too() -> None:
    """A rolling upgrade that writes too new metadata too early fails loudly, and the group stays as it is."""
    h = AssignmentHarness()
    h.enter("A", offer(versions=(0, 1), version=0))
    h.enter("B", offer(versions=(0, 1), version=1))
    before = h.group
    answer = h.heartbeat("B", before.members["B"].member_epoch, offers=[offer(versions=(2, 3), version=3)])
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert h.group == before


def test_a_member_is_not_refused_because_another_left() -> None:
    """B and C fit only through A. When A is gone they stay, the server computes, and both may still join again."""
    h = AssignmentHarness()
    h.enter("A", offer(versions=(1, 9), version=5))
    h.enter("B", offer(versions=(1, 2), version=2))
    h.enter("C", offer(versions=(8, 9), version=9))
    h.heartbeat("A", -1)
    answer = h.heartbeat("B", h.member("B").member_epoch, offers=[offer(versions=(1, 2), version=2, data=b"more")])
    assert (answer.error_code, answer.should_compute_assignment) == (0, False)
    assert h.group.target_assignor == ""
    assert h.enter("C", offer(versions=(8, 9), version=9)).error_code == 0


def test_the_versions_of_a_static_member_do_not_bind_its_successor() -> None:
    """A single process is upgraded across incompatible versions; no other member is there to be broken."""
    h = AssignmentHarness()
    h.enter("m1", offer(versions=(1, 2), version=2), instance="i1")
    h.compute()
    h.settle()
    h.heartbeat("m1", -2, instance="i1")
    answer = h.enter("m1b", offer(versions=(5, 6), version=6), instance="i1")
    assert (answer.error_code, answer.should_compute_assignment) == (0, True)
    h.settle()


def test_versions_are_checked_among_those_that_offer_the_assignor_also_in_server_mode() -> None:
    """A member without common versions is found when it joins, not when the last old member leaves."""
    h = AssignmentHarness()
    h.enter("A", offer(versions=(1, 5), version=4))
    h.join("plain", ["foo"])
    assert h.enter("D", offer(versions=(7, 8), version=8)).error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert h.enter("E", offer("another", versions=(7, 8), version=8)).error_code == 0


# --- what a heartbeat may offer


@pytest.mark.parametrize(
    "offered",
    [
        [offer(" ")],
        [offer("a"), offer("a")],
        [offer(versions=(-2, 0))],
        [offer(versions=(-1, -1), version=-1)],
        [offer(versions=(3, 2), version=3)],
        [offer(versions=(1, 2), version=3)],
        [offer(versions=(1, 2), version=0)],
    ],
)
@pytest.mark.parametrize("joining", [True, False])
def test_an_offer_that_makes_no_sense_is_an_invalid_request(offered: list[Assignor], joining: bool) -> None:
    """KIP-848's request validation, field by field; a client with a mistake learns which field is wrong."""
    h = AssignmentHarness()
    if joining:
        answer = h.enter("m1", *offered)
    else:
        h.enter("m1")
        answer = h.heartbeat("m1", 1, offers=offered)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message


def test_what_a_member_offers_has_a_limit() -> None:
    """Names and metadata of all its assignors count; what is above says what the broker allows."""
    h = AssignmentHarness()
    answer = h.enter("m1", offer("a", data=bytes(32_768)), offer("b", data=bytes(32_768)))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message is not None
    assert "65538 bytes" in answer.error_message
    assert h.enter("m1", offer("a", data=bytes(65_535))).error_code == 0


def test_a_server_assignor_and_client_assignors_cannot_be_asked_for_together() -> None:
    """The two settings contradict each other; no offer at all contradicts nothing."""
    h = AssignmentHarness()
    assert h.join("m1", ["foo"], assignor="range", offers=[offer()]).error_code == ErrorCode.INVALID_REQUEST
    assert h.join("m1", ["foo"], assignor="range", offers=[]).error_code == 0


# --- reasons for a new target


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        ("a", "a", False),
        ("a", "", True),
        ("a", "ab", True),
        ("ab", "ba", True),
    ],
)
def test_a_changed_list_of_assignors_moves_the_group(before: str, after: str, moves: bool) -> None:
    """KIP-848: the group epoch is bumped when a member updates its assignors."""
    h = AssignmentHarness()
    h.enter("m1", *[offer(name) for name in before])
    h.compute()
    h.settle()
    epoch = h.group.group_epoch
    h.heartbeat("m1", h.member("m1").member_epoch, offers=[offer(name) for name in after])
    assert h.group.group_epoch - epoch == moves


@pytest.mark.parametrize(
    ("after", "moves"),
    [
        (offer(versions=(0, 2), version=1, reason=3, data=b"x"), False),
        (offer(versions=(0, 2), version=1, reason=4, data=b"x"), True),
        (offer(versions=(0, 2), version=1, reason=0, data=b"x"), False),
        (offer(versions=(0, 2), version=1, reason=0, data=b"y"), True),
        (offer(versions=(0, 2), version=1, reason=3, data=b"y"), True),
        (offer(versions=(0, 2), version=2, reason=3, data=b"x"), True),
        (offer(versions=(0, 3), version=1, reason=3, data=b"x"), True),
        (offer(versions=(1, 2), version=1, reason=3, data=b"x"), True),
    ],
)
def test_a_new_reason_or_new_metadata_moves_the_group(after: Assignor, moves: bool) -> None:
    """KIP-848: a non-zero reason or new metadata triggers a reassignment. Taking a reason back does not."""
    h = AssignmentHarness()
    h.enter("m1", offer(versions=(0, 2), version=1, reason=3, data=b"x"))
    h.compute()
    h.settle()
    epoch = h.group.group_epoch
    h.heartbeat("m1", h.member("m1").member_epoch, offers=[after])
    assert h.group.group_epoch - epoch == moves
    (stored,) = h.member("m1").metadata.client_assignors
    assert (stored.reason, stored.metadata_bytes) == (after.reason, after.metadata_bytes)
    h.verify_log()


def test_taking_back_the_reason_of_one_of_several_assignors_moves_nothing() -> None:
    """Position by position: one reason goes, nothing else changes."""
    one, two = ClientAssignor("a", reason=1), ClientAssignor("b", reason=2)
    assert not asks_for_a_target(old=(one, two), new=(ClientAssignor("a"), two))
    assert asks_for_a_target(old=(one, two), new=(ClientAssignor("a"), ClientAssignor("b", reason=3)))


def test_a_join_without_assignors_replaces_what_the_member_offered() -> None:
    """A process that comes back with an older program must not be asked to compute."""
    h = AssignmentHarness()
    h.settled("m1")
    assert not h.join("m1", ["foo"]).should_compute_assignment
    assert h.member("m1").metadata.client_assignors == ()
    assert h.group.target_assignor == ""
    assert h.assigned("m1") == {"foo": [0, 1, 2, 3, 4, 5]}


def test_a_member_without_topics_can_change_the_mode_of_its_group_too() -> None:
    """It subscribes to nothing and still is a member: "supported by all the members" includes it."""
    h = AssignmentHarness()
    h.settled("m1")
    h.join("idle", [])
    assert (h.group.target_assignor, h.group.group_epoch) == ("", h.group.target_epoch)
