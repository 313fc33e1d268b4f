"""Bugs that other implementations of this protocol had; see `registry`. Each name ends with where it happened."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kip848_client.assignors.server.spec import GroupSpec, TargetAssignment
from kip848_client.assignors.server.uniform import UniformAssignor
from kip848_client.errors import ErrorCode
from kip848_client.member.consumer.heartbeats import Heartbeats
from kip848_client.member.consumer.membership import Membership
from kip848_client.member.consumer.reconciler import Reconciler
from kip848_client.member.consumer.slots import LEAVE_EPOCH
from kip848_client.member.consumer.topic_names import TopicNames
from kip848_client.member.core.context import Context
from kip848_client.member.core.events import LeaveMode
from kip848_client.member.core.states import Phase
from kip848_client.member.group.group_exit import GroupExit, Unsent
from kip848_client.member.group.runs import Run
from kip848_client.member.offsets import commit_requests
from kip848_client.member.offsets.commit_requests import FetchResult
from kip848_client.member.offsets.offset_fetches import OffsetFetches
from kip848_client.member.offsets.positions import Positions
from kip848_client.testing.coordinator.consumer import consumer_departure, consumer_kind, member_steps
from kip848_client.testing.coordinator.consumer.consumer_member import ConsumerMember, CurrentAssignment
from kip848_client.testing.coordinator.core.result import ArmTimer, CancelTimer, CoordinatorResult
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.coordinator.modern import current_assignment, member_timers
from kip848_client.testing.coordinator.modern import member_lookup as membership
from kip848_client.testing.coordinator.modern.current_assignment import Target
from kip848_client.testing.coordinator.modern.member_record import ReconciliationState
from tests.simulation.known_bugs.registry import Patch, known_bug


@known_bug("the time to give up partitions runs on after they were given up (KAFKA-16249)", "S7")
def _(patch: Patch) -> None:
    apply, time_is_up = GroupCoordinator.apply, consumer_departure.time_is_up

    def applied(self: GroupCoordinator, result: CoordinatorResult) -> None:
        kept = tuple(
            change
            for change in result.soft
            if result.records == () or not (isinstance(change, CancelTimer) and change.key.kind is TimerKind.REBALANCE)
        )
        apply(self, replace(result, soft=kept))

    def fires(state: Any, group: Any, key: TimerKey, timer: Any, **times: int) -> CoordinatorResult:
        member = group.members.get(key.member_id)
        if member is not None and key.kind is TimerKind.REBALANCE:
            timer = timer._replace(member_epoch=member.current.member_epoch)
        return time_is_up(state, group, key, timer, **times)

    patch.setattr(GroupCoordinator, "apply", applied)
    patch.setattr(consumer_kind, "time_is_up", fires)


@known_bug("who waits for partitions of others is removed after its own time to give up (KAFKA-16249)", "S7")
def _(patch: Patch) -> None:
    original = member_timers.arm_member_timers

    def arm(state: Any, group: Any, batch: Any, member: ConsumerMember, *, changed: bool, now_ms: int) -> None:
        original(state, group, batch, member, changed=changed, now_ms=now_ms)
        if member.current.state is ReconciliationState.UNRELEASED_PARTITIONS and changed:
            key = TimerKey(TimerKind.REBALANCE, batch.group_id, member.member_id)
            deadline_ms = now_ms + member.metadata.rebalance_timeout_ms // 8
            batch.soft.append(ArmTimer(key, deadline_ms=deadline_ms, member_epoch=member.current.member_epoch))

    patch.setattr("kip848_client.testing.coordinator.consumer.member_steps.arm_member_timers", arm)


@known_bug("a heartbeat of the epoch before is refused, though only its answer was lost (franz-go#889)", "S7")
def _(patch: Patch) -> None:
    original = membership.check_epoch

    def check_epoch(member: ConsumerMember, *, received: int, owned: Any) -> None:
        if 0 < received < member.current.member_epoch:
            raise membership.fenced("an old epoch")
        original(member, received=received, owned=owned)

    patch.setattr(membership, "check_epoch", check_epoch)


@known_bug("a member is believed to own what it says that it owns (KAFKA-12984)", "S1", "S5", "S4", "assertion")
def _(patch: Patch) -> None:
    original = current_assignment.reconcile

    def reconcile(current: CurrentAssignment, target: Target[Any], **named: Any) -> CurrentAssignment:
        after = original(current, target, **named)
        assigned = {topic_id: dict(epochs) for topic_id, epochs in after.assigned.items()}
        for topic_id, partitions in (named["owned"] or {}).items():
            for partition in partitions:
                assigned.setdefault(topic_id, {}).setdefault(partition, after.member_epoch)
        return replace(after, assigned=assigned) if assigned != after.assigned else after

    patch.setattr(member_steps, "reconcile", reconcile)


# S9: `turned` counts its calls, which no record tells.
@known_bug("a rebalance is the cause of the next one, for ever (librdkafka#4783)", "L1", "L6", "L8", "L2", "S9")
def _(patch: Patch) -> None:
    original, assign = member_steps.MemberSteps._reason_to_bump, UniformAssignor.assign
    turns = {"count": 0}

    def reason(self: Any, found: Any, after: Any) -> str | None:
        message = self._request.message
        if message.topic_partitions is not None and message.member_epoch > 0:
            return "partitions_acknowledged"
        return original(self, found, after)

    def turned(self: UniformAssignor, spec: GroupSpec) -> TargetAssignment:
        turns["count"] += 1
        found = assign(self, spec)
        members = sorted(found)
        by = turns["count"] % max(1, len(members))
        if len(set(spec.subscriptions.values())) > 1:
            return found
        return {member: found[other] for member, other in zip(members, members[by:] + members[:by], strict=True)}

    patch.setattr(member_steps.MemberSteps, "_reason_to_bump", reason)
    patch.setattr(UniformAssignor, "assign", turned)


@known_bug("a member that is fenced during a rebalance never starts another (librdkafka#4634)", "L1", "L5", seed=20)
def _(patch: Patch) -> None:
    original = Reconciler.cancel

    def cancel(self: Reconciler) -> Run | None:
        run = self.run
        awaited = original(self)
        self.run = run
        return awaited

    patch.setattr(Reconciler, "cancel", cancel)


@known_bug("a topic that was deleted before its name was known ends the member (librdkafka#4634)", "exception")
def _(patch: Patch) -> None:
    original = TopicNames._ended

    def ended(self: TopicNames, *, counts: bool) -> None:
        for topic_id in self._requested:
            self[topic_id]
        original(self, counts=counts)

    patch.setattr(TopicNames, "_ended", ended)


@known_bug("a member that owns nothing leaves without saying so (librdkafka#4634)", "C4")
def _(patch: Patch) -> None:
    begin, send = GroupExit._begin_leave, Membership.send_leave
    silent: set[int] = set()

    def begun(self: GroupExit) -> None:
        if not self._context.owned:
            silent.add(id(self._owner))
        begin(self)

    def sent(self: Membership, mode: LeaveMode, **named: Any) -> int | Unsent:
        return Unsent.NOT_NEEDED if id(self) in silent else send(self, mode, **named)

    patch.setattr(GroupExit, "_begin_leave", begun)
    patch.setattr(Membership, "send_leave", sent)


@known_bug("a member whose listener raised leaves without saying so (KAFKA-16933)", "C4", seed=40)
def _(patch: Patch) -> None:
    released, send = GroupExit._released, Membership.send_leave
    silent: set[int] = set()

    def was_released(self: GroupExit, error: BaseException | None) -> None:
        if error is not None:
            silent.add(id(self._owner))
        released(self, error)

    def sent(self: Membership, mode: LeaveMode, **named: Any) -> int | Unsent:
        return Unsent.NOT_NEEDED if id(self) in silent else send(self, mode, **named)

    patch.setattr(GroupExit, "_released", was_released)
    patch.setattr(Membership, "send_leave", sent)


@known_bug("a static member leaves for good at every restart (Dekaf#1348)", "C4")
def _(patch: Patch) -> None:
    patch.setattr(Membership, "epoch_after_leave", lambda self, mode: LEAVE_EPOCH)


@known_bug("an assignment that changes nothing is never acknowledged (KAFKA-16312)", "L1")
def _(patch: Patch) -> None:
    original = Reconciler.advance

    def advance(self: Reconciler) -> None:
        current = self.current
        if self._resolved.partitions == current.partitions and self._context.phase is Phase.PENDING:
            self._names.ask()
        else:
            original(self)

    patch.setattr(Reconciler, "advance", advance)
    patch.setattr(Reconciler, "poll_wanted", property(lambda self: _differs(self) and _wanted(self)))


def _differs(reconciler: Reconciler) -> bool:
    return reconciler._resolved.partitions != reconciler.current.partitions or not reconciler.current.local_epoch


_wanted: Any = Reconciler.poll_wanted.fget  # type: ignore[attr-defined]


@known_bug("partitions whose listener raised once are never fetched (KAFKA-18160)", "L1", "L7", "L8", "L2", "L10")
def _(patch: Patch) -> None:
    original, give_up = Positions.release, Reconciler._listener_raised
    refused: set[tuple[int, Any]] = set()

    def gave_up(self: Reconciler, run: Run) -> None:
        refused.update((id(self._positions), partition) for partition in run.added)
        give_up(self, run)

    def release(self: Positions, partitions: Any) -> None:
        original(self, [one for one in partitions if (id(self), one) not in refused])

    patch.setattr(Reconciler, "_listener_raised", gave_up)
    patch.setattr(Positions, "release", release)


@known_bug(
    "partitions that come while others are looked up start from the reset policy (KAFKA-17674)",
    "C6",
    scenario="failover",
)
def _(patch: Patch) -> None:
    original = Positions._looked_up

    def looked_up(self: Positions, lookup: Any, slots: Any, result: FetchResult | None, error: Any) -> None:
        original(self, lookup, slots, result, error)
        if result is not None:
            self._apply_policy([slot for slot in self._slots.values() if slot.stage.name in {"LOOK_UP", "LOOKING_UP"}])

    patch.setattr(Positions, "_looked_up", looked_up)


@known_bug("a stale epoch in a look-up of offsets counts as no offset (platformatic/kafka#267)", "C6")
def _(patch: Patch) -> None:
    original = OffsetFetches._answered

    def answered(self: OffsetFetches, fetch: Any, request: Any, response: Any, link: int | None) -> None:
        codes = {group.error_code for group in response.groups} | {response.error_code}
        if ErrorCode.STALE_MEMBER_EPOCH in codes:
            fetch.request_id = None
            self._end(fetch, FetchResult(0, {}, {}), None)
        else:
            original(self, fetch, request, response, link)

    patch.setattr(OffsetFetches, "_answered", answered)


@known_bug(
    "NOT_COORDINATOR leaves a partition without a position for ever (librdkafka#5586)", "L1", "L7", "L8", seed=160
)
def _(patch: Patch) -> None:
    original = OffsetFetches._retry

    def retry(self: OffsetFetches, fetch: Any, error: Any) -> None:
        original(self, fetch, error)
        if getattr(error, "code", None) == ErrorCode.NOT_COORDINATOR:
            self._fetches.remove(fetch)

    patch.setattr(OffsetFetches, "_retry", retry)


@known_bug(
    "a member that is fenced while it awaits an answer waits for ever (KAFKA-16215)", "L1", "L5", scenario="assignors"
)
def _(patch: Patch) -> None:
    original = Heartbeats.restart

    def restart(self: Heartbeats, *, removals: int) -> None:
        in_flight = self._in_flight
        original(self, removals=removals)
        self._in_flight = in_flight

    patch.setattr(Heartbeats, "restart", restart)


@known_bug("a connection that broke is never looked up again (KAFKA-17293)", "C8", "L1", "L8")
def _(patch: Patch) -> None:
    patch.setattr(Context, "lose_link", lambda self, link: None)


@known_bug("a member that can send nothing does not sleep (KAFKA-20426)", "C9", "hang")
def _(patch: Patch) -> None:
    original = Membership.advance

    def advance(self: Membership) -> None:
        original(self)
        if not self._discovery.known:
            self._context.wake_at(self._context.now_ms)

    patch.setattr(Membership, "advance", advance)


@known_bug("polls are not reported, so the poll timer always fires (KAFKA-16026)", "L1", "L6")
def _(patch: Patch) -> None:
    original = Membership.polled

    def polled(self: Membership) -> None:
        if self._context.phase is Phase.AWAITING_POLL:
            self._context.polled_ms = self._context.now_ms
        original(self)

    patch.setattr(Membership, "polled", polled)
    patch.setattr(GroupExit, "seen_polling", lambda self, at_ms: None)


@known_bug("commits do not name their member (KAFKA-15978)", "L7", "S11")
def _(patch: Patch) -> None:
    original = commit_requests.build_commit

    def build_commit(context: Any, offsets: Any) -> Any:
        built = original(context, offsets)
        return built._replace(request=replace(built.request, member_id="nobody"))

    patch.setattr("kip848_client.member.offsets.commits.build_commit", build_commit)


@known_bug("an acknowledgement is repeated as often as the loop turns (KAFKA-20145)", "L6", "hang", "C4")
def _(patch: Patch) -> None:
    original = Heartbeats.ended

    def ended(self: Heartbeats) -> None:
        original(self)
        self.ack_due = True

    patch.setattr(Heartbeats, "ended", ended)
