"""One round of the classic protocol: JoinGroup, the leader's computation, SyncGroup.

Both requests are answered late: the first when all members have joined, the second when the leader has assigned. They
use their own connection, so that heartbeats, commits and a leave do not wait behind them. If the coordinator's other
connection breaks, the request in flight is sent again: JoinGroup with the same member id, SyncGroup with the same
generation. A coordinator that still has the round answers from memory.

Does not own: revocations before a join (`classic_reconciler`), the leader's assignment (`classic_assignors`), the
effect of an outcome on the member (`classic_protocol`).

Source: Kafka's ``AbstractCoordinator.joinGroupIfNeeded``; KIP-394, KIP-345, KIP-800, KIP-814, KAFKA-13419.
Rules: R200 to R202, R206, R209 and R244 in docs/protocol.md.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, TypeVar

from kip848_client.common.error_codes import ErrorCode
from kip848_client.errors import Kip848Error, ProtocolError, error_for_code, error_name
from kip848_client.member.classic.classic_errors import (
    ClassicErrorClass,
    fatal_error,
    join_error_class,
    sync_error_class,
)
from kip848_client.member.core.context import Context
from kip848_client.member.core.discovery import Discovery
from kip848_client.member.core.events import Destination, FailureKind, RequestFailed
from kip848_client.member.core.failures import failure_error, is_passing
from kip848_client.member.core.states import Phase
from kip848_client.member.offsets.commits import Commits
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_protocol import (
    CONSUMER_PROTOCOL,
    ConsumerProtocolAssignment,
    decode_assignment,
)
from kip848_client.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kip848_client.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kip848_client.wire.schema import Request, Response

ResponseT = TypeVar("ResponseT", bound=Response)

_COMMITS_MS: Final = 5_000
"""Longest time that a JoinGroup waits for commits in flight."""
_SLACK_MS: Final = 5_000
"""Added to the rebalance timeout, within which the coordinator answers."""
_IMMEDIATE_ROUNDS: Final = 3
"""How many new rounds in a row begin at once; later ones wait for the backoff."""
_REASON_MAX: Final = 255
_STATIC_VERSION: Final = 5
"""First version of JoinGroup that carries ``group.instance.id`` (Kafka 2.3)."""


class _Step(enum.Enum):
    """The next step of a round, or the answer that it waits for."""

    JOIN = "join"
    LEAD = "lead"
    """The leader's own computation."""
    SYNC = "sync"

    __hash__ = object.__hash__  # enum hashes in Python code


class RoundOwner(ABC):
    """The group part that a round reports to."""

    @abstractmethod
    def ready_to_join(self) -> bool:
        """Whether nothing has to be revoked before a JoinGroup sent now; otherwise the round is over.

        subscribe() may have been called since the round began, or since its first JoinGroup, which got no answer.
        """

    @abstractmethod
    def offers(self) -> tuple[JoinGroupRequestProtocol, ...]:
        """The protocols of a JoinGroup: one for each assignor, in order of preference."""

    @abstractmethod
    def joined(self, *, before: int) -> bool:
        """JoinGroup succeeded: the member has a generation, and the leader is known.

        Args:
            before: the generation before; 0 without one.

        Returns:
            Whether the round goes on. If not, the group went on without the member, which has lost its partitions.
        """

    @abstractmethod
    def lead(self, members: tuple[JoinGroupResponseMember, ...]) -> None:
        """This member leads: compute the assignment and call `JoinRound.assign` with it."""

    @abstractmethod
    def synced(self, assignment: ConsumerProtocolAssignment) -> None:
        """The leader's assignment came."""

    @abstractmethod
    def removed(self, why: str, *, keep_id: bool) -> None:
        """The coordinator does not know the member or its generation.

        Args:
            why: what it answered.
        """

    @abstractmethod
    def fail(self, error: Kip848Error) -> None:
        """Stop for good: retries cannot help."""


