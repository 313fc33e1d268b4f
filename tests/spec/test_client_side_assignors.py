"""Rules R155 to R175: client-side assignors, the member's part."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from msgspec.structs import replace

from kip848_client.assignors.client.interface import (
    ASSIGNMENT_INVALID,
    ASSIGNOR_RAISED,
    RETRY_REASON,
    AssignmentSpec,
    GroupAssignment,
    PartitionAssignor,
)
from kip848_client.common.error_codes import RETRIABLE, ErrorCode
from kip848_client.errors import AssignorTimeoutError, ClientAssignorsUnsupportedError, InvalidAssignmentError
from kip848_client.member.core.assignor_events import (
    AssignorDone,
    AssignorFailed,
    AssignorsUnsupported,
    CallOnAssignment,
    DescribeAssignors,
    OnAssignmentDone,
    RunAssignor,
)
from kip848_client.member.core.assignor_values import announce, compute
from kip848_client.member.core.error_tables import ROUND_CODES, RoundErrorClass, round_error_class
from kip848_client.member.core.events import (
    CoordinatorDisconnected,
    Fail,
    FailureKind,
    MetadataUpdated,
    RequestFailed,
    RequestMetadata,
)
from kip848_client.member.core.states import MemberState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.consumer_group_install_assignment import ConsumerGroupInstallAssignmentRequest
from kip848_client.wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest
from tests.spec.arrange import fence, pass_time
from tests.support.member_harness import (
    ASSIGNOR_LIMIT_MS,
    INTERVAL_MS,
    MEMBER_ID,
    ROUNDS,
    TOPIC_IDS,
    MemberHarness,
    assignor,
)

OTHER = {MEMBER_ID: {"t": [0, 1]}}
BOTH = {"t": [0, 1]}


def offering(rounds: Collection[ApiKey] = ROUNDS, /, **settings: object) -> MemberHarness:
    """A member with the client-side assignor ``mine``."""
    return MemberHarness(settings={"client_assignors": (assignor(),), **settings}, rounds=frozenset(rounds))


def stable(**settings: object) -> MemberHarness:
    """A member of epoch 1 that owns t-0; nothing is under way."""
    member = offering(**settings)
    member.become_stable({"t": [0]})
    return member


def next_heartbeat(member: MemberHarness) -> ConsumerGroupHeartbeatRequest:
    """Let time pass until a heartbeat is sent."""
    if not member.requests(ConsumerGroupHeartbeatRequest):
        member.advance(INTERVAL_MS)
    return member.expect_heartbeat()


def chosen(**settings: object) -> MemberHarness:
    """It was asked to compute: Prepare is under way."""
    member = stable(**settings)
    next_heartbeat(member)
    member.answer_heartbeat(compute=True)
    return member


def computing(**settings: object) -> MemberHarness:
    """Its assignor is running."""
    member = chosen(**settings)
    member.answer_prepare()
    return member


def installing(**settings: object) -> MemberHarness:
    """Its Install is under way."""
    member = computing(**settings)
    member.finish_assign({MEMBER_ID: {"t": [0, 1]}})
    return member


# --- advertise


def test_r155_full_heartbeats_list_the_assignors_and_others_only_what_changed() -> None:
    """A coordinator that misses the list in a join takes the member for one without assignors."""
    member = offering()
    member.subscribe("t")
    member.poll()
    assert member.expect_heartbeat(full=True).client_assignors == (assignor(),)
    member.answer_heartbeat(assignment={"t": [0]})
    member.reconcile()
    assert member.expect_heartbeat().client_assignors is None
    member.fail_heartbeat()
    member.advance(INTERVAL_MS)
    assert member.expect_heartbeat(full=True).client_assignors == (assignor(),)


def test_r155_a_leave_does_not_list_them() -> None:
    """The coordinator must accept it, also if it would refuse another field."""
    member = stable()
    member.leave()
    member.finish_call("revoked", "t-0")
    assert member.expect_heartbeat(epoch=-1).client_assignors is None


def test_r156_a_member_without_assignors_never_mentions_them() -> None:
    """Apache Kafka must see what every other client sends."""
    member = MemberHarness()
    member.become_stable({"t": [0]})
    member.advance(3 * INTERVAL_MS)
    assert member.expect_heartbeat().client_assignors is None


def test_r157_changed_metadata_is_told_at_once() -> None:
    """Three heartbeat intervals are promised from a change to the new assignment; waiting here would cost one more."""
    member = stable()
    member.metadata = b"cpu=8"
    next_heartbeat(member)
    member.answer_heartbeat()
    assert member.expect_heartbeat().client_assignors == (assignor(b"cpu=8"),)
    member.answer_heartbeat()
    member.expect_no_heartbeat()
    assert next_heartbeat(member).client_assignors is None


def test_r157_a_reason_that_is_over_waits_for_the_interval() -> None:
    """It asks for nothing, so it is worth no request of its own."""
    member = stable()
    member.request_reassignment(3)
    member.expect_heartbeat()
    member.answer_heartbeat()
    member.expect_no_heartbeat()
    assert next_heartbeat(member).client_assignors == (assignor(),)


def test_r158_metadata_is_asked_for_once_in_each_interval() -> None:
    """More often it would be a load that the user did not ask for; less often a change is found late."""
    member = stable()
    pass_time(member, 10 * INTERVAL_MS)
    asked = len(member.emitted(DescribeAssignors))
    assert 9 <= asked <= 11


def test_r158_heartbeats_do_not_wait_for_it() -> None:
    """A lookup in a database that hangs must not cost the session."""
    member = stable()
    member.described_at_once = False
    for _ in range(3):
        assert next_heartbeat(member).client_assignors is None
        member.answer_heartbeat()
    assert len(member.user_calls) == 1
    member.finish_metadata(b"late")
    assert member.expect_heartbeat().client_assignors == (assignor(b"late"),)


def test_r158_outside_the_group_metadata_is_not_asked_for() -> None:
    """An idle consumer calls no user code in the background."""
    member = offering()
    member.advance(10 * INTERVAL_MS)
    assert not member.emitted(DescribeAssignors)
    member = stable()
    member.leave()
    member.finish_call("revoked", "t-0")
    member.answer_heartbeat(epoch=-1)
    member.forget_history()
    member.advance(10 * INTERVAL_MS)
    assert not member.emitted(DescribeAssignors)


def test_r159_the_reason_of_a_request_is_told_until_it_is_heard_and_can_then_be_given_again() -> None:
    """A request that is lost with its heartbeat would be a reassignment that never comes."""
    member = stable()
    member.request_reassignment(3)
    assert member.expect_heartbeat().client_assignors == (assignor(reason=3),)
    member.fail_heartbeat()
    member.advance(INTERVAL_MS)
    assert member.expect_heartbeat().client_assignors == (assignor(reason=3),)
    member.answer_heartbeat()
    assert next_heartbeat(member).client_assignors == (assignor(),)
    member.answer_heartbeat()
    member.request_reassignment(3)
    assert member.expect_heartbeat().client_assignors == (assignor(reason=3),)


@pytest.mark.parametrize("reason", [3, 4])
def test_r159_a_second_request_is_told_apart_from_the_first(reason: int) -> None:
    """The coordinator would take the same reason for the one that it knows, and the second request would be lost."""
    member = stable()
    member.request_reassignment(3)
    member.answer_heartbeat()
    member.request_reassignment(reason)
    told = []
    for _ in range(4):
        told.append(next_heartbeat(member).client_assignors)
        member.answer_heartbeat()
    assert told == [(assignor(),), (assignor(reason=reason),), (assignor(),), None]


def test_r266_several_requests_within_a_second_count_as_one() -> None:
    """Each one is a new epoch for the whole group."""
    member = stable()
    told = []
    for reason in range(1, 6):
        member.request_reassignment(reason)
        for request in member.requests(ConsumerGroupHeartbeatRequest):
            told.append(request.client_assignors)
            member.answer_heartbeat()
        member.advance(20)
    assert told == [(assignor(reason=1),)]
    for _ in range(3):
        told.append(next_heartbeat(member).client_assignors)
        member.answer_heartbeat()
    assert told[1:] == [(assignor(),), (assignor(reason=5),), (assignor(),)]


@pytest.mark.parametrize("answered", [True, False])
def test_r264_after_an_error_was_installed_the_member_asks_for_another_assignment(answered: bool) -> None:
    """A member left, and one exception would leave its partitions without a reader until the next change."""
    member = computing()
    member.finish_assign(error=ASSIGNOR_RAISED)
    if answered:
        member.answer_install()
    else:
        (install,) = [item for item in member.sent if isinstance(item.request, ConsumerGroupInstallAssignmentRequest)]
        member.step(RequestFailed(install.request_id, FailureKind.TIMED_OUT, "its answer was lost"))
    told = []
    for _ in range(4):
        told.append(next_heartbeat(member).client_assignors)
        member.answer_heartbeat()
    assert (assignor(reason=RETRY_REASON),) in told


def test_r264_it_does_not_ask_if_there_is_an_assignment_by_then() -> None:
    """Another round came first: one more epoch would be for nothing."""
    member = computing()
    member.finish_assign(error=ASSIGNOR_RAISED)
    member.answer_install()
    next_heartbeat(member)
    member.answer_heartbeat(epoch=8, assignment=BOTH)
    member.reconcile()
    for _ in range(4):
        assert next_heartbeat(member).client_assignors is None
        member.answer_heartbeat()


def test_r264_it_forgets_to_ask_while_it_waits_for_metadata_if_an_assignment_comes() -> None:
    """The assignment came between the decision to ask and the heartbeat that asks: the epoch would be for nothing."""
    member = computing()
    member.finish_assign(error=ASSIGNOR_RAISED)
    member.answer_install()
    member.described_at_once = False
    for _ in range(3):
        assert next_heartbeat(member).client_assignors is None
        member.answer_heartbeat()
    next_heartbeat(member)
    member.answer_heartbeat(epoch=8, assignment=BOTH)
    member.finish_metadata(b"")
    member.reconcile()
    for _ in range(4):
        assert next_heartbeat(member).client_assignors is None
        member.answer_heartbeat()


def test_r159_a_request_during_a_heartbeat_goes_with_the_next_one() -> None:
    """The answer to a heartbeat that was written before says nothing about the request."""
    member = stable()
    next_heartbeat(member)
    member.request_reassignment(3)
    member.answer_heartbeat()
    assert member.expect_heartbeat().client_assignors == (assignor(reason=3),)


def test_r159_a_request_carries_the_metadata_of_its_moment() -> None:
    """An assignment from metadata of an interval ago would not fit the present load."""
    member = stable()
    member.described_at_once = False
    member.metadata = b"hot"
    member.request_reassignment(3)
    member.expect_no_heartbeat()
    member.finish_metadata(b"hot")
    assert member.expect_heartbeat().client_assignors == (assignor(b"hot", reason=3),)


def test_r159_a_request_does_not_wait_for_a_call_that_hangs() -> None:
    """The reason alone is better than a request that is never made."""
    member = stable(max_poll_interval_ms=100_000)
    member.described_at_once = False
    pass_time(member, INTERVAL_MS)
    pass_time(member, ASSIGNOR_LIMIT_MS)
    assert member.failures
    member.request_reassignment(3)
    assert member.expect_heartbeat().client_assignors == (assignor(reason=3),)
    for later in ((assignor(),), None, None):
        member.answer_heartbeat()
        assert next_heartbeat(member).client_assignors == later, "once"


def test_r159_a_request_that_waits_for_a_call_goes_out_the_moment_that_call_is_abandoned() -> None:
    """A member whose deadline has passed already when it goes to sleep spins, or sleeps too long."""
    member = stable(max_poll_interval_ms=100_000)
    member.described_at_once = False
    member.request_reassignment(3)
    pass_time(member, ASSIGNOR_LIMIT_MS - 1)
    member.clock.advance(1)
    member.tick()
    assert member.failures
    assert member.expect_heartbeat().client_assignors == (assignor(reason=3),)
    deadline_ms = member.member.deadline_ms()
    assert deadline_ms is None or deadline_ms > member.now_ms


# --- other coordinators


@pytest.mark.parametrize(
    ("offered", "missing"),
    [
        (frozenset(), ["ConsumerGroupPrepareAssignment (API key 30848)", "ConsumerGroupInstallAssignment"]),
        ({ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT}, ["ConsumerGroupInstallAssignment (API key 30849)"]),
    ],
)
def test_r160_a_coordinator_without_client_side_assignment_is_refused_by_name(
    offered: frozenset[ApiKey], missing: list[str]
) -> None:
    """Apache Kafka would skip the tag in silence, and assign as it likes."""
    member = offering(offered)
    member.subscribe("t")
    member.poll()
    member.expect_no_heartbeat()
    (failed,) = member.emitted(Fail)
    assert isinstance(failed.error, ClientAssignorsUnsupportedError)
    assert failed.error.code == ErrorCode.UNSUPPORTED_VERSION
    for text in [*missing, "'mine'", "group.local.assignors.fallback=server"]:
        assert text in str(failed.error)
    assert member.state() is MemberState.FATAL


def test_r160_also_when_the_coordinator_moves_to_such_a_broker() -> None:
    """Half a cluster that was upgraded would change the assignment under the application."""
    member = stable()
    member.rounds = frozenset()
    member.step(CoordinatorDisconnected(1))
    member.advance(INTERVAL_MS)
    assert isinstance(member.emitted(Fail)[0].error, ClientAssignorsUnsupportedError)


def test_r161_with_the_fallback_it_goes_on_without_and_says_so_once() -> None:
    """One warning is read; one for each heartbeat is filtered out."""
    member = offering((), assignor_fallback=True)
    member.subscribe("t")
    member.poll()
    assert member.expect_heartbeat(full=True).client_assignors == ()
    member.answer_heartbeat(assignment={"t": [0]}, compute=True)
    member.reconcile()
    pass_time(member, 3 * INTERVAL_MS)
    member.step(CoordinatorDisconnected(1))
    pass_time(member, 3 * INTERVAL_MS)
    (warning,) = member.emitted(AssignorsUnsupported)
    assert len(warning.missing) == 2
    assert not member.prepares
    assert not member.emitted(DescribeAssignors)
    assert member.owned == ["t-0"]


def test_r161_it_advertises_them_to_the_next_coordinator_that_has_it() -> None:
    """After the upgrade of the broker no consumer should have to restart."""
    member = offering((), assignor_fallback=True)
    member.become_stable({"t": [0]})
    member.rounds = ROUNDS
    member.step(CoordinatorDisconnected(1))
    assert next_heartbeat(member).client_assignors == (assignor(),)


@pytest.mark.parametrize("hangs", [False, True])
def test_r161_a_call_for_a_coordinator_that_asked_is_of_no_use_to_one_that_cannot(hangs: bool) -> None:
    """It would refuse the result. A call that hangs is abandoned all the same: the coordinator may change again."""
    member = offering(assignor_fallback=True)
    member.become_stable({"t": [0]})
    next_heartbeat(member)
    member.answer_heartbeat(compute=True)
    member.answer_prepare()
    member.rounds = frozenset()
    member.step(CoordinatorDisconnected(1))
    assert next_heartbeat(member).client_assignors == ()
    assert member.emitted(AssignorsUnsupported)
    if hangs:
        member.take_call(RunAssignor)
        pass_time(member, ASSIGNOR_LIMIT_MS)
        (failed,) = member.emitted(AssignorFailed)
        assert isinstance(failed.error, AssignorTimeoutError)
    else:
        member.finish_assign(OTHER)
        assert not member.installs


# --- the round


def test_r162_the_flag_begins_a_round_with_prepare() -> None:
    """The flag says only that there is work; what the group looks like is in the answer to Prepare."""
    member = stable()
    next_heartbeat(member)
    member.answer_heartbeat(epoch=4, compute=True)
    (prepare,) = member.prepares
    assert (prepare.member_id, prepare.member_epoch) == (MEMBER_ID, 4)
    member.answer_prepare(group_epoch=9)
    call = member.take_call(RunAssignor)
    assert call.snapshot.group_epoch == 9


def test_r162_the_answer_to_the_join_may_carry_the_flag() -> None:
    """The first member of a group is chosen when it is still alone."""
    member = offering()
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat(assignment={}, compute=True)
    assert len(member.prepares) == 1


def test_r162_the_flag_is_repeated_and_means_the_same_round() -> None:
    """A second Prepare would take a second snapshot, and the first result would be refused."""
    member = chosen()
    for _ in range(3):
        next_heartbeat(member)
        member.answer_heartbeat(compute=True)
    assert len(member.prepares) == 1
    member.answer_prepare()
    next_heartbeat(member)
    member.answer_heartbeat(compute=True)
    assert len(member.user_calls) == 1
    assert not member.prepares


def test_r163_the_result_is_installed_for_the_epoch_of_the_snapshot() -> None:
    """The group may have moved on; the coordinator compares with what it had answered."""
    member = computing()
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, compute=True)
    member.finish_assign(OTHER)
    (install,) = member.installs
    assert (install.group_epoch, install.member_epoch, install.error) == (7, 2, 0)
    assert install.members == member.installed(OTHER)


def test_r163_an_error_of_the_assignor_is_installed_without_a_target() -> None:
    """The other members must hear that there is no new target, and why."""
    member = computing()
    member.finish_assign(error=3)
    (install,) = member.installs
    assert (install.error, install.members) == (3, ())


def test_r164_a_stale_prepare_is_repeated_after_the_next_heartbeat() -> None:
    """The epoch moves while requests are under way; that is no reason to give up."""
    member = chosen()
    member.answer_prepare(error=ErrorCode.STALE_MEMBER_EPOCH)
    assert not member.prepares
    for _ in range(2):
        next_heartbeat(member)
        member.answer_heartbeat(epoch=2, compute=True)
        assert [prepare.member_epoch for prepare in member.prepares] == [2], "once"


def test_r164_a_stale_install_is_repeated_with_what_was_computed() -> None:
    """Computing again would be a second call of an assignor that may take a minute."""
    member = installing()
    member.answer_install(error=ErrorCode.STALE_MEMBER_EPOCH)
    assert not member.installs
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2)
    (install,) = member.installs
    assert (install.member_epoch, install.members) == (2, member.installed(OTHER))
    assert not member.user_calls


def test_r164_at_once_if_the_epoch_moved_meanwhile() -> None:
    """The answer with the epoch overtook the refusal; the next one is an interval away."""
    member = installing()
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, compute=True)
    member.answer_install(error=ErrorCode.STALE_MEMBER_EPOCH)
    assert [install.member_epoch for install in member.installs] == [2]
    member.answer_install(error=ErrorCode.STALE_MEMBER_EPOCH)
    assert not member.installs, "that one had the present epoch; to repeat it would be a loop"


@pytest.mark.parametrize("code", [code for code in ErrorCode if code not in (0, ErrorCode.STALE_MEMBER_EPOCH)])
@pytest.mark.parametrize("request_name", ["Prepare", "Install"])
def test_r165_any_other_code_ends_the_round_and_not_the_membership(request_name: str, code: ErrorCode) -> None:
    """UNKNOWN_MEMBER_ID means here that another member was chosen; a rejoin would cost all partitions."""
    member = chosen() if request_name == "Prepare" else installing()
    if request_name == "Prepare":
        member.answer_prepare(error=code)
    else:
        member.answer_install(error=code)
    reported = round_error_class(code) is RoundErrorClass.REPORT
    assert bool(member.failures) is reported
    if reported:
        assert f"{request_name} was refused: {code.name}({int(code)})" in member.failures[0]
    pass_time(member, 3 * INTERVAL_MS)
    assert not member.prepares
    assert not member.installs
    assert not member.emitted(Fail)
    assert (member.owned, member.state()) == (["t-0"], MemberState.STABLE)
    next_heartbeat(member)
    member.answer_heartbeat(compute=True)
    assert len(member.prepares) == 1


def test_r165_codes_without_a_row_are_reported_unless_they_pass() -> None:
    """A code of tomorrow must not stop a member, and must not vanish either."""
    assert round_error_class(9999) is RoundErrorClass.REPORT
    for code in RETRIABLE - ROUND_CODES.keys():
        assert round_error_class(code) is RoundErrorClass.GIVE_UP


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_r165_another_coordinator_is_looked_for(code: ErrorCode) -> None:
    """A broker that answers so will not accept heartbeats either."""
    member = chosen()
    member.coordinator_found = False
    member.answer_prepare(error=code)
    assert member.member.snapshot().coordinator is None


def test_r165_a_result_goes_to_no_broker_that_is_not_the_coordinator_any_more() -> None:
    """The next coordinator knows of no round, and asks anew; the last one could only refuse."""
    member = computing()
    member.coordinator_found = False
    member.step(CoordinatorDisconnected(1))
    member.finish_assign(OTHER)
    assert not member.installs
    asks_again(member)


def asks_again(member: MemberHarness) -> None:
    """The next coordinator asks, and the member begins anew."""
    member.find_coordinator(node_id=2)
    next_heartbeat(member)
    member.answer_heartbeat(compute=True)
    assert len(member.prepares) == 1


def test_r165_no_broker_is_asked_for_the_group_that_is_not_the_coordinator_any_more() -> None:
    """Its answer to a heartbeat may come after it was lost; the next coordinator asks for the target itself."""
    member = stable()
    next_heartbeat(member)
    member.coordinator_found = False
    member.step(CoordinatorDisconnected(1))
    member.answer_heartbeat(compute=True)
    assert not member.prepares
    asks_again(member)


@pytest.mark.parametrize("kind", list(FailureKind))
def test_r165_without_an_answer_the_next_flag_begins_anew(kind: FailureKind) -> None:
    """Whether an Install arrived is unknown; if it did, there is no flag."""
    member = installing()
    member.fail(ConsumerGroupInstallAssignmentRequest, kind)
    pass_time(member, 3 * INTERVAL_MS)
    assert not member.installs
    assert not member.prepares
    assert bool(member.failures) is (kind not in {FailureKind.TIMED_OUT, FailureKind.DISCONNECTED})
    next_heartbeat(member)
    member.answer_heartbeat(compute=True)
    assert len(member.prepares) == 1


@pytest.mark.parametrize("arrange", [chosen, computing, installing])
def test_r166_heartbeats_go_on_during_a_round(arrange: object) -> None:
    """The session is shorter than a slow assignor."""
    assert callable(arrange)
    member = arrange()
    for _ in range(3):
        before_ms = member.now_ms
        next_heartbeat(member)
        assert member.now_ms - before_ms <= INTERVAL_MS
        member.answer_heartbeat(compute=True)


@pytest.mark.parametrize("arrange", [chosen, computing, installing])
def test_r167_a_round_of_an_earlier_life_sends_nothing_more(arrange: object) -> None:
    """An assignment computed before the member was removed would assign partitions of an old group."""
    assert callable(arrange)
    member = arrange()
    fence(member)
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(epoch=5, assignment={})
    for answer in (member.answer_prepare, member.answer_install):
        waiting = member.prepares if answer == member.answer_prepare else member.installs
        if waiting:
            answer()
    if member.user_calls:
        member.finish_assign(OTHER)
    assert not member.installs
    assert not member.prepares
    assert not member.user_calls


def test_r167_a_flag_in_the_new_life_begins_a_round_although_the_old_call_has_not_returned() -> None:
    """Whose result came last would otherwise decide about a group that it never saw."""
    member = computing()
    fence(member)
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(epoch=5, assignment={}, compute=True)
    member.answer_prepare(group_epoch=11)
    member.finish_assign(OTHER)
    assert not member.installs
    assert member.take_call(RunAssignor).snapshot.group_epoch == 11


def test_r167_the_answer_to_a_prepare_of_an_earlier_life_is_ignored() -> None:
    """It describes the group that removed this member, and the new round asks for the present group."""
    member = chosen()
    fence(member)
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(epoch=5, assignment={}, compute=True)
    assert len(member.prepares) == 2
    member.answer_prepare(group_epoch=7)
    assert not member.user_calls
    member.answer_prepare(group_epoch=11)
    assert member.take_call(RunAssignor).snapshot.group_epoch == 11


def test_r167_a_member_that_leaves_installs_nothing() -> None:
    """No member would own its part of the target."""
    member = computing()
    next_heartbeat(member)
    member.leave()
    member.finish_assign(OTHER)
    member.answer_heartbeat(compute=True)
    assert (member.installs, member.prepares) == ([], [])
    member.finish_call("revoked", "t-0")
    assert member.expect_heartbeat().member_epoch == -1


# --- the user's code


def test_r168_one_call_at_a_time_and_news_of_a_target_first() -> None:
    """An assignor that needs no lock is one that people get right."""
    member = stable()
    member.noticed_at_once = member.described_at_once = False
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, compute=True)
    member.answer_prepare()
    assert len(member.user_calls) == 1
    first = member.user_calls[0]
    if isinstance(first, DescribeAssignors):
        member.finish_metadata()
    assert [type(call) for call in member.user_calls] == [CallOnAssignment]
    member.finish_notice()
    assert [type(call) for call in member.user_calls] == [RunAssignor]
    pass_time(member, 2 * INTERVAL_MS)
    assert [type(call) for call in member.user_calls] == [RunAssignor]
    member.finish_assign(OTHER)
    assert [type(call) for call in member.user_calls] == [DescribeAssignors]


def test_r169_a_call_that_hangs_is_abandoned_and_reported_once() -> None:
    """The group waits for this member; after the coordinator's own limit another one is asked."""
    member = computing(max_poll_interval_ms=100_000)
    for _ in range(3 * ASSIGNOR_LIMIT_MS // INTERVAL_MS):
        next_heartbeat(member)
        member.answer_heartbeat(compute=True)
    (report,) = member.failures
    assert "assign() of the client-side assignor 'mine' did not return within 5000 ms" in report
    assert not member.prepares
    assert not member.installs
    assert len(member.user_calls) == 1
    assert member.state() is MemberState.STABLE


def test_r169_what_it_returns_late_is_dropped_and_the_member_takes_part_again() -> None:
    """A result of a minute ago is about a group of a minute ago."""
    member = computing(max_poll_interval_ms=100_000)
    pass_time(member, 2 * ASSIGNOR_LIMIT_MS)
    member.finish_assign(OTHER)
    assert not member.installs
    next_heartbeat(member)
    member.answer_heartbeat(compute=True)
    assert len(member.prepares) == 1


def test_r169_an_assignor_does_not_run_late_behind_another_call_that_hung() -> None:
    """It would compute for a group of a minute ago; the flag of the next heartbeat begins with the present one."""
    member = stable(max_poll_interval_ms=100_000)
    member.described_at_once = False
    next_heartbeat(member)
    member.answer_heartbeat(compute=True)
    member.answer_prepare()
    pass_time(member, ASSIGNOR_LIMIT_MS)
    member.finish_metadata()
    assert not member.emitted(RunAssignor)
    next_heartbeat(member)
    member.answer_heartbeat(compute=True)
    assert len(member.prepares) == 1


def test_r169_the_end_of_a_call_that_was_never_made_changes_nothing() -> None:
    """A shell that says something twice must not end another call."""
    member = computing()
    call = member.take_call(RunAssignor)
    member.step(AssignorDone(call.call_id + 1))
    assert not member.installs
    member.step(AssignorDone(call.call_id))
    assert len(member.installs) == 1
    member.step(AssignorDone(call.call_id))
    assert len(member.installs) == 1


@pytest.mark.parametrize("call_type", [DescribeAssignors, CallOnAssignment])
def test_r169_the_limit_holds_for_every_call(call_type: type) -> None:
    """User code that hangs in any method of an assignor must not stop the member for ever."""
    member = stable()
    member.described_at_once = call_type is not DescribeAssignors
    member.noticed_at_once = call_type is not CallOnAssignment
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, assignment=BOTH)
    pass_time(member, INTERVAL_MS)
    assert isinstance(member.user_calls[0], call_type)
    pass_time(member, ASSIGNOR_LIMIT_MS)
    assert len(member.failures) == 1
    member.reconcile()
    assert member.owned == ["t-0", "t-1"]
    if call_type is CallOnAssignment:
        member.finish_notice()
        assert len(member.emitted(CallOnAssignment)) == 1, "once is enough"


