"""A member on the classic protocol in situations that no rule has a test for by itself: one short story each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import pytest

from kip848_client.assignors.client.interface import (
    ASSIGNOR_RAISED,
    AssignmentSpec,
    GroupAssignment,
    MemberAssignment,
    PartitionAssignor,
)
from kip848_client.assignors.client.user_data import SubscriptionFrame, read_assignment_frame, read_subscription_frame
from kip848_client.common.error_codes import RETRIABLE, ErrorCode
from kip848_client.errors import ClientAssignorError
from kip848_client.member.classic.classic_errors import (
    BEAT_CODES,
    JOIN_CODES,
    SYNC_CODES,
    ClassicErrorClass,
    beat_error_class,
    join_error_class,
    sync_error_class,
)
from kip848_client.member.core.assignor_events import AssignorDone, AssignorFailed, RunAssignor
from kip848_client.member.core.assignor_values import compute
from kip848_client.member.core.events import (
    CoordinatorDisconnected,
    DescribeTopics,
    Fail,
    FailureKind,
    HandOverFailed,
    HandOverRequested,
    LeaveMode,
    ResponseReceived,
    SurfaceError,
)
from kip848_client.member.core.states import MemberState, Phase
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_protocol import decode_assignment, decode_subscription
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kip848_client.wire.messages.sync_group import SyncGroupRequest
from tests.support.member_harness import (
    ASSIGNOR_LIMIT_MS,
    INTERVAL_MS,
    MAX_POLL_MS,
    ClassicMemberHarness,
    a_member,
    partition,
    positions,
)

REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
LOADING: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
SIX = [f"t-{index}" for index in range(6)]


class Everything(PartitionAssignor):
    """Gives all partitions to the first member."""

    name = "everything"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return GroupAssignment.of({min(spec.members): spec.partitions})


class ReadsStrangers(Everything):
    """Also takes members of other libraries."""

    name = "strangers"
    minimum_version = -1


def joined(assignor: str | PartitionAssignor = "cooperative-sticky", **settings: object) -> ClassicMemberHarness:
    """A member that owns t-0 to t-5 in generation 1."""
    member = ClassicMemberHarness(settings=dict(settings), assignors=(assignor,))
    member.become_member({"t": range(6)})
    return member


def joining(**settings: object) -> ClassicMemberHarness:
    """A member whose first JoinGroup is under way."""
    member = ClassicMemberHarness(settings=dict(settings))
    member.subscribe("t")
    member.poll()
    return member


def rejoining() -> ClassicMemberHarness:
    """A cooperative member that owns everything, and whose JoinGroup waits for the others."""
    member = joined()
    member.beat(REBALANCE)
    member.joining()
    return member


def leading(
    assignor: str | PartitionAssignor, *others: JoinGroupResponseMember, runs_assignors: bool = True
) -> ClassicMemberHarness:
    """The leader of generation 2, with nothing assigned, beside these members."""
    member = ClassicMemberHarness(assignors=(assignor,), runs_assignors=runs_assignors)
    member.become_member({})
    member.beat(REBALANCE)
    own = a_member("m-1", frame=None if isinstance(assignor, str) else SubscriptionFrame())
    member.answer_join(generation=2, leader="m-1", members=(own, *others))
    return member


def told_error(member: ClassicMemberHarness) -> int:
    """The error that the SyncGroup under way tells the first member."""
    (sync,) = member.requests(SyncGroupRequest)
    return read_assignment_frame(decode_assignment(sync.assignments[0].assignment).user_data).error


# --- joining


def test_heartbeats_begin_one_interval_after_the_join_was_answered() -> None:
    """Without a generation each would be refused; later the session might end while the leader assigns."""
    member = joining()
    member.advance(3 * INTERVAL_MS)
    assert not member.requests(HeartbeatRequest)
    member.answer_join(generation=1)
    member.advance(INTERVAL_MS - 1)
    assert not member.requests(HeartbeatRequest)
    member.advance(1)
    due_ms = member.now_ms
    member.advance(3 * INTERVAL_MS)
    (beat,) = member.requests(HeartbeatRequest)
    assert (beat.generation_id, member.state()) == (1, MemberState.UNJOINED)
    told = member.member.statistics
    assert (told.heartbeats, told.last_heartbeat_ms, told.last_heartbeat_due_ms) == (1, due_ms, due_ms)


def test_a_new_life_begins_with_a_heartbeat_after_one_interval() -> None:
    """Requests and answers of the membership before a removal must not touch the new one."""
    member = joined()
    member.beat(REBALANCE)
    member.commit(positions(t_0=5))
    member.advance(INTERVAL_MS)
    member.answer_commit(ErrorCode.ILLEGAL_GENERATION)
    member.answer_join(error=ErrorCode.UNKNOWN_MEMBER_ID)
    member.finish_call("lost", *SIX)
    member.answer_join(generation=3, member_id="m-2")
    member.advance(INTERVAL_MS - 1)
    member.answer_beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert not member.requests(HeartbeatRequest)
    member.advance(1)
    (beat,) = member.requests(HeartbeatRequest)
    assert (beat.member_id, beat.generation_id) == ("m-2", 3)


def test_a_refused_commit_brings_one_early_heartbeat() -> None:
    """It tells why: the group rebalances, or the member is out. More than one would be a load for nothing."""
    member = joined()
    member.commit(positions(t_0=5))
    assert not member.requests(HeartbeatRequest)
    member.answer_commit(ErrorCode.ILLEGAL_GENERATION)
    member.answer_beat()
    member.advance(INTERVAL_MS - 1)
    assert not member.requests(HeartbeatRequest)


def sent_after_ms(member: ClassicMemberHarness) -> int:
    """How long the member waits until it sends its next heartbeat."""
    waited_ms = 0
    while not member.requests(HeartbeatRequest):
        member.advance(50)
        waited_ms += 50
        assert waited_ms <= INTERVAL_MS
    return waited_ms


def test_a_heartbeat_that_is_refused_for_the_moment_is_sent_again_after_growing_backoffs() -> None:
    """The session would end while the member waits for its interval; a coordinator that loads would be flooded."""
    member = joined()
    member.advance(INTERVAL_MS)
    waits = []
    answers = (LOADING, FailureKind.TIMED_OUT, ErrorCode.NOT_COORDINATOR, LOADING, ErrorCode.NONE, LOADING, REBALANCE)
    for answer in (*answers, ErrorCode.UNKNOWN_SERVER_ERROR, FailureKind.MALFORMED):
        if isinstance(answer, FailureKind):
            member.fail(HeartbeatRequest, answer)
        else:
            member.answer_beat(answer)
        waits.append(sent_after_ms(member))
    assert waits == [100, 200, 0, 100, INTERVAL_MS, 100, INTERVAL_MS, 100, 200], "the next coordinator is asked at once"
    told = [str(surfaced.error) for surfaced in member.emitted(SurfaceError)]
    assert [text.partition(":")[0] for text in told] == ["UNKNOWN_SERVER_ERROR(-1)", "scripted"]
    assert "group 'orders-group': the coordinator could not answer a heartbeat" in told[0]


def test_a_heartbeat_that_another_coordinator_should_get_looks_for_it() -> None:
    """The broker would refuse each of them until the session ends."""
    member = joined()
    member.coordinator_found = False
    member.beat(ErrorCode.NOT_COORDINATOR)
    assert member.requests(FindCoordinatorRequest)


def test_a_classic_member_has_handed_over_at_once() -> None:
    """Only a join moves partitions here; the application would wait for others that never prepare."""
    member = joined()
    member.step(HandOverRequested(member.now_ms + 1_000))
    assert not member.emitted(HandOverFailed), "it warned of what the documents promise"
    view = member.member.view()
    assert (view.handing_over, view.news_expected) == (False, False)


def test_a_heartbeat_names_the_static_member_and_leaves_time_for_two_more() -> None:
    """The coordinator would not see that another process has the instance id, or one lost answer ends the session."""
    member = joined(instance_id="i-1", session_timeout_ms=30_000)
    member.advance(INTERVAL_MS)
    (sent,) = [each for each in member.sent if isinstance(each.request, HeartbeatRequest)]
    assert isinstance(sent.request, HeartbeatRequest)
    assert (sent.request.group_instance_id, sent.timeout_ms) == ("i-1", 10_000)


KAFKA_1_1: Final = {ApiKey.JOIN_GROUP: 3, ApiKey.SYNC_GROUP: 1, ApiKey.LEAVE_GROUP: 2}


@pytest.mark.parametrize(("offered", "by_list"), [(KAFKA_1_1, False), ({ApiKey.LEAVE_GROUP: 3}, True)])
def test_an_old_broker_gives_the_id_with_the_first_answer(offered: dict[int, int], by_list: bool) -> None:
    """It knows no MEMBER_ID_REQUIRED; LeaveGroup names the member without a list before version 3."""
    member = ClassicMemberHarness(offered=offered)
    member.subscribe("t")
    member.poll()
    member.answer_join(generation=1, member_id="m-7")
    (sync,) = member.requests(SyncGroupRequest)
    assert sync.member_id == "m-7"
    member.leave(closing=True)
    (leave,) = member.requests(LeaveGroupRequest)
    assert (leave.member_id, [each.member_id for each in leave.members]) == (("", ["m-7"]) if by_list else ("m-7", []))


@pytest.mark.parametrize(
    ("assignor", "first", "second"),
    [("cooperative-sticky", "ffffffff", "00000001"), ("range", None, None), ("roundrobin", None, None)],
)
def test_built_in_assignors_say_what_other_clients_understand(
    assignor: str, first: str | None, second: str | None
) -> None:
    """A leader of Java or librdkafka reads these bytes."""
    member = ClassicMemberHarness(assignors=(assignor,))
    member.subscribe("u", "t")
    member.poll()
    said = member.said()
    assert (said.topics, said.user_data and said.user_data.hex(), said.generation_id) == (("t", "u"), first, -1)
    member.answer_join()
    member.answer_sync({})
    member.listeners_finish = True
    member.poll()
    member.beat(REBALANCE)
    said = member.said()
    assert (said.user_data and said.user_data.hex()) == second


def test_an_own_assignor_says_its_versions_and_an_eager_member_what_it_held() -> None:
    """The leader gives partitions back to the members that had them."""
    member = ClassicMemberHarness(assignors=(Everything(), "range"))
    member.subscribe("t")
    member.poll()
    frame = read_subscription_frame(member.said().user_data)
    assert frame is not None
    assert (frame.reason, frame.wish, frame.held, frame.generation) == (0, 0, (), -1)
    member.answer_join()
    member.answer_sync({"t": [1, 2]})
    member.poll()
    member.finish_call("assigned", "t-1", "t-2")
    member.beat(REBALANCE)
    member.listeners_finish = True
    member.poll()
    assert member.listed() == []
    frame = read_subscription_frame(member.said().user_data)
    assert frame is not None
    assert (frame.minimum_version, frame.maximum_version, frame.generation) == (0, 0, 1)
    assert frame.held == (partition("t-1"), partition("t-2"))


# --- rebalances


@pytest.mark.parametrize("given", [[0, 1, 2], range(6)], ids=["fewer", "the same"])
def test_in_a_group_that_its_coordinator_assigns_a_waiting_assignment_is_taken_up_first(given: Iterable[int]) -> None:
    """To join again with the same partitions would be answered at once with the same ones, at every heartbeat."""
    member = rejoining()
    member.answer_join(generation=1, leader="")
    member.answer_sync({"t": given})
    member.beat(REBALANCE)
    assert (member.phase(), member.requests(JoinGroupRequest)) == (Phase.PENDING, [])
    member.listeners_finish = True
    member.poll()
    assert member.listed() == [f"t-{index}" for index in given]


@pytest.mark.parametrize("rebalances", [False, True])
def test_a_listener_that_raises_is_called_again_and_holds_up_no_rebalance(rebalances: bool) -> None:
    """The group would wait for a callback that may raise for ever; what it was not told of yet is still its own."""
    member = joined()
    member.beat(REBALANCE)
    member.answer_join(generation=2)
    member.answer_sync({"t": range(7)})
    member.poll()
    if rebalances:
        member.beat(REBALANCE)
    assert member.readable == SIX
    member.finish_call("assigned", "t-6", error=RuntimeError("no"))
    if rebalances:
        assert (member.listed(), member.said().generation_id) == ([*SIX, "t-6"], 2)
        member.answer_join(generation=3)
        member.answer_sync({"t": range(7)})
    assert (member.phase(), member.requests(JoinGroupRequest)) == (Phase.PENDING, [])
    member.poll()
    member.finish_call("assigned", "t-6")
    assert member.phase() is Phase.IN_SYNC


def test_partitions_that_cannot_be_are_left_out_of_an_assignment() -> None:
    """librdkafka refuses -1, and the whole assignment with it."""
    member = joining()
    member.answer_join()
    member.answer_sync({"t": [-1, 0]})
    member.poll()
    member.finish_call("assigned", "t-0")


def test_a_rebalance_during_a_revocation_costs_one_join() -> None:
    """The callback is not interrupted, and the join after it serves both."""
    member = rejoining()
    member.answer_join(generation=2)
    member.answer_sync({"t": [0, 1, 2]})
    member.poll()
    member.beat(REBALANCE)
    assert not member.requests(JoinGroupRequest)
    member.finish_call("revoked", "t-3", "t-4", "t-5")
    member.finish_call("assigned")
    assert member.listed() == ["t-0", "t-1", "t-2"]


def test_an_eager_member_that_owns_nothing_joins_again_without_poll() -> None:
    """There is nothing to give up, so the group need not wait for the application."""
    member = ClassicMemberHarness(assignors=("range",))
    member.become_member({})
    member.beat(REBALANCE)
    assert member.joining().member_id == "m-1"
    assert not member.calls


def test_a_static_member_that_does_not_poll_says_nothing_and_takes_its_place_back() -> None:
    """It may be back before its session ends, and then no partition has to move."""
    member = joined(instance_id="i-1")
    member.app_polled_ms = member.now_ms
    for _ in range(MAX_POLL_MS // INTERVAL_MS):
        member.beat()
    member.advance(2)
    assert not member.requests(LeaveGroupRequest)
    member.finish_call("lost", *SIX)
    member.poll()
    assert (member.joining().member_id, member.joining().group_instance_id) == ("", "i-1")


# --- removal


@pytest.mark.parametrize("api", ["heartbeat", "join", "sync"])
def test_a_fenced_static_member_stops_and_leaves_the_place_to_its_successor(api: str) -> None:
    """Its LeaveGroup would remove the process that took over."""
    member = joined(instance_id="i-1")
    if api == "heartbeat":
        member.beat(ErrorCode.FENCED_INSTANCE_ID)
    else:
        member.beat(REBALANCE)
        if api == "join":
            member.answer_join(error=ErrorCode.FENCED_INSTANCE_ID)
        else:
            member.answer_join(generation=2)
            member.answer_sync(error=ErrorCode.FENCED_INSTANCE_ID)
    assert member.state() is MemberState.FATAL
    member.finish_call("lost", *SIX)
    member.sent.clear()
    member.leave(mode=LeaveMode.LEAVE_GROUP, closing=True)
    assert not member.sent


def test_an_unknown_id_is_replaced_at_once_and_a_second_time_after_the_backoff() -> None:
    """A coordinator that forgot the member knows it again soon; one that forgets each id is not to be flooded."""
    member = joining()
    member.answer_join(error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.joining().member_id == ""
    member.answer_join(error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert not member.requests(JoinGroupRequest)
    member.advance(100)
    assert member.joining().member_id == ""
    member.answer_join()
    member.answer_sync({})
    member.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.joining().member_id == "", "it was a member meanwhile"


def test_a_join_moves_to_the_next_coordinator_with_its_id() -> None:
    """A join that waits at the old coordinator would never be answered."""
    member = rejoining()
    member.coordinator_found = False
    member.advance(INTERVAL_MS)
    member.fail(HeartbeatRequest)
    waiting = member.take(JoinGroupRequest)
    member.advance(200)
    assert not member.requests(JoinGroupRequest)
    assert member.requests(FindCoordinatorRequest)
    member.find_coordinator(node_id=2)
    member.advance(200)
    old = JoinGroupResponse(generation_id=2, protocol_name="cooperative-sticky", leader="other", member_id="m-1")
    member.step(ResponseReceived(waiting.request_id, old))
    assert not member.requests(SyncGroupRequest)
    assert (member.joining().member_id, member.listed()) == ("m-1", SIX)


@pytest.mark.parametrize("answered", ["a join", "a heartbeat", "a heartbeat with news"])
def test_a_coordinator_that_answered_and_then_moves_is_looked_up_at_once(answered: str) -> None:
    """A heartbeat is due; to wait is for brokers that are found and never answer."""
    member = joining()
    member.coordinator_found = False
    member.answer_join(generation=1)
    if answered != "a join":
        member.step(CoordinatorDisconnected(1))
        member.advance(INTERVAL_MS)
        member.find_coordinator()
        member.answer_beat(ErrorCode.NONE if answered == "a heartbeat" else REBALANCE)
    member.step(CoordinatorDisconnected(1))
    assert member.requests(FindCoordinatorRequest)


CODES: Final = sorted({*ErrorCode, *RETRIABLE, 9999, -2} - {ErrorCode.NONE})


@pytest.mark.parametrize(
    ("error_class", "rows", "unlisted"),
    [
        (join_error_class, JOIN_CODES, ClassicErrorClass.RETRY),
        (sync_error_class, SYNC_CODES, ClassicErrorClass.LATER_ROUND),
        (beat_error_class, BEAT_CODES, ClassicErrorClass.RETRY),
    ],
    ids=["JoinGroup", "SyncGroup", "Heartbeat"],
)
def test_every_code_has_a_class(
    error_class: Callable[[int], ClassicErrorClass], rows: Mapping[int, ClassicErrorClass], unlisted: ClassicErrorClass
) -> None:
    """An unexpected code must neither loop for ever nor stop a member that could go on."""
    for code in CODES:
        assert error_class(code) is rows.get(code, unlisted if code in RETRIABLE else ClassicErrorClass.FATAL)


@pytest.mark.parametrize("api", ["heartbeat", "join", "sync"])
def test_after_any_answer_a_member_owns_its_partitions_or_was_told_that_it_lost_them(api: str) -> None:
    """No code may leave the application with partitions that the group gives to others, or silently without them."""
    for code in CODES:
        member = joined()
        member.listeners_finish = True
        member.beat(REBALANCE if api != "heartbeat" else code)
        if api == "join":
            member.answer_join(error=code)
        elif api == "sync":
            member.answer_join(generation=2)
            member.answer_sync(error=code)
        lost = f"lost({','.join(SIX)})" in member.history
        stopped = member.state() is MemberState.FATAL
        assert (lost, bool(member.emitted(Fail))) == (member.owned == [], stopped), code
        assert lost or not stopped, code


# --- leaving


@pytest.mark.parametrize("answer", [0, ErrorCode.UNKNOWN_MEMBER_ID, None], ids=["left", "unknown", "none"])
def test_unsubscribing_gives_everything_back_and_leaves(answer: int | None) -> None:
    """The others need not wait for the session; whatever the coordinator says, the member is out."""
    member = joined()
    member.advance(INTERVAL_MS)
    member.leave()
    member.finish_call("revoked", *SIX)
    (leave,) = member.requests(LeaveGroupRequest)
    assert [(each.member_id, each.reason) for each in leave.members] == [("m-1", "the consumer unsubscribed")]
    member.subscribe("t")
    assert (member.phase(), "left" in member.history) == (Phase.IDLE, False)
    if answer is None:
        member.fail(LeaveGroupRequest)
    else:
        member.answer(LeaveGroupRequest, LeaveGroupResponse(error_code=answer))
    assert member.history.count("left") == 1
    member.poll()
    assert (member.joining().member_id, member.listed(), member.said().generation_id) == ("", [], -1)
    member.answer_join(generation=7, member_id="m-2")
    member.advance(INTERVAL_MS)
    member.answer_beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert [beat.member_id for beat in member.requests(HeartbeatRequest)] == ["m-2"], "the old answer was ignored"


def test_a_member_that_is_removed_while_it_leaves_is_out_at_once() -> None:
    """Nothing is left to leave, and the partitions are not its own any more; its listener may still run."""
    member = joined()
    member.leave()
    member.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert (member.phase(), member.owned, member.history[-1]) == (Phase.IDLE, [], "left")
    member.finish_call("revoked", *SIX)
    assert not member.requests(LeaveGroupRequest)


@pytest.mark.parametrize("waits_for", ["topics of a pattern", "topics to assign", "a refresh"])
def test_a_member_that_has_left_asks_for_no_topics(waits_for: str) -> None:
    """An idle consumer would send requests for ever."""
    member = ClassicMemberHarness(settings={"topic_refresh_ms": 5_000})
    member.describes = waits_for == "a refresh"
    if waits_for == "topics of a pattern":
        member.subscribe(pattern="[tu]")
    else:
        member.subscribe("t")
    member.poll()
    if waits_for != "topics of a pattern":
        member.answer_join(leader="m-1", members=(a_member("m-1"),))
    if waits_for == "a refresh":
        member.answer_sync({})
    member.leave(closing=True)
    if not member.describes:
        member.fail_describing()
    member.forget_history()
    member.subscribe("t")
    member.poll()
    member.advance(20_000)
    assert (member.phase(), member.emitted(DescribeTopics)) == (Phase.IDLE, [])


@pytest.mark.parametrize("has_id", [False, True])
def test_a_member_that_never_joined_leaves_only_if_it_has_an_id(has_id: bool) -> None:
    """An id that was handed out holds up the others' next join."""
    member = joining()
    if has_id:
        member.answer_join(error=ErrorCode.MEMBER_ID_REQUIRED)
    member.leave(closing=True)
    left = [each.member_id for leave in member.requests(LeaveGroupRequest) for each in leave.members]
    assert left == (["m-1"] if has_id else [])


