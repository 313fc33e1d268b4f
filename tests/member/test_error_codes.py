"""One test per error code and API: what the member does when the coordinator answers X."""

from __future__ import annotations

import pytest

from kip848_client.error_codes import RETRIABLE, ErrorCode
from kip848_client.errors import BrokerError, FatalGroupError, TopicAuthorizationError
from kip848_client.member.error_tables import (
    FATAL_ADVICE,
    CommitErrorClass,
    FetchErrorClass,
    FindErrorClass,
    HeartbeatErrorClass,
    commit_error_class,
    fetch_error_class,
    find_error_class,
    forgets_coordinator,
    heartbeat_error_class,
    partition_fetch_error_class,
)
from kip848_client.member.events import CommitKind, CoordinatorDisconnected, Fail, FailureKind, SurfaceError
from kip848_client.member.states import MemberState, Phase
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from tests.support.member_harness import GROUP, INTERVAL_MS, MemberHarness, positions

UNKNOWN_CODE = 9999
CODES = [code for code in ErrorCode if code is not ErrorCode.NONE] + [UNKNOWN_CODE]
FATAL_CODES = [
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.UNSUPPORTED_ASSIGNOR,
    ErrorCode.INVALID_REGULAR_EXPRESSION,
]


def code_name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else str(int(code))


def stable(**settings: object) -> MemberHarness:
    member = MemberHarness(settings=settings)
    member.become_stable({"t": [0]})
    return member


# --------------------------------------------------------------------------------------------------------- heartbeats


@pytest.mark.parametrize("code", CODES, ids=code_name)
def test_a_heartbeat_error_does_what_its_class_says(code: int) -> None:
    """A code in the wrong class either kills a healthy member, or keeps a dead one waiting for ever."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=code, message="because")
    match heartbeat_error_class(code):
        case HeartbeatErrorClass.RETRY:
            assert member.state() is MemberState.STABLE
            member.expect_no_heartbeat()
            member.advance(100)
            member.expect_heartbeat(epoch=1, full=True)
        case HeartbeatErrorClass.REDISCOVER:
            assert member.state() is MemberState.STABLE
            member.expect_heartbeat(epoch=1, full=True)
        case HeartbeatErrorClass.FENCED:
            assert member.state() is MemberState.RELEASING_ASSIGNMENT
            member.finish_call("lost", "t-0")
            member.expect_heartbeat(epoch=0, full=True)
        case HeartbeatErrorClass.SURFACE:
            assert member.state() is MemberState.STABLE
            assert len(member.emitted(SurfaceError)) == 1
            member.advance(100)
            member.expect_heartbeat(epoch=1, full=True)
        case HeartbeatErrorClass.FATAL:
            assert member.state() is MemberState.FATAL
            (failure,) = member.emitted(Fail)
            assert isinstance(failure.error, BrokerError)
            assert failure.error.code == code
            assert "because" in str(failure.error)


def test_the_codes_that_are_fatal_are_exactly_those_that_no_retry_cures() -> None:
    """The protocol's list; every other code without a row is fatal unless Kafka marks it retriable."""
    for code in CODES:
        if code in RETRIABLE:
            assert heartbeat_error_class(code) is not HeartbeatErrorClass.FATAL
    assert {code for code in FATAL_CODES if heartbeat_error_class(code) is HeartbeatErrorClass.FATAL} == set(
        FATAL_CODES
    )
    assert heartbeat_error_class(UNKNOWN_CODE) is HeartbeatErrorClass.FATAL