class _Raises(PartitionAssignor):
    name = "mine"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        raise RuntimeError("no idea")


class _Forgets(PartitionAssignor):
    name = "mine"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return GroupAssignment.of({MEMBER_ID: [("t", 1)]})


def test_r170_an_assignor_that_raises_becomes_an_assignment_error() -> None:
    """A bug in an assignor must neither stop the member nor leave the group waiting."""
    member = computing()
    call = member.take_call(RunAssignor)
    done, failure = compute([_Raises()], call)
    assert done == AssignorDone(call.call_id, error=ASSIGNOR_RAISED)
    assert "assign() of the client-side assignor 'mine' raised RuntimeError: no idea" in str(failure)
    member.step(done)
    assert [(install.error, install.members) for install in member.installs] == [(-1, ())]


def test_r170_a_result_that_cannot_be_applied_becomes_one_too_and_names_the_partitions() -> None:
    """The coordinator would refuse it anyway; here the author learns what is wrong with it."""
    call = computing().take_call(RunAssignor)
    done, failure = compute([_Forgets()], call)
    assert done == AssignorDone(call.call_id, error=ASSIGNMENT_INVALID)
    assert isinstance(failure, InvalidAssignmentError)
    assert failure.partitions == ("t-0",)


def test_r171_after_the_install_the_member_asks_for_its_part_at_once() -> None:
    """The members that have to give something up first are what the others wait for."""
    member = installing()
    member.expect_no_heartbeat()
    member.answer_install()
    member.expect_heartbeat()