# --- the leader


def test_an_assignor_that_hangs_keeps_everything_where_it_is_and_heartbeats_go_on() -> None:
    """User code that never returns must not cost the leader its membership (librdkafka#4783)."""
    other = a_member("z", {"t": range(2)}, generation=1, frame=SubscriptionFrame())
    member = leading(Everything(), other, runs_assignors=False)
    (run,) = member.emitted(RunAssignor)
    beats = 0
    while not member.requests(SyncGroupRequest):
        member.poll()
        member.advance(500)
        if member.requests(HeartbeatRequest):
            member.answer_beat()
            beats += 1
    assert beats > 0
    assert member.dealt() == {"m-1": [], "z": ["t-0", "t-1"]}
    member.step(AssignorDone(run.call_id))
    assert len(member.requests(SyncGroupRequest)) == 1, "its late result is dropped"
    member.answer_sync({})
    assert member.phase() is Phase.PENDING, "nor does the group go round in circles"


def test_a_leader_sends_its_assignment_once_to_the_next_coordinator() -> None:
    """The coordinator moved while it computed; a loop of requests would follow."""
    member = leading(Everything(), runs_assignors=False)
    (run,) = member.emitted(RunAssignor)
    member.step(CoordinatorDisconnected(1))
    member.step(compute(member.objects, run)[0])
    member.tick()
    assert member.dealt() == {"m-1": SIX}


