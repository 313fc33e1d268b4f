"""One test per error code and API: what the member does when the coordinator answers X."""

from __future__ import annotations

import pytest

from kip848_client.common.error_codes import ErrorCode
from kip848_client.errors import (
    BrokerError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    InvalidGroupRequestError,
    InvalidRegularExpressionError,
    TopicAuthorizationError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedGroupProtocolError,
    error_for_code,
)
from kip848_client.member.core.error_tables import (
    FetchErrorClass,
    FindErrorClass,
    HeartbeatErrorClass,
    fetch_error_class,
    find_error_class,
    forgets_coordinator,
    heartbeat_error_class,
    partition_fetch_error_class,
)
from kip848_client.member.core.events import SurfaceError
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest
from tests.spec.arrange import stable
from tests.support.member_harness import INTERVAL_MS, MemberHarness, positions

UNKNOWN_CODE = 9999
CODES = [code for code in ErrorCode if code is not ErrorCode.NONE] + [UNKNOWN_CODE]


def code_name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else str(int(code))


def test_the_codes_that_are_fatal_are_exactly_those_that_no_retry_cures() -> None:
    """The protocol's list; every other code without a row is fatal unless Kafka marks it retriable."""
    fatal = {*EXCEPTIONS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED} - {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert {code for code in fatal if heartbeat_error_class(code) is HeartbeatErrorClass.FATAL} == fatal


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


def test_a_lookup_that_ends_after_a_fatal_error_does_not_connect() -> None:
    """It was under way when a heartbeat on the old connection was refused for good."""
    member = stable()
    member.coordinator_found = False
    member.advance(INTERVAL_MS)
    member.commit(positions(t_0=5))
    member.answer_commit(ErrorCode.NOT_COORDINATOR)
    member.answer_heartbeat(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    member.answer(FindCoordinatorRequest, member.coordinator_answer())
    assert not member.waiting


EXCEPTIONS: dict[int, type[BrokerError]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: TopicAuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: GroupAuthorizationError,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedGroupProtocolError,
    ErrorCode.INVALID_REQUEST: InvalidGroupRequestError,
    ErrorCode.GROUP_ID_NOT_FOUND: GroupIdNotFoundError,
    ErrorCode.GROUP_MAX_SIZE_REACHED: GroupMaxSizeReachedError,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstanceIdError,
    ErrorCode.UNRELEASED_INSTANCE_ID: UnreleasedInstanceIdError,
    ErrorCode.UNSUPPORTED_ASSIGNOR: UnsupportedAssignorError,
    ErrorCode.INVALID_REGULAR_EXPRESSION: InvalidRegularExpressionError,
}


@pytest.mark.parametrize("code", EXCEPTIONS, ids=code_name)
def test_a_code_with_a_class_of_its_own_is_raised_as_that_class(code: int) -> None:
    """Applications catch the class; the code alone would make them compare numbers."""
    assert type(error_for_code(code, "words", stopped=True)) is EXCEPTIONS[code]