# --- on_assignment


def test_r172_each_epoch_is_told_once_with_the_complete_target() -> None:
    """An assignor that prepares state wants all of it, and once."""
    member = stable()
    member.noticed_at_once = False
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, assignment={"t": [0]}, pending={"t": [1]}, version=1, metadata=b"hello")
    call = member.take_call(CallOnAssignment)
    assert [str(partition) for partition in call.partitions] == ["t-0", "t-1"]
    assert (call.error, call.version, call.metadata) == (0, 1, b"hello")
    assert (call.group_metadata.member_id, call.group_metadata.member_epoch) == (MEMBER_ID, 2)
    member.step(OnAssignmentDone(call.call_id))
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, assignment=BOTH, version=1, metadata=b"hello")
    assert not member.user_calls


def test_r172_an_epoch_that_changes_nothing_is_told_with_what_is_known() -> None:
    """Null means unchanged, on the wire; an assignor wants the whole."""
    member = stable()
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, assignment={"t": [0]}, metadata=b"same")
    member.forget_history()
    next_heartbeat(member)
    member.answer_heartbeat(epoch=3)
    (call,) = member.emitted(CallOnAssignment)
    assert (call.group_metadata.member_epoch, call.metadata) == (3, b"same")
    assert [str(partition) for partition in call.partitions] == ["t-0"]