def test_a_leader_whose_assignment_is_refused_sends_none_once_another_member_leads() -> None:
    """It would be about a generation that is over."""
    member = leading("range")
    member.answer_sync(error=REBALANCE)
    member.answer_join(generation=3)
    assert [sync.assignments for sync in member.requests(SyncGroupRequest)] == [()]


def test_a_leader_whose_assignor_still_hangs_leaves_everything_where_it_is_at_once() -> None:
    """The group would wait for a call that may never return, at every rebalance."""
    other = a_member("z", {"t": range(2)}, generation=1, frame=SubscriptionFrame())
    member = leading(Everything(), other, runs_assignors=False)
    member.poll()
    member.advance(ASSIGNOR_LIMIT_MS)
    member.answer_sync({})
    member.answer_beat(REBALANCE)
    member.answer_join(generation=3, leader="m-1", members=(a_member("m-1", frame=SubscriptionFrame()), other))
    assert member.dealt() == {"m-1": [], "z": ["t-0", "t-1"]}
    assert told_error(member) == ASSIGNOR_RAISED
    assert "a call of an assignor has not returned; every member keeps what it has until then" in member.failures[-1]
    assert len(member.failures) == 2


def test_a_leader_does_not_wait_for_its_assignor_behind_a_call_that_hangs() -> None:
    """metadata() may hang as well, and then assign() is not called: the group would have no assignment."""
    member = ClassicMemberHarness(assignors=(Everything(),))
    member.become_member({"t": [0]})
    member.described_at_once = False
    member.beat()
    member.beat(REBALANCE)
    own = JoinGroupResponseMember("m-1", None, member.joining().protocols[0].metadata)
    member.answer_join(generation=2, leader="m-1", members=(own,))
    assert not member.requests(SyncGroupRequest)
    member.advance(ASSIGNOR_LIMIT_MS)
    assert (member.dealt(), told_error(member)) == ({"m-1": ["t-0"]}, ASSIGNOR_RAISED)
    assert not member.emitted(RunAssignor)
    member.answer_sync({"t": [0]})
    member.described_at_once = True
    member.finish_describing()
    assert member.joining().reason == "the assignor works again", "or t-1 to t-5 would have no reader"
    member.answer_join(generation=3, leader="m-1", members=(own,))
    assert member.dealt() == {"m-1": SIX}
    member.answer_sync({"t": range(6)})
    assert member.phase() is Phase.PENDING, "once is enough"


