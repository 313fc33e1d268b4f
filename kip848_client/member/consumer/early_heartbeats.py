"""Early heartbeats: a member that waits for partitions of other members sends heartbeats before the interval ends.

A partition that moves has no reader between its revocation and the new owner's next heartbeat. The coordinator cannot
call the new owner, so the new owner asks: soon after its epoch moved, then after growing delays, and soon again when
some of the partitions arrive. It learns which partitions it waits for

- from ``PendingTopicPartitions`` of the answer, which our own coordinator sends;
- else from one ConsumerGroupDescribe for each epoch, after the first early heartbeat brought nothing; from another one
  if partitions arrived before the answer. A group of more than `SMALL_GROUP` members is asked once only;
- else not at all: then the number of early heartbeats is limited (`BLIND_HEARTBEATS_MAX`).

While it knows of such partitions, it asks every `KNOWN_MAX_MS` for two intervals: their owners need as long to learn of
the revocation and to finish it. After that it asks after growing delays. In a group of more than `CROWD` members it
asks less often, in proportion. A member that waits for no partition sends no early heartbeat.

One more early heartbeat follows a fail-over: the next coordinator may have moved partitions meanwhile. The members of a
group lose their coordinator in the same millisecond, so each draws its own delay.

Does not own: building and sending heartbeats (`heartbeats`), what their answers change (`membership`).

Source: own; KIP-848 leaves it to the interval. Rules: R180 to R186, R255, R260 and R261 in docs/protocol.md.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kip848_client.common.model import NO_EPOCH
from kip848_client.member.core.assignment import IdPartition, partitions_described
from kip848_client.member.core.context import Context
from kip848_client.member.core.events import Destination, RequestFailed
from kip848_client.member.core.states import Phase
from kip848_client.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

FIRST_MS: Final = 30
"""Delay of the first early heartbeat in an epoch, and of the first one after some partitions arrived."""
GROWTH: Final = 1.5
KNOWN_MAX_MS: Final = 25
"""Longest delay while the member waits for known partitions. A moved partition stays unread for about this long."""
KNOWN_INTERVALS: Final = 2
"""Heartbeat intervals in which delays stay short: the owners learn of the revocation in the first, then revoke."""
BLIND_HEARTBEATS_MAX: Final = 12
"""Limit of early heartbeats per epoch, or per arrival, for a member that does not know whether partitions will come."""
SMALL_GROUP: Final = 48
"""Groups with up to this many members are described once per epoch."""
CROWD: Final = 30
"""In a larger group each member asks less often: all together ask at most `CROWD` times in `KNOWN_MAX_MS`."""
FOUND_MAX_MS: Final = 20
"""Longest delay after a fail-over in a group of `CROWD` members; a larger one needs longer, in proportion."""
_UNKNOWN_SIZE_INTERVALS: Final = 0.1
"""Longest delay after a fail-over, in heartbeat intervals, if the member does not know how large its group is."""
_JITTER: Final = 0.2


class _Wait(msgspec.Struct):
    """One wait, which began when the epoch moved or some partitions arrived."""

    since_ms: int
    delay_ms: float = FIRST_MS
    next_ms: int = 0
    sent: int = 0
    missing: frozenset[IdPartition] | None = None
    """Partitions that have not arrived; None while they are unknown."""
    may_grow: bool = False
    """The target that `missing` is taken from is about to be replaced: more may come."""


class EarlyHeartbeats:
    """Decides when a member that waits for partitions sends an early heartbeat."""

    def __init__(self, context: Context) -> None:
        self._context: Final = context
        self.wait: _Wait | None = None
        """The wait for partitions of others; None if the member waits for none."""
        self._request_id: int | None = None
        self._members = 0
        """Members of the group when it was described last."""
        self._asked_epoch = NO_EPOCH
        """Epoch in which ConsumerGroupDescribe was sent last."""
        self._found_ms: int | None = None
        """When the heartbeat after a fail-over is due; None once a heartbeat was sent."""
        self._next_found_ms = 0
        """No heartbeat follows a fail-over before this time."""

    def due_ms(self) -> int | None:
        """When the next early heartbeat is due; None if none is."""
        if self._context.phase is not Phase.IN_SYNC:
            return None
        if self.wait is None or self._found_ms is None:
            return self._found_ms if self.wait is None else self.wait.next_ms
        return min(self._found_ms, self.wait.next_ms)

    # --- heartbeats

    def sent(self, *, interval_ms: int) -> None:
        """A heartbeat was sent, early or not. The next early one is timed from it."""
        wait, now_ms = self.wait, self._context.now_ms
        self._found_ms = None
        if wait is None:
            return
        if self._context.phase is Phase.IN_SYNC and now_ms >= wait.next_ms:
            wait.sent += 1
            wait.delay_ms *= GROWTH
            fresh = now_ms - wait.since_ms < KNOWN_INTERVALS * interval_ms
            if wait.missing is not None and fresh:
                wait.delay_ms = min(wait.delay_ms, self._known_max_ms)
        if wait.delay_ms >= interval_ms or (wait.missing is None and wait.sent >= BLIND_HEARTBEATS_MAX):
            self.stop()
        else:
            self._schedule(wait)

    def coordinator_found(self, *, interval_ms: int) -> None:
        """The coordinator is connected again, after the last heartbeat was answered on another connection."""
        now_ms = self._context.now_ms
        if not self._context.config.early_heartbeats or (self._found_ms is None and now_ms < self._next_found_ms):
            return
        longest_ms = FOUND_MAX_MS * self._crowding if self._members else _UNKNOWN_SIZE_INTERVALS * interval_ms
        self._found_ms = now_ms + round(self._context.rng.uniform(0, min(longest_ms, interval_ms)))
        self._next_found_ms = now_ms + interval_ms

    def answered(
        self,
        *,
        joined: bool,
        moved: bool,
        target: frozenset[IdPartition] | None,
        before: frozenset[IdPartition],
        pending: frozenset[IdPartition],
    ) -> None:
        """The coordinator accepted a heartbeat.

        Args:
            joined: the heartbeat was a join.
            moved: the member's epoch changed.
            target: the assignment of the answer, or None if it had none.
            before: the target before it.
            pending: partitions that the member has to wait for, according to the coordinator.
        """
        if not self._context.config.early_heartbeats:
            return
        if joined:
            self._members = 0
            self._asked_epoch = NO_EPOCH
        brought = target is not None and not target <= before
        if moved:
            self._begin(None, likely=joined or brought or not self._large_group)
        elif brought:
            before_it = self.wait or _Wait(0)
            self._begin(before_it.missing, likely=True, may_grow=before_it.may_grow)
        wait = self.wait
        if wait is None:
            return
        if pending:
            wait.missing = pending
        elif wait.missing is not None and target is not None:
            wait.missing -= target
            if not wait.missing and wait.may_grow:
                wait.missing = None
            elif not wait.missing:
                self.stop()

    def _begin(self, missing: frozenset[IdPartition] | None, *, likely: bool, may_grow: bool = False) -> None:
        self.stop()
        if likely:
            self.wait = _Wait(self._context.now_ms, missing=missing, may_grow=may_grow)
            self._schedule(self.wait)

    def _schedule(self, wait: _Wait) -> None:
        jitter = self._context.rng.uniform(1 - _JITTER, 1 + _JITTER)
        wait.next_ms = self._context.now_ms + max(1, round(wait.delay_ms * jitter))

    def stop(self) -> None:
        """Plan no early heartbeat: the member waits for nothing, or has left the group."""
        self.wait = None
        if self._request_id is not None:
            self._context.orphan(self._request_id)
            self._request_id = None
            self._asked_epoch = NO_EPOCH  # it was not answered: ask again

    # --- reasons to wait

    @property
    def _large_group(self) -> bool:
        return self._members > SMALL_GROUP

    @property
    def _crowding(self) -> float:
        """At least 1; grows with the group, so that all members together ask no more often than `CROWD` of them."""
        return max(1.0, self._members / CROWD)

    @property
    def _known_max_ms(self) -> float:
        return KNOWN_MAX_MS * self._crowding

    @property
    def question_wanted(self) -> bool:
        """Whether ConsumerGroupDescribe should say what the member waits for."""
        wait = self.wait
        return (
            wait is not None
            and wait.missing is None
            and self._asked_epoch != self._context.epoch
            and wait.sent > 0
            and not self._large_group
            and self._context.phase is Phase.IN_SYNC
        )

    def ask(self, *, timeout_ms: int, target: frozenset[IdPartition]) -> None:
        """Send ConsumerGroupDescribe.

        Args:
            target: what the member was assigned so far.
        """
        self._asked_epoch = self._context.epoch
        self._request_id = self._context.send(
            ConsumerGroupDescribeRequest(group_ids=(self._context.config.group_id,)),
            destination=Destination.COORDINATOR,
            timeout_ms=timeout_ms,
            on_answer=lambda response: self._described(response, target),
            on_failure=self._not_described,
        )

    def _not_described(self, _: RequestFailed) -> None:
        self._request_id = None

    def _described(self, response: ConsumerGroupDescribeResponse, target_before: frozenset[IdPartition]) -> None:
        self._request_id = None
        wait = self.wait
        assert wait is not None, "the end of a wait is the end of its question"
        group = next(iter(response.groups), None)
        if group is None:
            return
        self._members = len(group.members)
        member = next((member for member in group.members if member.member_id == self._context.member_id), None)
        if member is None or wait.missing is not None:
            return  # the coordinator itself has said it
        is_latest = group.assignment_epoch >= group.group_epoch
        missing = partitions_described(member.target_assignment) - target_before
        if not is_latest and (not missing or group.assignment_epoch != self._context.epoch):
            return  # the target that it waits for is still being computed
        wait.missing, wait.may_grow = missing, not is_latest
        if not missing:
            self.stop()