def test_r172_what_one_of_several_assignors_said_is_for_that_one_alone() -> None:
    """Another one would read its bytes as its own."""
    member = stable()
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, assignment={"t": [0]}, metadata=b"mine only", name="mine")
    assert [call.assignor_name for call in member.emitted(CallOnAssignment)] == ["mine"]
    heard: list[str] = []

    class Hears(_Raises):
        def on_assignment(self, error: int, assignment: object, group_metadata: object) -> None:
            heard.append(self.name)

    class Theirs(Hears):
        name = "theirs"

    (call,) = member.emitted(CallOnAssignment)
    assert announce([Hears(), Theirs()], call) == []
    assert heard == ["mine"]
    announce([Hears(), Theirs()], replace(call, assignor_name=""))
    assert heard == ["mine", "mine", "theirs"]


def test_r172_a_smaller_assignment_of_the_same_epoch_is_no_news() -> None:
    """Partitions to give up are asked for before the new epoch; its target is told with it."""
    member = offering()
    member.become_stable(BOTH)
    next_heartbeat(member)
    member.answer_heartbeat(epoch=1, assignment={"t": [0]})
    assert not member.emitted(CallOnAssignment)


def test_r172_the_error_of_the_groups_assignor_reaches_every_member() -> None:
    """The operator who can fix it may look at any member's log."""
    member = stable()
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, assignment={"t": [0]}, failure=-2)
    assert [call.error for call in member.emitted(CallOnAssignment)] == [-2]