@pytest.mark.parametrize("code", FATAL_CODES, ids=code_name)
def test_a_fatal_code_on_the_join_fails_once_and_for_good(code: int) -> None:
    """One error from poll(), no callback, no further request, no leave at close."""
    member = MemberHarness()
    member.subscribe("t")
    member.poll()
    member.answer_heartbeat(error=code)
    assert len(member.emitted(Fail)) == 1
    assert member.phase() is Phase.FATAL_DONE
    assert not member.calls
    member.advance(10 * INTERVAL_MS)
    member.leave(closing=True)
    member.advance(10 * INTERVAL_MS)
    assert not member.sent
    assert member.history[-1] == "left"


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST], ids=code_name)
def test_a_fatal_code_on_the_acknowledgement_loses_everything(code: int) -> None:
    """The partitions belong to somebody else now; the application must stop working on them."""
    member = MemberHarness()
    member.join({"t": [0]})
    member.reconcile()
    member.answer_heartbeat(error=code)
    assert member.state() is MemberState.FATAL
    member.finish_call("lost", "t-0")
    assert member.owned == []
    assert len(member.emitted(Fail)) == 1
    member.leave(closing=True)
    member.expect_no_heartbeat()


@pytest.mark.parametrize("code", FATAL_CODES, ids=code_name)
def test_a_fatal_error_says_what_to_do(code: int) -> None:
    """The reader is an operator at night."""
    member = MemberHarness()
    member.subscribe(pattern="t.*")
    member.poll()
    member.answer_heartbeat(error=code, message="server says no")
    error = member.emitted(Fail)[0].error
    assert isinstance(error, FatalGroupError) or code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert GROUP in str(error)
    assert "server says no" in str(error)
    assert FATAL_ADVICE[code] in str(error)


def test_a_refused_pattern_is_quoted() -> None:
    """RE2 refuses look-around; the user must see which pattern it was."""
    member = MemberHarness()
    member.subscribe(pattern="(?=x)")
    member.poll()
    member.answer_heartbeat(error=ErrorCode.INVALID_REGULAR_EXPRESSION)
    assert "(?=x)" in str(member.emitted(Fail)[0].error)


def test_missing_permission_on_a_topic_is_reported_and_survived() -> None:
    """An operator adds the ACL, and consumption goes on without a restart."""
    member = stable()
    member.advance(INTERVAL_MS)
    for _ in range(3):
        member.answer_heartbeat(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        member.advance(1000)
    (surfaced,) = member.emitted(SurfaceError)
    assert isinstance(surfaced.error, TopicAuthorizationError)
    assert surfaced.error.topics == ("t",)
    assert member.owned == ["t-0"]
    member.answer_heartbeat(epoch=1)
    assert member.state() is MemberState.STABLE


def test_the_report_is_repeated_now_and_then() -> None:
    """An application that swallowed the first one gets another chance to log it."""
    member = stable(max_poll_interval_ms=300_000)
    member.advance(INTERVAL_MS)
    for _ in range(12):
        member.answer_heartbeat(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        member.advance(1000)
    assert len(member.emitted(SurfaceError)) == 3


def test_a_fatal_error_while_leaving_ends_the_leave() -> None:
    """close() must return, and the revoked callback that runs is enough."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.leave()
    member.answer_heartbeat(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert member.phase() is Phase.FATAL_DONE
    assert "left" in member.history
    assert [call.kind for call in member.calls] == ["revoked"]
    member.finish_call("revoked", "t-0")
    member.expect_no_heartbeat()


def test_a_subscription_of_a_fatal_member_is_ignored() -> None:
    """The shell raises the fatal error; the member must not come back to life."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.answer_heartbeat(error=ErrorCode.INVALID_REQUEST)
    member.finish_call("lost", "t-0")
    member.subscribe("u")
    member.poll()
    assert member.phase() is Phase.FATAL_DONE


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (FailureKind.TIMED_OUT, MemberState.STABLE),
        (FailureKind.DISCONNECTED, MemberState.STABLE),
        (FailureKind.MALFORMED, MemberState.STABLE),
        (FailureKind.AUTHENTICATION_FAILED, MemberState.FATAL),
        (FailureKind.UNSUPPORTED_VERSION, MemberState.FATAL),
    ],
)
def test_a_failed_heartbeat_is_fatal_only_if_no_retry_cures_it(kind: FailureKind, state: MemberState) -> None:
    """A broken network passes; a wrong password does not."""
    member = stable()
    member.advance(INTERVAL_MS)
    member.fail_heartbeat(kind)
    assert member.state() is state


# ---------------------------------------------------------------------------------------------------- FindCoordinator


