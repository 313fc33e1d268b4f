"""The meaning of each Kafka error code for a member: one table per API, and a rule for codes without a row.

Does not own: the reaction to a class (`membership`, `discovery`, `commits`, `offset_fetches`).

Source: Kafka's ``ConsumerHeartbeatRequestManager``, ``CoordinatorRequestManager``, ``CommitRequestManager``.
Rules: R47 to R56, R92 to R95 and R105 to R124 in docs/protocol.md.
"""

from __future__ import annotations

import enum
from typing import Final

from kip848_client.common.error_codes import RETRIABLE, ErrorCode


class HeartbeatErrorClass(enum.Enum):
    """The reaction of the member to an error code in a heartbeat's answer."""

    RETRY = "retry"
    """Same coordinator, exponential backoff."""
    REDISCOVER = "rediscover"
    """Forget the coordinator; send as soon as a new one is known."""
    FENCED = "fenced"
    """Removed: lose all partitions, then join again with the same id."""
    SURFACE = "surface"
    """Report the error to the application, keep everything, retry with backoff."""
    FATAL = "fatal"
    """Stop: retries cannot help."""


HEARTBEAT_CODES: Final[dict[int, HeartbeatErrorClass]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: HeartbeatErrorClass.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: HeartbeatErrorClass.REDISCOVER,
    ErrorCode.NOT_COORDINATOR: HeartbeatErrorClass.REDISCOVER,
    ErrorCode.UNKNOWN_MEMBER_ID: HeartbeatErrorClass.FENCED,
    ErrorCode.FENCED_MEMBER_EPOCH: HeartbeatErrorClass.FENCED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: HeartbeatErrorClass.SURFACE,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: HeartbeatErrorClass.FATAL,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: HeartbeatErrorClass.FATAL,
    ErrorCode.UNSUPPORTED_VERSION: HeartbeatErrorClass.FATAL,
    ErrorCode.INVALID_REQUEST: HeartbeatErrorClass.FATAL,
    ErrorCode.GROUP_ID_NOT_FOUND: HeartbeatErrorClass.FATAL,
    ErrorCode.GROUP_MAX_SIZE_REACHED: HeartbeatErrorClass.FATAL,
    ErrorCode.FENCED_INSTANCE_ID: HeartbeatErrorClass.FATAL,
    ErrorCode.UNRELEASED_INSTANCE_ID: HeartbeatErrorClass.FATAL,
    ErrorCode.UNSUPPORTED_ASSIGNOR: HeartbeatErrorClass.FATAL,
    ErrorCode.INVALID_REGULAR_EXPRESSION: HeartbeatErrorClass.FATAL,
}
"""Codes of a heartbeat's answer with a row of their own."""


def heartbeat_error_class(code: int, *, joining: bool = True) -> HeartbeatErrorClass:
    """Class of *code*. Without a row: RETRY if Kafka marks the code retriable, else FATAL.

    R355: a group that is gone ends no member of it. It was deleted while the member was cut off, and is joined anew.
    """
    if code == ErrorCode.GROUP_ID_NOT_FOUND and not joining:
        return HeartbeatErrorClass.FENCED
    default = HeartbeatErrorClass.RETRY if code in RETRIABLE else HeartbeatErrorClass.FATAL
    return HEARTBEAT_CODES.get(code, default)


