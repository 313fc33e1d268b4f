"""Every interleaving of a small group, to a bounded depth: two members, two partitions, a few faults.

What random seeds reach by luck is walked here one step after the other: which message arrives next, which listener
returns, who polls, what is lost. The cores cannot be copied in the middle of a life (their parts hold each other's
methods), so a state is reached again by doing again what led to it; two paths that lead to the same state are walked
once. Lookups (coordinator, names, offsets) are answered at once, and a state is compared without its clocks.

::

    python -m tests.simulation.exhaustive --depth 8 --faults 2

Does not own: what is drawn from seeds (`kip848_client.testing.simulation`).

Source: the scope is that of the model checking of KIP-848 in TLA+ (Vanlightly): small, and complete within its bound.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from kip848_client.common.model import BrokerNode, OffsetAndMetadata, Subscription
from kip848_client.member.consumer.kip848_protocol import ConsumerProtocol
from kip848_client.member.core.events import (
    AppPolled,
    AssignPartitions,
    ConnectCoordinator,
    CoordinatorConnected,
    FailureKind,
    LeaveRequested,
    ListenerDone,
    ListOffsets,
    LosePartitions,
    MemberEffect,
    MemberEvent,
    MetadataUpdated,
    OffsetsListed,
    RequestFailed,
    RequestMetadata,
    ResponseReceived,
    RevokePartitions,
    SendRequest,
    SubscriptionChanged,
    Tick,
)
from kip848_client.member.core.settings import MemberConfig, ResetPolicy
from kip848_client.member.core.states import Phase
from kip848_client.member.member import Member
from kip848_client.testing.coordinator.core.coordinator_config import CoordinatorConfig
from kip848_client.testing.coordinator.core.inputs import ApiRequest, GroupRequest, TopicsChanged
from kip848_client.testing.coordinator.core.result import CoordinatorRecord, CoordinatorResult
from kip848_client.testing.coordinator.core.timers import TimerKey, TimerKind
from kip848_client.testing.coordinator.core.topics_image import TopicInfo, TopicsImage
from kip848_client.testing.coordinator.group_coordinator import GroupCoordinator
from kip848_client.testing.simulation.actors.client_side import VERSIONS
from kip848_client.testing.simulation.virtual.violation import InvariantViolation, fail
from kip848_client.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kip848_client.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kip848_client.wire.schema import Response

Choice: TypeAlias = tuple[str, int]
"""What happens next, and to which member (or message of which member)."""

GROUP: Final = "small"
_NODE: Final = BrokerNode(0, "small", 9092)
_TOPIC: Final = TopicInfo("orders", UUID(int=1), 2)
_HAPPY: Final = frozenset({"poll", "listener returns", "request arrives", "answer arrives", "time passes"})
_FAR_MS: Final = 60_000
"""Deadlines beyond this are the poll timer's: no call waits for them here."""


class _Flight(NamedTuple):
    """A heartbeat on its way, or its answer on the way back."""

    member: int
    request_id: int
    request: ConsumerGroupHeartbeatRequest
    response: Response | None


class Exploration(msgspec.Struct, frozen=True):
    """What was walked.

    Args:
        states: different states that were reached.
        steps: steps between them.
        depth: steps of the longest path.
        complete: whether everything within the depth was walked, and not only as many states as were allowed.
        violation, path: the invariant that broke, and the steps that led there; None and empty if none did.
    """

    states: int
    steps: int
    depth: int
    complete: bool
    violation: InvariantViolation | None
    path: tuple[Choice, ...]