@pytest.mark.parametrize(("chosen", "runs"), [("everything", False), ("strangers", True)])
def test_members_of_other_libraries_are_for_assignors_that_say_so(chosen: str, runs: bool) -> None:
    """Their user data has another format, which an unprepared assignor would misread."""
    member = ClassicMemberHarness(assignors=(Everything(), ReadsStrangers()))
    member.become_member({})
    member.beat(REBALANCE)
    members = (a_member("m-1", frame=SubscriptionFrame()), a_member("z", user_data=b"?"))
    member.answer_join(generation=2, leader="m-1", members=members, protocol_name=chosen)
    assert bool(member.emitted(RunAssignor)) is runs
    strangers = [one.assignor for run in member.emitted(RunAssignor) for one in run.snapshot.members[1:]]
    assert [(one.metadata_version, one.metadata_bytes, one.reason) for one in strangers] == [(-1, b"?", 0)] * runs
    said = ["0 to 0, and these members have others: z (-1); every member keeps what it has"]
    assert [failure[-len(said[0]) :] for failure in member.failures] == said * (not runs)


def test_a_member_with_unreadable_bytes_gets_nothing_and_the_others_the_rest() -> None:
    """One broken client must not stop the group; Java's leader raises here."""
    member = leading("range", JoinGroupResponseMember("z", None, b"\x00"))
    assert member.dealt() == {"m-1": SIX, "z": []}
    (failed,) = member.emitted(AssignorFailed)
    assert isinstance(failed.error, ClientAssignorError)
    assert (failed.error.assignor, "members z have unreadable" in str(failed.error)) == ("range", True)


