"""The heartbeats of one member: their number, time and fields. C4; rules R27 to R46 of docs/protocol.md.

The checkers derive the rules a second time, from what is visible outside of a member: its answers, its application and
its requests. Times are those of the member's own clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kip848_client.errors import ErrorCode
from kip848_client.member.early_heartbeats import BLIND_HEARTBEATS_MAX, KNOWN_INTERVALS, KNOWN_MAX_MS
from kip848_client.member.events import StateChanged
from kip848_client.member.states import FATAL, HEARTBEATING, IN_GROUP, MemberState, Phase
from kip848_client.model import TopicIdPartition
from kip848_client.simulation.observer import Observer, about
from kip848_client.simulation.process import Process
from kip848_client.simulation.violation import fail
from kip848_client.wire.messages.consumer_group_heartbeat import (
    Assignor,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.messages.consumer_group_install_assignment import (
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
)
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kip848_client.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kip848_client.wire.schema import Request

_OMITTED: Final = -1
_LEAVES: Final = -1
_LEAVES_FOR_A_WHILE: Final = -2
_AT_ONCE: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_REMOVED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
_NEWS: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH})
OUT: Final = frozenset({MemberState.UNJOINED, MemberState.RELEASING_ASSIGNMENT, MemberState.FATAL})
_NO_JITTER: Final = 0.8
_MOST_JITTER: Final = 1.2
"""The shortest and the longest back-off, as parts of the one without jitter."""

_SLACK_MS: Final = 2
"""Tolerance for a clock that runs fast or slow."""


def least_backoff_ms(consumer: Process, failures: int) -> int:
    """The shortest wait after a failure that follows *failures* others in a row."""
    config = consumer.config
    return int(_NO_JITTER * min(config.retry_backoff_ms * 2 ** min(failures, 20), config.retry_backoff_max_ms))


def most_backoff_ms(consumer: Process, failures: int) -> int:
    """The longest wait."""
    config = consumer.config
    return int(_MOST_JITTER * min(config.retry_backoff_ms * 2 ** min(failures, 20), config.retry_backoff_max_ms)) + 1


class _Told(msgspec.Struct):
    """The fields that the coordinator knows, and the connection that carried them."""

    link: object
    topics: tuple[str, ...]
    pattern: str
    assignors: tuple[Assignor, ...] | None


class _Life(msgspec.Struct):
    """The heartbeats of one member."""

    told: _Told | None = None
    """None while everything must be repeated."""
    waiting: Request[Any] | None = None
    sent_ms: int | None = None
    interval_ms: int = 0
    due_ms: int = 0
    expected_ms: int | None = None
    failures: int = 0
    not_before_ms: int = 0
    not_after_ms: int | None = None
    """When the longest backoff has ended."""
    failed_at_ms: int = 0
    """In virtual time."""
    link: object = None
    """The connection on which that was heard."""
    removals: int = 0
    early: int = 0
    """Early heartbeats since the coordinator said something new."""
    epoch: int = 0
    hurried: bool = False
    """A heartbeat may be due at once."""
    certain: bool = False
    """A heartbeat is due at once."""
    owed_step: int | None = None
    """The step in which it had to be sent, because nothing held it up."""
    join_owed_step: int | None = None
    """The step in which it had to join again, because it was removed for the first time."""
    may_hold_instance: bool = False
    """A heartbeat was accepted, or may have been: the member may hold the instance id itself."""
    freed_instance: bool = False
    """It left on that account, and was not accepted since."""
    leave_owed_step: int | None = None
    """The step in which it had to leave on that account."""
    said_goodbye: bool = False
    described_step: int | None = None
    """The step in which its assignors offered something new, which had to be sent at once."""


class HeartbeatRules(Observer):
    """C4: one heartbeat at a time, full when it must be, and else with changes only; it keeps interval and back-off.

    A heartbeat that is due at once is sent in the same step, unless another is in flight. So is a new offer of the
    assignors, except for a withdrawn reason. A member that leaves says so, if its coordinator is connected. The metrics
    show when a heartbeat was due.
    """

    def __init__(self) -> None:
        self._lives: defaultdict[str, _Life] = defaultdict(_Life)

    # ------------------------------------------------------------------------------------------------- what leaves

    @about(ConsumerGroupHeartbeatRequest)
    def sent(self, consumer: Process, request: ConsumerGroupHeartbeatRequest) -> None:
        life = self._lives[consumer.name]
        if request.member_epoch < 0:
            self._leaves(consumer, life, request)
            return
        if consumer.member.phase not in HEARTBEATING:
            fail("C4", f"{consumer.name} is {consumer.member.phase.name} and sends {request}")
        if life.waiting is not None:
            fail("C4", f"{consumer.name} has two heartbeats under way")
        if life.described_step not in {None, consumer.world.steps}:
            fail("C4", f"{consumer.name} offers other assignors since step {life.described_step}, and says so only now")
        self._owes_nothing(consumer, life)
        joins = request.member_epoch == 0
        news = self._contents(consumer, life, request, joins=joins)
        now_ms = consumer.now_ms
        if now_ms < life.not_before_ms:
            fail("C4", f"{consumer.name} repeats a heartbeat {life.not_before_ms - now_ms} ms before its back-off ends")
        held_up = consumer.thaws_ms >= life.failed_at_ms or life.link is not consumer.network.link
        if life.not_after_ms is not None and now_ms > life.not_after_ms + _SLACK_MS and not held_up:
            fail("C4", f"{consumer.name} repeats a heartbeat {now_ms - life.not_after_ms} ms after its back-off ended")
        too_early = now_ms < life.due_ms and not (joins or news or life.hurried)
        if too_early and not self._asks_early(consumer, life):
            fail("C4", f"{consumer.name} sends a heartbeat {life.due_ms - now_ms} ms early, with no news")
        due_ms = consumer.member.statistics.last_heartbeat_due_ms
        if due_ms != (None if joins else life.expected_ms):
            fail("C4", f"{consumer.name} says that its heartbeat was due at {due_ms}, and not {life.expected_ms}")
        self._written(consumer, life, request)

    @about(ConsumerGroupHeartbeatRequest)
    def unsent(self, consumer: Process, request: ConsumerGroupHeartbeatRequest) -> None:
        """A request without a connection counts as sent, and will fail."""
        life = self._lives[consumer.name]
        if request.member_epoch < 0:
            self._made_room(consumer, life)
            return
        self._written(consumer, life, request)
        self._failed(consumer, life)

    def _written(self, consumer: Process, life: _Life, request: ConsumerGroupHeartbeatRequest) -> None:
        life.waiting, life.sent_ms = request, consumer.now_ms
        life.due_ms = consumer.now_ms + life.interval_ms
        life.expected_ms = life.due_ms if life.interval_ms else None
        life.hurried, life.certain, life.owed_step = False, False, None
        life.not_after_ms = life.join_owed_step = life.described_step = None
        told = life.told
        topics, pattern, assignors = (told.topics, told.pattern, told.assignors) if told is not None else ((), "", None)
        life.told = _Told(
            consumer.network.link,
            topics if request.subscribed_topic_names is None else request.subscribed_topic_names,
            pattern if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
            assignors if request.client_assignors is None else request.client_assignors,
        )

    @staticmethod
    def _asks_early(consumer: Process, life: _Life) -> bool:
        """R180 to R182: whether the member may wait for partitions of others, and does not ask too often."""
        life.early += 1
        waited_ms = consumer.now_ms - (life.sent_ms or 0)
        often = life.early <= BLIND_HEARTBEATS_MAX + KNOWN_INTERVALS * life.interval_ms / (_NO_JITTER * KNOWN_MAX_MS)
        in_sync = consumer.member.phase is Phase.IN_SYNC
        return consumer.config.early_heartbeats and in_sync and often and waited_ms >= int(_NO_JITTER * KNOWN_MAX_MS)

    @staticmethod
    def _contents(consumer: Process, life: _Life, request: ConsumerGroupHeartbeatRequest, *, joins: bool) -> bool:
        """R39 to R44. Returns whether it has any news."""
        config, told = consumer.config, life.told
        names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
        fixed = (request.rack_id, request.rebalance_timeout_ms, request.server_assignor)
        if (names is None) != (pattern is None):
            fail("C4", f"{consumer.name} tells one half of its subscription: {request}")
        if joins or told is None or told.link is not consumer.network.link:
            full = (config.rack_id, config.rebalance_timeout_ms, config.server_assignor)
            if fixed != full or names is None or request.topic_partitions is None:
                fail("C4", f"{consumer.name} must tell everything, and sends {request}")
            if joins and request.topic_partitions != ():
                fail("C4", f"{consumer.name} joins with {request}")
            if (request.client_assignors is None) != (not config.client_assignors):
                fail("C4", f"{consumer.name} must tell of its assignors, and sends {request}")
            return True
        if fixed != (None, _OMITTED, None):
            fail("C4", f"{consumer.name} repeats what the coordinator knows: {request}")
        if names is not None and (names, pattern) == (told.topics, told.pattern):
            fail("C4", f"{consumer.name} repeats its subscription: {request}")
        if request.client_assignors is not None and request.client_assignors == told.assignors:
            fail("C4", f"{consumer.name} repeats its assignors: {request}")
        return (names, request.topic_partitions, request.client_assignors) != (None, None, None)

    def _leaves(self, consumer: Process, life: _Life, request: ConsumerGroupHeartbeatRequest) -> None:
        """R46; and a member that frees its own instance id joins again at once."""
        life.said_goodbye = True
        if consumer.member.phase in FATAL:
            fail("C4", f"{consumer.name} is FATAL and sends a heartbeat")
        bare = ConsumerGroupHeartbeatRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=_LEAVES if consumer.config.instance_id is None else _LEAVES_FOR_A_WHILE,
            instance_id=consumer.config.instance_id,
        )
        if request != bare:
            fail("C4", f"{consumer.name} leaves with {request}")
        self._made_room(consumer, life)

    @staticmethod
    def _made_room(consumer: Process, life: _Life) -> None:
        """A member that leaves because it may hold its own instance id joins again at once."""
        if consumer.member.phase is Phase.JOINING:
            life.freed_instance, life.leave_owed_step = True, None
            life.failures, life.not_before_ms = 0, 0
            life.hurried, life.owed_step = True, consumer.world.steps

    # ---------------------------------------------------------------------------------------------- what comes back

    @about(
        ConsumerGroupHeartbeatRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        ConsumerGroupInstallAssignmentRequest,
    )
    def answered(self, consumer: Process, request: Any, response: Any) -> None:
        life = self._lives[consumer.name]
        self._owes_nothing(consumer, life)
        match response:
            case ConsumerGroupHeartbeatResponse():
                if life.waiting is request:
                    self._heard(consumer, life, response)
            case OffsetCommitResponse(topics=topics):
                if any(item.error_code in _NEWS for topic in topics for item in topic.partitions):
                    self._hurry(consumer, life, certain=True)
            case OffsetFetchResponse(groups=groups):
                if any(group.error_code in _NEWS for group in groups) or response.error_code in _NEWS:
                    life.hurried = True
            case ConsumerGroupInstallAssignmentResponse(error_code=0):
                self._hurry(consumer, life, certain=request.member_epoch == consumer.view.member_epoch)
            case _:
                pass

    def _heard(self, consumer: Process, life: _Life, response: ConsumerGroupHeartbeatResponse) -> None:
        now_ms, code = consumer.now_ms, response.error_code
        life.waiting = None
        if not code:
            if response.assignment is not None or response.member_epoch != life.epoch:
                life.early, life.epoch = 0, response.member_epoch
            life.may_hold_instance, life.freed_instance = True, False
            life.failures, life.not_before_ms = 0, 0
            if consumer.member.phase is not Phase.JOINING:
                life.removals = 0
            if response.heartbeat_interval_ms != life.interval_ms:
                life.interval_ms = response.heartbeat_interval_ms
                life.due_ms = life.expected_ms = now_ms + life.interval_ms
            if life.certain and has_coordinator(consumer):
                life.owed_step = consumer.world.steps
            return
        joins = consumer.member.phase is Phase.JOINING and has_coordinator(consumer)
        if code == ErrorCode.UNRELEASED_INSTANCE_ID and joins and life.may_hold_instance and not life.freed_instance:
            life.leave_owed_step = consumer.world.steps
        if code not in _REMOVED and code not in _AT_ONCE:
            if has_coordinator(consumer):
                life.link, life.failed_at_ms = consumer.network.link, consumer.world.now_ms
                life.not_after_ms = now_ms + most_backoff_ms(consumer, life.failures)
            self._failed(consumer, life)
            return
        life.told, life.described_step, life.due_ms = None, None, now_ms
        life.failures = life.not_before_ms = 0
        if code in _REMOVED and (consumer.member.phase in IN_GROUP or consumer.member.phase is Phase.JOINING):
            life.removals += 1
            if life.removals > 1:  # R34
                life.not_before_ms = now_ms + least_backoff_ms(consumer, life.removals - 2)
                life.failures = life.removals - 1

    @about(ConsumerGroupHeartbeatRequest)
    def unanswered(self, consumer: Process, request: Any) -> None:
        """It may have arrived: the next heartbeat must be full."""
        life = self._lives[consumer.name]
        self._owes_nothing(consumer, life)
        if life.waiting is request:
            life.may_hold_instance = True
            self._failed(consumer, life)

    @staticmethod
    def _failed(consumer: Process, life: _Life) -> None:
        now_ms = consumer.now_ms
        life.waiting = life.told = life.described_step = None
        life.due_ms = now_ms
        life.not_before_ms = now_ms + least_backoff_ms(consumer, life.failures)
        life.failures += 1

    # ------------------------------------------------------------------------------------------- what else happens

    def listener_ended(
        self, consumer: Process, name: str, partitions: Iterable[TopicIdPartition], error: object
    ) -> None:
        """R30: what was reconciled is acknowledged at once."""
        if name == "assigned" and error is None:
            certain = consumer.member.phase is Phase.ASSIGNING and not consumer.application.calls_waiting
            self._hurry(consumer, self._lives[consumer.name], certain=certain)

    def assignor_described(self, consumer: Process, offered: tuple[Assignor, ...]) -> None:
        life = self._lives[consumer.name]
        told = None if life.told is None or life.waiting is not None else life.told.assignors
        owes = told is not None and has_coordinator(consumer) and consumer.member.phase in IN_GROUP
        if owes and _without_reasons(offered) != _without_reasons(told or ()):
            life.described_step = consumer.world.steps

    def state_changed(self, consumer: Process, effect: StateChanged) -> None:
        """A member outside the group waits for no answer, and the coordinator knows none of its fields."""
        if effect.new in OUT and not consumer.is_classic:
            life = self._lives[consumer.name]
            if effect.trigger == "left" and not life.said_goodbye and has_coordinator(consumer):
                fail("C4", f"{consumer.name} leaves and does not say so")
            life.said_goodbye = False
            life.waiting = life.told = life.expected_ms = life.owed_step = life.described_step = None
            life.hurried = life.certain = False
            life.not_after_ms = None
            if life.removals < 2:
                life.failures = life.not_before_ms = 0
            life.due_ms = 0
            at_once = consumer.member.phase is Phase.JOINING and life.removals == 1 and has_coordinator(consumer)
            life.join_owed_step = consumer.world.steps if at_once else None

    # ------------------------------------------------------------------------------------------------------- at once

    @staticmethod
    def _hurry(consumer: Process, life: _Life, *, certain: bool) -> None:
        """A heartbeat may be due at once, or must be sent if *certain*."""
        if consumer.is_classic:
            return
        life.hurried = True
        if certain and consumer.member.phase in IN_GROUP:
            life.certain = True
            if life.waiting is None and not life.failures and has_coordinator(consumer):
                life.owed_step = consumer.world.steps

    @staticmethod
    def _owes_nothing(consumer: Process, life: _Life) -> None:
        """A heartbeat that was due at once was sent in that step, if the coordinator was connected."""
        owed, steps = life.owed_step, consumer.world.steps
        if life.leave_owed_step not in {None, steps}:
            fail("C4", f"{consumer.name} may hold the instance id that it joins with, and does not free it")
        if life.join_owed_step not in {None, steps}:
            life.join_owed_step = None
            if consumer.member.phase is Phase.JOINING and has_coordinator(consumer):
                fail("C4", f"{consumer.name} was removed for the first time, and does not join again at once")
        if owed is None or owed == steps:
            return
        life.owed_step = None
        if consumer.member.phase in IN_GROUP and has_coordinator(consumer):
            fail("C4", f"{consumer.name} had to send a heartbeat {steps - owed} steps ago, and did not")


def has_coordinator(consumer: Process) -> bool:
    """Whether a member can send to its coordinator, and knows it."""
    return consumer.network.connected and consumer.member.coordinator is not None


def _without_reasons(offered: tuple[Assignor, ...]) -> list[Assignor]:
    return [replace(assignor, reason=0) for assignor in offered]