def explore(
    *,
    depth: int,
    faults: int = 2,
    members: int = 2,
    states_max: int = 1_000_000,
    on_state: Callable[[int], None] = lambda _: None,
) -> Exploration:
    """Walk every path of at most *depth* steps in which at most *faults* things go wrong, breadth first.

    It begins where the first member has joined and has every partition, and the others are about to join.

    Args:
        on_state: told after each new state how many there were.
    """
    first = _World(members=members, faults=faults)
    seen = {first.key()}
    queue: deque[tuple[Choice, ...]] = deque([()])
    steps = longest = 0
    while queue and len(seen) < states_max:
        path = queue.popleft()
        if len(path) >= depth:
            continue
        scheduler = _replayed(path, members=members, faults=faults)
        for number, choice in enumerate(scheduler.choices()):
            steps += 1
            if number:
                scheduler = _replayed(path, members=members, faults=faults)
            try:
                scheduler.do(choice)
                scheduler.check()
                key = scheduler.key()
            except InvariantViolation as found:
                return Exploration(len(seen), steps, len(path) + 1, False, found, (*path, choice))
            except AssertionError as found:
                violation = InvariantViolation("assertion", str(found) or repr(found))
                return Exploration(len(seen), steps, len(path) + 1, False, violation, (*path, choice))
            if key not in seen:
                seen.add(key)
                on_state(len(seen))
                longest = max(longest, len(path) + 1)
                queue.append((*path, choice))
    return Exploration(len(seen), steps, longest, not queue, None, ())


def _replayed(path: tuple[Choice, ...], *, members: int, faults: int) -> _World:
    scheduler = _World(members=members, faults=faults)
    for choice in path:
        scheduler.do(choice)
    return scheduler


