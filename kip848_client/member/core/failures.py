"""Failures of requests: which are transient, and the exceptions for the others."""

from __future__ import annotations

from typing import Final

from kip848_client.errors import (
    AuthenticationError,
    ConnectionLostError,
    Kip848Error,
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


def is_passing(failure: RequestFailed) -> bool:
    """Whether the network alone failed, so that the same request may work later."""
    return failure.kind in {FailureKind.TIMED_OUT, FailureKind.DISCONNECTED}


def failure_error(failure: RequestFailed) -> Kip848Error:
    """The exception for a failure."""
    return _ERRORS[failure.kind](failure.message)