def test_r172_after_a_removal_the_same_epoch_is_told_again() -> None:
    """A member that was removed and came back has a new assignment, even if the epoch is the same."""
    member = stable()
    fence(member)
    member.finish_call("lost", "t-0")
    member.forget_history()
    member.answer_heartbeat(epoch=1, assignment={"t": [1]})
    assert [call.group_metadata.member_epoch for call in member.emitted(CallOnAssignment)] == [1]


def test_r172_a_life_that_begins_without_an_assignment_has_an_empty_target() -> None:
    """After a removal on_assignment() must not name the partitions of the time before it."""
    member = offering()
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat(epoch=1)
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, assignment={"t": [0]})
    member.reconcile()
    fence(member)
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(epoch=1)
    told = [[str(one) for one in call.partitions] for call in member.emitted(CallOnAssignment)]
    assert told == [[], ["t-0"], []]


def test_r172_a_call_of_an_earlier_life_does_not_count_for_the_new_one() -> None:
    """Found by simulation: the epoch was the same, and the assignor never heard of its new target."""
    member = stable()
    member.noticed_at_once = False
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, assignment={"t": [0]})
    old = member.take_call(CallOnAssignment)
    fence(member)
    member.finish_call("lost", "t-0")
    member.answer_heartbeat(epoch=2, assignment={"t": [1]})
    assert not member.user_calls
    member.step(OnAssignmentDone(old.call_id))
    new = member.take_call(CallOnAssignment)
    assert [str(partition) for partition in new.partitions] == ["t-1"]
    assert new.call_id != old.call_id