def test_an_assignment_that_the_coordinator_cannot_store_is_told_with_its_size() -> None:
    """The usual cause is a record that is too large, which no code says."""
    member = leading("range")
    member.answer_sync(error=ErrorCode.UNKNOWN_SERVER_ERROR)
    (surfaced,) = member.emitted(SurfaceError)
    assert "with 64 bytes of its members: 23 of subscriptions" in str(surfaced.error)
    assert not member.requests(JoinGroupRequest)
    member.advance(200)
    assert member.joining().member_id == "m-1"


class Verbose(Everything):
    """Tells the first member so many bytes."""

    size = 1

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return GroupAssignment({min(spec.members): MemberAssignment(spec.partitions, bytes(self.size))})


def test_an_assignment_that_brokers_may_refuse_for_its_size_is_reported() -> None:
    """Brokers refuse records above a megabyte, and no code says why the group has no assignment."""
    assignor = Verbose()

    def sent_bytes() -> tuple[int, list[str]]:
        member = leading(assignor)
        (sync,) = member.requests(SyncGroupRequest)
        return sum(len(each.assignment) for each in sync.assignments) + 46, member.failures

    assignor.size = 900_001 - sent_bytes()[0]
    assert sent_bytes() == (900_000, [])
    assignor.size += 1
    sent, failures = sent_bytes()
    assert (sent, len(failures)) == (900_001, 1)
    assert "with 900,001 bytes of its members: 46 of subscriptions" in failures[0]