class _World:
    """A coordinator and some members; whatever may happen next is a choice."""

    def __init__(self, *, members: int, faults: int) -> None:
        self._config = CoordinatorConfig()
        self._now_ms = 0
        self._log: list[CoordinatorRecord] = []
        self._coordinator = self._load()
        self._faults_left = faults
        self._flights: list[_Flight] = []
        self._calls: list[deque[RevokePartitions | AssignPartitions | LosePartitions]] = []
        self._joins: list[list[int]] = [[0, 0] for _ in range(members)]
        """Of each member: joins that were served, and joins whose answer arrived."""
        self._closed: set[int] = set()
        self._members: list[Member] = []
        self._request_number = 0
        for number in range(members):
            config = MemberConfig(
                group_id=GROUP,
                member_id=f"member-{number}",
                auto_offset_reset=ResetPolicy.EARLIEST,
                auto_commit_interval_ms=None,
            )
            self._members.append(Member(config, rng=random.Random(number)))
            self._calls.append(deque())
        self._subscribe(0)
        self._let_the_first_join()
        for number in range(1, members):
            self._subscribe(number)

    def _subscribe(self, number: int) -> None:
        self._step(number, SubscriptionChanged(Subscription(frozenset({_TOPIC.name}))))

    def _let_the_first_join(self) -> None:
        member = self._members[0]
        while (
            len(member.view().readable) < _TOPIC.partition_count or member.phase is not Phase.IN_SYNC or self._flights
        ):
            mine = [choice for choice in self.choices() if choice[0] in _HAPPY and choice[1] == 0]
            self.do(mine[0])

    # --- what may happen

    def choices(self) -> list[Choice]:
        """Everything that may happen next, in a fixed order."""
        found: list[Choice] = []
        for number, member in enumerate(self._members):
            if number in self._closed:
                continue
            if member.view().poll_wanted and not self._calls[number]:
                found.append(("poll", number))
            if self._calls[number]:
                found.append(("listener returns", number))
            deadline_ms = member.deadline_ms()
            if deadline_ms is not None and deadline_ms - self._now_ms < _FAR_MS:
                found.append(("time passes", number))
        for index, flight in enumerate(self._flights):
            found.append(("request arrives" if flight.response is None else "answer arrives", index))
        return found + self._faults() if self._faults_left else found

    def _faults(self) -> list[Choice]:
        found: list[Choice] = []
        for number in range(len(self._members)):
            if number in self._closed:
                continue
            if self._calls[number] and not isinstance(self._calls[number][0], LosePartitions):
                found.append(("listener raises", number))
            group = self._coordinator.group(GROUP)
            if group is not None and f"member-{number}" in group.members:
                found.append(("session ends", number))
            found.append(("closes", number))
        for index, flight in enumerate(self._flights):
            found.append(("request is lost" if flight.response is None else "answer is lost", index))
        return [*found, ("coordinator restarts", 0)]

    def do(self, choice: Choice) -> None:
        """Let it happen."""
        what, number = choice
        match what:
            case "poll":
                self._step(number, AppPolled({}))
            case "time passes":
                self._now_ms = max(self._now_ms, self._members[number].deadline_ms() or 0)
                self._step(number, Tick(self._now_ms))
            case "listener returns" | "listener raises":
                self._faults_left -= what == "listener raises"
                call = self._calls[number].popleft()
                self._step(number, ListenerDone(call.token, RuntimeError() if what == "listener raises" else None))
            case "request arrives":
                flight = self._flights[number]
                self._flights[number] = flight._replace(response=self._serve(flight.member, flight.request))
            case "answer arrives":
                flight = self._flights.pop(number)
                if flight.request.member_epoch == 0:
                    self._joins[flight.member][1] = self._joins[flight.member][0]
                assert flight.response is not None
                self._step(flight.member, ResponseReceived(flight.request_id, flight.response))
            case "request is lost" | "answer is lost":
                self._faults_left -= 1
                flight = self._flights.pop(number)
                self._step(flight.member, RequestFailed(flight.request_id, FailureKind.TIMED_OUT, "lost"))
            case "session ends":
                self._faults_left -= 1
                key = TimerKey(TimerKind.SESSION, GROUP, f"member-{number}")
                self._coordinator.let_time_run_out(key, now_ms=self._now_ms)
                self._finish(self._coordinator.expire(now_ms=self._now_ms, wall_ms=self._now_ms))
            case "closes":
                self._faults_left -= 1
                self._closed.add(number)
                self._step(number, LeaveRequested(1, self._now_ms + _FAR_MS, closing=True))
                while self._calls[number]:
                    self._step(number, ListenerDone(self._calls[number].popleft().token))
            case "coordinator restarts":
                self._faults_left -= 1
                self._coordinator = self._load()
            case _:
                raise AssertionError(what)

    # --- the engine

    def _step(self, number: int, event: MemberEvent) -> None:
        events = deque([event])
        while events:
            for effect in self._members[number].step(events.popleft(), now_ms=self._now_ms):
                answer = self._perform(number, effect)
                if answer is not None:
                    events.append(answer)

    def _perform(self, number: int, effect: MemberEffect) -> MemberEvent | None:
        match effect:
            case SendRequest(request_id, _, ConsumerGroupHeartbeatRequest() as request):
                self._flights.append(_Flight(number, request_id, request, None))
            case SendRequest(request_id, _, FindCoordinatorRequest()):
                found = Coordinator(GROUP, _NODE.node_id, _NODE.host, _NODE.port)
                return ResponseReceived(request_id, FindCoordinatorResponse(coordinators=(found,)))
            case SendRequest():
                return ResponseReceived(effect.request_id, self._serve(number, effect.request))
            case ConnectCoordinator():
                return CoordinatorConnected(effect.request_id, VERSIONS)
            case RequestMetadata():
                return MetadataUpdated({_TOPIC.topic_id: _TOPIC.name}, effect.request_id)
            case ListOffsets():
                return OffsetsListed(effect.request_id, {key: OffsetAndMetadata(0) for key in effect.timestamps}, {})
            case RevokePartitions() | AssignPartitions() | LosePartitions():
                self._calls[number].append(effect)
            case _:
                pass
        return None

    def _load(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(self._config, rng=random.Random(0))
        for record in self._log:
            coordinator.replay(record)
        self._coordinator = coordinator
        self._decide(TopicsChanged(TopicsImage((_TOPIC,), version=1)))
        coordinator.loaded(now_ms=self._now_ms)
        return coordinator

    def _serve(self, number: int, request: Any) -> Response:
        self._request_number += 1
        result = self._decide(
            ApiRequest(
                request_id=self._request_number,
                api_version=VERSIONS[request.WIRE.api_key][1],
                message=request,
                wall_ms=self._now_ms,
                client_id=f"client-{number}",
            )
        )
        response = result.replies[0].response
        if isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch == 0:
            self._joins[number][0] += not getattr(response, "error_code", 0)
        return response

    def _decide(self, event: GroupRequest) -> CoordinatorResult:
        return self._finish(self._coordinator.handle(event, now_ms=self._now_ms))

    def _finish(self, result: CoordinatorResult) -> CoordinatorResult:
        self._log += result.records
        for record in result.records:
            self._coordinator.replay(record)
        self._coordinator.apply(result)
        return result

    # --- what must hold

    def check(self) -> None:
        """S1 and what else the coordinator asserts of itself; C1."""
        self._coordinator.check_invariants()
        group = self._coordinator.group(GROUP)
        for number, member in enumerate(self._members):
            view = member.view()
            known = None if group is None else group.members.get(view.member_id)
            if known is None or self._joins[number][0] != self._joins[number][1]:
                continue
            current = known.current
            if view.member_epoch not in (current.member_epoch, current.previous_member_epoch):
                continue
            held = {
                index
                for part in (current.assigned, current.pending_revocation)
                for index in part.get(_TOPIC.topic_id, ())
            }
            unheld = {partition.partition for partition in view.readable} - held
            if unheld:
                fail("C1", f"{view.member_id} reads {sorted(unheld)}, which are not its own")

    def key(self) -> object:
        """What tells two states apart; clocks, numbers of requests and random waits aside."""
        group = self._coordinator.group(GROUP)
        counted: object = None
        if group is not None:
            counted = (
                group.group_epoch,
                group.target_epoch,
                tuple(
                    (
                        member_id,
                        member.current.member_epoch,
                        member.current.previous_member_epoch,
                        member.current.state,
                        _flat(member.current.assigned),
                        _flat(member.current.pending_revocation),
                        tuple(group.target_of(member_id).items()),
                    )
                    for member_id, member in sorted(group.members.items())
                ),
            )
        members = tuple(_member_key(member) for member in self._members)
        flights = tuple((flight.member, flight.request, flight.response) for flight in self._flights)
        calls = tuple(tuple((type(call).__name__, call.partitions) for call in calls) for calls in self._calls)
        joins = tuple(served != answered for served, answered in self._joins)
        return counted, members, flights, calls, joins, self._faults_left, tuple(sorted(self._closed))


def _flat(partitions: Any) -> tuple[tuple[UUID, int, int], ...]:
    return tuple((topic_id, index, epoch) for topic_id, found in partitions.items() for index, epoch in found.items())


def _member_key(member: Member) -> tuple[object, ...]:
    seen = member.snapshot()
    group = member._group
    assert isinstance(group, ConsumerProtocol)
    heartbeats, reconciler, context = group._heartbeats, group._reconciler, member._context
    sent, run = heartbeats._sent, reconciler.run
    return (
        seen.phase,
        seen.member_epoch,
        seen.target,
        seen.current,
        seen.owned,
        seen.readable,
        seen.ack_due,
        seen.heartbeat_in_flight,
        None if sent is None else (sent.link == context.link, sent.assignment == reconciler.current),
        heartbeats.ownership_report_pending,
        None if run is None else (run.partitions, run.ownership_reports == heartbeats.ownership_reports),
        reconciler.held_back,
        reconciler.unconfirmed,
        reconciler.reported_unowned,
        context.link is None,
        member.view().poll_wanted,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk, print, and return the exit status: 1 if an invariant broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.exhaustive", description=__doc__)
    parser.add_argument("--depth", metavar="N", type=int, default=8, help="steps of a path (8)")
    parser.add_argument("--faults", metavar="N", type=int, default=2, help="faults in a path (2)")
    asked = parser.parse_args(arguments)
    if asked.depth < 1 or asked.faults < 0:
        parser.error("a depth from 1 on, and no negative number of faults")
    found = explore(depth=asked.depth, faults=asked.faults)
    if found.violation is not None:
        steps = "\n".join(f"{number:3}. {what} ({which})" for number, (what, which) in enumerate(found.path, 1))
        print(f"BROKEN: {found.violation}\nafter {len(found.path)} steps:\n{steps}")
        return 1
    walked = f"{found.states:,} states by {found.steps:,} steps, every path of {found.depth} steps"
    print(f"two members, two partitions, up to {asked.faults} faults: {walked}; every invariant held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
