"""Rules of a member on the classic protocol (docs/protocol.md, "The classic protocol")."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from kip848_client.assignors.client.interface import (
    METADATA_UNREADABLE,
    AssignmentSpec,
    AssignorMetadata,
    GroupAssignment,
    PartitionAssignor,
)
from kip848_client.assignors.client.user_data import (
    AssignmentFrame,
    SubscriptionFrame,
    read_assignment_frame,
    read_subscription_frame,
)
from kip848_client.common.error_codes import ErrorCode, error_name
from kip848_client.common.model import ZERO_UUID
from kip848_client.errors import (
    AuthenticationError,
    CommitFailedError,
    FatalGroupError,
    ProtocolError,
    RequestTimeoutError,
    TopicAuthorizationError,
)
from kip848_client.member.classic.classic_heartbeats import EARLY_FIRST_MS
from kip848_client.member.core.assignor_events import (
    DescribeAssignors,
    GroupRestless,
    ReassignmentRequested,
    RunAssignor,
)
from kip848_client.member.core.events import (
    ConnectCoordinator,
    DescribeTopics,
    Destination,
    Fail,
    FailureKind,
    LeaveMode,
    MemberEffect,
    RequestFailed,
    SurfaceError,
    TopicDescription,
    TopicsDescribed,
)
from kip848_client.member.core.states import MemberState, Phase
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_protocol import decode_assignment
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.heartbeat import HeartbeatRequest
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kip848_client.wire.messages.leave_group import LeaveGroupRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kip848_client.wire.schema import Request, Response
from tests.support.member_harness import (
    ASSIGNOR_LIMIT_MS,
    INTERVAL_MS,
    MAX_POLL_MS,
    ClassicMemberHarness,
    a_member,
    held,
    partition,
    positions,
)

ALL = {"t": range(6)}
SAME = {"t": 6}
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


def cooperative(owned: dict[str, range] | None = None, **settings: object) -> ClassicMemberHarness:
    member = ClassicMemberHarness(settings=dict(settings))
    member.become_member(owned if owned is not None else ALL)
    return member


def eager(**settings: object) -> ClassicMemberHarness:
    member = ClassicMemberHarness(settings=dict(settings), assignors=("range",))
    member.become_member(ALL)
    return member


class First(PartitionAssignor):
    """Gives everything to the first member, or what a test says."""

    name = "first"
    error = 0

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        if self.error:
            return GroupAssignment(error=self.error)
        return GroupAssignment.of({min(spec.members): spec.partitions})


def test_r200_a_new_member_joins_with_the_id_that_it_is_given() -> None:
    """A lost JoinGroup must not leave a member in the group that no process owns."""
    member = ClassicMemberHarness()
    member.subscribe("t")
    member.advance(500)
    member.poll()
    assert (member.joining().member_id, member.joining().reason) == ("", "first join")
    assert member.member.deadline_ms() == member.now_ms + MAX_POLL_MS + 1, "it was inside poll() just now"
    member.answer_join(error=ErrorCode.MEMBER_ID_REQUIRED)
    assert member.joining().member_id == "m-1", "at once"
    member.answer_join(error=ErrorCode.MEMBER_ID_REQUIRED, member_id="m-2")
    assert not member.requests(JoinGroupRequest), "a second time in a row waits"
    member.advance(100)
    assert member.joining().member_id == "m-2"
    member.answer_join(member_id="m-2")
    member.answer_sync({})
    member.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    member.answer_join(error=ErrorCode.MEMBER_ID_REQUIRED, member_id="m-3")
    assert member.joining().member_id == "m-3", "what came before it was a member does not count"


@pytest.mark.parametrize("partitions", [None, {}, {"t": [0, 1]}], ids=["no bytes", "nothing", "two"])
def test_r201_a_join_is_followed_by_a_sync_and_then_by_the_assigned_callback(
    partitions: dict[str, list[int]] | None,
) -> None:
    """An assignment of nothing is an assignment: the application waits for it. Librdkafka's leaders send no bytes."""
    member = ClassicMemberHarness()
    member.subscribe("t")
    member.poll()
    member.answer_join(generation=3)
    (sync,) = member.requests(SyncGroupRequest)
    assert (sync.generation_id, sync.member_id, sync.assignments) == (3, "m-1", ())
    member.answer_sync(partitions)
    assert (member.phase(), member.sent) == (Phase.PENDING, [])
    member.poll()
    named = tuple(f"t-{index}" for index in (partitions or {}).get("t", []))
    member.finish_call("assigned", *named)
    assert (member.state(), member.owned) == (MemberState.STABLE, list(named))


def test_r202_join_and_sync_have_a_connection_of_their_own_and_heartbeats_go_on() -> None:
    """Both are answered late; a heartbeat or a leave behind them would be too late."""
    member = cooperative()
    member.beat(REBALANCE)
    (join,) = [item for item in member.sent if isinstance(item.request, JoinGroupRequest)]
    assert join.destination is Destination.COORDINATOR_ROUND
    member.advance(INTERVAL_MS)
    (beat,) = [item for item in member.sent if isinstance(item.request, HeartbeatRequest)]
    assert beat.destination is Destination.COORDINATOR
    member.answer_beat(REBALANCE)
    assert len(member.requests(JoinGroupRequest)) == 1, "the join is on its way"


@pytest.mark.parametrize(("rebalance_timeout_ms", "waits_ms"), [(60_000, 65_000), (20_000, 30_000)])
def test_r202_their_answers_are_awaited_longer_than_any_rebalance_takes(
    rebalance_timeout_ms: int, waits_ms: int
) -> None:
    """The member would send the request again, which begins another rebalance, and so on."""
    settings: dict[str, object] = {"rebalance_timeout_ms": rebalance_timeout_ms, "request_timeout_ms": 30_000}
    member = ClassicMemberHarness(settings=settings)
    member.subscribe("t")
    member.poll()
    join = member.sent[-1]
    member.answer_join()
    sync = member.sent[-1]
    assert (type(join.request), join.timeout_ms) == (JoinGroupRequest, waits_ms)
    assert (type(sync.request), sync.timeout_ms) == (SyncGroupRequest, waits_ms)


@pytest.mark.parametrize(
    ("strategy", "is_enabled", "early"),
    [("cooperative-sticky", True, 4), ("cooperative-sticky", False, 0), ("range", True, 0)],
    ids=["cooperative", "turned off", "eager"],
)
def test_r246_a_cooperative_member_asks_early_whether_a_second_round_follows(
    strategy: str, is_enabled: bool, early: int
) -> None:
    """A moving partition has no reader until the second round, which begins once its owner has given it up."""
    member = ClassicMemberHarness(settings={"early_heartbeats": is_enabled}, assignors=(strategy,))
    member.subscribe("t")
    member.poll()
    member.answer_join()
    member.answer_sync(ALL)
    member.advance(INTERVAL_MS - 1)
    assert not member.requests(HeartbeatRequest), "heard now, a second round would take the assignment back"
    member.listeners_finish = True
    member.poll()
    sent = []
    for ms in range(INTERVAL_MS + 1):
        if member.requests(HeartbeatRequest):
            sent.append(ms)
            member.answer_beat()
        member.advance(1)
    assert len(sent) == 1 + early
    assert all(after - before >= 0.8 * EARLY_FIRST_MS for before, after in pairwise(sent[1:]))


def test_r203_a_cooperative_member_joins_again_at_once_and_lists_what_it_owns() -> None:
    """One slow application would hold up the whole group; what it reads meanwhile is still its own."""
    member = cooperative()
    member.beat(REBALANCE)
    assert member.listed() == [f"t-{index}" for index in range(6)]
    assert member.said().generation_id == 1
    assert len(member.readable) == 6
    assert member.member.view().news_expected, "partitions may come any moment"
    assert not member.calls


def test_r204_an_eager_member_gives_everything_up_inside_poll_before_it_joins_again() -> None:
    """The leader may give any partition to any member."""
    member = eager()
    member.beat(REBALANCE)
    assert member.phase() is Phase.REJOIN_DUE
    assert not member.requests(JoinGroupRequest)
    member.poll()
    member.finish_call("revoked", *(f"t-{index}" for index in range(6)), error=RuntimeError("listener"))
    assert not member.requests(JoinGroupRequest), "the next poll() tries again"
    member.poll()
    member.finish_call("revoked", *(f"t-{index}" for index in range(6)), error=RuntimeError("again"))
    member.poll()
    assert not member.calls, "a second time it waits for the backoff"
    assert member.member.deadline_ms() == member.now_ms + 100
    member.advance(100)
    member.poll()
    member.finish_call("revoked", *(f"t-{index}" for index in range(6)))
    assert member.listed() == []
    assert member.owned == []
    assert not member.member.view().awaiting_app