@pytest.mark.parametrize("owned", [["t-0"], []])
def test_r172_a_target_of_an_earlier_life_is_not_told_any_more(owned: list[str]) -> None:
    """The assignor would prepare for partitions that the coordinator has given to others by now."""
    member = offering()
    member.become_stable({"t": [0]} if owned else {})
    member.metadata_answered = False
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, pending={"u": [0]}, assignment={"t": [0]} if owned else {})
    asked = member.take_waiting(RequestMetadata)
    member.forget_history()
    fence(member)
    member.step(MetadataUpdated({TOPIC_IDS["u"]: "u"}, asked.request_id))
    if owned:
        member.finish_call("lost", "t-0")
    assert not member.emitted(CallOnAssignment)


def test_r173_the_listener_waits_for_it() -> None:
    """KIP-848: onAssignment, then onPartitionsAssigned; state is prepared before it is used."""
    member = stable()
    member.noticed_at_once = False
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, assignment=BOTH)
    member.poll()
    assert not member.calls
    member.finish_notice()
    member.poll()
    member.finish_call("assigned", "t-1")


def test_r173_no_longer_than_the_limit() -> None:
    """Another member waits for partitions that this member has to give up."""
    member = offering()
    member.become_stable(BOTH)
    member.noticed_at_once = False
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, assignment={"t": [0]})
    pass_time(member, ASSIGNOR_LIMIT_MS)
    member.poll()
    member.finish_call("revoked", "t-1")


