"""The member's part of client-side assignment: advertise its assignors, and compute the group's target when asked.

A round: a heartbeat's answer asks for it, then Prepare, the assignor, Install. At most one is in progress; heartbeats
go on meanwhile. A join, a removal or a leave (a new `Context.incarnation`) ends it, and so does any error except
STALE_MEMBER_EPOCH: the epoch is about to change, so the request is repeated after the next heartbeat's answer. A
coordinator that still wants an assignment says so in every answer, and a new round begins.

Does not own: calls and their limits (`assignor_calls`), notices of targets (`assignor_notices`), the thread of the
user's code (`consumer.group.assignor_runner`), checks of an assignment (`assignors.client.check`), the fields of a
heartbeat (`heartbeats`).

Source: KIP-848 "Client Side Mode", "ConsumerGroupPrepareAssignment API", "ConsumerGroupInstallAssignment API"; no Kafka
client ever had it.
Rules: R155 to R167, R170, R171, R175, R263, R264 and R266 in docs/protocol.md.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from kip848_client.assignors.client.interface import RETRY_REASON
from kip848_client.common.error_codes import error_name
from kip848_client.errors import ClientAssignorError, ClientAssignorsUnsupportedError, Kip848Error
from kip848_client.member.consumer.assignor_notices import AssignorNotices
from kip848_client.member.consumer.heartbeats import Heartbeats
from kip848_client.member.core.assignor_calls import AssignorCalls
from kip848_client.member.core.assignor_events import (
    AssignorDone,
    AssignorEvent,
    AssignorFailed,
    AssignorsDescribed,
    AssignorsUnsupported,
    DescribeAssignors,
    GroupRestless,
    OnAssignmentDone,
    ReassignmentRequested,
    RunAssignor,
)
from kip848_client.member.core.backoff import Backoff
from kip848_client.member.core.context import Context
from kip848_client.member.core.error_tables import RoundErrorClass, round_error_class
from kip848_client.member.core.events import Destination, MetadataUpdated, RequestFailed
from kip848_client.member.core.failures import is_passing
from kip848_client.member.core.last_plan import RETRY_MS, RETRY_MS_MAX, WISH_MS, PlanInputs, Unrest
from kip848_client.member.core.states import IN_GROUP, MEMBER
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor, ConsumerGroupHeartbeatResponse
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
)
from kip848_client.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
)

_APIS: Final = {
    ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT: "ConsumerGroupPrepareAssignment",
    ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT: "ConsumerGroupInstallAssignment",
}
"""APIs of a coordinator with client-side assignment."""


class RoundPhase(enum.Enum):
    """The answer that a round waits for."""

    PREPARING = "preparing"
    """The answer to Prepare."""
    COMPUTING = "computing"
    """The assignor."""
    INSTALLING = "installing"
    """The answer to Install."""
    AWAITING_EPOCH = "awaiting_epoch"
    """The next heartbeat's answer, because the last request was refused as stale."""


class _Round(msgspec.Struct, eq=False):
    """One attempt to compute the group's target."""

    incarnation: int
    phase: RoundPhase = RoundPhase.PREPARING
    epoch: int = 0
    """Number of the last request."""
    request_id: int | None = None
    snapshot: ConsumerGroupPrepareAssignmentResponse | None = None
    done: AssignorDone | None = None


