"""The inputs (`MemberEvent`) and outputs (`MemberEffect`) of a member. Values only, no rules.

The shell reports events, calls `Member.step`, and performs the effects **in list order**. The heartbeat thread performs
requests and metadata; the application's thread performs all that touches records or runs user code. The docstring of
each effect says which.

Every request, callback and call has a number. The answer carries it, and the member drops answers whose number it no
longer waits for.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from kip848_client.common.model import BrokerNode, NamedPartition, OffsetAndMetadata, Subscription, TopicIdPartition
from kip848_client.errors import Kip848Error
from kip848_client.member.core.assignor_events import AssignorEffect, AssignorEvent
from kip848_client.member.core.states import MemberState, Trigger
from kip848_client.wire.schema import Request, Response

# --- events


class Tick(msgspec.Struct, frozen=True):
    """Time passed: `Member.deadline_ms` was reached, or the shell woke for another reason.

    Args:
        app_polled_ms: when the application last was inside poll() (now, while it waits there), or None if unknown.
    """

    app_polled_ms: int | None = None


class SubscriptionChanged(msgspec.Struct, frozen=True):
    """subscribe() was called. An empty subscription is not sent here: the shell posts `LeaveRequested`."""

    subscription: Subscription


class ManuallyAssigned(msgspec.Struct, frozen=True):
    """assign() was called: fetch exactly these partitions, without group membership. Empty ends manual mode.

    Args:
        positions: per partition where to start (see `PositionSet`), or None for the committed offset (then the reset
            policy). A partition that was assigned before and has None goes on undisturbed.
        consumed: consumed positions of the assignment that is replaced; auto-commit, if on, commits them first.
    """

    positions: Mapping[NamedPartition, OffsetAndMetadata | None]
    consumed: Mapping[NamedPartition, OffsetAndMetadata] = msgspec.field(default_factory=dict)


class AppPolled(msgspec.Struct, frozen=True):
    """poll() began while `MemberView.poll_wanted` was set. No record is handed out before the effects are performed.

    Args:
        positions: consumed position of every partition that delivered a record or was sought; may lack others.
        stored: what the application has stored, if it says itself what is processed: an automatic commit commits this
            and not *positions*. All of it, each time.
    """

    positions: Mapping[NamedPartition, OffsetAndMetadata] = msgspec.field(default_factory=dict)
    stored: Mapping[NamedPartition, OffsetAndMetadata] | None = None


class ProcessResumed(msgspec.Struct, frozen=True):
    """The process, or the machine, was stopped for a while: the member may have been removed meanwhile."""


class AppProgressed(msgspec.Struct, frozen=True):
    """The application is outside poll(), and handles what the last one returned. For an automatic commit that is due.

    Args:
        positions: as in `AppPolled`, but before the records that it has in hand.
        stored: as in `AppPolled`.
    """

    positions: Mapping[NamedPartition, OffsetAndMetadata] = msgspec.field(default_factory=dict)
    stored: Mapping[NamedPartition, OffsetAndMetadata] | None = None


class ResponseReceived(msgspec.Struct, frozen=True):
    """The answer to a `SendRequest`."""

    request_id: int
    response: Response


class FailureKind(enum.Enum):
    """Why a request has no answer."""

    TIMED_OUT = "timed_out"
    DISCONNECTED = "disconnected"
    """The connection could not be made, or broke; whether the request was applied is unknown."""
    AUTHENTICATION_FAILED = "authentication_failed"
    OTHER_CLUSTER = "other_cluster"
    """Every broker that was reached is of another cluster than before."""
    UNSUPPORTED_VERSION = "unsupported_version"
    """No version is common to both sides, or the common one cannot carry a field that is set."""
    MALFORMED = "malformed"
    """The peer answered with bytes that the protocol does not allow; the connection was closed."""


class RequestFailed(msgspec.Struct, frozen=True):
    """A `SendRequest`, `ConnectCoordinator`, `RequestMetadata` or `ListOffsets` ended without an answer."""

    request_id: int
    kind: FailureKind
    message: str


class CoordinatorConnected(msgspec.Struct, frozen=True):
    """The connection asked for by `ConnectCoordinator` is up.

    Args:
        versions: API key -> (lowest, highest) version that the coordinator offers.
    """

    request_id: int
    versions: Mapping[int, tuple[int, int]]


class CoordinatorDisconnected(msgspec.Struct, frozen=True):
    """The coordinator's connection broke while no request was outstanding on it."""

    node_id: int