def test_r174_names_are_asked_for_and_what_has_none_is_left_out() -> None:
    """A topic that is deleted meanwhile has no name any more, and never will."""
    member = stable()
    member.metadata_answered = member.noticed_at_once = False
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, assignment={"t": [0]}, pending={"u": [0], "v": [0]})
    assert not member.emitted(CallOnAssignment)
    asked = member.take_waiting(RequestMetadata)
    assert asked.topic_ids == {TOPIC_IDS["u"], TOPIC_IDS["v"]}
    member.step(RequestFailed(asked.request_id, FailureKind.TIMED_OUT, "scripted"))
    assert member.member.deadline_ms() == member.now_ms + 100
    pass_time(member, 100)
    asked = member.take_waiting(RequestMetadata)
    member.step(MetadataUpdated({TOPIC_IDS["u"]: "u"}, asked.request_id))
    (call,) = member.emitted(CallOnAssignment)
    assert [str(partition) for partition in call.partitions] == ["t-0", "u-0"]
    pass_time(member, INTERVAL_MS)
    assert not member.waiting, "it was asked for once"
    member.finish_notice()
    next_heartbeat(member)
    member.answer_heartbeat(epoch=3)
    assert member.take_waiting(RequestMetadata).topic_ids == {TOPIC_IDS["v"]}, "once for each epoch"