def test_r204_a_commit_keeps_the_join_for_half_of_the_rebalance_timeout() -> None:
    """The group waits for the join; a commit without an answer must not cost the member its place."""
    member = eager(auto_commit_interval_ms=60_000, rebalance_timeout_ms=4_000)
    member.beat(REBALANCE)
    member.poll(positions(t_0=5))
    assert (len(member.requests(OffsetCommitRequest)), member.calls) == (1, [])
    member.advance(1_999)
    assert member.calls == []
    member.advance(1)
    assert [call.kind for call in member.calls] == ["revoked"]


def test_r205_after_giving_something_up_a_cooperative_member_joins_again() -> None:
    """Only this join tells the leader that the partitions are free."""
    member = cooperative()
    member.beat(REBALANCE)
    member.answer_join(generation=2)
    member.answer_sync({"t": [0, 1, 2]})
    member.poll()
    assert member.readable == ["t-0", "t-1", "t-2"], "nothing of what it is about to give up"
    member.finish_call("revoked", "t-3", "t-4", "t-5")
    member.finish_call("assigned")
    assert member.listed() == ["t-0", "t-1", "t-2"]
    member.answer_join(generation=3)
    member.answer_sync({"t": [0, 1, 2]})
    member.poll()
    member.finish_call("assigned")
    assert member.phase() is Phase.IN_SYNC


def test_r206_an_assignment_that_a_rebalance_overtakes_is_dropped() -> None:
    """It is about a generation that is over: no callback may hear of it."""
    member = cooperative()
    member.beat(REBALANCE)
    member.answer_join(generation=2)
    member.answer_sync({"t": [0]})
    member.beat(REBALANCE)
    assert member.listed() == [f"t-{index}" for index in range(6)]
    assert not member.calls
    member.answer_join(generation=3)
    for _ in range(3):
        member.answer_sync(error=REBALANCE)
        assert len(member.owned) == 6, "KAFKA-13419: nothing is lost"
        member.answer_join(generation=3)
    member.answer_sync(error=REBALANCE)
    assert not member.requests(JoinGroupRequest), "no storm"
    member.advance(1000)
    assert member.joining().member_id == "m-1"


@pytest.mark.parametrize(
    ("edge", "beats_ms"), [(min, [40, 120, 280, 600, 1_400]), (max, [60, 180, 420, 900, 1_700])], ids=["least", "most"]
)
def test_r246_early_heartbeats_are_spread_by_a_fifth_and_end_at_the_interval(
    edge: Callable[[float, float], float], beats_ms: list[int]
) -> None:
    """Members of one rebalance would all ask at the same moments; and an early one that comes late is none."""

    class Edge(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return edge(a, b)

    member = ClassicMemberHarness(settings={"heartbeat_interval_ms": 800, "early_heartbeats": True}, rng=Edge())
    member.become_member({})
    began_ms = member.now_ms
    sent_ms = []
    while member.now_ms < began_ms + 1_700:
        member.advance(1)
        if member.requests(HeartbeatRequest):
            sent_ms.append(member.now_ms - began_ms)
            member.answer_beat()
    assert sent_ms == beats_ms


@pytest.mark.parametrize("called", ["assigned", "revoked"])
def test_r206_a_rebalance_during_a_callback_is_joined_once_the_callback_has_ended(called: str) -> None:
    """The group waits for this member, which must not join while the application still handles partitions."""
    member = cooperative({"t": range(2)})
    if called == "assigned":
        member.beat(REBALANCE)
        member.answer_join(generation=2)
        member.answer_sync({"t": [0, 1, 2]})
        partitions: tuple[str, ...] = ("t-2",)
    else:
        member.subscribe("u")
        partitions = ("t-0", "t-1")
    member.poll()
    member.beat(REBALANCE)
    assert not member.requests(JoinGroupRequest)
    member.finish_call(called, *partitions)
    member.answer_join(generation=3)
    member.answer_sync({"t": [0, 1, 2]} if called == "assigned" else {})
    member.poll()
    assert not member.requests(JoinGroupRequest), "one join answers it"


def test_r206_three_new_rounds_in_a_row_begin_at_once_and_a_finished_round_counts_anew() -> None:
    """A group that rebalances without end must not burn the coordinator; a member must not pay for it later."""
    member = ClassicMemberHarness()
    member.subscribe("t")
    for generation in (2, 10):
        member.poll()
        for number in range(4):
            assert len(member.requests(JoinGroupRequest)) == 1, number
            member.answer_join(generation=generation + number)
            member.answer_sync(error=REBALANCE)
        member.advance(99)
        assert not member.requests(JoinGroupRequest), "the fourth waits"
        member.advance(1)
        member.answer_join(generation=generation + 4)
        member.answer_sync({})
        member.listeners_finish = True
        member.poll()
        member.beat(REBALANCE)


def test_r207_a_removed_member_loses_everything_and_keeps_its_id_if_only_the_generation_is_wrong() -> None:
    """Another member may have the partitions; an unknown id would be refused again."""
    for code, member_id in ((ErrorCode.ILLEGAL_GENERATION, "m-1"), (ErrorCode.UNKNOWN_MEMBER_ID, "")):
        member = cooperative({"t": range(2)})
        member.beat(code)
        assert member.state() is MemberState.RELEASING_ASSIGNMENT
        assert not member.requests(JoinGroupRequest)
        member.finish_call("lost", "t-0", "t-1")
        assert (member.joining().member_id, member.joining().reason) == (member_id, "the member was removed")
        assert (member.listed(), member.said().generation_id) == ([], -1)


def test_r208_an_answer_to_a_heartbeat_of_an_earlier_round_does_not_remove_the_member() -> None:
    """The two connections race: the answer to our JoinGroup may be on its way with the next generation."""
    member = cooperative()
    member.beat(REBALANCE)
    member.advance(INTERVAL_MS)
    member.answer_beat(ErrorCode.ILLEGAL_GENERATION)
    assert len(member.owned) == 6
    member.advance(INTERVAL_MS)
    member.answer_join(generation=2)
    member.answer_beat(ErrorCode.ILLEGAL_GENERATION)
    assert (len(member.owned), member.phase()) == (6, Phase.REJOINING)


def test_r243_a_member_whose_join_got_lost_stops_reading_when_the_group_has_gone_on() -> None:
    """A static member stays in the group: others were given its partitions, and it would read beside them."""
    member = cooperative(instance_id="i-1")
    member.beat(REBALANCE)
    member.beat(ErrorCode.ILLEGAL_GENERATION)
    member.beat(ErrorCode.ILLEGAL_GENERATION)
    member.poll()
    member.finish_call("lost", *(f"t-{index}" for index in range(6)))
    assert not member.owned
    (_, again) = member.requests(JoinGroupRequest)
    assert (again.member_id, again.group_instance_id) == ("m-1", "i-1")
    member.answer_join(generation=2)
    assert (len(member.requests(JoinGroupRequest)), member.requests(SyncGroupRequest)) == (1, []), "it comes too late"


@pytest.mark.parametrize("dropped", ["before_the_sync", "before_poll"])
def test_r245_a_member_claims_its_partitions_in_each_generation_that_it_joined(dropped: str) -> None:
    """Its assignment was dropped, but the leader has left it what it claimed."""
    member = cooperative(instance_id="i-1")
    member.beat(REBALANCE)
    assert member.said().generation_id == 1
    member.answer_join(generation=2)
    if dropped == "before_the_sync":
        member.answer_sync(error=REBALANCE)
    else:
        member.answer_sync({"t": range(4)})
        member.beat(REBALANCE)
    assert (member.listed(), member.said().generation_id) == ([f"t-{index}" for index in range(6)], 2)


def test_r245_a_member_that_missed_a_generation_has_lost_its_partitions() -> None:
    """Others were given them: its commits of the new generation would put their offsets back."""
    member = cooperative({"t": range(2)}, instance_id="i-1")
    member.beat(REBALANCE)
    call = member.commit(positions(t_0=5))
    member.answer_commit(ErrorCode.ILLEGAL_GENERATION)
    member.answer_join(generation=3)
    assert (member.requests(OffsetCommitRequest), member.requests(SyncGroupRequest)) == ([], [])
    assert isinstance(member.commit_error(call), CommitFailedError)
    member.finish_call("lost", "t-0", "t-1")
    assert (member.joining().member_id, member.listed()) == ("m-1", [])


def by_coordinator(**settings: object) -> ClassicMemberHarness:
    """A member of a group in which the coordinator assigns, because others are on the new protocol."""
    member = cooperative({"t": range(2)}, **settings)
    member.beat(REBALANCE)
    member.answer_join(generation=2, leader="")
    member.answer_sync({"t": range(2)})
    member.listeners_finish = True
    member.poll()
    member.listeners_finish = False
    return member


@pytest.mark.parametrize("over", ["session", "join", "sync"])
@pytest.mark.parametrize(("instance_id", "late_ms"), [(None, 0), (None, -1), ("i-1", 0)])
def test_r273_a_member_that_may_have_been_removed_unheard_has_lost_its_partitions(
    over: str, instance_id: str | None, late_ms: int
) -> None:
    """The coordinator took its JoinGroup for a new member's. A commit would put the offset of the next owner back."""
    limits = {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 60_000}
    if over != "session":
        limits = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 6_000}
    member = by_coordinator(instance_id=instance_id, **limits)
    member.beat(REBALANCE if over != "session" else 0)
    if over == "sync":
        member.answer_join(generation=3, leader="")
        member.clock.advance(6_000 + late_ms)
        member.answer_sync(error=REBALANCE)
    elif over == "join":
        member.clock.advance(6_000 + late_ms)
    else:
        member.advance(INTERVAL_MS)  # frozen from here on; the answer to its heartbeat waits in the socket
        member.clock.advance(6_000 + late_ms)
        member.answer_beat(REBALANCE)
    call = member.commit(positions(t_0=5))
    member.answer_commit(ErrorCode.ILLEGAL_GENERATION)
    member.answer_join(generation=7, leader="")
    lost = member.member.view().lost({partition("t-0")})
    sent = [commit.generation_id_or_member_epoch for commit in member.requests(OffsetCommitRequest)]
    if instance_id is None and not late_ms:
        assert (lost, sent) == ({partition("t-0")}, [])
        assert isinstance(member.commit_error(call), CommitFailedError)
        member.finish_call("lost", "t-0", "t-1")
        assert (member.joining().member_id, member.listed()) == ("m-1", [])
    else:
        assert (lost, sent) == (set(), [7]), "it is the same member, or would have been refused"


