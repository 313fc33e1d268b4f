"""Calls must end, and members must do nothing needlessly: C8 and C9 of every member, and close() (L4)."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from kip848_client.member.events import MemberEffect, MemberEvent, SendRequest, Tick
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.process import Process
from kip848_client.simulation.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.leave_group import LeaveGroupRequest
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest
from kip848_client.wire.schema import Request


class BoundedWork(Observer):
    """C8: every commit of the application is answered, and no member looks up the coordinator in a loop.

    Few requests are in flight.
    """

    def __init__(self, consumers: Callable[[], Sequence[Process]]) -> None:
        self._consumers = consumers
        self._lookups: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=_LOOKUPS_MAX))

    def sent(self, consumer: Process, request: Any) -> None:
        under_way = consumer.member.requests_under_way - len(consumer.commits_asked)
        if under_way > _REQUESTS_MAX:
            fail("C8", f"{consumer.name} has {under_way} requests under way, and sends {request}")
        if not isinstance(request, FindCoordinatorRequest):
            return
        lookups, now_ms = self._lookups[consumer.name], consumer.world.now_ms
        if len(lookups) == _LOOKUPS_MAX and now_ms - lookups[0] < _SECOND_MS:
            fail("C8", f"{consumer.name} looked for the coordinator {_LOOKUPS_MAX} times within a second")
        lookups.append(now_ms)

    def converged(self) -> None:
        """Find commits without an answer. Without a coordinator, commits may wait for ever."""
        for consumer in self._consumers():
            sent_ms = max(consumer.thaws_ms, consumer.network.connected_ms)
            for commit_id, asked_ms in consumer.commits_asked.items():
                waits_ms = consumer.world.now_ms - max(asked_ms, sent_ms)
                if not consumer.closed and waits_ms > consumer.config.request_timeout_ms + 2 * _SECOND_MS:
                    fail("C8", f"{consumer.name} asked for commit {commit_id} {waits_ms} ms ago and heard nothing")


_SECOND_MS: Final = 1_000
_REQUESTS_MAX: Final = 12
"""Limit of requests in flight, except commits: an application may commit after every poll()."""
_LOOKUPS_MAX: Final = 20
"""Limit of coordinator lookups within a virtual second. The first retries come after a tenth of a second."""


class AwaitedLeave(Observer):
    """L4: close() waits for the answer to its leave, up to its deadline."""

    def __init__(self) -> None:
        self._waiting: dict[str, Request[Any]] = {}

    @about(ConsumerGroupHeartbeatRequest, LeaveGroupRequest)
    def sent(self, consumer: Process, request: ConsumerGroupHeartbeatRequest | LeaveGroupRequest) -> None:
        if consumer.leaving and (isinstance(request, LeaveGroupRequest) or request.member_epoch < 0):
            self._waiting[consumer.name] = request

    @about(ConsumerGroupHeartbeatRequest, LeaveGroupRequest)
    def answered(self, consumer: Process, request: Any, response: Any) -> None:
        self._over(consumer, request)

    @about(ConsumerGroupHeartbeatRequest, LeaveGroupRequest)
    def unanswered(self, consumer: Process, request: Any) -> None:
        self._over(consumer, request)

    def _over(self, consumer: Process, request: Request[Any]) -> None:
        if self._waiting.get(consumer.name) is request:
            del self._waiting[consumer.name]

    def closed(self, consumer: Process) -> None:
        left_ms = consumer.close_by_ms - consumer.now_ms
        if self._waiting.pop(consumer.name, None) is not None and left_ms > 0:
            fail("L4", f"{consumer.name}: close() returns {left_ms} ms before its time, and without an answer")


_LONGEST_MS: Final = 3_000
"""How far ahead a member without a deadline is probed."""


class _Asked:
    """State of one member that is probed."""

    def __init__(self, rng: random.Random) -> None:
        self.rng: Final = rng
        self.planned = False
        """Probe it once more before its deadline."""
        self.under_way: Final[dict[int, MemberEffect]] = {}
        self.last_number = 0


class TrueDeadlines(Observer):
    """C9: a member without a new event does nothing before its deadline. C8: it forgets requests that have ended.

    A probe is a `Tick` before the deadline. A member whose deadline is too late or missing acts on it; a correct member
    does not. And a commit that a closing member can no longer send is answered.
    """

    def __init__(self) -> None:
        self._members: dict[str, _Asked] = {}

    def told(self, consumer: Process, event: MemberEvent) -> None:
        """The event may end a request."""
        if consumer.name not in self._members:
            self._members[consumer.name] = _Asked(consumer.world.random(f"deadlines {consumer.name}"))
        self._members[consumer.name].under_way.pop(getattr(event, "request_id", None) or 0, None)

    def decided(self, consumer: Process, effects: Sequence[MemberEffect]) -> None:
        """The effects may start requests."""
        asked = self._members[consumer.name]
        for effect in effects:
            number = getattr(effect, "request_id", None)
            if number is None:
                continue
            if number <= asked.last_number:
                fail("C8", f"{consumer.name} asks for {effect}, and asked for {asked.last_number} before")
            asked.last_number = number
            asked.under_way[number] = effect

    def stepped(self, consumer: Process) -> None:
        """Probe the member now, and once before its deadline."""
        asked = self._members[consumer.name]
        self._compare(consumer, asked)
        self._ask(consumer, "again at once")
        if not asked.planned:
            asked.planned = True
            deadline_ms = consumer.member.deadline_ms()
            wait_ms = _LONGEST_MS if deadline_ms is None else min(_LONGEST_MS, deadline_ms - consumer.now_ms)
            delay_ms = int(asked.rng.random() * max(0, wait_ms))
            consumer.world.call_in(delay_ms, lambda: self._ask_early(consumer, asked))

    @staticmethod
    def _compare(consumer: Process, asked: _Asked) -> None:
        count = consumer.member.requests_under_way
        if count != len(asked.under_way):
            fail("C8", f"{consumer.name} counts {count} requests, under way are {sorted(asked.under_way)}")
        closing = consumer.commits_asked and (consumer.leaving or consumer.closed)
        if closing and consumer.member.coordinator is None:
            sent = sum(_is_commit(effect) for effect in asked.under_way.values())
            if len(consumer.commits_asked) > sent:
                fail("C8", f"{consumer.name} closes without an answer to commits {sorted(consumer.commits_asked)}")

    def _ask_early(self, consumer: Process, asked: _Asked) -> None:
        asked.planned = False
        if not consumer.frozen:
            self._ask(consumer, "before its deadline")

    @staticmethod
    def _ask(consumer: Process, when: str) -> None:
        member, now_ms = consumer.member, consumer.now_ms
        deadline_ms = member.deadline_ms()
        if consumer.closed or (deadline_ms is not None and deadline_ms <= now_ms):
            return  # the consumer is about to wake it
        before = member.view()
        effects = member.step(Tick(consumer.app_polled_ms), now_ms=now_ms)
        after_ms = member.deadline_ms()
        if effects or member.view() is not before:
            fail("C9", f"{consumer.name} has nothing to do until {deadline_ms}, and asked {when} does {effects}")
        if after_ms != deadline_ms and (after_ms is None or deadline_ms is None or after_ms < deadline_ms):
            fail("C9", f"{consumer.name} asked {when} moves its deadline from {deadline_ms} to {after_ms}")


def _is_commit(effect: MemberEffect) -> bool:
    return isinstance(effect, SendRequest) and isinstance(effect.request, OffsetCommitRequest)