class AssignorRound:
    """The local assignors of one member. Does nothing if there are none."""

    def __init__(self, context: Context, *, heartbeats: Heartbeats) -> None:
        self._context = context
        self._heartbeats = heartbeats
        self._calls = AssignorCalls(context)
        self._notices = AssignorNotices(context)
        self._described = context.config.client_assignors
        self._asked: int | None = None
        """Reason of a request_reassignment() that waits for ``metadata()`` to be called."""
        self._carried: int | None = None
        """Reason of a request_reassignment() for which ``metadata()`` is being called."""
        self._next_reason: int | None = None
        """The next reason, kept back while the coordinator still has the same reason of an earlier request."""
        self._reason: int | None = None
        """Reason whose new metadata no heartbeat has sent yet."""
        self._round: _Round | None = None
        self._describe_due_ms = 0
        self._next_wish_ms = 0
        """When request_reassignment() may be told again."""
        self._retries: Final = Backoff(initial_ms=RETRY_MS, max_ms=RETRY_MS_MAX, rng=context.rng)
        self._retry_ms: int | None = None
        """When to ask for another assignment, because the assignor failed; None if it did not."""
        self._unrest: Final = Unrest()
        self._usable = bool(self._described)
        """The member has assignors, and the coordinator may have the APIs that they need."""
        self._warned = False

    # --- for the member

    @property
    def holds_back(self) -> bool:
        """Whether the rebalance listener must wait, because on_assignment() comes first."""
        return self._notices.holds_back

    # --- requirements

    def check_coordinator(self, offers: Callable[[int], bool]) -> Kip848Error | None:
        """Check, for each heartbeat, whether the coordinator has the APIs. Returns the error that stops it, or None.

        Args:
            offers: whether the coordinator offers an API key.
        """
        context = self._context
        if not context.config.client_assignors:
            return None
        missing = tuple(f"{name} (API key {int(key)})" for key, name in _APIS.items() if not offers(key))
        if missing and not context.config.assignor_fallback:
            names = ", ".join(repr(assignor.name) for assignor in self._described)
            return ClientAssignorsUnsupportedError(
                f"group {context.config.group_id!r}: group.local.assignors ({names}) needs a coordinator with "
                f"client-side assignment, and this one does not offer {' and '.join(missing)}; Apache Kafka has none. "
                "Set group.protocol=classic, which needs nothing of the coordinator, use group.remote.assignor, or set "
                "group.local.assignors.fallback=server to let the coordinator assign"
            )
        self._usable = not missing
        if missing and not self._warned:
            self._warned = True
            context.emit(AssignorsUnsupported(missing))
        self._advertise()
        return None

    # --- events

    def handle(self, event: AssignorEvent) -> None:
        """The user's code returned, or the application wants a new assignment."""
        match event:
            case AssignorsDescribed():
                if event.call_id is None or self._calls.returned(event.call_id) is not None:
                    self._described = event.assignors
                    self._next_reason, self._carried = self._carried or self._next_reason, None
                    self._advertise()
            case ReassignmentRequested():
                self._ask(event.reason)
            case AssignorDone():
                self._computed(event)
            case OnAssignmentDone():
                self._calls.returned(event.call_id)
                self._notices.given()

    def _ask(self, reason: int) -> None:
        """Ask for a new assignment, from fresh metadata. Requests within `WISH_MS` of one count as one."""
        self._asked = reason
        self._describe_due_ms = min(self._describe_due_ms, max(self._context.now_ms, self._next_wish_ms))

    def metadata_updated(self, event: MetadataUpdated) -> None:
        """Learn names of topics."""
        if self._usable:
            self._notices.metadata_updated(event)

    def _take_reason(self) -> None:
        """Tell the reason, unless the coordinator would take it for that of an earlier request."""
        wished = self._asked is not None or self._carried is not None
        if wished and (
            self._context.phase not in IN_GROUP or (self._calls.stuck and self._context.due(self._next_wish_ms))
        ):
            # metadata() cannot be called soon, so the last known metadata is used.
            self._next_reason = self._asked or self._carried or self._next_reason
            if self._asked is not None:
                self._next_wish_ms = self._context.now_ms + WISH_MS
            self._asked = self._carried = None
        if self._next_reason is not None and self._with(self._next_reason) != self._heartbeats.known_assignors:
            self._reason, self._next_reason = self._next_reason, None
            self._advertise()

    def _advertise(self) -> None:
        if not self._usable:
            self._context.assignors = ()
        elif self._reason is None:
            self._context.assignors = self._described
        else:
            self._context.assignors = self._with(self._reason)

    def _with(self, reason: int) -> tuple[Assignor, ...]:
        return tuple(replace(assignor, reason=reason) for assignor in self._described)

    # --- answers to heartbeats

    def answered(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """A heartbeat was accepted, and its epoch applied."""
        if not self._usable:
            return
        if self._reason is not None and self._heartbeats.known_assignors == self._context.assignors:
            # The coordinator knows it. The next heartbeat resets the reason, so that the same one can be given again.
            self._reason = None
        if self._context.phase not in MEMBER:
            return
        if response.should_compute_assignment or (response.assignment is not None and not response.assignment.error):
            self._forget_retry()  # another assignment is on its way, or there
        self._notices.receive(response.assignment)
        current = self._round
        if current is not None:
            if current.phase is RoundPhase.AWAITING_EPOCH:
                self._repeat(current)
        elif response.should_compute_assignment and not self._calls.stuck:
            self._round = _Round(self._context.incarnation)
            self._prepare(self._round)

    # --- round

    def _prepare(self, current: _Round) -> None:
        context = self._context
        if context.link is None:
            self._round = None  # the next coordinator asks again if it wants an assignment
            return
        current.phase = RoundPhase.PREPARING
        current.epoch = context.epoch
        current.request_id = context.send(
            ConsumerGroupPrepareAssignmentRequest(context.config.group_id, context.member_id, context.epoch),
            destination=Destination.COORDINATOR,
            timeout_ms=context.config.request_timeout_ms,
            on_answer=self._prepared,
            on_failure=self._unanswered,
        )

    def _prepared(self, response: ConsumerGroupPrepareAssignmentResponse) -> None:
        current = self._round
        assert current is not None
        known = {assignor.name for assignor in self._described}
        if response.error_code:
            self._refused(current, "Prepare", response.error_code, response.error_message)
        elif response.assignor_name in known:
            current.phase = RoundPhase.COMPUTING
            current.snapshot = response
            inputs = PlanInputs.of(response, racks={}, reads_metadata=True)
            if (text := self._unrest.planned(inputs, now_ms=self._context.now_ms)) is not None:
                self._context.emit(GroupRestless(text))
        else:
            self._report(
                f"the coordinator wants one by {response.assignor_name!r}, and this member has "
                f"{', '.join(sorted(map(repr, known)))}",
                assignor=response.assignor_name,
            )

    def _computed(self, event: AssignorDone) -> None:
        call = self._calls.returned(event.call_id)
        current = self._round
        if isinstance(call, RunAssignor) and current is not None and current.snapshot is call.snapshot:
            current.done = event
            self._install(current)

    def _install(self, current: _Round) -> None:
        context = self._context
        assert current.snapshot is not None
        assert current.done is not None
        if context.link is None:
            self._round = None  # the next coordinator does not know this round
            return
        current.phase = RoundPhase.INSTALLING
        current.epoch = context.epoch
        current.request_id = context.send(
            ConsumerGroupInstallAssignmentRequest(
                group_id=context.config.group_id,
                member_id=context.member_id,
                member_epoch=context.epoch,
                group_epoch=current.snapshot.group_epoch,
                error=current.done.error,
                members=current.done.members,
            ),
            destination=Destination.COORDINATOR,
            timeout_ms=context.config.request_timeout_ms,
            on_answer=self._installed,
            on_failure=self._unanswered,
        )

    def _installed(self, response: ConsumerGroupInstallAssignmentResponse) -> None:
        current = self._round
        assert current is not None
        if response.error_code:
            self._refused(current, "Install", response.error_code, response.error_message)
        else:
            self._round = None
            self._plan_retry(current)
            # There is a new target: send a heartbeat now to get our part of it.
            self._context.expedite = True

    def _plan_retry(self, current: _Round) -> None:
        """The result of *current* was installed, or may have been: if it was an error, ask for another one later."""
        if current.done is not None and current.done.error:
            self._retries.failed(self._context.now_ms)
            self._retry_ms = self._retries.ready_ms
        elif current.done is not None:
            self._retries.reset()

    def _forget_retry(self) -> None:
        """Ask for no other assignment because of a failure, also where that waits for ``metadata()`` or a heartbeat."""
        self._retry_ms = None
        if self._asked == RETRY_REASON:
            self._asked = None
        if self._carried == RETRY_REASON:
            self._carried = None
        if self._next_reason == RETRY_REASON:
            self._next_reason = None
        if self._reason == RETRY_REASON:
            self._reason = None
            self._advertise()

    def _repeat(self, current: _Round) -> None:
        if current.done is None:
            self._prepare(current)
        else:
            self._install(current)

    def _refused(self, current: _Round, what: str, code: int, message: str | None) -> None:
        match round_error_class(code):
            case RoundErrorClass.AWAIT_EPOCH:
                current.phase = RoundPhase.AWAITING_EPOCH
                if current.epoch != self._context.epoch:
                    self._repeat(current)  # it came meanwhile
            case RoundErrorClass.REDISCOVER:
                self._round = None
                self._context.lose_link(self._context.link)
            case RoundErrorClass.GIVE_UP:
                self._round = None
            case RoundErrorClass.REPORT:
                name = current.snapshot.assignor_name if current.snapshot is not None else ""
                self._report(f"{what} was refused: {error_name(code)}: {message or 'no reason given'}", assignor=name)

    def _unanswered(self, failure: RequestFailed) -> None:
        """The request may have arrived; the next heartbeat's answer shows whether it did."""
        if self._round is not None:
            self._plan_retry(self._round)
        self._round = None
        if not is_passing(failure):
            self._report(failure.message, assignor="")

    def _report(self, text: str, *, assignor: str) -> None:
        """End the round with an error."""
        self._round = None
        group_id = self._context.config.group_id
        text = f"group {group_id!r}: no assignment was installed by this member: {text}"
        self._context.emit(AssignorFailed(ClientAssignorError(text, assignor=assignor)))

    # --- calls of the user's code

    def watch(self) -> None:
        """Abandon a call that exceeded its limit. No other one is made until it returns: no round waits for that."""
        if self._calls.watch() is not None and self._round is not None and self._round.phase is RoundPhase.COMPUTING:
            self._round = None
        if not self._takes_part:
            self._retry_ms = None
        elif self._retry_ms is not None and self._context.due(self._retry_ms):
            self._retry_ms = None
            self._ask(RETRY_REASON)
        self._take_reason()

    def advance(self) -> None:
        """Drop calls that are out of date, and make the next call. Must follow the heartbeat of this step."""
        context, takes_part = self._context, self._takes_part
        current = self._round
        if current is not None and not (takes_part and current.incarnation == context.incarnation):
            context.orphan(current.request_id)
            self._round = None
        self._notices.drop_stale(member=takes_part)
        self._notices.advance()
        if self._calls.free:
            self._call_next()

    @property
    def _takes_part(self) -> bool:
        """Whether the member may compute the group's target."""
        return self._usable and self._context.phase in MEMBER

    def _call_next(self) -> None:
        current = self._round
        if self._notices.ready:
            self._calls.start(self._notices.call)
        elif current is not None and current.phase is RoundPhase.COMPUTING:
            snapshot = current.snapshot
            assert snapshot is not None
            self._calls.start(lambda call_id: RunAssignor(call_id, snapshot))
        elif (due_ms := self._describe_ms()) is not None and self._context.due(due_ms):
            self._describe_due_ms = self._context.now_ms + self._heartbeats.interval_ms
            if self._asked is not None:
                self._carried, self._asked = self._asked, None
                self._next_wish_ms = self._context.now_ms + WISH_MS
            self._calls.start(DescribeAssignors)

    def _describe_ms(self) -> int | None:
        """When ``metadata()`` is to be called again: once per interval, in the group."""
        if not self._usable or self._context.phase not in IN_GROUP:
            return None
        return min(self._describe_due_ms, self._context.now_ms + self._heartbeats.interval_ms)
