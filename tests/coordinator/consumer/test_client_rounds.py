"""The round in flight: one at a time, on to another member when the chosen one fails, and what races may do to it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from tests.support.coordinator_harness import FAST, AssignmentHarness, FailedAppend, offer, spread

NOT_CHOSEN = ErrorCode.UNKNOWN_MEMBER_ID


def _three() -> AssignmentHarness:
    """m1, m2 and m3 own two partitions each; nothing is in flight."""
    h = AssignmentHarness()
    h.settled("m1", "m2", "m3")
    assert h.flying() is None
    return h


def _change(h: AssignmentHarness, member_id: str, *, reason: int = 1) -> int:
    """A member asks for a new assignment; the group epoch after that."""
    h.heartbeat(member_id, h.member(member_id).member_epoch, offers=[offer(reason=reason)])
    return h.group.group_epoch


# --- one round at a time


def test_only_one_round_is_in_flight_while_the_group_moves_on_five_times() -> None:
    """A flapping group does not start five computations; what is computed is installed, then the next one starts."""
    h = _three()
    prepared_epoch = _change(h, "m1")
    prepared = h.prepare("m1")
    for reason in range(2, 7):
        answer = h.heartbeat("m2", h.member("m2").member_epoch, offers=[offer(reason=reason)])
        assert not answer.should_compute_assignment
    assert h.group.group_epoch == prepared_epoch + 5
    assert h.chosen == "m1"
    assert h.install("m1", prepared.group_epoch, spread(prepared)).error_code == 0
    assert h.group.target_epoch == prepared_epoch
    flying = h.flying()
    assert flying is not None
    assert (flying.prepared, flying.is_notified) == (None, False), "the next round starts at once, and from nothing"
    assert h.compute().error_code == 0
    assert h.group.target_epoch == h.group.group_epoch
    h.verify_log()


def test_a_round_ends_with_the_only_member_that_reads_what_is_left_in_common() -> None:
    """m2 gave "b" up while it computes with that; "a" only A could run. Without A the coordinator assigns at once."""
    h = AssignmentHarness()
    h.enter("A", offer("b", versions=(0, 1)), offer("a", versions=(0, 1)))
    h.enter("m2", offer("b", versions=(0, 1)), offer("a"))
    h.enter("m3", offer("b", versions=(0, 1)), offer("a", versions=(1, 1), version=1))
    h.compute()
    h.settle()
    again = [offer("b", versions=(0, 1), reason=1), offer("a")]
    assert h.heartbeat("m2", h.member("m2").member_epoch, offers=again).should_compute_assignment
    h.prepare("m2")
    h.heartbeat("m2", h.member("m2").member_epoch, offers=[offer("a")])
    assert h.chosen == "m2", "what it computes will be installed"
    h.heartbeat("A", -1)
    assert h.flying() is None
    h.beat("m3")
    assert (h.group.target_epoch, h.group.target_assignor) == (h.group.group_epoch, "")


def test_preparing_again_takes_a_newer_snapshot() -> None:
    """A slow assignor that learns of a change may start over; only the last snapshot counts."""
    h = _three()
    first_epoch = _change(h, "m1")
    first = h.prepare("m1")
    _change(h, "m2")
    second = h.prepare("m1")
    assert (first.group_epoch, second.group_epoch) == (first_epoch, first_epoch + 1)
    assert h.install("m1", first.group_epoch, spread(first)).error_code == ErrorCode.INVALID_ASSIGNMENT
    assert h.install("m1", second.group_epoch, spread(second)).error_code == 0
    assert h.flying() is None


def test_install_without_prepare_is_refused() -> None:
    """Without a prepared state there is nothing to check the assignment against, so it must not take effect."""
    h = _three()
    epoch = _change(h, "m1")
    answer = h.install("m1", epoch, {"m1": {"foo": range(6)}})
    assert answer.error_code == ErrorCode.INVALID_ASSIGNMENT
    assert answer.error_message is not None
    assert "ConsumerGroupPrepareAssignment" in answer.error_message
    assert h.chosen == "m1"


# --- permission


def test_only_the_chosen_member_may_prepare_and_install() -> None:
    """Two members that compute at the same time would overwrite each other."""
    h = _three()
    epoch = _change(h, "m1")
    h.prepare("m1")
    before = h.state(), h.flying()
    assert h.prepare("m2").error_code == NOT_CHOSEN
    assert h.install("m2", epoch, {"m2": {"foo": range(6)}}).error_code == NOT_CHOSEN
    assert (h.state(), h.flying()) == before


def test_prepare_is_refused_while_no_target_is_wanted() -> None:
    """A member that was asked long ago cannot replace the target of a group at rest."""
    h = _three()
    assert h.prepare("m1").error_code == NOT_CHOSEN
    assert h.install("m1", h.group.group_epoch, {"m1": {"foo": range(6)}}).error_code == NOT_CHOSEN


@pytest.mark.parametrize("request_", ["prepare", "install"])
@pytest.mark.parametrize(
    ("group_id", "member_id", "epoch", "code"),
    [
        ("g", "m1", 99, ErrorCode.STALE_MEMBER_EPOCH),
        ("g", "m1", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("g", "m2", 99, ErrorCode.STALE_MEMBER_EPOCH),
        ("g", "nobody", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("other", "m1", 1, ErrorCode.GROUP_ID_NOT_FOUND),
        (" ", "m1", 1, ErrorCode.INVALID_REQUEST),
        ("g", "", 1, ErrorCode.INVALID_REQUEST),
        ("g", "m1", -1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_requests_are_checked_in_the_order_of_the_kip(
    request_: str, group_id: str, member_id: str, epoch: int, code: ErrorCode
) -> None:
    """Fields, group, member, epoch, and only then whether the member was chosen."""
    h = _three()
    _change(h, "m1")
    h.group_id = group_id
    answer = h.prepare(member_id, epoch=epoch) if request_ == "prepare" else h.install(member_id, 1, {}, epoch=epoch)
    assert answer.error_code == code
    assert answer.error_message
    assert h.results[-1].records == ()


# --- time


def test_a_member_that_takes_too_long_is_replaced_and_not_fenced() -> None:
    """KIP-848: another member is picked after the rebalance timeout; the slow one stays, its late target is refused."""
    h = _three()
    _change(h, "m1")
    prepared = h.prepare("m1")
    h.advance(4_999)
    assert h.chosen == "m1"
    h.advance(1)
    assert h.chosen == "m2"
    assert h.prepare("m1").error_code == NOT_CHOSEN
    assert h.install("m1", prepared.group_epoch, spread(prepared)).error_code == NOT_CHOSEN
    answer = h.beat("m1")
    assert (answer.error_code, answer.should_compute_assignment) == (0, False)
    assert h.beat("m2").should_compute_assignment
    assert h.compute().error_code == 0


def test_the_time_starts_when_the_member_is_told() -> None:
    """KIP-848: "The time on the coordinator side starts ticking when the member is notified"."""
    h = _three()
    h.heartbeat("m3", -1)
    h.beat("m2")
    assert h.chosen == "m1"
    h.advance(20_000)
    assert h.chosen == "m1", "m1 was not told yet"
    assert h.beat("m1").should_compute_assignment
    h.advance(3_000)
    assert h.beat("m1").should_compute_assignment
    h.advance(2_000)
    assert h.chosen == "m2", "repeating the flag does not start the time again"


def test_a_member_that_prepares_before_it_is_told_starts_its_time() -> None:
    """A member may know from its earlier life that it is chosen; it has as long as any other."""
    h = _three()
    h.heartbeat("m3", -1)
    h.beat("m2")
    assert h.prepare("m1").error_code == 0
    h.advance(5_000)
    assert h.chosen == "m2"


def test_the_time_of_the_last_rebalance_timeout_counts_unless_the_broker_sets_one() -> None:
    """Rebalance timeouts are minutes; a broker may be told to ask another member sooner."""
    h = AssignmentHarness(config=replace(FAST, client_assignment_timeout_ms=700))
    h.enter("m1")
    h.enter("m2")
    assert h.chosen == "m1"
    h.advance(699)
    assert h.chosen == "m1"
    h.advance(1)
    assert h.chosen == "m2"


def test_when_all_have_failed_it_starts_from_the_first_again() -> None:
    """A group whose assignors all hang keeps asking; it recovers as soon as one does."""
    h = _three()
    _change(h, "m2")
    asked = []
    for _ in range(5):
        asked.append(h.chosen)
        h.beat(h.chosen)
        h.advance(5_000)
        for member_id in ("m1", "m2", "m3"):
            h.beat(member_id)
    assert asked == ["m2", "m1", "m3", "m1", "m2"]
    assert h.compute().error_code == 0
    h.settle()


def test_a_group_of_one_is_asked_again_after_its_time() -> None:
    """Its former snapshot is gone with the round; it starts with a new one."""
    h = AssignmentHarness()
    h.enter("m1")
    prepared = h.prepare("m1")
    h.advance(5_000)
    assert h.chosen == "m1"
    late = h.install("m1", prepared.group_epoch, {"m1": {"foo": range(6)}})
    assert late.error_code == ErrorCode.INVALID_ASSIGNMENT
    assert h.compute().error_code == 0


def test_the_time_of_an_earlier_round_does_not_end_a_later_one() -> None:
    """m1 was told at 0, fenced, and is chosen again at 3,000: it is not skipped at 5,000."""
    h = _three()
    _change(h, "m1")
    h.heartbeat("m1", 99)
    h.enter("m1", offer(reason=1))
    h.compute()
    h.settle()
    h.advance(3_000)
    h.heartbeat("m3", -1)
    h.beat("m2")
    assert h.chosen == "m1"
    h.advance(3_000)
    assert h.chosen == "m1"


# --- members that go


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("how", ["leaves", "session ends", "fenced"])
def test_when_the_chosen_member_is_gone_another_one_is_chosen_at_once(how: str, prepared: bool) -> None:
    """KIP-848: nothing waits for the time of a member that cannot answer any more."""
    h = _three()
    _change(h, "m1")
    if prepared:
        h.prepare("m1")
    match how:
        case "leaves":
            h.heartbeat("m1", -1)
        case "session ends":
            h.advance(4_000)
            for _ in range(9):
                h.beat("m2")
                h.beat("m3")
                h.advance(5_000)
        case _:
            assert h.heartbeat("m1", 99).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert h.chosen in ("m2", "m3")
    assert h.beat(h.chosen).should_compute_assignment
    h.settle()
    h.verify_log()


def test_the_only_member_is_asked_again_after_it_was_fenced() -> None:
    """There is no other member; its join is answered with the flag."""
    h = AssignmentHarness()
    h.enter("m1")
    h.prepare("m1")
    h.heartbeat("m1", 99)
    assert h.chosen == "m1"
    assert h.enter("m1").should_compute_assignment
    h.settle()


def test_a_heartbeat_that_fences_another_member_does_not_touch_the_round() -> None:
    """A round ends early only when its own assigning member fails, so one bad client cannot stall the group."""
    h = _three()
    _change(h, "m1")
    h.prepare("m1")
    before = h.flying()
    h.heartbeat("m2", 99)
    assert h.flying() == before
    refused = h.heartbeat("m1", h.member("m1").member_epoch, offers=[offer(" ")])
    assert (refused.error_code, h.flying()) == (ErrorCode.INVALID_REQUEST, before), "nor does its own mistake"


def test_a_static_member_that_leaves_for_a_while_is_not_waited_for() -> None:
    """A rolling bounce moves the computation to a process that is there."""
    h = AssignmentHarness()
    for number in (1, 2):
        h.enter(f"m{number}", instance=f"i{number}")
    h.settle()
    h.heartbeat("m1", h.member("m1").member_epoch, instance="i1", offers=[offer(reason=1)])
    assert h.chosen == "m1"
    h.heartbeat("m1", -2, instance="i1")
    assert h.chosen == "m2"
    assert h.group.group_epoch > h.group.target_epoch


def test_if_all_that_could_are_away_the_group_waits_for_the_first_that_is_back() -> None:
    """No member is chosen needlessly, and nothing is forgotten."""
    h = AssignmentHarness()
    h.enter("m1", instance="i1")
    h.heartbeat("m1", -2, instance="i1")
    assert h.flying() is None
    answer = h.enter("m1b", instance="i1")
    assert answer.should_compute_assignment
    assert h.compute().error_code == 0


def test_a_static_member_that_is_back_under_its_own_id_is_told_with_its_join() -> None:
    """It is away in the records until this answer, and there all the same."""
    h = AssignmentHarness()
    h.enter("m1", instance="i1")
    h.heartbeat("m1", -2, instance="i1")
    assert h.flying() is None
    assert h.enter("m1", instance="i1").should_compute_assignment
    h.settle()


def test_the_chosen_static_member_s_successor_is_told_with_its_join() -> None:
    """A process that was replaced under its instance id cannot install any more; its successor starts at once."""
    h = AssignmentHarness()
    h.enter("m1", instance="i1")
    h.heartbeat("m1", -2, instance="i1")
    h.enter("m1b", instance="i1")
    h.prepare("m1b")
    h.heartbeat("m1b", -2, instance="i1")
    assert h.enter("m1c", instance="i1").should_compute_assignment
    assert h.prepare("m1b", epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.chosen == "m1c"


def test_the_last_member_takes_the_round_with_it() -> None:
    """An empty group wants no target; the next member starts a new life of it."""
    h = AssignmentHarness()
    h.enter("m1")
    h.prepare("m1")
    h.heartbeat("m1", -1)
    assert h.flying() is None
    assert (h.group.state, h.group.target_epoch) == ("Empty", h.group.group_epoch)
    answer = h.enter("m2")
    assert answer.should_compute_assignment
    assert answer.member_epoch > 0
    h.settle()
    h.verify_log()


# --- members that come and change


def test_a_member_that_joins_between_prepare_and_install_gets_nothing_until_the_next_round() -> None:
    """KIP-848: the assignment is installed for the epoch that it was computed for."""
    h = _three()
    epoch = _change(h, "m1")
    prepared = h.prepare("m1")
    joined = h.enter("m4")
    assert joined.member_epoch == h.group.target_epoch
    assert h.received(joined) == {}
    assert h.install("m1", epoch, spread(prepared)).error_code == 0
    assert h.group.target_epoch == epoch
    assert h.target("m4") == {}
    assert h.flying() is not None
    h.settle()
    assert h.assigned("m4") != {}
    h.verify_log()


def test_the_part_of_a_member_that_left_meanwhile_is_dropped() -> None:
    """Its partitions wait for the next round, which starts at once."""
    h = _three()
    epoch = _change(h, "m1")
    prepared = h.prepare("m1")
    h.heartbeat("m3", -1)
    assert h.install("m1", epoch, spread(prepared)).error_code == 0
    assert "m3" not in h.group.members
    assert {**h.target("m1"), **h.target("m2")} == {"foo": [1, 4]}
    assert h.flying() is not None
    h.settle()
    assert h.target("m1") == {"foo": [0, 2, 4]}
    h.verify_log()


def test_a_static_member_that_came_back_under_a_new_id_has_the_part_of_its_old_one() -> None:
    """A bounce between Prepare and Install moves no epoch, so no later round would repair what is lost now."""
    h = AssignmentHarness()
    for number in (1, 2):
        h.enter(f"m{number}", instance=f"i{number}")
    h.settle()
    h.heartbeat("m1", h.member("m1").member_epoch, instance="i1", offers=[offer(reason=1)])
    prepared = h.prepare("m1")
    h.heartbeat("m2", -2, instance="i2")
    h.enter("m2b", instance="i2")
    assert h.group.group_epoch == prepared.group_epoch
    assert h.install("m1", prepared.group_epoch, spread(prepared)).error_code == 0
    assert h.target("m2b") == {"foo": [1, 3, 5]}
    h.settle()
    assert h.assigned("m2b") == {"foo": [1, 3, 5]}
    h.verify_log()


@pytest.mark.parametrize("own_first", [False, True])
def test_a_member_that_took_over_an_instance_id_keeps_its_own_part(own_first: bool) -> None:
    """m2 was there at the snapshot: it has what it was given, not what the former holder of its instance id was."""
    h = AssignmentHarness()
    h.enter("m1", instance="i1")
    h.enter("m2")
    h.settle()
    h.heartbeat("m2", h.member("m2").member_epoch, offers=[offer(reason=1)])
    prepared = h.prepare("m2")
    h.heartbeat("m1", -1, instance="i1")
    h.enter("m2", offer(reason=1), instance="i1")
    epoch = h.member("m2").member_epoch
    parts = dict(sorted(spread(prepared).items(), reverse=own_first))
    assert h.install("m2", prepared.group_epoch, parts, epoch=epoch).error_code == 0
    assert h.target("m2") == {"foo": [1, 3, 5]}
    h.settle()


def test_a_topic_that_grows_between_prepare_and_install_is_completed_by_the_next_round() -> None:
    """The target is checked against what the assignor saw: six partitions, not eight."""
    h = _three()
    epoch = _change(h, "m1")
    prepared = h.prepare("m1")
    h.add_partitions("foo", partitions=8)
    h.beat("m2")
    assert h.group.group_epoch == epoch + 1
    assert h.install("m1", epoch, spread(prepared)).error_code == 0
    h.settle()
    owned = [number for member_id in h.group.members for number in h.assigned(member_id)["foo"]]
    assert sorted(owned) == list(range(8))


def test_a_topic_that_is_deleted_between_prepare_and_install_is_not_assigned() -> None:
    """A member must not be told to read what is gone."""
    h = AssignmentHarness()
    h.create_topic("bar", partitions=2)
    h.enter("m1", topics=["foo", "bar"])
    prepared = h.prepare("m1")
    h.delete_topic("bar")
    bar = next(topic.topic_id for topic in prepared.topics if topic.topic_name == "bar")
    parts = [h.part("m1", {"foo": range(6)})]
    parts[0] = replace(
        parts[0],
        partitions=(
            *parts[0].partitions,
            replace(parts[0].partitions[0], topic_id=bar, partitions=(0, 1)),
        ),
    )
    assert h.install_members("m1", prepared.group_epoch, parts).error_code == 0
    assert h.received(h.heartbeat("m1", 1)) == {"foo": [0, 1, 2, 3, 4, 5]}
    h.settle()


def test_the_chosen_member_that_reads_less_from_now_on_is_replaced() -> None:
    """It was asked, and then told that it cannot read what m2 writes."""
    h = AssignmentHarness()
    h.enter("m1", offer(versions=(0, 2), version=1))
    h.enter("m2", offer(versions=(0, 2), version=2))
    assert h.chosen == "m1"
    epoch = h.member("m1").member_epoch
    assert not h.heartbeat("m1", epoch, offers=[offer(versions=(0, 1), version=1)]).should_compute_assignment
    assert h.chosen == "m2"
    h.settle()


def test_the_chosen_member_that_gives_its_assignor_up_ends_the_round() -> None:
    """It offers nothing any more, so the group is in server mode; what it computes is not wanted."""
    h = _three()
    _change(h, "m1")
    prepared = h.prepare("m1")
    answer = h.heartbeat("m1", h.member("m1").member_epoch, offers=[])
    assert not answer.should_compute_assignment
    assert h.flying() is None
    assert h.group.target_epoch == h.group.group_epoch
    assert h.install("m1", prepared.group_epoch, spread(prepared)).error_code == NOT_CHOSEN
    assert h.heartbeat("m1", h.member("m1").member_epoch, offers=[offer()]).should_compute_assignment
    h.settle()


def test_a_round_that_was_not_prepared_goes_over_to_the_assignor_that_all_have_in_common() -> None:
    """A newcomer knows only "b": the chosen member is asked for "b" before it starts."""
    h = AssignmentHarness()
    h.enter("m1", offer("a"), offer("b"))
    h.enter("m2", offer("b", data=b"m2"))
    assert h.chosen == "m2", "the member that moved the group can be told at once"
    assert h.prepare("m2").assignor_name == "b"


def test_a_prepared_round_is_finished_with_the_assignor_it_began_with() -> None:
    """A computed assignment is not thrown away because a member with other assignors joined."""
    h = AssignmentHarness()
    h.enter("m1", offer("a"), offer("b"))
    prepared = h.prepare("m1")
    assert prepared.assignor_name == "a"
    h.enter("m2", offer("b"))
    assert h.chosen == "m1"
    assert h.install("m1", prepared.group_epoch, {"m1": {"foo": range(6)}}).error_code == 0
    assert h.group.target_assignor == "a"
    assert h.prepare(h.chosen).assignor_name == "b"


def test_a_prepared_round_ends_when_nothing_is_common_any_more() -> None:
    """m2 went over to "b", m3 knows only "a": the server computes at once, whatever m1 is busy with."""
    h = AssignmentHarness()
    h.enter("m1", offer("a"), offer("b"))
    h.enter("m2", offer("a"), offer("b"))
    h.prepare(h.chosen)
    other = "m2" if h.chosen == "m1" else "m1"
    h.heartbeat(other, h.member(other).member_epoch, offers=[offer("b")])
    assert h.flying() is not None
    h.enter("m3", offer("a"))
    assert h.flying() is None
    assert (h.group.target_epoch, h.group.target_assignor) == (h.group.group_epoch, "")


def test_a_new_snapshot_of_a_prepared_round_is_for_the_assignor_that_all_have_now() -> None:
    """Every member that is described offers the assignor that shall run."""
    h = AssignmentHarness()
    h.enter("m1", offer("a"), offer("b", data=b"m1"))
    h.prepare("m1")
    h.enter("m2", offer("b", data=b"m2"))
    prepared = h.prepare("m1")
    assert prepared.assignor_name == "b"
    assert [member.assignor.metadata_bytes for member in prepared.members] == [b"m1", b"m2"]
    assert h.install("m1", prepared.group_epoch, spread(prepared)).error_code == 0
    assert h.group.target_assignor == "b"


def test_a_member_that_cannot_read_a_newcomer_s_metadata_gets_no_new_snapshot() -> None:
    """The round goes to the newcomer, which can."""
    h = AssignmentHarness()
    h.enter("m1", offer(versions=(0, 1), version=1))
    h.prepare("m1")
    h.enter("m2", offer(versions=(0, 2), version=2))
    assert h.chosen == "m1"
    assert h.prepare("m1").error_code == NOT_CHOSEN
    flying = h.flying()
    assert flying is not None
    assert (flying.member_id, flying.tried) == ("m2", frozenset({"m1"}))
    h.settle()


@pytest.mark.parametrize(
    ("then", "code", "assignor"), [("install", ErrorCode.NONE, "a"), ("prepare", NOT_CHOSEN, ""), ("wait", 0, "")]
)
def test_a_prepared_round_outlives_the_only_member_that_reads_the_metadata_of_all(
    then: str, code: int, assignor: str
) -> None:
    """m2 leaves: m1 may still hand in what it computes, but it gets no new snapshot and is replaced by the server."""
    h = AssignmentHarness()
    h.enter("m1", offer(versions=(0, 1), version=1))
    prepared = h.prepare("m1")
    h.enter("m2", offer(versions=(0, 2), version=1))
    h.enter("m3", offer(versions=(2, 2), version=2))
    h.heartbeat("m2", -1)
    assert h.chosen == "m1"
    match then:
        case "install":
            answered = h.install("m1", prepared.group_epoch, {"m1": {"foo": range(6)}}).error_code
        case "prepare":
            answered = h.prepare("m1").error_code
        case _:
            answered = 0
            h.advance(5_000)
    assert answered == code
    assert h.flying() is None
    assert h.group.target_assignor == assignor
    h.beat("m3")
    assert (h.group.target_epoch, h.group.target_assignor) == (h.group.group_epoch, "")


# --- fail-over


@pytest.mark.parametrize("stage", ["chosen", "told", "prepared", "installed", "moving"])
def test_a_coordinator_that_is_loaded_again_asks_anew_wherever_the_round_was(stage: str) -> None:
    """KIP-848 "Fail Over": what is in flight is lost; a target that was installed is not."""
    h = _three()
    h.heartbeat("m3", -1)
    h.beat("m2")
    prepared = None
    if stage != "chosen":
        h.beat("m1")
    if stage in ("prepared", "installed", "moving"):
        prepared = h.prepare("m1")
    if stage in ("installed", "moving"):
        assert prepared is not None
        h.install("m1", prepared.group_epoch, spread(prepared))
    if stage == "moving":
        h.beat("m2")
    before = h.group
    h.restart()
    assert h.group == before
    assert h.flying() is None
    if stage == "prepared":
        assert prepared is not None
        assert h.install("m1", prepared.group_epoch, spread(prepared)).error_code == NOT_CHOSEN
        h.beat("m1")
        late = h.install("m1", prepared.group_epoch, spread(prepared))
        assert late.error_code == ErrorCode.INVALID_ASSIGNMENT, "chosen again, but the snapshot is gone"
    h.settle()
    assert (h.assigned("m1"), h.assigned("m2")) == ({"foo": [0, 2, 4]}, {"foo": [1, 3, 5]})
    h.verify_log()


def test_a_target_that_could_not_be_kept_leaves_everything_as_it_was() -> None:
    """The disk is full for a moment: the member may install the same target again."""
    h = _three()
    epoch = _change(h, "m1")
    prepared = h.prepare("m1")
    before = h.state(), h.flying()
    h.fail_next_append = True
    with pytest.raises(FailedAppend):
        h.install("m1", epoch, {"m1": {"foo": range(6)}})
    assert (h.state(), h.flying()) == before
    assert h.install("m1", epoch, spread(prepared)).error_code == 0


def test_a_join_that_could_not_be_kept_starts_no_round() -> None:
    """Soft state changes only with the records it belongs to."""
    h = AssignmentHarness()
    h.fail_next_append = True
    with pytest.raises(FailedAppend):
        h.enter("m1")
    assert h.coordinator.round_in_flight("g") is None
    assert h.enter("m1").should_compute_assignment


# --- with other settings


def test_without_the_extension_offers_are_not_read() -> None:
    """The profile "kafka" answers as Apache Kafka does, which skips the tag."""
    h = AssignmentHarness(config=replace(FAST, client_assignors=False))
    answer = h.enter("m1", offer(" "), offer(versions=(9, 1)))
    assert (answer.error_code, answer.should_compute_assignment) == (0, False)
    assert h.received(answer) == {"foo": [0, 1, 2, 3, 4, 5]}
    assert h.member("m1").metadata.client_assignors == ()
    h.enter("m2", offer())
    waiting = h.beat("m2")
    assert waiting.assignment is None
    assert h.prepare("m1").error_code == NOT_CHOSEN


def test_a_log_of_a_client_mode_group_is_served_by_a_coordinator_without_the_extension() -> None:
    """Switching the extension off needs no new group: the server's assignor takes over with the next change."""
    h = _three()
    h.config = replace(h.config, client_assignors=False)
    h.restart()
    h.add_partitions("foo", partitions=7)
    answer = h.beat("m1")
    assert not answer.should_compute_assignment
    assert h.group.target_epoch == h.group.group_epoch
    assert h.group.target_assignor == ""