def test_r244_a_joining_member_without_an_answer_looks_for_the_coordinator_again() -> None:
    """It sends no heartbeats yet: with a broker that vanished it would wait for ever."""
    member = ClassicMemberHarness()
    member.subscribe("t")
    member.poll()
    member.coordinator_found = False
    member.fail(JoinGroupRequest, FailureKind.TIMED_OUT)
    member.advance(100)
    member.find_coordinator(node_id=2)
    member.advance(100)
    assert member.joining().member_id == ""


def test_r223_a_group_that_is_classic_again_costs_a_member_nothing() -> None:
    """The last step of moving back would make the members that lag read records again."""
    member = cooperative()
    member.beat(REBALANCE)
    member.answer_join(generation=2, leader="")
    member.answer_sync(ALL)
    member.listeners_finish = True
    member.poll()
    member.beat(ErrorCode.ILLEGAL_GENERATION)
    assert len(member.owned) == 6
    assert (member.joining().member_id, member.said().generation_id) == ("m-1", 2)


def test_r209_when_the_coordinator_is_lost_the_request_under_way_is_sent_again() -> None:
    """A coordinator that has the round answers from memory, and the group is not disturbed."""
    member = cooperative()
    member.beat(REBALANCE)
    member.fail(JoinGroupRequest)
    member.advance(100)
    assert member.joining().member_id == "m-1"
    member.answer_join(generation=2)
    member.advance(INTERVAL_MS)
    member.fail(HeartbeatRequest, FailureKind.DISCONNECTED)
    again = member.requests(SyncGroupRequest)[-1]
    assert (len(member.requests(SyncGroupRequest)), again.generation_id) == (2, 2)
    member.take(SyncGroupRequest)  # no call waits for the first
    member.answer_sync(ALL)
    assert member.phase() is Phase.PENDING


def test_r210_commits_go_on_while_a_join_waits_and_a_join_waits_for_commits_under_way() -> None:
    """A commit of an older generation would be refused, and its records read again."""
    member = cooperative()
    call = member.commit(positions(t_0=5))
    member.beat(REBALANCE)
    assert not member.requests(JoinGroupRequest)
    member.answer_commit()
    assert member.commit_error(call) is None
    member.joining()
    member.commit(positions(t_0=6))
    (commit,) = member.requests(OffsetCommitRequest)
    assert (commit.generation_id_or_member_epoch, commit.member_id) == (1, "m-1")
    member.answer_commit(ErrorCode.ILLEGAL_GENERATION)
    assert len(member.owned) == 6, "no commit removes a member"
    member.answer_join(generation=2)
    member.answer_sync(ALL)
    assert member.requests(OffsetCommitRequest)[0].generation_id_or_member_epoch == 2


@pytest.mark.parametrize(("rebalance_timeout_ms", "waits_ms"), [(4_000, 2_000), (60_000, 5_000)])
def test_r210_a_join_waits_for_a_commit_no_longer_than_the_group_can(rebalance_timeout_ms: int, waits_ms: int) -> None:
    """A commit without an answer must not cost the member its place in the next generation."""
    member = cooperative(rebalance_timeout_ms=rebalance_timeout_ms)
    member.commit(positions(t_0=5))
    member.beat(REBALANCE)
    member.advance(waits_ms - 1)
    assert not member.requests(JoinGroupRequest)
    member.advance(1)
    member.joining()


def test_r210_a_commit_that_ends_wakes_no_join_that_was_given_up() -> None:
    """The consumer closes: the timer of a join that never comes would ring at once, and find nothing to do."""
    member = cooperative()
    call = member.commit(positions(t_0=5), timeout_ms=3_000)
    member.beat(REBALANCE)
    member.leave(closing=True)
    member.advance(3_000)  # with a tick at every deadline, each of which must bring something
    assert isinstance(member.commit_error(call), RequestTimeoutError)


def test_r211_a_dynamic_member_leaves_also_while_a_join_waits_and_a_static_one_only_if_asked() -> None:
    """A member that stays counted costs the others a rebalance, or the wait for its session."""
    member = cooperative({"t": range(1)})
    member.beat(REBALANCE)
    member.leave(closing=True)
    member.finish_call("revoked", "t-0")
    (leave,) = member.requests(LeaveGroupRequest)
    assert leave.members[0].member_id == "m-1"
    member.answer_join(generation=2)
    assert not member.requests(SyncGroupRequest), "it is out"
    for mode, leaves in ((LeaveMode.DEFAULT, 0), (LeaveMode.REMAIN_IN_GROUP, 0), (LeaveMode.LEAVE_GROUP, 1)):
        static = cooperative({}, instance_id="i-1")
        static.leave(mode=mode, closing=True)
        assert len(static.requests(LeaveGroupRequest)) == leaves


def test_r212_the_leader_leaves_out_what_another_member_still_owns() -> None:
    """Given at once, two members would read it."""
    member = cooperative({})
    member.beat(REBALANCE)
    both = (a_member("m-1"), a_member("m-0", ALL, generation=1))
    member.answer_join(generation=2, leader="m-1", members=both)
    assert member.dealt() == {"m-0": ["t-0", "t-1", "t-2"], "m-1": []}
    member.answer_sync({})
    member.beat(REBALANCE)
    both = (a_member("m-1"), a_member("m-0", {"t": range(3)}, generation=2))
    member.answer_join(generation=3, leader="m-1", members=both)
    assert member.dealt()["m-1"] == ["t-3", "t-4", "t-5"]


def test_r213_of_two_claims_the_later_generation_wins_and_equal_ones_cancel() -> None:
    """KIP-792: a member that comes back from a pause claims what others own by now."""
    for generation, expected in ((4, ["t-0", "t-1", "t-2"]), (5, ["t-0", "t-1"])):
        member = cooperative({})
        member.beat(REBALANCE)
        both = (
            a_member("a", {"t": range(3)}, generation=5),
            a_member("m-1", {"t": range(2, 5)}, generation=generation),
        )
        member.answer_join(generation=6, leader="m-1", members=both)
        assert member.dealt() == {"a": expected, "m-1": ["t-3", "t-4", "t-5"]}
        shown = member.emitted(RunAssignor)[-1].snapshot.members
        assert {each.member_id: each.member_epoch for each in shown} == {"a": 5, "m-1": generation}