class MetadataUpdated(msgspec.Struct, frozen=True):
    """Topic names became known (the answer to `RequestMetadata`, or any other refresh).

    Args:
        topic_names: topic id -> name of every topic that the cluster described; ids that it does not know are absent.
    """

    topic_names: Mapping[UUID, str]
    request_id: int | None = None


class OffsetsListed(msgspec.Struct, frozen=True):
    """The answer to `ListOffsets`.

    Args:
        offsets: partition -> position (offset, leader epoch); -1 when a timestamp has no record.
        errors: partition -> Kafka error code, for those that failed.
    """

    request_id: int
    offsets: Mapping[NamedPartition, OffsetAndMetadata]
    errors: Mapping[NamedPartition, int]


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic as the cluster describes it; the id is zero where brokers know none (before Kafka 2.8).

    Args:
        racks: of each partition the racks of its replicas; empty if brokers have no rack.
    """

    topic_id: UUID
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()


class TopicsDescribed(msgspec.Struct, frozen=True):
    """The answer to `DescribeTopics`.

    Args:
        topics: by name; one that does not exist is absent.
        unauthorized: names of topics that we must not describe.
        passing: names of topics that the cluster could not describe just now.
    """

    request_id: int
    topics: Mapping[str, TopicDescription]
    unauthorized: frozenset[str] = frozenset()
    passing: frozenset[str] = frozenset()


class ListenerDone(msgspec.Struct, frozen=True):
    """A listener call ended: by return, exception, cancellation or KeyboardInterrupt.

    Args:
        token: of the `RevokePartitions`, `AssignPartitions` or `LosePartitions` effect.
        error: the exception that it raised, or None.
    """

    token: int
    error: BaseException | None = None


class PositionSet(msgspec.Struct, frozen=True):
    """seek() on a partition that is owned but not fetched yet: start there, and forget any lookup in flight.

    Args:
        position: its offset is absolute, or -2 for the beginning and -1 for the end, which the member looks up.
    """

    partition: NamedPartition
    position: OffsetAndMetadata


class PositionLost(msgspec.Struct, frozen=True):
    """The broker has no record at the position of a fetched partition (offset out of range): apply the reset policy.

    The fetcher has already stopped the partition.
    """

    partition: NamedPartition
    position: OffsetAndMetadata


class CommitKind(enum.Enum):
    """The origin of a commit, which decides its deadline, retries and errors (docs/protocol.md)."""

    SYNC = "sync"
    ASYNC = "async"
    AUTO_INTERVAL = "auto_interval"
    AUTO_REVOCATION = "auto_revocation"
    AUTO_CLOSE = "auto_close"


class CommitRequested(msgspec.Struct, frozen=True):
    """commit() was called, or close() commits the consumed positions (SYNC, ASYNC or AUTO_CLOSE; others start inside).

    Args:
        commit_id: chosen by the shell; comes back in `CommitDone`.
        deadline_ms: absolute, or None for one attempt without a deadline (ASYNC).
        revoking: called from inside on_partitions_revoked, so that a rebalance waits for it.
        without_callback: the commit has no callback; after a temporary failure its offsets are sent again (R354).
    """

    commit_id: int
    offsets: Mapping[NamedPartition, OffsetAndMetadata]
    kind: CommitKind
    deadline_ms: int | None
    revoking: bool = False
    without_callback: bool = False


class FetchOffsetsRequested(msgspec.Struct, frozen=True):
    """committed() was called; answered by `OffsetsFetched`."""

    fetch_id: int
    partitions: frozenset[NamedPartition]
    deadline_ms: int


class CallAbandoned(msgspec.Struct, frozen=True):
    """The application stopped waiting for a commit, fetch or leave; its number no longer matters."""

    call_id: int


class LeaveMode(enum.Enum):
    """How to leave (Kafka's ``CloseOptions.GroupMembershipOperation``)."""

    DEFAULT = "default"
    """Dynamic members leave (-1); static members keep their slot until the session ends (-2)."""
    LEAVE_GROUP = "leave_group"
    """Leave for good, even as a static member (-1)."""
    REMAIN_IN_GROUP = "remain_in_group"
    """A dynamic member sends nothing and stays until its session ends; a static one sends -2."""


class LeaveRequested(msgspec.Struct, frozen=True):
    """unsubscribe() or close(); answered by `LeaveDone`.

    Args:
        closing: True for close(): commits still queued are sent, and nothing new is started.
    """

    leave_id: int
    deadline_ms: int
    mode: LeaveMode = LeaveMode.DEFAULT
    closing: bool = False


class HandOverRequested(msgspec.Struct, frozen=True):
    """hand_over() was called: let the others prepare, then revoke everything. `MemberView.handing_over` shows the end.

    Args:
        deadline_ms: when to revoke everything even if the others are not ready.
    """

    deadline_ms: int


MemberEvent: TypeAlias = (
    Tick
    | SubscriptionChanged
    | ManuallyAssigned
    | AppPolled
    | AppProgressed
    | ProcessResumed
    | ResponseReceived
    | RequestFailed
    | CoordinatorConnected
    | CoordinatorDisconnected
    | MetadataUpdated
    | OffsetsListed
    | TopicsDescribed
    | ListenerDone
    | PositionSet
    | PositionLost
    | CommitRequested
    | FetchOffsetsRequested
    | CallAbandoned
    | LeaveRequested
    | HandOverRequested
    | AssignorEvent
)

# --- effects


class Destination(enum.Enum):
    """The destination of a request."""

    COORDINATOR = "coordinator"
    """The node of the last `ConnectCoordinator`, on its connection. Fails as DISCONNECTED if that is gone."""
    COORDINATOR_ROUND = "coordinator_round"
    """The same node, on a connection that carries nothing but JoinGroup and SyncGroup: these are answered late."""
    ANY_BROKER = "any_broker"


class SendRequest(msgspec.Struct, frozen=True):
    """Heartbeat thread: write one request, once; never resend it.

    Args:
        timeout_ms: relative; on expiry the connection is closed, so that no late answer can arrive, and
            `RequestFailed` (TIMED_OUT) is posted.
        max_version: highest version to use although both sides know newer ones, or None.
        urgent: the consumer leaves or closes: write it even during the pause that a throttling coordinator asked for.
    """

    request_id: int
    destination: Destination
    request: Request[Response]
    timeout_ms: int
    max_version: int | None = None
    urgent: bool = False


class ConnectCoordinator(msgspec.Struct, frozen=True):
    """Heartbeat thread: open a connection of its own to the coordinator; answered by `CoordinatorConnected`."""

    request_id: int
    node: BrokerNode
    timeout_ms: int


class RequestMetadata(msgspec.Struct, frozen=True):
    """Heartbeat thread: ask the cluster for these topics by id; answered by `MetadataUpdated` or `RequestFailed`."""

    request_id: int
    topic_ids: frozenset[UUID]
    timeout_ms: int


class ListOffsets(msgspec.Struct, frozen=True):
    """Heartbeat thread: ask the partitions' leaders; answered by one `OffsetsListed` or `RequestFailed`.

    Args:
        timestamps: partition -> -2 earliest, -1 latest, or milliseconds since 1970.
        durations_ms: other partitions: the first record that is not older than this, else the end.
    """

    request_id: int
    timestamps: Mapping[NamedPartition, int]
    timeout_ms: int
    durations_ms: Mapping[NamedPartition, int] = msgspec.field(default_factory=dict)


class DescribeTopics(msgspec.Struct, frozen=True):
    """Heartbeat thread: ask the cluster for these topics by name, or for those that match.

    Answered by `TopicsDescribed` or `RequestFailed`.

    Args:
        topics: names; no topic is created by asking.
        pattern: an RE2 pattern; every topic whose whole name matches is described as well, internal ones excepted.
    """

    request_id: int
    topics: frozenset[str]
    pattern: str | None
    timeout_ms: int


class PausePartitions(msgspec.Struct, frozen=True):
    """Application thread: stop fetching these and drop their buffered records; they are about to be revoked."""

    partitions: frozenset[TopicIdPartition]


class RevokePartitions(msgspec.Struct, frozen=True):
    """Application thread: run on_partitions_revoked, then stop fetching the partitions; answer with `ListenerDone`.

    If the listener raises, the partitions stay (paused): the member asks again.
    """

    token: int
    partitions: frozenset[TopicIdPartition]


class AssignPartitions(msgspec.Struct, frozen=True):
    """Application thread: run on_partitions_assigned (even without partitions); answer with `ListenerDone`.

    Fetching starts later, with `StartFetching`.
    """

    token: int
    partitions: frozenset[TopicIdPartition]


class LosePartitions(msgspec.Struct, frozen=True):
    """Application thread: stop fetching the partitions, then run on_partitions_lost; answer with `ListenerDone`."""

    token: int
    partitions: frozenset[TopicIdPartition]


class StartReason(enum.Enum):
    """Why a partition is read from just there."""

    COMMITTED = "committed offset"
    NOTHING_COMMITTED = "nothing committed"
    PARTITION_IS_NEW = "nothing committed, and the partition is new"
    """It appeared while the member was subscribed: auto.offset.reset.new.partitions holds."""
    OUT_OF_RANGE = "out of range"
    """There is no record at the offset where it was to go on."""
    SOUGHT = "seek()"
    ASSIGNED = "assign()"
    """assign() was given an offset."""
    GOES_ON = "the revocation was called off"


class StartCause(msgspec.Struct, frozen=True):
    """Why a partition is read from just there.

    Args:
        policy: the reset policy that chose the offset (``earliest``, ``latest``, ``by_duration:PT3600S``), or None.
        lost_offset: of OUT_OF_RANGE: the offset that has no record.
    """

    reason: StartReason = StartReason.COMMITTED
    policy: str | None = None
    lost_offset: int | None = None


class StartFetching(msgspec.Struct, frozen=True):
    """Application thread: fetch these partitions from these positions (absolute offsets).

    A partition that is fetched or paused already (`PausePartitions`) goes on from the position given here.

    Args:
        committed: those of them whose position is the group's committed offset.
        starts: why each is read from there.
    """

    positions: Mapping[TopicIdPartition, OffsetAndMetadata]
    committed: frozenset[TopicIdPartition] = frozenset()
    starts: Mapping[TopicIdPartition, StartCause] = msgspec.field(default_factory=dict)


class StopFetching(msgspec.Struct, frozen=True):
    """Application thread: stop fetching partitions of a manual assignment. No listener runs."""

    partitions: frozenset[TopicIdPartition]


AUTOMATIC_COMMIT_ID: Final = 0
"""`CommitDone.commit_id` of commits that the member started itself; calls of the shell have other numbers."""


class CommitDone(msgspec.Struct, frozen=True):
    """Application thread: a commit ended.

    Args:
        commit_id: of the call, or `AUTOMATIC_COMMIT_ID`.
        offsets: the committed offsets, or the ones that `error` is about.
        error: None on success.
        gone: offsets that were dropped because their topic no longer exists; in neither of the other two.
    """

    commit_id: int
    offsets: Mapping[NamedPartition, OffsetAndMetadata]
    error: Kip848Error | None
    gone: Mapping[NamedPartition, OffsetAndMetadata] = msgspec.field(default_factory=dict)


class OffsetsFetched(msgspec.Struct, frozen=True):
    """Application thread: the answer to `FetchOffsetsRequested`; partitions without a committed offset are absent."""

    fetch_id: int
    offsets: Mapping[NamedPartition, OffsetAndMetadata]
    error: Kip848Error | None


class LeaveDone(msgspec.Struct, frozen=True):
    """Application thread: the member left, or cannot; the waiting unsubscribe() or close() goes on."""

    leave_id: int


class SurfaceError(msgspec.Struct, frozen=True):
    """Application thread: raise this from poll(), once; the member goes on."""

    error: Kip848Error


class Fail(msgspec.Struct, frozen=True):
    """Application thread: the member is FATAL; raise this from poll() and from every later call but close()."""

    error: Kip848Error


class StateChanged(msgspec.Struct, frozen=True):
    """Anywhere: the public state moved; for logs, metrics and tests."""

    old: MemberState
    new: MemberState
    trigger: Trigger
    member_epoch: int


class GroupLeft(msgspec.Struct, frozen=True):
    """Anywhere: the member has left its group, or was removed from it. For logs and errors."""

    reason: str


class StandbyBegan(msgspec.Struct, frozen=True):
    """Every slot is held, so the member stands by. Told again while that lasts: anywhere, for logs and metrics.

    At the beginning the application's thread has librdkafka learn about the topics, before there is one to read.

    Args:
        topics: those that it subscribes to by name.
        slots: how many there are.
        waited_ms: for how long; 0 at the beginning.
    """

    topics: frozenset[str]
    slots: int
    waited_ms: int


class SlotTaken(msgspec.Struct, frozen=True):
    """Anywhere: the member has joined with a slot. For logs and metrics.

    Args:
        slot: its instance id.
        before: the member that had released it; None if it was free, or that is unknown.
        waited_ms: for how long the member stood by; None if it did not.
    """

    slot: str
    before: str | None
    waited_ms: int | None


class SlotsUnseen(msgspec.Struct, frozen=True):
    """Anywhere: the group cannot be described, so that a standby tries the slots in turn. For logs."""

    reason: str


class HandOverFailed(msgspec.Struct, frozen=True):
    """Anywhere: the member revokes its partitions although the others may not be ready. For logs."""

    reason: str


MemberEffect: TypeAlias = (
    SendRequest
    | ConnectCoordinator
    | RequestMetadata
    | ListOffsets
    | DescribeTopics
    | PausePartitions
    | RevokePartitions
    | AssignPartitions
    | LosePartitions
    | StartFetching
    | StopFetching
    | CommitDone
    | OffsetsFetched
    | LeaveDone
    | SurfaceError
    | Fail
    | StateChanged
    | GroupLeft
    | HandOverFailed
    | StandbyBegan
    | SlotTaken
    | SlotsUnseen
    | AssignorEffect
)

# --- what the shell reads


class MemberView(msgspec.Struct, frozen=True):
    """A frozen value that the application's thread reads without a lock; a step replaces it as a whole.

    Args:
        version: grows with every change of any field; compare it once per batch.
        readable: partitions whose records may be handed out now.
        poll_wanted: the next poll() must be reported as `AppPolled` before it hands out a record.
        awaiting_app: an effect for the application's thread is outstanding, or a run is in progress; but not if the
            run waits long for its commit, and there is something to read meanwhile.
        member_epoch: epoch for group_metadata(); -1 outside the group.
        handing_over: hand_over() was called, and the member still has partitions, or the others still prepare.
        news_expected: partitions, positions of new partitions, or the end of a commit, may arrive any moment.
        instance_id: the static slot that the member has; None outside the group, and for a dynamic member.
        standing_by: it waits for another member to release a slot.
        positions_only: `poll_wanted` is for an automatic commit, and all that was reported is committed. So a poll()
            need not be reported that begins where the last reported one did.
        coordinator_known: the connection to the group's coordinator is up, as far as is known.
    """

    version: int
    state: MemberState
    readable: frozenset[NamedPartition]
    assigned: frozenset[TopicIdPartition]
    poll_wanted: bool
    awaiting_app: bool
    member_id: str
    member_epoch: int
    handing_over: bool = False
    news_expected: bool = False
    positions_only: bool = False
    coordinator_known: bool = False
    instance_id: str | None = None
    standing_by: bool = False

    def lost(self, partitions: Collection[NamedPartition]) -> set[NamedPartition]:
        """Those of *partitions* that this member has no more: no transaction of it may hold their offsets.

        The lost callback of some of them may still be due. Of a member outside its group they are all.
        """
        if self.member_epoch <= 0:
            return set(partitions)
        return set(partitions) - {partition.topic_partition for partition in self.assigned}