def test_r174_what_an_epoch_is_told_with_is_named_also_if_its_assignment_shrinks_meanwhile() -> None:
    """The target of the epoch stays what it is; what is given up first is asked for before the next epoch."""
    member = stable()
    member.metadata_answered = False
    next_heartbeat(member)
    member.answer_heartbeat(epoch=2, assignment={"t": [0]}, pending={"u": [0]}, interval_ms=60_000)
    asked = member.take_waiting(RequestMetadata)
    told_ms = member.now_ms
    member.advance(INTERVAL_MS)
    assert member.member.deadline_ms() == told_ms + ASSIGNOR_LIMIT_MS, "then the listener waits no longer"
    member.request_reassignment(3)
    member.answer_heartbeat(epoch=2, assignment={"t": [0]})
    member.step(MetadataUpdated({TOPIC_IDS["u"]: "u"}, asked.request_id))
    assert [[str(one) for one in call.partitions] for call in member.emitted(CallOnAssignment)] == [["t-0", "u-0"]]


def test_r175_a_round_for_an_assignor_that_this_member_does_not_have_is_reported() -> None:
    """It can only be a mistake of the coordinator; computing with another one would be a second."""
    member = chosen()
    member.answer_prepare(name="theirs")
    assert not member.user_calls
    assert "wants one by 'theirs', and this member has 'mine'" in member.failures[0]
    assert not member.requests(ConsumerGroupPrepareAssignmentRequest)