def test_r214_an_assignor_that_fails_moves_nothing_and_all_members_hear_of_it() -> None:
    """A bug in user code must not stop a group, nor send it round in circles."""
    assignor = First()
    member = ClassicMemberHarness(assignors=(assignor,))
    member.become_member({"t": range(2)})
    assignor.error = 7
    member.beat(REBALANCE)
    ours = a_member("m-1", {"t": range(2)}, generation=1, frame=SubscriptionFrame())
    other = a_member("z", {"t": range(2, 4)}, generation=1, frame=SubscriptionFrame())
    member.answer_join(generation=2, leader="m-1", members=(ours, other))
    assert member.dealt() == {"m-1": ["t-0", "t-1"], "z": ["t-2", "t-3"]}
    (sync,) = member.requests(SyncGroupRequest)
    told = decode_assignment(sync.assignments[1].assignment).user_data
    assert read_assignment_frame(told) == AssignmentFrame(error=7)
    member.answer(SyncGroupRequest, SyncGroupResponse(assignment=sync.assignments[0].assignment))
    assert [(call.error, len(call.partitions)) for call in member.told][-1] == (7, 2)


class Moody(PartitionAssignor):
    """Gives everything to a member that does not depend on the group, as an assignor by lag or time may."""

    name = "moody"
    favourite = "z"
    error: Exception | None = None

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        if self.error is not None:
            raise self.error
        return GroupAssignment.of({self.favourite: spec.partitions})


def moody_leader(assignor: Moody) -> ClassicMemberHarness:
    """It owns all partitions, and leads generation 2 with a new member z."""
    member = ClassicMemberHarness(assignors=(assignor,))
    member.become_member(ALL)
    member.listeners_finish = True
    member.beat(REBALANCE)
    ours = a_member("m-1", ALL, generation=1, frame=SubscriptionFrame())
    member.answer_join(generation=2, leader="m-1", members=(ours, a_member("z", frame=SubscriptionFrame())))
    return member


@pytest.mark.parametrize(
    ("frame", "runs"),
    [(SubscriptionFrame(), 1), (SubscriptionFrame(wish=1), 2), (SubscriptionFrame(metadata=b"hot"), 2)],
    ids=["unchanged", "asked", "other metadata"],
)
def test_r262_the_round_after_a_revocation_hands_out_the_rest_of_the_same_plan(
    frame: SubscriptionFrame, runs: int
) -> None:
    """With another plan in each round an assignor that looks at the lag would keep the group rebalancing for ever."""
    assignor = Moody()
    member = moody_leader(assignor)
    assert member.dealt() == {"m-1": [], "z": []}, "m-1 still owns what z gets"
    member.answer_sync({})
    member.poll()
    assert member.joining().reason == "partitions were revoked"
    assignor.favourite = "m-1"
    members = (a_member("m-1", generation=2, frame=SubscriptionFrame()), a_member("z", frame=frame))
    member.answer_join(generation=3, leader="m-1", members=members)
    assert len(member.emitted(RunAssignor)) == runs
    assert len(member.dealt()["z"]) == (6 if runs == 1 else 0)


def test_r262_a_plan_that_was_handed_out_is_over() -> None:
    """The next rebalance may be the only chance to look at the lag again."""
    assignor = Moody()
    member = moody_leader(assignor)
    members = (a_member("m-1", frame=SubscriptionFrame()), a_member("z", frame=SubscriptionFrame()))
    for generation, favourite in ((3, "z"), (4, "m-1")):
        member.answer_sync({})
        member.beat(REBALANCE)
        assignor.favourite = favourite
        member.answer_join(generation=generation, leader="m-1", members=members)
        assert len(member.dealt()[favourite]) == 6


def test_r263_a_group_that_does_not_come_to_rest_is_warned_of() -> None:
    """A counter in metadata() rebalances a group for ever, and every rebalance by itself looks normal."""
    member = moody_leader(Moody())
    for generation in range(3, 13):
        assert not member.emitted(GroupRestless)
        member.answer_sync(error=REBALANCE)
        frames = [SubscriptionFrame(metadata=str(generation).encode()) for _ in range(2)]
        members = (a_member("m-1", frame=frames[0]), a_member("z", frame=frames[1]))
        member.pass_time(1_000)
        member.answer_join(generation=generation, leader="m-1", members=members)
    (warning,) = member.emitted(GroupRestless)
    assert warning.text == (
        "10 assignments in 9 s with the same members and topics: metadata() returned something else (10 times)"
    )


def test_r264_an_assignor_that_failed_is_called_again_until_there_is_a_plan() -> None:
    """A member left, and one exception would leave its partitions without a reader until the next change."""
    assignor = Moody()
    assignor.favourite, assignor.error = "m-1", OSError("database away")
    member = ClassicMemberHarness(assignors=(assignor,))
    member.become_member({"t": range(3)})
    member.listeners_finish = True
    member.beat(REBALANCE)
    ours = a_member("m-1", {"t": range(3)}, generation=1, frame=SubscriptionFrame())
    member.answer_join(generation=2, leader="m-1", members=(ours,))
    assert member.dealt() == {"m-1": ["t-0", "t-1", "t-2"]}
    member.answer_sync({"t": range(3)})
    member.poll()
    member.pass_time(1_000)
    assert len(member.emitted(RunAssignor)) == 2
    member.pass_time(1_500)
    assert len(member.emitted(RunAssignor)) == 2, "a backoff that doubles"
    assignor.error = None
    assert not member.requests(JoinGroupRequest), "a failure costs no rebalance"
    member.pass_time(500)
    assert member.joining().reason == "the assignor works again"
    member.answer_join(generation=3, leader="m-1", members=(ours,))
    assert (len(member.emitted(RunAssignor)), len(member.dealt()["m-1"])) == (3, 6)


def test_r265_an_assigned_callback_that_raises_does_not_hold_up_what_was_revoked() -> None:
    """Others wait for the revoked partitions, up to max.poll.interval.ms, and the callback may raise for ever."""
    member = cooperative()
    member.beat(REBALANCE)
    member.answer_join(generation=2)
    member.answer_sync({"t": [0, 1]})
    member.poll()
    member.finish_call("revoked", "t-2", "t-3", "t-4", "t-5")
    member.finish_call("assigned", error=ValueError("not now"))
    assert (member.joining().reason, member.listed()) == ("partitions were revoked", ["t-0", "t-1"])
    member.answer_join(generation=3)
    member.answer_sync({"t": [0, 1]})
    member.poll()
    member.finish_call("assigned")
    assert member.phase() is Phase.IN_SYNC


def test_r266_several_wishes_within_a_second_cost_one_more_rebalance() -> None:
    """An application asks for each record that it thinks misplaced; each rebalance stops it."""
    member = ClassicMemberHarness(assignors=(First(),))
    member.become_member({})
    member.listeners_finish = True
    joins = 0
    for reason in range(1, 6):
        member.step(ReassignmentRequested(reason))
        if member.requests(JoinGroupRequest):
            joins += 1
            member.answer_join(generation=1 + joins)
            member.answer_sync({})
            member.poll()
        member.advance(20)
    assert joins == 1
    member.pass_time(1_000)
    frame = read_subscription_frame(member.said().user_data)
    assert frame is not None
    assert (frame.reason, frame.wish) == (5, 2)


def test_r215_an_assignor_runs_only_if_it_reads_the_metadata_of_all() -> None:
    """An assignor that cannot read a member's metadata would give it the wrong partitions."""
    member = ClassicMemberHarness(assignors=(First(),))
    member.become_member({})
    member.beat(REBALANCE)
    stranger = a_member("z", user_data=b"?")
    member.answer_join(generation=2, leader="m-1", members=(a_member("m-1", frame=SubscriptionFrame()), stranger))
    assert not member.emitted(RunAssignor)
    (sync,) = member.requests(SyncGroupRequest)
    told = decode_assignment(sync.assignments[0].assignment).user_data
    assert read_assignment_frame(told).error == METADATA_UNREADABLE


def test_r216_an_eager_member_tells_its_own_assignor_what_it_had() -> None:
    """Without its last partitions a sticky assignor would move everything in every rebalance."""
    member = ClassicMemberHarness(assignors=(First(), "range"))
    member.become_member({})
    member.beat(REBALANCE)
    frames = [
        SubscriptionFrame(cooperative=False, held=held(t=[index]), generation=1, metadata=b"m") for index in range(2)
    ]
    both = (a_member("m-1", frame=frames[0]), a_member("z", frame=frames[1]))
    member.answer_join(generation=2, leader="m-1", members=both)
    (run,) = member.emitted(RunAssignor)
    assert [[held_.partitions for held_ in each.topic_partitions] for each in run.snapshot.members] == [[(0,)], [(1,)]]
    assert len(member.dealt()["m-1"]) == 6, "no member owns it, so that all of it can be assigned at once"


