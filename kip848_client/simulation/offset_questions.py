"""Calls of committed() by the application: for partitions that it reads, and for one without a reader.

C8: each call is answered once by its deadline, or abandoned. Does not own: the check of the offsets in the answer
(`checkers.offsets`).
"""

from __future__ import annotations

from typing import Final

from kip848_client.member.events import CallAbandoned, FetchOffsetsRequested, OffsetsFetched
from kip848_client.model import TopicPartition
from kip848_client.simulation.process import Process
from kip848_client.simulation.violation import fail

UNREAD: Final = TopicPartition("without a reader", 0)
"""So that no question is one that the member asks for itself."""
_ABANDONED: Final = 0.2
"""Part of the calls that are interrupted."""
_SLACK_MS: Final = 5
_SLOW_CLOCK: Final = 1.1


class OffsetQuestions:
    """The calls of one application; one at a time."""

    def __init__(self, consumer: Process) -> None:
        self._consumer = consumer
        self._asked: tuple[int, frozenset[TopicPartition], int, int] | None = None
        """Number, partitions, when it was asked in virtual time, and deadline on the member's clock."""

    def ask(self, partitions: frozenset[TopicPartition]) -> None:
        """Call committed(), unless that is under way."""
        consumer = self._consumer
        if self._asked is not None or consumer.failed:
            return
        fetch_id = consumer.next_call()
        wait_ms = consumer.draw(0, 2 * consumer.config.request_timeout_ms)
        deadline_ms = consumer.now_ms + wait_ms
        partitions |= {UNREAD}
        self._asked = (fetch_id, partitions, consumer.world.now_ms, deadline_ms)
        if consumer.chance(_ABANDONED):
            consumer.later(consumer.draw(0, wait_ms), lambda: self._abandon(fetch_id))
        consumer.later(int(wait_ms * _SLOW_CLOCK) + _SLACK_MS, lambda: self._look(fetch_id))
        consumer.step(FetchOffsetsRequested(fetch_id, partitions, deadline_ms))

    def answered(self, effect: OffsetsFetched) -> None:
        """committed() returns, or raises."""
        consumer, asked = self._consumer, self._asked
        if asked is None or effect.fetch_id != asked[0]:
            fail("C8", f"{consumer.name} is told offsets that it does not ask for: {effect}")
        else:
            self._asked = None
            if consumer.now_ms > max(asked[3], self._thawed_ms()) + _SLACK_MS:
                fail("C8", f"{consumer.name} is told offsets {consumer.now_ms - asked[3]} ms after its deadline")
            if not effect.offsets.keys() <= asked[1]:
                fail("C8", f"{consumer.name} asked for {sorted(asked[1])}, and is told {effect}")

    def _thawed_ms(self) -> int:
        """Tolerance in ms of its own clock for a process that was frozen."""
        consumer = self._consumer
        return consumer.now_ms if consumer.thaws_ms >= consumer.world.now_ms else 0

    def _abandon(self, fetch_id: int) -> None:
        """The call is interrupted, if it is still under way."""
        if self._asked is not None and self._asked[0] == fetch_id and not self._consumer.closed:
            self._asked = None
            self._consumer.step(CallAbandoned(fetch_id))

    def _look(self, fetch_id: int) -> None:
        """The deadline is over."""
        consumer, asked = self._consumer, self._asked
        if asked is None or asked[0] != fetch_id or consumer.closed:
            return
        if consumer.thaws_ms >= asked[2]:
            consumer.later(_SLACK_MS, lambda: self._look_again(fetch_id))
        else:
            fail("C8", f"{consumer.name} asked for offsets until {asked[3]}, and heard nothing at {consumer.now_ms}")

    def _look_again(self, fetch_id: int) -> None:
        """The same, of a process that stood still."""
        asked = self._asked
        if asked is not None and asked[0] == fetch_id and not self._consumer.closed:
            fail("C8", f"{self._consumer.name} asked for offsets until {asked[3]}, and heard nothing since it thawed")
