"""Failures of requests: which are transient, and the exceptions for the others."""

from __future__ import annotations

from typing import Final

from kip848_client.errors import (
    AuthenticationError,
    ConnectionLostError,
    Kip848Error,
    MaxPollExceededError,
    OtherClusterError,
    ProtocolError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from kip848_client.member.core.events import FailureKind, RequestFailed

_ERRORS: Final[dict[FailureKind, type[Kip848Error]]] = {
    FailureKind.TIMED_OUT: RequestTimeoutError,
    FailureKind.DISCONNECTED: ConnectionLostError,
    FailureKind.AUTHENTICATION_FAILED: AuthenticationError,
    FailureKind.OTHER_CLUSTER: OtherClusterError,
    FailureKind.UNSUPPORTED_VERSION: UnsupportedVersionError,
    FailureKind.MALFORMED: ProtocolError,
}


POLL_ADVICE: Final = (
    "handle fewer records between two polls, raise max.poll.interval.ms, or use process(), which polls while handlers "
    "run"
)
"""What to do against a late poll()."""


def poll_missed(*, silent_ms: int, limit_ms: int) -> str:
    """What has happened to a member whose application did not poll in time."""
    return (
        f"poll() was not called for {silent_ms} ms, max.poll.interval.ms is {limit_ms}: the member left its group and "
        "rejoins with the next poll()"
    )


def late_poll(*, silent_ms: int, limit_ms: int, group_id: str, listener_ms: int = 0) -> MaxPollExceededError:
    """The error of a poll() that came too late.

    Args:
        silent_ms: how long ago the application was last inside poll().
        listener_ms: how long a rebalance listener ran inside it.
    """
    late = f"poll() was not called for {silent_ms} ms"
    advice = POLL_ADVICE
    if listener_ms > limit_ms:
        late = f"a rebalance listener ran for {listener_ms} ms"
        advice = "make the listener faster, or raise max.poll.interval.ms"
    return MaxPollExceededError(
        f"{late}, max.poll.interval.ms is {limit_ms}: the member left group {group_id!r} and rejoins with the next "
        f"poll(); {advice}"
    )


def is_passing(failure: RequestFailed) -> bool:
    """Whether the network alone failed, so that the same request may work later."""
    return failure.kind in {FailureKind.TIMED_OUT, FailureKind.DISCONNECTED}


def failure_error(failure: RequestFailed) -> Kip848Error:
    """The exception for a failure."""
    return _ERRORS[failure.kind](failure.message)