FATAL_ADVICE: Final[dict[int, str]] = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "grant READ on the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "grant the missing permission on the cluster",
    ErrorCode.UNSUPPORTED_VERSION: (
        "the cluster does not offer the consumer group protocol; set group.protocol=classic, or raise the cluster's "
        "feature group.version to 1 (kafka-features.sh upgrade --feature group.version=1), which needs Apache Kafka "
        "4.0 or later"
    ),
    ErrorCode.INVALID_REQUEST: "the coordinator refuses what this member sends",
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "the group cannot be moved to KIP-848 with its classic members: the broker's migration policy is off, or their "
        "assignor adds user data to assignments, as librdkafka's cooperative-sticky does; join them with "
        "group.protocol=classic, or stop them first; or the id belongs to a share, streams or Connect group (kip848 "
        "groups list tells its type): use another group.id"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: "raise group.consumer.max.size, or use another group",
    ErrorCode.FENCED_INSTANCE_ID: "another process took over this group.instance.id; give every process its own",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another living member holds this group.instance.id; give every process its own",
    ErrorCode.UNSUPPORTED_ASSIGNOR: (
        "choose a group.remote.assignor that the cluster offers, or local assignors with versions that fit the group's"
    ),
    ErrorCode.INVALID_REGULAR_EXPRESSION: "patterns are RE2 syntax and match the whole topic name",
}
"""Advice to the user for each fatal heartbeat error."""


class FindErrorClass(enum.Enum):
    """The reaction to an error code of FindCoordinator."""

    RETRY = "retry"
    """Exponential backoff, for ever."""
    SURFACE = "surface"
    """Report the error to the application, fail the calls that wait for the coordinator, and retry with backoff."""


def find_error_class(code: int) -> FindErrorClass:
    """Class of *code*: RETRY if Kafka marks it retriable, else SURFACE."""
    return FindErrorClass.RETRY if code in RETRIABLE else FindErrorClass.SURFACE


class CommitErrorClass(enum.Enum):
    """The reaction to an error code of OffsetCommit, which may also depend on the kind of the commit."""

    RETRY = "retry"
    """Retriable for every kind."""
    RETRY_UNLESS_REVOKING = "retry_unless_revoking"
    """Retriable, but a revocation does not wait for it: the topic may be gone for good."""
    NOT_A_MEMBER = "not_a_member"
    """Not committed; the next heartbeat's answer will say why."""
    STALE = "stale"
    """The epoch is older than the coordinator's; a newer one is on its way."""
    OLD_GENERATION = "old_generation"
    """STALE in the classic protocol: only a join brings a newer generation, so a revocation does not wait."""
    FENCED_INSTANCE = "fenced_instance"
    """Another process has our instance id."""
    RAISE = "raise"
    """Raised to the application unchanged."""
    OTHER = "other"
    """Not retried, even if Kafka marks the code retriable."""


COMMIT_CODES: Final[dict[int, CommitErrorClass]] = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: CommitErrorClass.RETRY,
    ErrorCode.NOT_COORDINATOR: CommitErrorClass.RETRY,
    ErrorCode.REQUEST_TIMED_OUT: CommitErrorClass.RETRY,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: CommitErrorClass.RETRY,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: CommitErrorClass.RETRY_UNLESS_REVOKING,
    ErrorCode.UNKNOWN_TOPIC_ID: CommitErrorClass.RETRY_UNLESS_REVOKING,
    ErrorCode.UNKNOWN_MEMBER_ID: CommitErrorClass.NOT_A_MEMBER,
    ErrorCode.GROUP_ID_NOT_FOUND: CommitErrorClass.NOT_A_MEMBER,
    ErrorCode.STALE_MEMBER_EPOCH: CommitErrorClass.STALE,
    ErrorCode.ILLEGAL_GENERATION: CommitErrorClass.OLD_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS: CommitErrorClass.RETRY,
    ErrorCode.FENCED_INSTANCE_ID: CommitErrorClass.FENCED_INSTANCE,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: CommitErrorClass.RAISE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: CommitErrorClass.RAISE,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: CommitErrorClass.RAISE,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: CommitErrorClass.RAISE,
}
"""Codes of OffsetCommit with a row of their own."""