class JoinRound:
    """The round of one member; there is at most one."""

    def __init__(self, context: Context, *, discovery: Discovery, commits: Commits, owner: RoundOwner) -> None:
        self._context: Final = context
        self._discovery: Final = discovery
        self._commits: Final = commits
        self._owner: Final = owner
        self._backoff: Final = context.new_backoff()
        self._step: _Step | None = None
        """None if there is no round."""
        self.number: int = 0
        """Grows with every answered JoinGroup: two rounds may have the same generation."""
        self.protocol: str = ""
        """Name of the assignor that the coordinator chose last."""
        self.leader: str | None = None
        """Member id of the leader; "" where the coordinator assigns."""
        self.skipped: bool = False
        """The coordinator keeps its assignment, so the leader computes none."""
        self._reason = ""
        self._request_id: int | None = None
        self.sent_ms: int = 0
        """When the last request was sent."""
        self._link: int | None = None
        self._commits_until_ms = 0
        self._assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        self._size = ""
        """The size of the group's record with the leader's assignment, in words."""
        self._immediate = 0
        self._ids_given = 0

    @property
    def is_leader(self) -> bool:
        """Whether this member leads the group."""
        return self.leader == self._context.member_id

    @property
    def join_due(self) -> bool:
        """Whether a JoinGroup will be sent."""
        return self._step is _Step.JOIN and self._request_id is None

    @property
    def join_waiting(self) -> int | None:
        """Number of the JoinGroup whose answer is awaited; None if none is."""
        return self._request_id if self._step is _Step.JOIN else None

    # --- starting a round

    def start(self, reason: str, *, delayed: bool = False) -> None:
        """Begin a round; no request of an earlier one is in flight.

        Args:
            reason: for the broker's log.
            delayed: wait for the backoff first.
        """
        context = self._context
        self._step = _Step.JOIN
        self._assignments = ()
        self._reason = reason[:_REASON_MAX]
        self._commits_until_ms = context.now_ms + min(_COMMITS_MS, context.config.rebalance_timeout_ms // 2)
        if delayed:
            self._backoff.failed(context.now_ms)

    def stop(self) -> None:
        """End the round and ignore answers to it."""
        self._context.orphan(self._request_id)
        self._request_id = None
        self._step = None

    def advance(self) -> None:
        """Send the request that is due."""
        context = self._context
        if self._request_id is not None:
            if self._link == context.link:
                return
            # The coordinator's connection broke or moved: this request will not be answered.
            context.orphan(self._request_id)
            self._request_id = None
        if context.link is None or self._step not in {_Step.JOIN, _Step.SYNC}:
            return
        ready_ms = self._backoff.ready_ms
        self._commits.join_waits = self._step is _Step.JOIN and self._commits.in_flight
        if self._commits.join_waits:
            ready_ms = max(ready_ms, self._commits_until_ms)
        if not context.due(ready_ms):
            return
        if self._step is not _Step.JOIN:
            self._sync()
        elif self._owner.ready_to_join():
            self._join()

    def _send(self, request: Request[ResponseT], on_answer: Callable[[ResponseT], None]) -> None:
        def answered(response: ResponseT) -> None:
            self._request_id = None
            on_answer(response)

        config = self._context.config
        self._link, self.sent_ms = self._context.link, self._context.now_ms
        self._request_id = self._context.send(
            request,
            destination=Destination.COORDINATOR_ROUND,
            timeout_ms=max(config.request_timeout_ms, config.rebalance_timeout_ms + _SLACK_MS),
            on_answer=answered,
            on_failure=self._failed,
        )

    # --- join

    def _join(self) -> None:
        context = self._context
        config = context.config
        version = self._discovery.highest_version(ApiKey.JOIN_GROUP)
        if config.instance_id is not None and version is not None and version < _STATIC_VERSION:
            self._owner.fail(
                fatal_error(
                    config,
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"group.instance.id needs JoinGroup version {_STATIC_VERSION} (Kafka 2.3), and the coordinator "
                    f"offers {version}; leave it out",
                )
            )
            return
        self._send(
            JoinGroupRequest(
                group_id=config.group_id,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.rebalance_timeout_ms,
                member_id=context.member_id,
                group_instance_id=config.instance_id,
                protocol_type=CONSUMER_PROTOCOL,
                protocols=self._owner.offers(),
                reason=self._reason,
            ),
            self._join_answered,
        )

    def _join_answered(self, response: JoinGroupResponse) -> None:
        if response.error_code:
            self._join_refused(response)
            return
        context = self._context
        self._discovery.proven()
        self._ids_given = 0
        if response.generation_id <= 0:
            self._owner.removed("its JoinGroup was answered without a generation", keep_id=True)
            return
        offered = {assignor.name for assignor in context.config.client_assignors}
        if response.protocol_type not in {None, CONSUMER_PROTOCOL} or response.protocol_name not in offered:
            text = f"the coordinator chose the protocol {response.protocol_name!r} of {response.protocol_type!r}"
            self._owner.fail(fatal_error(context.config, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text))
            return
        context.member_id = response.member_id or context.member_id
        before, context.epoch = context.epoch, response.generation_id
        self.number += 1
        self.protocol = response.protocol_name or ""
        self.leader = response.leader
        self.skipped = response.skip_assignment
        if not self._owner.joined(before=before):
            return
        if self.is_leader and not response.skip_assignment:
            if all(member.member_id != context.member_id for member in response.members):
                text = "the coordinator made this member leader of a group that it is not in"
                self._surface(ProtocolError(f"group {context.config.group_id!r}: {text}"))
                self.start("left out of its own group", delayed=True)
                return
            self._step = _Step.LEAD
            self._owner.lead(response.members)
        else:
            self._step = _Step.SYNC

    def _join_refused(self, response: JoinGroupResponse) -> None:
        context = self._context
        match join_error_class(response.error_code):
            case ClassicErrorClass.TAKE_ID:
                context.member_id = response.member_id
                self._ids_given += 1
                if self._ids_given > 1 or not response.member_id:
                    self._backoff.failed(context.now_ms)
            case error_class:
                self._refused(response.error_code, error_class)

    # --- sync

    def assign(self, assignments: tuple[SyncGroupRequestAssignment, ...], *, size: str) -> None:
        """Send the leader's assignment.

        Args:
            size: how large it makes the group, for an error of the coordinator.
        """
        if self._step is _Step.LEAD:
            self._assignments, self._size = assignments, size
            self._step = _Step.SYNC

    def _sync(self) -> None:
        context = self._context
        self._send(
            SyncGroupRequest(
                group_id=context.config.group_id,
                generation_id=context.epoch,
                member_id=context.member_id,
                group_instance_id=context.config.instance_id,
                protocol_type=CONSUMER_PROTOCOL,
                protocol_name=self.protocol,
                assignments=self._assignments,
            ),
            self._sync_answered,
        )

    def _sync_answered(self, response: SyncGroupResponse) -> None:
        if response.error_code:
            self._refused(response.error_code, sync_error_class(response.error_code))
            return
        config = self._context.config
        if response.protocol_type not in {None, CONSUMER_PROTOCOL} or response.protocol_name not in {
            None,
            self.protocol,
        }:
            text = f"SyncGroup is about {response.protocol_name!r}, and JoinGroup was about {self.protocol!r}"
            self._owner.fail(fatal_error(config, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text))
            return
        try:
            # A leader answers nothing at all to a member that it left out.
            assignment = decode_assignment(response.assignment) if response.assignment else ConsumerProtocolAssignment()
        except ProtocolError as error:
            self._surface(ProtocolError(f"group {config.group_id!r}: the leader's assignment cannot be read: {error}"))
            self.start("unreadable assignment", delayed=True)
            return
        self.stop()
        self._backoff.reset()
        self._immediate = 0
        self._owner.synced(assignment)

    # --- errors

    def _refused(self, code: int, error_class: ClassicErrorClass) -> None:
        context = self._context
        match error_class:
            case ClassicErrorClass.RETRY:
                self._backoff.failed(context.now_ms)
            case ClassicErrorClass.REDISCOVER:
                context.lose_link(self._link)
            case ClassicErrorClass.NEW_ROUND:
                self._immediate += 1
                self.start("the group rebalances", delayed=self._immediate > _IMMEDIATE_ROUNDS)
            case ClassicErrorClass.LATER_ROUND:
                self.start("SyncGroup failed", delayed=True)
            case ClassicErrorClass.LOST_GENERATION | ClassicErrorClass.LOST_ID:
                self._owner.removed(error_name(code), keep_id=error_class is ClassicErrorClass.LOST_GENERATION)
            case ClassicErrorClass.SURFACE_ROUND:
                text = f"group {context.config.group_id!r}: the coordinator could not complete the rebalance"
                if self._assignments:
                    text += f": {self._size}; a broker refuses a record above message.max.bytes (1 MiB by default)"
                self._surface(error_for_code(code, text))
                self.start("the coordinator failed", delayed=True)
            case _:
                self._owner.fail(fatal_error(context.config, code))

    def _failed(self, failure: RequestFailed) -> None:
        """No answer: send the same request again. Heartbeats find out whether the coordinator is gone."""
        self._request_id = None
        if self._context.phase is Phase.JOINING:  # there may be no heartbeats yet
            self._context.lose_link(self._link)
        self._backoff.failed(self._context.now_ms)
        if is_passing(failure):
            return
        error = failure_error(failure)
        if failure.kind is FailureKind.MALFORMED:
            self._surface(error)
        else:
            self._owner.fail(error)

    def _surface(self, error: Kip848Error) -> None:
        self._context.surface(error, key=("round", type(error)))