def test_subscriptions_that_brokers_may_refuse_for_their_size_are_reported_with_their_members() -> None:
    """The metadata of all members is in the same record: an operator has to hear whose is too long."""
    others = [a_member(f"z-{index}", frame=SubscriptionFrame(metadata=bytes(60_000 + index))) for index in range(16)]
    member = leading(Everything(), *others)
    (text,) = member.failures
    assert "the largest members: z-15 60,0" in text
    member.answer_sync(error=ErrorCode.UNKNOWN_SERVER_ERROR)
    (surfaced,) = member.emitted(SurfaceError)
    assert "bytes of its members: 96" in str(surfaced.error)


def test_a_leader_that_is_replaced_stops_assigning() -> None:
    """Its result is about a generation that is over."""
    other = a_member("z", frame=SubscriptionFrame())
    member = leading(Everything(), other, runs_assignors=False)
    (run,) = member.emitted(RunAssignor)
    member.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert [request.member_id for request in member.requests(JoinGroupRequest)] == [""]
    member.answer_join(generation=3, leader="z", member_id="m-2")
    member.step(AssignorDone(run.call_id))
    (sync,) = member.requests(SyncGroupRequest)
    assert (sync.member_id, sync.assignments) == ("m-2", ())


def test_user_data_is_only_in_assignments_that_have_something_to_tell() -> None:
    """A group with user data in an assignment cannot move to KIP-848."""
    member = leading(Everything())
    (sync,) = member.requests(SyncGroupRequest)
    data = decode_assignment(sync.assignments[0].assignment).user_data
    assert (data, read_assignment_frame(data).error) == (None, 0)