def test_r217_the_leader_looks_at_the_topics_and_joins_again_when_they_change() -> None:
    """The broker does not tell a classic group that a topic has grown."""
    member = cooperative({}, topic_refresh_ms=5_000)
    member.beat(REBALANCE)
    member.answer_join(generation=2, leader="m-1", members=(a_member("m-1"),))
    member.answer_sync(ALL)
    member.listeners_finish = True
    member.poll()
    member.pass_time(5_500)
    assert not member.requests(JoinGroupRequest)
    member.partition_counts = {}
    member.pass_time(5_500)
    assert member.joining().reason == "metadata changed", "gone twice"
    member.partition_counts = {"t": 8}
    member.pass_time(5_500)
    member.answer_join(generation=3)
    member.answer_sync(ALL)
    member.poll()
    member.pass_time(20_000)
    assert not member.requests(JoinGroupRequest), "another member leads now"


def test_r217_the_leader_does_not_look_while_it_joins() -> None:
    """The round that is under way takes heed of the change, and another one would follow."""
    member = cooperative({}, topic_refresh_ms=5_000)
    member.beat(REBALANCE)
    member.answer_join(generation=2, leader="m-1", members=(a_member("m-1"),))
    member.answer_sync({})
    member.beat(REBALANCE)
    member.partition_counts = {"t": 8}
    member.listeners_finish = True
    member.pass_time(6_000)
    member.answer_join(generation=3)
    member.answer_sync({})
    member.poll()
    assert (member.phase(), member.requests(JoinGroupRequest)) == (Phase.IN_SYNC, [])


def test_r217_a_look_that_began_before_a_join_is_ignored() -> None:
    """The leader has seen the topics since; comparing with older ones would make the group join once more."""
    member = cooperative({}, topic_refresh_ms=5_000)
    member.beat(REBALANCE)
    member.answer_join(generation=2, leader="m-1", members=(a_member("m-1"),))
    member.answer_sync({})
    member.listeners_finish = True
    member.poll()
    member.describes = False
    member.pass_time(5_500)
    look, member.describes = member.describing, True
    member.beat(REBALANCE)
    grown = {"t": TopicDescription(member.topic_ids["t"], 8, ())}
    for leader in ("m-1", "other"):
        member.poll()
        member.answer_join(generation=3, leader=leader, members=(a_member("m-1"),))
        member.answer_sync({})
        member.poll()
        member.step(TopicsDescribed(look, grown))
        assert (member.phase(), member.requests(JoinGroupRequest)) == (Phase.IN_SYNC, [])
        member.beat(REBALANCE)


def test_r217_a_leader_looks_at_nothing_if_it_shall_not() -> None:
    """Users turn it off where topics never change."""
    member = Looks(settings={"topic_refresh_ms": None})
    member.become_member({})
    member.beat(REBALANCE)
    member.answer_join(generation=2, leader="m-1", members=(a_member("m-1"),))
    member.answer_sync(ALL)
    member.listeners_finish = True
    member.poll()
    member.found = ({"t": 7},)
    member.pass_time(20_000)
    assert member.asked == 0


@pytest.mark.parametrize(("rack", "rejoins"), [("r1", True), (None, False)], ids=["with", "without"])
def test_r247_the_leader_heeds_racks_and_if_it_has_one_notices_that_replicas_moved(
    rack: str | None, rejoins: bool
) -> None:
    """Traffic between zones is paid for; a leader without a rack lets the group rest, as Java's."""
    near, far = frozenset({"r1"}), frozenset({"r2"})
    member = ClassicMemberHarness(settings={"topic_refresh_ms": 5_000, "rack_id": rack})
    member.racks["t"] = (near,) * 3 + (far,) * 3
    member.subscribe("t")
    member.poll()
    members = (a_member("m-1", rack="r1"), a_member("m-2", rack="r2"))
    member.answer_join(leader="m-1", members=members)
    mine = ["t-0", "t-1", "t-2"]
    assert member.dealt() == {"m-1": mine, "m-2": ["t-3", "t-4", "t-5"]}
    member.answer_sync({"t": [0, 1, 2]})
    member.poll()
    member.finish_call("assigned", *mine)
    member.racks["t"] = (far, near) * 3
    for _ in range(12):
        member.advance(INTERVAL_MS)
        if member.requests(HeartbeatRequest):
            member.answer_beat()
    assert bool(member.requests(JoinGroupRequest)) is rejoins


def test_r217_who_does_not_know_the_topics_of_its_assignment_looks_at_once() -> None:
    """A topic that grows before the first look would be read in part only."""
    member = cooperative({}, topic_refresh_ms=5_000)
    member.beat(REBALANCE)
    member.answer_join(generation=2, leader="")
    member.answer_sync(ALL)
    member.listeners_finish = True
    member.partition_counts = {"t": 8}
    member.pass_time(6_500)
    assert member.joining().reason == "metadata changed"


def test_r250_a_leader_that_comes_back_sees_what_changed_since_it_assigned() -> None:
    """An eager group is not rebalanced when its static leader is back, and a partition would stay without a reader."""
    settings = {"instance_id": "i-1", "topic_refresh_ms": 5_000}
    member = ClassicMemberHarness(settings=settings, assignors=("range",))
    member.listeners_finish = True
    member.subscribe("t")
    member.poll()
    member.answer_join(generation=2, leader="m-1", members=(a_member("m-1"),))
    member.answer_sync(ALL)
    member.poll()
    member.partition_counts = {"t": 8}
    member.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    member.poll()
    member.answer_join(generation=2, leader="m-1", members=(a_member("m-1"),), skip_assignment=True)
    member.answer_sync(ALL)
    member.poll()
    assert not member.requests(JoinGroupRequest)
    member.pass_time(6_500)
    assert member.joining().reason == "metadata changed"


def test_r250_a_number_that_is_given_twice_is_not_the_generation_that_it_led() -> None:
    """After a crash of the coordinator another member led with the topics of today: no rebalance is missing."""
    member = cooperative({}, topic_refresh_ms=5_000)
    member.listeners_finish = True
    member.beat(REBALANCE)
    member.answer_join(generation=2, leader="m-1", members=(a_member("m-1"),))
    member.answer_sync(error=ErrorCode.UNKNOWN_MEMBER_ID)
    member.partition_counts = {"t": 8}
    member.poll()
    member.answer_join(generation=2, leader="other", member_id="m-2")
    member.answer_sync(ALL)
    member.poll()
    member.pass_time(20_000)
    assert not member.requests(JoinGroupRequest)


class Looks(ClassicMemberHarness):
    """A cluster that answers each question about its topics with the next of *found*."""

    found: tuple[dict[str, int], ...] = ()
    asked = 0

    def _perform(self, effect: MemberEffect) -> None:
        if isinstance(effect, DescribeTopics) and self.found:
            self.asked += 1
            self.partition_counts, *rest = self.found
            self.found = tuple(rest)
        super()._perform(effect)


@pytest.mark.parametrize(
    ("found", "joins"),
    [
        ([SAME, SAME, SAME], False),
        ([{}, SAME, {}, SAME], False),
        ([{"t": 4}, {"t": 4}], True),
        ([{"t": 7}], True),
    ],
    ids=["nothing changes", "missing once is forgotten", "smaller twice", "larger once"],
)
def test_r217_one_look_decides_about_growth_and_two_in_a_row_about_loss(
    found: list[dict[str, int]], joins: bool
) -> None:
    """A broker that lags behind must not cause a rebalance, each time that it is asked."""
    member = Looks(settings={"topic_refresh_ms": 5_000})
    member.become_member({})
    member.beat(REBALANCE)
    member.answer_join(generation=2, leader="m-1", members=(a_member("m-1"),))
    member.answer_sync(ALL)
    member.listeners_finish = True
    member.poll()
    member.found = tuple(found)
    member.pass_time(4_500)
    assert member.asked == 0
    member.pass_time(20_000)
    assert (member.asked, bool(member.requests(JoinGroupRequest))) == (len(found), joins)


def asking() -> ClassicMemberHarness:
    """The leader of generation 2, which asks the brokers for the topics t and u; it may ask for two seconds."""
    member = cooperative({}, rebalance_timeout_ms=4_000, retry_backoff_ms=100)
    member.describes = False
    member.beat(REBALANCE)
    member.answer_join(generation=2, leader="m-1", members=(a_member("m-1", topics=["t", "u"]),))
    return member


