"""The meaning of each Kafka error code of JoinGroup, SyncGroup and Heartbeat for a classic member.

Does not own: the reaction to a class (`join_round`, `classic_protocol`).

Source: Kafka's ``AbstractCoordinator`` and its response handlers; KAFKA-13419.
Rules: R206, R207 and R220 in docs/protocol.md.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from kip848_client.common.error_codes import RETRIABLE, ErrorCode
from kip848_client.errors import FatalGroupError, Kip848Error, error_for_code
from kip848_client.member.core.settings import MemberConfig


class ClassicErrorClass(enum.Enum):
    """The reaction of the member to an error code."""

    RETRY = "retry"
    """Send the same request again, after the backoff."""
    REDISCOVER = "rediscover"
    """Forget the coordinator; the same request again as soon as one is known."""
    NEW_ROUND = "new_round"
    """Join again at once; everything is kept."""
    LATER_ROUND = "later_round"
    """Join again after the backoff; everything is kept."""
    REJOIN = "rejoin"
    """The group rebalances: revoke if needed, then join again."""
    LOST_GENERATION = "lost_generation"
    """Removed, but known: lose all partitions, and join again with the same id."""
    LOST_ID = "lost_id"
    """Removed: lose all partitions, and join again as a new member."""
    TAKE_ID = "take_id"
    """The answer has a member id; join again with it."""
    SURFACE_RETRY = "surface_retry"
    """Report the error to the application; repeat the request after the backoff."""
    SURFACE_ROUND = "surface_round"
    """Report the error to the application; join again after the backoff."""
    FATAL = "fatal"
    """Stop: retries cannot help."""


_E = ClassicErrorClass

_COMMON: Final[Mapping[int, ClassicErrorClass]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _E.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _E.REDISCOVER,
    ErrorCode.NOT_COORDINATOR: _E.REDISCOVER,
    ErrorCode.ILLEGAL_GENERATION: _E.LOST_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: _E.LOST_ID,
    ErrorCode.FENCED_INSTANCE_ID: _E.FATAL,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: _E.FATAL,
    ErrorCode.INVALID_GROUP_ID: _E.FATAL,
    ErrorCode.INVALID_SESSION_TIMEOUT: _E.FATAL,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _E.FATAL,
    ErrorCode.UNSUPPORTED_VERSION: _E.FATAL,
    ErrorCode.INVALID_REQUEST: _E.FATAL,
    ErrorCode.GROUP_MAX_SIZE_REACHED: _E.FATAL,
}

JOIN_CODES: Final[Mapping[int, ClassicErrorClass]] = {
    **_COMMON,
    ErrorCode.REBALANCE_IN_PROGRESS: _E.RETRY,
    ErrorCode.MEMBER_ID_REQUIRED: _E.TAKE_ID,
    ErrorCode.UNKNOWN_SERVER_ERROR: _E.SURFACE_ROUND,
}
"""Codes of a JoinGroup's answer with a row of their own."""

SYNC_CODES: Final[Mapping[int, ClassicErrorClass]] = {
    **_COMMON,
    ErrorCode.REBALANCE_IN_PROGRESS: _E.NEW_ROUND,
    ErrorCode.MEMBER_ID_REQUIRED: _E.FATAL,
    ErrorCode.UNKNOWN_SERVER_ERROR: _E.SURFACE_ROUND,
}
"""Codes of a SyncGroup's answer with a row of their own."""

BEAT_CODES: Final[Mapping[int, ClassicErrorClass]] = {
    **_COMMON,
    ErrorCode.REBALANCE_IN_PROGRESS: _E.REJOIN,
    ErrorCode.MEMBER_ID_REQUIRED: _E.FATAL,
    ErrorCode.UNKNOWN_SERVER_ERROR: _E.SURFACE_RETRY,
}
"""Codes of a heartbeat's answer with a row of their own."""


def join_error_class(code: int) -> ClassicErrorClass:
    """Class of *code* in a JoinGroup's answer. Without a row: RETRY if Kafka marks it retriable, else FATAL."""
    return JOIN_CODES.get(code, _E.RETRY if code in RETRIABLE else _E.FATAL)


def sync_error_class(code: int) -> ClassicErrorClass:
    """Class of *code* in a SyncGroup's answer. Without a row: a later round if it is retriable, else FATAL."""
    return SYNC_CODES.get(code, _E.LATER_ROUND if code in RETRIABLE else _E.FATAL)


def beat_error_class(code: int) -> ClassicErrorClass:
    """Class of *code* in a heartbeat's answer. Without a row: RETRY if Kafka marks it retriable, else FATAL."""
    return BEAT_CODES.get(code, _E.RETRY if code in RETRIABLE else _E.FATAL)


def fatal_error(config: MemberConfig, code: int, message: str = "") -> Kip848Error:
    """The error that stops a member, with what to do about it."""
    names = ", ".join(assignor.name for assignor in config.client_assignors)
    advices: dict[int, str] = {
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
            f"its members use other assignors than this one offers (partition.assignment.strategy: {names}); add one "
            "that all members have (for Java and librdkafka: range); or the id belongs to a share, streams or Connect "
            "group (kip848 groups list tells its type): use another group.id"
        ),
        ErrorCode.INVALID_SESSION_TIMEOUT: (
            f"session.timeout.ms is {config.session_timeout_ms}; the broker allows group.min.session.timeout.ms to "
            "group.max.session.timeout.ms"
        ),
        ErrorCode.INVALID_GROUP_ID: "the broker refuses this group.id",
        ErrorCode.GROUP_AUTHORIZATION_FAILED: "grant READ on the group",
        ErrorCode.GROUP_MAX_SIZE_REACHED: "raise group.max.size, or use another group",
        ErrorCode.FENCED_INSTANCE_ID: "another process took over this group.instance.id; give every process its own",
        ErrorCode.UNSUPPORTED_VERSION: "the broker does not speak the classic protocol; set group.protocol=consumer",
    }
    text = "; ".join(part for part in (message, advices.get(code, "")) if part) or "the coordinator gave no reason"
    error = error_for_code(code, f"group {config.group_id!r}: {text}", stopped=True)
    return error if isinstance(error, FatalGroupError) else FatalGroupError(str(error), code=code)