def test_with_an_assignment_interval_the_next_round_waits_for_it() -> None:
    """``group.consumer.assignment.interval.ms`` batches changes for members' assignors as for the server's."""
    h = AssignmentHarness(config=replace(FAST, consumer_assignment_interval_ms=10_000))
    assert h.enter("m1").should_compute_assignment, "the first target of a group never waits"
    h.compute()
    h.advance(9_999)
    assert not h.enter("m2").should_compute_assignment
    assert h.flying() is None
    h.advance(1)
    assert h.beat("m1").should_compute_assignment
    prepared = h.prepare("m1")
    h.enter("m3")
    h.install("m1", prepared.group_epoch, spread(prepared))
    assert h.flying() is None, "the group is behind, and the interval begins anew"
    h.advance(10_000)
    h.beat("m3")
    assert h.flying() is not None


def test_what_is_gone_is_given_up_before_the_next_target_is_there() -> None:
    """No answer names a deleted topic, however long the computation takes."""
    h = AssignmentHarness()
    h.create_topic("bar", partitions=2)
    h.enter("m1", topics=["foo", "bar"])
    h.settle()
    bar = h.topic_id("bar")
    h.delete_topic("bar")
    answer = h.heartbeat("m1", h.member("m1").member_epoch)
    assert answer.should_compute_assignment
    assert h.received(answer) == {"foo": [0, 1, 2, 3, 4, 5]}
    assert h.member("m1").pending_revocation.keys() == {bar}
    h.settle()
    h.verify_log()