@pytest.mark.parametrize(("failed_ms", "gives_up"), [(1_899, False), (1_900, True)])
def test_r217_a_leader_asks_silent_brokers_after_each_backoff_and_gives_its_round_up_in_time(
    failed_ms: int, gives_up: bool
) -> None:
    """A loop of questions would hold a broker up that comes back; without an end the group would wait for ever."""
    member = asking()
    asked = [member.describing]
    for passes_ms in (0, failed_ms - 100):
        member.advance(passes_ms)
        member.fail_describing()
        assert member.member.deadline_ms() == member.now_ms + 100
        member.advance(99)
        asked.append(member.describing)
        member.advance(1)
    first, second, third = asked
    assert first == second < third
    assert (member.describing == third) is gives_up
    assert not member.requests(SyncGroupRequest)
    member.advance(99)
    assert not member.requests(JoinGroupRequest), "no loop of rounds either"
    member.advance(1)
    assert [join.reason for join in member.requests(JoinGroupRequest)] == [
        "the topics of the group are not known"
    ] * gives_up


@pytest.mark.parametrize(("answered_ms", "waits"), [(1_999, True), (2_000, False)])
def test_r217_a_topic_that_brokers_cannot_describe_in_time_is_left_out(answered_ms: int, waits: bool) -> None:
    """Its partitions would have no reader for a moment's reason; or the whole group none, because of one topic."""
    member = asking()
    member.advance(answered_ms)
    member.step(TopicsDescribed(member.describing, {"t": TopicDescription(ZERO_UUID, 1)}, passing=frozenset("u")))
    assert [member.dealt() for _ in member.requests(SyncGroupRequest)] == [{"m-1": ["t-0"]}] * (not waits)


def test_r217_topics_that_the_leader_must_not_describe_are_told_and_left_out() -> None:
    """The operator has to grant DESCRIBE; until then the other topics are read."""
    member = asking()
    member.step(TopicsDescribed(member.describing, {"t": TopicDescription(ZERO_UUID, 1)}, frozenset("u")))
    assert member.dealt() == {"m-1": ["t-0"]}
    (surfaced,) = member.emitted(SurfaceError)
    assert isinstance(surfaced.error, TopicAuthorizationError)
    assert surfaced.error.topics == ("u",)


@pytest.mark.parametrize("leads", [True, False])
def test_r217_a_round_that_is_over_asks_no_more_and_its_answers_are_ignored(leads: bool) -> None:
    """It would assign topics of another generation, or give a round up that goes well."""
    member = asking()
    first = member.describing
    if not leads:
        member.fail_describing()
    member.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    member.answer_join(generation=3, leader="m-1" if leads else "other", members=(a_member("m-1"),))
    again = member.describing
    member.step(TopicsDescribed(first, {"t": TopicDescription(ZERO_UUID, 9)}, frozenset("u")))
    assert not member.emitted(SurfaceError)
    member.advance(3_000)
    assert (len(member.requests(SyncGroupRequest)), member.requests(JoinGroupRequest)) == (not leads, [])
    assert member.describing == again


def test_r218_a_wish_of_the_application_makes_the_group_assign_anew() -> None:
    """The bytes have to differ, or the coordinator answers from memory; and the next rebalance is no wish."""
    member = ClassicMemberHarness(assignors=(First(),))
    member.become_member({})
    member.listeners_finish = True
    frames = []
    for generation, reason in ((2, 5), (3, 5), (4, 0)):
        if reason:
            member.step(ReassignmentRequested(reason))
            member.pass_time(1_000)
        else:
            member.beat(REBALANCE)
        frames.append(read_subscription_frame(member.said().user_data))
        member.answer_join(generation=generation)
        member.answer_sync({})
        member.poll()
    assert [frame and (frame.reason, frame.wish) for frame in frames] == [(5, 1), (5, 2), (0, 2)]


class Tells(First):
    """Its metadata is what a test says."""

    told = AssignorMetadata(metadata=b"cold")

    def metadata(self) -> AssignorMetadata:
        return self.told


def test_r218_other_metadata_of_an_assignor_makes_the_group_assign_anew_too() -> None:
    """The leader would go on with what is no longer so."""
    assignor = Tells()
    member = ClassicMemberHarness(assignors=(assignor, "range"))
    member.become_member({})
    member.pass_time(5_000)
    assert not member.requests(JoinGroupRequest)
    assignor.told = AssignorMetadata(metadata=b"hot", reason=7)
    member.pass_time(5_000)
    assert member.joining().reason == "metadata of an assignor changed"
    frame = read_subscription_frame(member.said().user_data)
    assert frame is not None
    assert (frame.metadata, frame.reason) == (b"hot", 7)


def test_r218_metadata_that_changes_while_a_member_joins_is_told_with_one_more_join() -> None:
    """The leader would never hear of it: the JoinGroup that waits has the bytes of before."""
    assignor = Tells()
    member = ClassicMemberHarness(assignors=(assignor,))
    member.become_member({})
    member.described_at_once = False
    member.beat()
    member.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    member.joining()
    assignor.told = AssignorMetadata(metadata=b"hot")
    member.finish_describing()
    member.answer_join(generation=2)
    member.answer_sync({})
    assert member.joining().reason == "metadata of an assignor changed"


@pytest.mark.parametrize(
    ("assignor", "interval_ms", "calls"), [(First(), 100, 5), (First(), 2_000, 3), ("range", 100, 0)]
)
def test_r218_metadata_is_asked_for_once_in_each_interval_but_not_more_often_than_each_second(
    assignor: str | PartitionAssignor, interval_ms: int, calls: int
) -> None:
    """More often it would be a load that the user did not ask for; a built-in assignor has none."""
    member = ClassicMemberHarness(settings={"heartbeat_interval_ms": interval_ms}, assignors=(assignor,))
    member.subscribe("t")
    member.poll()
    member.answer_join()
    assert not member.emitted(DescribeAssignors), "not before it is in the group"
    member.answer_sync({})
    member.listeners_finish = True
    member.pass_time(4_500)
    assert len(member.emitted(DescribeAssignors)) == calls


@pytest.mark.parametrize("hangs", [False, True])
def test_r218_a_wish_carries_fresh_metadata_unless_the_call_for_it_hangs(hangs: bool) -> None:
    """An assignment from old metadata does not fit the load; but a wish must not wait for user code for ever."""
    assignor = Tells()
    member = ClassicMemberHarness(assignors=(assignor,))
    member.become_member({})
    member.described_at_once = False
    member.step(ReassignmentRequested(5))
    assert not member.requests(JoinGroupRequest)
    assignor.told = AssignorMetadata(metadata=b"hot")
    if hangs:
        limit_ms = member.now_ms + ASSIGNOR_LIMIT_MS
        member.advance(ASSIGNOR_LIMIT_MS - 1)
        assert member.member.deadline_ms() == limit_ms
        assert not member.requests(JoinGroupRequest)
        member.advance(1)
    else:
        member.finish_describing()
    frame = read_subscription_frame(member.said().user_data)
    assert frame is not None
    assert (frame.metadata, frame.reason) == (b"cold" if hangs else b"hot", 5)


@pytest.mark.parametrize("phase", [Phase.IN_SYNC, Phase.REJOIN_DUE, Phase.REJOINING], ids=lambda phase: phase.name)
def test_r219_a_member_that_does_not_poll_leaves_and_joins_as_a_new_one(phase: Phase) -> None:
    """An application that hangs must not keep its partitions; in a rebalance the others would wait for it."""
    member = eager() if phase is Phase.REJOIN_DUE else cooperative()
    code = ErrorCode.NONE if phase is Phase.IN_SYNC else REBALANCE
    member.app_polled_ms = member.now_ms
    member.beat(code)
    assert member.phase() is phase
    for _ in range(MAX_POLL_MS // INTERVAL_MS - 1):
        member.beat(code)
    member.advance(2)
    (leave,) = [item for item in member.sent if isinstance(item.request, LeaveGroupRequest)]
    assert (leave.destination, leave.urgent) == (Destination.COORDINATOR, True), "not behind a JoinGroup that waits"
    member.sent.clear()
    if phase is not Phase.IN_SYNC:
        member.poll()  # a poll() before the end of the callback counts
    member.finish_call("lost", *(f"t-{index}" for index in range(6)))
    if phase is Phase.IN_SYNC:
        assert not member.sent
        member.poll()
    assert (member.joining().member_id, member.listed(), member.said().generation_id) == ("", [], -1)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "its members use other assignors than this one offers"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, "session.timeout.ms is 10000; the broker allows"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "grant READ on the group"),
        (ErrorCode.FENCED_INSTANCE_ID, "another process took over this group.instance.id"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "raise group.max.size"),
        (9999, "the coordinator gave no reason"),
    ],
)
def test_r220_codes_that_no_retry_cures_stop_the_member(code: int, says: str) -> None:
    """An endless loop of joins would hide the error."""
    member = ClassicMemberHarness()
    member.subscribe("t")
    member.poll()
    member.answer_join(error=code)
    (failure,) = member.emitted(Fail)
    assert isinstance(failure.error, FatalGroupError)
    assert (failure.error.code, failure.error.fatal) == (code, True)
    assert str(failure.error).startswith(f"{error_name(code)}: group 'orders-group': {says}")
    assert not member.sent