@pytest.mark.parametrize("code", CODES, ids=code_name)
def test_a_lookup_error_never_stops_the_member(code: int) -> None:
    """Only a heartbeat may do that; the lookup goes on for ever."""
    member = MemberHarness(coordinator_found=False)
    member.subscribe("t")
    member.poll()
    member.find_coordinator(error_code=code)
    surfaced = [effect.error for effect in member.emitted(SurfaceError)]
    assert bool(surfaced) is (find_error_class(code) is FindErrorClass.SURFACE)
    assert not member.requests(FindCoordinatorRequest)
    member.advance(100)
    assert member.requests(FindCoordinatorRequest)
    member.find_coordinator()
    member.expect_heartbeat(epoch=0)


# ------------------------------------------------------------------------------------------------------- OffsetCommit


@pytest.mark.parametrize("code", CODES, ids=code_name)
def test_a_synchronous_commit_retries_what_a_retry_cures(code: int) -> None:
    """An error too early makes users write their own retries; one too late hangs them."""
    member = stable()
    call = member.commit(positions(t_0=5))
    member.answer_commit(code)
    match commit_error_class(code):
        case CommitErrorClass.RETRY | CommitErrorClass.RETRY_UNLESS_REVOKING:
            member.advance(100)
            member.answer_commit()
            assert member.commit_error(call) is None
        case CommitErrorClass.STALE:
            member.expect_heartbeat()
            member.answer_heartbeat(epoch=2)
            member.answer_commit()
            assert member.commit_error(call) is None
        case _:
            assert member.commit_error(call) is not None
    assert member.state() is MemberState.STABLE


@pytest.mark.parametrize("code", CODES, ids=code_name)
def test_an_asynchronous_commit_is_one_attempt(code: int) -> None:
    """A retry that overtakes a newer commit would move the position back."""
    member = stable()
    call = member.commit(positions(t_0=5), kind=CommitKind.ASYNC)
    member.answer_commit(code)
    assert member.commit_error(call) is not None
    member.advance(500)
    assert not member.requests(OffsetCommitRequest)
    assert member.state() is MemberState.STABLE


@pytest.mark.parametrize("code", CODES, ids=code_name)
def test_a_revocation_waits_only_for_commits_that_can_still_work(code: int) -> None:
    """Others wait for the partitions."""
    member = stable(auto_commit_interval_ms=5000)
    member.assign_more({})
    member.poll(positions(t_0=9))
    member.answer_commit(code)
    retried = commit_error_class(code) in {CommitErrorClass.RETRY, CommitErrorClass.STALE}
    assert [call.kind for call in member.calls] == ([] if retried else ["revoked"])
    member.advance(200)
    assert bool(member.requests(OffsetCommitRequest)) is retried


@pytest.mark.parametrize("code", CODES, ids=code_name)
def test_an_interval_commit_that_fails_is_made_up_for(code: int) -> None:
    """Positions that are never committed are read again after a crash."""
    member = stable(auto_commit_interval_ms=5000)
    member.advance(5000)
    member.answer_heartbeat()
    member.poll(positions(t_0=9))
    member.answer_commit(code)
    passing = {CommitErrorClass.RETRY, CommitErrorClass.RETRY_UNLESS_REVOKING}
    wait_ms = 100 if commit_error_class(code) in passing else 5000
    member.advance(wait_ms - 1)
    assert not member.member.view().poll_wanted
    member.advance(1)
    assert member.member.view().poll_wanted
    member.poll(positions(t_0=9))
    assert member.requests(OffsetCommitRequest)


# -------------------------------------------------------------------------------------------------------- OffsetFetch


@pytest.mark.parametrize("code", CODES, ids=code_name)
def test_a_failed_offset_fetch_is_never_taken_for_no_offset(code: int) -> None:
    """Starting at the reset policy because a fetch failed skips or repeats the whole partition."""
    member = MemberHarness()
    member.join({"t": [0]})
    member.reconcile()
    member.answer_heartbeat()
    member.answer_fetch(error=code)
    assert not member.waiting
    member.advance(200)
    member.answer_fetch({"t-0": 77})
    assert member.history[-1] == "fetch(t-0@77)"