def test_a_wish_to_assign_what_was_left_out_waits_for_the_callback_that_runs() -> None:
    """A deadline that has passed would keep the heartbeat thread busy until the application returns."""
    member = ClassicMemberHarness(settings={"rebalance_timeout_ms": 4_000})
    member.become_member({})
    member.beat(REBALANCE)
    both = (a_member("m-1"), a_member("m-0", {"t": range(6)}, generation=1))
    member.answer_join(generation=2, leader="m-1", members=both)
    member.answer_sync({})
    member.poll()
    member.clock.advance(4_000)
    member.tick()
    deadline_ms = member.member.deadline_ms()
    assert deadline_ms is None or deadline_ms > member.now_ms
    member.finish_call("assigned")
    assert member.joining().reason == "partitions have no owner"


# --- the notice of an assignment


def noticing(**harness: bool) -> ClassicMemberHarness:
    """A member of generation 1 that was assigned t-0 in generation 2; `Everything` should hear of it."""
    member = ClassicMemberHarness(assignors=(Everything(),))
    member.become_member({})
    for name, is_done in harness.items():
        setattr(member, name, is_done)
    member.beat()
    member.beat(REBALANCE)
    member.answer_join(generation=2)
    member.answer_sync({"t": [0]})
    return member


@pytest.mark.parametrize("hangs", ["on_assignment", "metadata"])
def test_the_listener_waits_for_the_assignor_no_longer_than_its_limit(hangs: str) -> None:
    """State is prepared before it is used; but a call that hangs must not leave a partition without a reader."""
    member = noticing(**{"noticed_at_once" if hangs == "on_assignment" else "described_at_once": False})
    begun_ms = member.now_ms if hangs == "on_assignment" else member.now_ms - INTERVAL_MS
    member.poll()
    assert not member.member.view().poll_wanted
    member.advance(begun_ms + ASSIGNOR_LIMIT_MS - member.now_ms - 1)
    member.poll()
    assert not member.calls
    member.advance(1)
    member.poll()
    member.finish_call("assigned", "t-0")
    assert [told.group_metadata.member_epoch for told in member.told] == [1] + [2] * (hangs == "on_assignment")