def test_r221_a_member_matches_its_pattern_itself() -> None:
    """In a classic group no broker knows patterns."""
    member = ClassicMemberHarness()
    member.subscribe(pattern="[tu]")
    member.poll()
    assert member.said().topics == ("t", "u")


def test_r222_a_topic_that_is_unsubscribed_is_given_up_before_the_join() -> None:
    """The leader may give it to another member as soon as the join arrives."""
    member = cooperative({"t": range(1)})
    member.subscribe("u")
    assert not member.requests(JoinGroupRequest)
    member.poll()
    member.finish_call("revoked", "t-0")
    assert member.said().topics == ("u",)
    member.subscribe("u", "v")
    member.answer_join(generation=2)
    member.answer_sync({"u": [0]})
    assert member.said().topics == ("u", "v"), "what came was about another subscription"
    assert member.joining().reason == "the subscription changed"


def test_r222_an_assignment_of_topics_that_are_not_subscribed_is_refused() -> None:
    """A leader that is wrong about the present subscription is asked again, but not in a busy loop."""
    member = cooperative({})
    member.beat(REBALANCE)
    for generation in (2, 3):
        member.answer_join(generation=generation)
        member.answer_sync({"t": [0], "u": [0]})
        assert not member.requests(JoinGroupRequest)
        member.advance(1_000)
        assert member.joining().reason == "the assignment does not match the subscription"
    assert (member.calls, member.owned) == ([], [])
    member.answer_join(generation=4)
    member.answer_sync({"t": [0]})
    member.answer_beat()
    member.beat(REBALANCE)
    assert member.joining().reason == "the group rebalances", "it is right now, so that the next join does not wait"