COMMIT_ADVICE: Final[dict[int, str]] = {
    ErrorCode.UNKNOWN_MEMBER_ID: (
        "the coordinator has removed this member, because its session ended or an operator did so; it joins again by "
        "itself"
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist any more; its members join anew by themselves",
    ErrorCode.STALE_MEMBER_EPOCH: "the group has rebalanced meanwhile: a new commit may succeed",
    ErrorCode.ILLEGAL_GENERATION: "the group has rebalanced meanwhile: a new commit may succeed",
    ErrorCode.FENCED_INSTANCE_ID: "another process has taken this group.instance.id; give every process its own",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the metadata is longer than the broker's offset.metadata.max.bytes",
}
"""What an error code of OffsetCommit means to the user."""

COMMIT_ADVICE_OUTSIDE: Final[dict[int, str]] = {
    ErrorCode.UNKNOWN_MEMBER_ID: (
        "the group has members, and only these may commit; a consumer that assigns by hand needs a group.id of its own"
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "the id belongs to a group of another type (kip848 groups list tells its type): use another group.id"
    ),
}
"""The same for a consumer that is in no group."""


TOPIC_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Codes for a deleted topic, by name and by id. A subscribed member does not report them: it waits for the assignment
without the topic.
"""


def commit_error_class(code: int) -> CommitErrorClass:
    """Class of *code*; OTHER without a row."""
    return COMMIT_CODES.get(code, CommitErrorClass.OTHER)


class FetchErrorClass(enum.Enum):
    """The reaction to an error code of OffsetFetch."""

    RETRY = "retry"
    """Retry with backoff until the deadline."""
    STALE = "stale"
    """Retry with the epoch of that moment, while there is one."""
    FAIL = "fail"
    """Fail the fetch. Never a reason to start from the reset policy."""


def fetch_error_class(code: int) -> FetchErrorClass:
    """Class of a group's *code*."""
    if code == ErrorCode.STALE_MEMBER_EPOCH:
        return FetchErrorClass.STALE
    return FetchErrorClass.RETRY if code in RETRIABLE else FetchErrorClass.FAIL


def partition_fetch_error_class(code: int) -> FetchErrorClass:
    """Class of a partition's *code*: only a pending transaction is retried."""
    return FetchErrorClass.RETRY if code == ErrorCode.UNSTABLE_OFFSET_COMMIT else FetchErrorClass.FAIL


_FORGET: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


def forgets_coordinator(code: int, *, committing: bool = False) -> bool:
    """Whether *code* says that the coordinator has to be looked up again."""
    return code in _FORGET or (committing and code == ErrorCode.REQUEST_TIMED_OUT)


class RoundErrorClass(enum.Enum):
    """The reaction of a round to an error code of ConsumerGroupPrepareAssignment or ConsumerGroupInstallAssignment."""

    AWAIT_EPOCH = "await_epoch"
    """The epoch is moving: the same request again after the next heartbeat's answer."""
    REDISCOVER = "rediscover"
    """Forget the coordinator and the round."""
    GIVE_UP = "give_up"
    """The round is over; another member computes, or an answer asks again."""
    REPORT = "report"
    """The round is over. Log the reason, because this should not happen."""


ROUND_CODES: Final[dict[int, RoundErrorClass]] = {
    ErrorCode.STALE_MEMBER_EPOCH: RoundErrorClass.AWAIT_EPOCH,
    ErrorCode.NOT_COORDINATOR: RoundErrorClass.REDISCOVER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: RoundErrorClass.REDISCOVER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: RoundErrorClass.GIVE_UP,
    ErrorCode.UNKNOWN_MEMBER_ID: RoundErrorClass.GIVE_UP,
    ErrorCode.GROUP_ID_NOT_FOUND: RoundErrorClass.GIVE_UP,
    ErrorCode.INVALID_GROUP_ID: RoundErrorClass.REPORT,
    ErrorCode.INVALID_REQUEST: RoundErrorClass.REPORT,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: RoundErrorClass.REPORT,
    ErrorCode.INVALID_ASSIGNMENT: RoundErrorClass.REPORT,
}
"""Codes of Prepare and Install with a row of their own."""


def round_error_class(code: int) -> RoundErrorClass:
    """Class of *code*. Without a row: GIVE_UP if Kafka marks the code retriable, else REPORT."""
    default = RoundErrorClass.GIVE_UP if code in RETRIABLE else RoundErrorClass.REPORT
    return ROUND_CODES.get(code, default)