def test_while_a_call_hangs_an_assignment_is_taken_up_without_a_notice() -> None:
    """The listener would wait for user code that may never return."""
    member = noticing(described_at_once=False)
    member.advance(ASSIGNOR_LIMIT_MS)
    member.answer_beat(REBALANCE)
    member.answer_join(generation=3)
    member.answer_sync({"t": [0]})
    member.poll()
    member.finish_call("assigned", "t-0")


def test_an_assignor_does_not_hear_of_an_assignment_that_a_rebalance_overtook() -> None:
    """It would prepare for partitions that the member never has."""
    member = noticing(described_at_once=False)
    member.beat(REBALANCE)
    member.finish_describing()
    member.answer_join(generation=3)
    member.answer_sync({"t": [1]})
    member.finish_describing()
    assert [told.group_metadata.member_epoch for told in member.told] == [1, 3]


def test_a_member_that_leaves_hears_of_no_assignment_any_more() -> None:
    """It would prepare for partitions that it has given back."""
    member = noticing(described_at_once=False)
    member.leave()
    member.finish_describing()
    assert [told.group_metadata.member_epoch for told in member.told] == [1]


def test_the_end_of_an_earlier_notice_does_not_count_for_the_next_one() -> None:
    """The listener would not wait for the assignor."""
    member = noticing(noticed_at_once=False)
    member.beat(REBALANCE)
    member.answer_join(generation=3)
    member.answer_sync({"t": [1]})
    member.finish_notice()
    member.poll()
    assert not member.calls
    member.finish_notice()
    assert [told.group_metadata.member_epoch for told in member.told] == [1, 2, 3]
    member.poll()
    member.finish_call("assigned", "t-1")


# --- topics


def test_a_follower_joins_again_for_topics_that_its_pattern_matches() -> None:
    """Only the member knows its pattern. It stays a member when nothing matches."""
    member = ClassicMemberHarness(settings={"topic_refresh_ms": 5_000})
    member.partition_counts = {}
    member.subscribe(pattern="[tu]")
    member.poll()
    assert member.said().topics == ()
    member.answer_join(generation=1)
    member.answer_sync({})
    member.listeners_finish = True
    member.partition_counts = {"t": 6}
    member.pass_time(7_000)
    assert (member.joining().reason, member.said().topics) == ("pattern matches other topics", ("t",))


# --- migration


def test_a_group_that_becomes_classic_again_is_assigned_by_its_leader() -> None:
    """The assignor of one's own is back at work as soon as the last member of KIP-848 has gone."""
    member = ClassicMemberHarness(assignors=(Everything(),))
    member.become_member({})
    member.beat(REBALANCE)
    member.answer_join(generation=2, leader="")
    assert not member.emitted(RunAssignor)
    member.answer_sync({"t": range(3)})
    member.listeners_finish = True
    member.poll()
    member.beat(REBALANCE)
    said = decode_subscription(member.joining().protocols[0].metadata)
    own = JoinGroupResponseMember("m-1", None, member.joining().protocols[0].metadata)
    assert [owned.partitions for owned in said.owned_partitions] == [(0, 1, 2)]
    member.answer_join(generation=3, leader="m-1", members=(own,))
    assert member.dealt() == {"m-1": SIX}