@pytest.mark.parametrize("code", CODES, ids=code_name)
def test_a_failed_partition_is_never_taken_for_no_offset(code: int) -> None:
    """The same, when only one partition of the answer failed; the others start."""
    member = MemberHarness()
    member.join({"t": [0, 1]})
    member.reconcile()
    member.answer_heartbeat()
    member.answer_fetch({"t-1": 5}, errors={"t-0": code})
    assert not member.waiting
    member.advance(200)
    member.answer_fetch({"t-0": 77, "t-1": 5})
    started = sorted(word for word in member.history if word.startswith("fetch("))
    assert "t-0@77" in "".join(started)
    assert "t-1@5" in "".join(started)


@pytest.mark.parametrize("code", CODES, ids=code_name)
def test_committed_retries_what_a_retry_cures(code: int) -> None:
    """committed() raises what the user has to cure, and waits for the rest."""
    member = stable()
    call = member.committed("t-0")
    member.answer_fetch(error=code)
    if fetch_error_class(code) is FetchErrorClass.FAIL:
        assert member.fetch_result(call).error is not None
        return
    member.advance(100)
    member.answer_fetch({"t-0": 3})
    assert member.fetch_result(call).error is None
    assert {str(key): value.offset for key, value in member.fetch_result(call).offsets.items()} == {"t-0": 3}


@pytest.mark.parametrize("code", CODES, ids=code_name)
def test_committed_raises_what_a_partition_says(code: int) -> None:
    """Only a pending transaction is worth asking again for."""
    member = stable()
    call = member.committed("t-0")
    member.answer_fetch(errors={"t-0": code})
    if partition_fetch_error_class(code) is FetchErrorClass.RETRY:
        member.advance(100)
        assert member.requests(OffsetFetchRequest)
        return
    error = member.fetch_result(call).error
    assert isinstance(error, BrokerError)
    assert error.code == code


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE], ids=code_name)
@pytest.mark.parametrize("api", ["commit", "fetch"])
def test_a_commit_or_fetch_that_meets_the_wrong_broker_starts_a_lookup(code: int, api: str) -> None:
    """Waiting for the next heartbeat to find out would cost seconds."""
    member = stable()
    member.coordinator_found = False
    member.advance(500)
    if api == "commit":
        member.commit(positions(t_0=5))
        member.answer_commit(code)
    else:
        member.committed("t-0")
        member.answer_fetch(error=code)
    assert member.requests(FindCoordinatorRequest)


def test_only_codes_about_the_coordinator_forget_it() -> None:
    """Looking it up again for every error would double the traffic of an outage."""
    forgetting = {code for code in CODES if forgets_coordinator(code)}
    assert forgetting == {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
    committing = {code for code in CODES if forgets_coordinator(code, committing=True)}
    assert committing == forgetting | {ErrorCode.REQUEST_TIMED_OUT}


def test_calls_of_a_fatal_member_fail_without_a_request() -> None:
    """Nothing leaves a consumer that stopped, not even a lookup of the coordinator."""
    member = MemberHarness()
    member.subscribe("t")
    member.poll()
    member.coordinator_found = False
    member.answer_heartbeat(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    member.step(CoordinatorDisconnected(node_id=1))
    member.advance(1000)
    fetch, commit = member.committed("t-0"), member.commit(positions(t_0=1))
    assert member.fetch_result(fetch).error is not None
    assert member.commit_error(commit) is not None
    assert not member.sent


def test_a_lookup_that_ends_after_a_fatal_error_connects_to_nobody() -> None:
    """It was under way when a heartbeat on the old connection was refused for good."""
    member = stable()
    member.coordinator_found = False
    member.advance(INTERVAL_MS)
    member.commit(positions(t_0=5))
    member.answer_commit(ErrorCode.NOT_COORDINATOR)
    member.answer_heartbeat(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    member.answer(FindCoordinatorRequest, member.coordinator_answer())
    assert not member.waiting