def test_r222_what_is_unsubscribed_is_given_up_before_a_join_is_repeated() -> None:
    """The leader would give it to another member while this one reads it."""
    member = cooperative({"t": range(1)})
    member.beat(REBALANCE)
    member.answer_join(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.subscribe("u")
    member.advance(100)
    assert (member.phase(), member.requests(JoinGroupRequest)) == (Phase.REJOIN_DUE, [])
    member.poll()
    member.finish_call("revoked", "t-0")
    assert (member.said().topics, member.listed(), member.joining().reason) == (("u",), [], "the subscription changed")


def test_r222_a_topic_that_is_subscribed_to_again_in_time_is_kept() -> None:
    """A needless revocation costs the application its state; and the same subscription costs no rebalance at all."""
    member = cooperative({"t": range(1)})
    member.subscribe("t")
    assert not member.requests(JoinGroupRequest)
    member.subscribe("u")
    assert member.phase() is Phase.REJOIN_DUE
    member.subscribe("t")
    member.poll()
    assert (member.calls, member.listed()) == ([], ["t-0"])


def test_r222_a_subscription_that_changes_before_the_join_goes_with_it() -> None:
    """Sent afterwards, it would cost the group a second rebalance."""
    member = cooperative({})
    member.beat(REBALANCE)
    member.answer_join(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.subscribe("u")
    member.advance(100)
    assert member.said().topics == ("u",)
    member.answer_join(generation=2)
    member.answer_sync({})
    assert (member.phase(), member.requests(JoinGroupRequest)) == (Phase.PENDING, [])


def test_r221_the_topics_that_a_pattern_matches_are_asked_for_again_after_each_backoff() -> None:
    """A member must not hold up brokers that cannot answer, and must join once they can."""
    member = ClassicMemberHarness(settings={"retry_backoff_ms": 100})
    member.subscribe(pattern="[tu]")
    member.describes = False
    member.poll()
    first = member.describing
    member.fail_describing()
    member.advance(99)
    assert member.describing == first
    member.describes = True
    member.advance(1)
    assert member.said().topics == ("t", "u")


def test_r221_another_pattern_is_matched_before_the_join_that_waits() -> None:
    """The member would join with the topics of the pattern that it gave up, also if the answer about it comes late."""
    member = ClassicMemberHarness()
    member.describes = False
    member.subscribe(pattern="t")
    old = member.describing
    member.subscribe(pattern="u")
    member.step(TopicsDescribed(old, {"t": TopicDescription(ZERO_UUID, 1)}))
    assert not member.requests(JoinGroupRequest)
    member.step(TopicsDescribed(member.describing, {"u": TopicDescription(ZERO_UUID, 1)}))
    assert member.said().topics == ("u",)


def test_r221_a_pattern_that_was_given_up_is_not_matched_any_more() -> None:
    """Topics of a pattern that was replaced must not be read, and a failed lookup for it is not repeated."""
    member = ClassicMemberHarness()
    member.describes = False
    member.subscribe(pattern="[tu]")
    member.fail_describing()
    member.subscribe("t")
    member.advance(1_000)
    assert member.said().topics == ("t",)
    member.describes = True
    member.subscribe(pattern="[tu]")
    member.answer_join()
    member.answer_sync({})
    assert member.said().topics == ("t", "u")
    member.subscribe("t")
    member.answer_join()
    member.answer_sync({})
    assert member.said().topics == ("t",)


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
@pytest.mark.parametrize("given", [{"t": [0]}, {"u": [0]}, {"t": [0], "u": [0]}, {"t": [0], "u": [0], "v": [0]}])
def test_r240_a_static_member_joins_once_more_if_it_has_nothing_of_a_topic(
    assignor: str, given: dict[str, list[int]]
) -> None:
    """Its former process may not have subscribed to it, and then it is not read; nor is what it did subscribe to.

    The bytes must differ, or the coordinator answers with the same assignment, again and again.
    """
    member = ClassicMemberHarness(settings={"instance_id": "i-1"}, assignors=(assignor,))
    member.listeners_finish = True
    member.subscribe("t", "u")
    member.poll()
    first = member.joining().protocols[0].metadata
    member.answer_join(generation=5)
    member.answer_sync(given)
    member.poll()
    if len(given) == 2:
        assert (member.phase(), member.requests(JoinGroupRequest)) == (Phase.IN_SYNC, [])
        return
    member.poll()
    member.advance(100)
    assert member.joining().protocols[0].metadata != first
    member.answer_join(generation=6)
    member.answer_sync({"t": [0], "u": [0]})
    member.poll()
    assert member.phase() is Phase.IN_SYNC


@pytest.mark.parametrize("rebalances", [False, True])
def test_r241_a_leader_joins_again_if_what_it_left_out_stays_unassigned(rebalances: bool) -> None:
    """The owner may have gone, and come back as a static member without a round."""
    member = cooperative({}, rebalance_timeout_ms=9_000)
    member.beat(REBALANCE)
    both = (a_member("m-1"), a_member("m-0", ALL, generation=1))
    member.answer_join(generation=2, leader="m-1", members=both)
    member.answer_sync({})
    member.listeners_finish = True
    if rebalances:
        member.beat(REBALANCE)
        member.answer_join(generation=3)
        member.answer_sync({})
    member.pass_time(8_500)
    assert not member.requests(JoinGroupRequest)
    member.pass_time(2_000)
    assert [join.reason for join in member.requests(JoinGroupRequest)] == ["partitions have no owner"][rebalances:]


def test_r240_a_static_member_that_subscribed_anew_joins_once_more_too() -> None:
    """The coordinator gives it what it had before it unsubscribed, and the new topic would not be read."""
    member = cooperative({"t": range(1)}, instance_id="i-1")
    member.leave()
    member.finish_call("revoked", "t-0")
    member.subscribe("t", "u")
    member.poll()
    member.answer_join(generation=1)
    member.answer_sync({"t": [0]})
    member.poll()
    member.finish_call("assigned", "t-0")
    assert member.joining().reason == "a topic was not assigned"


@pytest.mark.parametrize(("assignor", "joins"), [("cooperative-sticky", 1), ("range", 0)])
def test_r242_a_leader_that_was_replaced_joins_once_more_unless_its_group_is_eager(assignor: str, joins: int) -> None:
    """Partitions that its former process had left out of the round would have no owner."""
    settings = {"instance_id": "i-1", "topic_refresh_ms": 5_000}
    member = ClassicMemberHarness(settings=settings, assignors=(assignor,))
    member.subscribe("t")
    member.poll()
    member.answer_join(generation=5, leader="m-1", members=(a_member("m-1"),), skip_assignment=True)
    member.answer_sync({"t": [0]})
    member.poll()
    member.finish_call("assigned", "t-0")
    member.pass_time(6_500)
    assert len(member.requests(JoinGroupRequest)) == joins
    assert not member.emitted(RunAssignor)


@pytest.mark.parametrize(
    ("request_type", "said"),
    [
        (JoinGroupRequest, {"protocol_name": "other"}),
        (JoinGroupRequest, {"protocol_type": "connect"}),
        (SyncGroupRequest, {"protocol_name": "other"}),
        (SyncGroupRequest, {"protocol_type": "connect"}),
    ],
)
def test_r220_a_round_of_another_protocol_stops_the_member(
    request_type: type[Request[Response]], said: dict[str, Any]
) -> None:
    """Its assignment means something else; a member that read it would consume the wrong partitions."""
    member = ClassicMemberHarness()
    member.subscribe("t")
    member.poll()
    answer: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "cooperative-sticky", **said}
    if request_type is JoinGroupRequest:
        member.answer(JoinGroupRequest, JoinGroupResponse(generation_id=1, member_id="m-1", leader="x", **answer))
    else:
        member.answer_join()
        member.answer(SyncGroupRequest, SyncGroupResponse(**answer))
    (failure,) = member.emitted(Fail)
    assert getattr(failure.error, "code", None) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member.phase() is Phase.FATAL_DONE


@pytest.mark.parametrize(
    ("request_type", "answer", "says"),
    [
        (
            JoinGroupRequest,
            JoinGroupResponse(generation_id=1, protocol_name="cooperative-sticky", leader="m-1", member_id="m-1"),
            "leader of a group that it is not in",
        ),
        (SyncGroupRequest, SyncGroupResponse(assignment=b"\0"), "the leader's assignment cannot be read"),
        (JoinGroupRequest, None, "scripted"),
        (SyncGroupRequest, None, "scripted"),
    ],
    ids=["leads no members", "assignment unreadable", "join unreadable", "sync unreadable"],
)
def test_r220_an_answer_that_makes_no_sense_is_told_and_asked_for_again_after_the_backoff(
    request_type: type[Request[Response]], answer: Response | None, says: str
) -> None:
    """One broken answer must neither stop an application for good nor be asked for in a busy loop."""
    member = ClassicMemberHarness()
    member.subscribe("t")
    member.poll()
    if request_type is SyncGroupRequest:
        member.answer_join()
    if answer is None:
        member.fail(request_type, FailureKind.MALFORMED)
    else:
        member.answer(request_type, answer)
    (surfaced,) = member.emitted(SurfaceError)
    assert isinstance(surfaced.error, ProtocolError)
    assert says in str(surfaced.error)
    assert not member.emitted(Fail)
    assert not member.requests(JoinGroupRequest)
    assert not member.requests(SyncGroupRequest)
    member.advance(100)
    assert bool(member.requests(SyncGroupRequest)) == (request_type is SyncGroupRequest and answer is None)
    assert bool(member.requests(JoinGroupRequest)) != bool(member.requests(SyncGroupRequest))


@pytest.mark.parametrize("generation", [-1, 0])
def test_r220_an_answer_without_a_generation_makes_the_member_join_again_with_its_id(generation: int) -> None:
    """As Java; the member would otherwise send requests of no generation."""
    member = cooperative({"t": range(1)})
    member.beat(REBALANCE)
    member.answer_join(generation=generation)
    assert not member.sent
    member.finish_call("lost", "t-0")
    assert member.joining().member_id == "m-1"


def test_r220_a_pattern_that_is_no_pattern_stops_the_member() -> None:
    """No broker checks a pattern of a classic member, so without an error it would wait for ever."""
    member = ClassicMemberHarness()
    member.subscribe(pattern="(")
    member.poll()
    (failure,) = member.emitted(Fail)
    assert getattr(failure.error, "code", None) == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (member.requests(JoinGroupRequest), member.emitted(DescribeTopics)) == ([], [])


@pytest.mark.parametrize("meets", ["connection", "round", "heartbeat"])
def test_r220_a_coordinator_that_refuses_the_credentials_stops_the_member(meets: str) -> None:
    """Trying a wrong password for ever locks accounts."""
    member = ClassicMemberHarness(coordinator_found=meets != "connection")
    if meets == "heartbeat":
        member.become_member(ALL)
        member.advance(INTERVAL_MS)
        member.fail(HeartbeatRequest, FailureKind.AUTHENTICATION_FAILED)
    else:
        member.subscribe("t")
        member.poll()
    if meets == "round":
        member.fail(JoinGroupRequest, FailureKind.AUTHENTICATION_FAILED)
    elif meets == "connection":
        member.answer(FindCoordinatorRequest, member.coordinator_answer())
        connect = member.take_waiting(ConnectCoordinator)
        member.step(RequestFailed(connect.request_id, FailureKind.AUTHENTICATION_FAILED, "refused"))
    assert [type(failure.error) for failure in member.emitted(Fail)] == [AuthenticationError]
    assert member.state() is MemberState.FATAL


@pytest.mark.parametrize("refused", ["join", "sync"])
def test_r220_a_coordinator_that_cannot_complete_a_round_is_told_with_its_code_and_tried_ever_more_slowly(
    refused: str,
) -> None:
    """The operator reads which group and which code; the application goes on."""
    member = ClassicMemberHarness()
    member.subscribe("t")
    member.poll()
    for waits_ms in (100, 200, 400):
        if refused == "join":
            member.answer_join(error=ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            member.answer_join()
            member.answer_sync(error=ErrorCode.UNKNOWN_SERVER_ERROR)
        member.advance(waits_ms - 1)
        assert not member.requests(JoinGroupRequest)
        member.advance(1)
        assert member.joining().reason == "the coordinator failed"
    (surfaced,) = member.emitted(SurfaceError)
    assert "group 'orders-group': the coordinator could not complete the rebalance" in str(surfaced.error)
    assert "bytes" not in str(surfaced.error)


@pytest.mark.parametrize(
    ("version", "instance_id", "stops"), [(4, None, False), (4, "i-1", True), (5, "i-1", False), (9, "i-1", False)]
)
def test_r220_a_static_member_stops_where_brokers_know_no_instance_ids(
    version: int, instance_id: str | None, stops: bool
) -> None:
    """Its instance id would be left out without a word, and each restart would cost a rebalance."""
    member = ClassicMemberHarness(settings={"instance_id": instance_id}, offered={ApiKey.JOIN_GROUP: version})
    member.subscribe("t")
    member.poll()
    assert len(member.emitted(Fail)) == stops
    assert len(member.requests(JoinGroupRequest)) == (not stops)


REFUSALS = [
    (JoinGroupRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 100, JoinGroupRequest, "m-1"),
    (SyncGroupRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 100, SyncGroupRequest, "m-1"),
    (JoinGroupRequest, ErrorCode.NOT_COORDINATOR, 0, JoinGroupRequest, "m-1"),
    (SyncGroupRequest, ErrorCode.NOT_COORDINATOR, 0, SyncGroupRequest, "m-1"),
    (SyncGroupRequest, ErrorCode.NETWORK_EXCEPTION, 100, JoinGroupRequest, "m-1"),
    (JoinGroupRequest, ErrorCode.ILLEGAL_GENERATION, 0, JoinGroupRequest, "m-1"),
    (SyncGroupRequest, ErrorCode.ILLEGAL_GENERATION, 0, JoinGroupRequest, "m-1"),
    (JoinGroupRequest, ErrorCode.UNKNOWN_MEMBER_ID, 0, JoinGroupRequest, ""),
    (SyncGroupRequest, ErrorCode.UNKNOWN_MEMBER_ID, 0, JoinGroupRequest, ""),
]


@pytest.mark.parametrize(("refused", "code", "waits_ms", "follows", "member_id"), REFUSALS)
def test_r220_what_follows_a_code_that_passes(
    refused: type[JoinGroupRequest | SyncGroupRequest],
    code: ErrorCode,
    waits_ms: int,
    follows: type[JoinGroupRequest | SyncGroupRequest],
    member_id: str,
) -> None:
    """A round given up costs all members a rebalance, and one that is repeated in vain costs this one its place."""
    member = cooperative({})
    member.beat(REBALANCE)
    if refused is SyncGroupRequest:
        member.answer_join(generation=2)
    member.coordinator_found = False
    if refused is JoinGroupRequest:
        member.answer_join(error=code)
    else:
        member.answer_sync(error=code)
    if code is ErrorCode.NOT_COORDINATOR:
        assert [type(each.request) for each in member.sent] == [FindCoordinatorRequest]
        member.find_coordinator(node_id=2)
    elif waits_ms:
        assert (member.sent, member.member.deadline_ms()) == ([], member.now_ms + waits_ms)
        member.advance(waits_ms)
    assert [type(each.request) for each in member.sent] == [follows]
    assert [each.member_id for each in member.requests(follows)] == [member_id]
