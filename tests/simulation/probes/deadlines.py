"""C9: a member without a new event does nothing before its deadline, and C8: it forgets requests that have ended."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from kip848_client.member.core.events import MemberEffect, MemberEvent, SendRequest, Tick
from kip848_client.testing.simulation.observer import Observer
from kip848_client.testing.simulation.virtual.client_process import ClientProcess
from kip848_client.testing.simulation.virtual.violation import fail
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest

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

    def told(self, consumer: ClientProcess, event: MemberEvent) -> None:
        """The event may end a request."""
        if consumer.name not in self._members:
            self._members[consumer.name] = _Asked(consumer.scheduler.random(f"deadlines {consumer.name}"))
        self._members[consumer.name].under_way.pop(getattr(event, "request_id", None) or 0, None)

    def decided(self, consumer: ClientProcess, effects: Sequence[MemberEffect]) -> None:
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

    def stepped(self, consumer: ClientProcess) -> None:
        """Probe the member now, and once before its deadline."""
        asked = self._members[consumer.name]
        self._compare(consumer, asked)
        self._ask(consumer, "again at once")
        if not asked.planned:
            asked.planned = True
            deadline_ms = consumer.member.deadline_ms()
            wait_ms = _LONGEST_MS if deadline_ms is None else min(_LONGEST_MS, deadline_ms - consumer.now_ms)
            delay_ms = int(asked.rng.random() * max(0, wait_ms))
            consumer.scheduler.call_in(delay_ms, lambda: self._ask_early(consumer, asked))

    @staticmethod
    def _compare(consumer: ClientProcess, asked: _Asked) -> None:
        count = consumer.member.requests_under_way
        if count != len(asked.under_way):
            fail("C8", f"{consumer.name} counts {count} requests, under way are {sorted(asked.under_way)}")
        closing = consumer.commits_asked and (consumer.leaving or consumer.closed)
        if closing and consumer.member.coordinator is None:
            sent = sum(_is_commit(effect) for effect in asked.under_way.values())
            if len(consumer.commits_asked) > sent:
                fail("C8", f"{consumer.name} closes without an answer to commits {sorted(consumer.commits_asked)}")

    def _ask_early(self, consumer: ClientProcess, asked: _Asked) -> None:
        asked.planned = False
        if not consumer.frozen:
            self._ask(consumer, "before its deadline")

    @staticmethod
    def _ask(consumer: ClientProcess, when: str) -> None:
        member, now_ms = consumer.member, consumer.now_ms
        deadline_ms = member.deadline_ms()
        if consumer.closed or (deadline_ms is not None and deadline_ms <= now_ms):
            return  # the consumer is about to wake it
        before = member.view()
        effects = member.step(Tick(consumer.app_polled_ms), now_ms=now_ms)
        after_ms = member.deadline_ms()
        if effects or member.view() is not before:
            fail("C9", f"{consumer.name} has nothing to do until {deadline_ms}, and asked {when} does {effects}")
        # A deadline that is gone woke the member once for nothing; one that is new or earlier was missing before.
        if after_ms != deadline_ms and (after_ms is None or deadline_ms is None or after_ms < deadline_ms):
            fail("C9", f"{consumer.name} asked {when} moves its deadline from {deadline_ms} to {after_ms}")


def _is_commit(effect: MemberEffect) -> bool:
    return isinstance(effect, SendRequest) and isinstance(effect.request, OffsetCommitRequest)
