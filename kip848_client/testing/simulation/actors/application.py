"""The application of one simulated consumer: a loop that polls, listeners that take their time, records handed out.

Listener calls run one at a time inside poll(). Only poll() hands out records, and only of partitions that the member
calls readable. A poll() without records waits for some, or for its timeout. The application's own random generator
draws its actions and their times (`Behaviour`).

Does not own: when members come and go (`actions`), the member (`simulated_consumer`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from kip848_client.common.model import NamedPartition, OffsetAndMetadata, TopicIdPartition
from kip848_client.errors import Kip848Error, NoOffsetForPartitionError
from kip848_client.member.core.events import (
    AppPolled,
    AssignPartitions,
    CommitDone,
    CommitKind,
    CommitRequested,
    ListenerDone,
    LosePartitions,
    OffsetsFetched,
    PositionSet,
    RevokePartitions,
)
from kip848_client.member.offsets.positions import EARLIEST_TIMESTAMP
from kip848_client.testing.simulation.observer import ListenerCall, Surroundings
from kip848_client.testing.simulation.virtual.client_process import ClientProcess
from kip848_client.testing.simulation.virtual.scheduler import Timer
from kip848_client.wire.messages.offset_commit import OffsetCommitRequest

_CALL_NAMES: Final[dict[type[ListenerCall], str]] = {
    AssignPartitions: "assigned",
    RevokePartitions: "revoked",
    LosePartitions: "lost",
}


class _Fetched(msgspec.Struct):
    """A partition that is fetched.

    Args:
        offset: of the next record.
        is_held: poll() hands out none of its records.
    """

    tip: TopicIdPartition
    offset: int
    is_held: bool = False


class ApplicationLoop:
    """The application's thread.

    Args:
        user_code: a user's own listener (`consumer.UserCode`), or None.
    """

    def __init__(self, consumer: ClientProcess, surroundings: Surroundings, user_code: Any) -> None:
        self._consumer: Final = consumer
        self._scheduler: Final = surroundings.scheduler
        self._topics: Final = surroundings.cluster.topics
        self._observer: Final = surroundings.observer
        self._user_code: Final = user_code
        self._fetched: dict[NamedPartition, _Fetched] = {}
        """In the order of the partitions."""
        self.consumed: dict[NamedPartition, OffsetAndMetadata] = {}
        self._reported: dict[NamedPartition, OffsetAndMetadata] | None = None
        self._calls: deque[ListenerCall] = deque()
        self._listener: ListenerCall | None = None
        self.polling: bool = False
        """Inside poll() or close()."""
        self._poll_ends: Timer | None = None
        self._pumping = False
        self._last_polled_ms = 0
        self._busy_until_ms = 0
        self.closing: bool = False

    # --- polling

    def start(self) -> None:
        """Begin to poll."""
        self._next_poll()

    def _next_poll(self, *, stall_ms: int = 0) -> None:
        behaviour = self._consumer.behaviour
        wait_ms = self._consumer.draw(*behaviour.think_ms) + stall_ms
        if stall_ms:
            self._busy_until_ms = self._scheduler.now_ms + wait_ms + 1
        self._consumer.later(wait_ms, self._poll)

    @property
    def last_polled_ms(self) -> int:
        """The last time at which the application was inside poll(); now, if it waits there."""
        return self._scheduler.now_ms if self.polling and self._listener is None else self._last_polled_ms

    @property
    def busy(self) -> bool:
        """Whether a listener runs, or the application does not come to poll()."""
        return self._listener is not None or self._scheduler.now_ms < self._busy_until_ms

    def _poll(self) -> None:
        consumer = self._consumer
        if consumer.closed or self.closing:
            return
        if consumer.failed:
            consumer.close()
            return
        self._scheduler.events += 1
        self.polling = True
        self._poll_ends = consumer.later(self._consumer.behaviour.poll_ms, self._poll_is_over)
        self.pump()

    def _poll_is_over(self) -> None:
        self._scheduler.events += 1
        self._poll_ends = None
        if self.polling and self._listener is None and not self.closing:
            self._end_poll(found=False)

    def _end_poll(self, *, found: bool) -> None:
        self.polling = False
        if self._poll_ends is not None:
            self._poll_ends.cancel()
            self._poll_ends = None
        self._last_polled_ms = self._scheduler.now_ms
        consumer, behaviour = self._consumer, self._consumer.behaviour
        if found and behaviour.commit and consumer.chance(behaviour.commit) and not consumer.failed:
            self.commit()
        stall_ms = 0
        if behaviour.stall and consumer.chance(behaviour.stall):
            stall_ms = consumer.config.max_poll_interval_ms
            consumer.note("application_stalls", ms=stall_ms)
        self._next_poll(stall_ms=stall_ms)

    def commit(self) -> None:
        """Commit the records that were handed out, by hand."""
        if self.consumed:
            consumer = self._consumer
            commit_id = consumer.next_call()
            consumer.commits_asked[commit_id] = self._scheduler.now_ms
            consumer.step(CommitRequested(commit_id, dict(self.consumed), CommitKind.ASYNC, None))

    def raised(self, error: Kip848Error) -> None:
        """poll() raises; an application without a reset policy then says itself where to begin."""
        if isinstance(error, NoOffsetForPartitionError):
            self._consumer.later(0, lambda: self._seek_to_beginning(error.partitions))

    def _seek_to_beginning(self, partitions: Iterable[NamedPartition]) -> None:
        for partition in partitions:
            if partition in self._consumer.assignment():
                self._consumer.step(PositionSet(partition, OffsetAndMetadata(EARLIEST_TIMESTAMP)))

    def pump(self) -> None:
        """Inside poll() or close(): listeners first, then what the group wants, then records."""
        if self._pumping or not self.polling or self._listener is not None:
            return
        self._pumping = True
        try:
            while self._go_on():
                pass
        finally:
            self._pumping = False

    def _go_on(self) -> bool:
        """Do one thing; returns whether there may be more to do."""
        consumer = self._consumer
        if consumer.closed or not self.polling or self._listener is not None:
            return False
        if self._calls:
            self._call_listener(self._calls.popleft())
            return True
        if self.closing:
            return False
        view = consumer.view
        if view.poll_wanted and not (view.positions_only and self.consumed == self._reported):
            version = view.version
            self._reported = dict(self.consumed)
            consumer.step(AppPolled(dict(self.consumed)))
            if self._calls or consumer.view.version != version:
                return True
            view = consumer.view
        if consumer.failed:
            self._end_poll(found=False)  # poll() raises
        elif view.awaiting_app:
            pass  # a commit is under way: poll() waits as long as its caller allows
        elif self._hand_out(view.readable):
            self._end_poll(found=True)
        elif self._poll_ends is None:
            self._end_poll(found=False)  # its time was over while a listener ran
        return False

    # --- records

    def _hand_out(self, readable: frozenset[NamedPartition]) -> bool:
        ends = self._topics.end_offsets
        left = self._room()
        if left <= 0:
            return False
        found = False
        for partition, fetched in tuple(self._fetched.items()):
            start, end = fetched.offset, ends.get(partition, 0)
            if end <= start or fetched.is_held or partition not in readable or not self._wants(partition):
                continue
            if fetched.tip.topic_id != self._topics.id_of(partition.topic):
                continue  # the topic was created again: its leader knows no such topic id
            stop = min(end, start + left)
            left -= stop - start
            fetched.offset = stop
            self.consumed[partition] = OffsetAndMetadata(stop)
            found = True
            self._observer.handed_out(self._consumer, fetched.tip, range(start, stop))
            if self._user_code is not None:
                self._user_code.on_records(self._consumer, partition, range(start, stop))
            self._took(fetched.tip, range(start, stop))
            if left <= 0:
                break
        return found

    def _room(self) -> int:
        """How many records the application takes now."""
        return self._consumer.behaviour.rows_per_poll

    def _wants(self, partition: NamedPartition) -> bool:
        """Whether the application takes records of this partition now."""
        return True

    def _took(self, tip: TopicIdPartition, offsets: range) -> None:
        """poll() returned these records."""

    def records_arrived(self, partition: NamedPartition) -> None:
        """The leader of a partition has more records."""
        if self.polling and self._listener is None and not self.holds(partition):
            self._consumer.awake(self.pump)

    def start_fetching(self, positions: Mapping[TopicIdPartition, OffsetAndMetadata]) -> None:
        """Fetch these partitions from there."""
        for tip, position in positions.items():
            self._fetched[tip.topic_partition] = _Fetched(tip, position.offset)
            self._observer.fetching_started(self._consumer, tip, position.offset)
        self._fetched = dict(sorted(self._fetched.items()))

    def hold(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Do not hand out records of these."""
        for tip in partitions:
            if (fetched := self._fetched.get(tip.topic_partition)) is not None:
                fetched.is_held = True

    def let_go(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Fetch these no more."""
        for tip in partitions:
            partition = tip.topic_partition
            fetched = self._fetched.get(partition)
            if fetched is not None and fetched.tip == tip:  # the topic was not recreated meanwhile
                del self._fetched[partition]
                self.consumed.pop(partition, None)

    def holds(self, partition: NamedPartition) -> bool:
        """Whether a partition is paused, or not fetched at all."""
        fetched = self._fetched.get(partition)
        return fetched is None or fetched.is_held

    def position(self, partition: NamedPartition) -> int | None:
        """The next offset of a partition that is fetched."""
        fetched = self._fetched.get(partition)
        return None if fetched is None else fetched.offset

    def writes(self, request: OffsetCommitRequest) -> bool:
        """Whether a commit belongs to the transaction that is being written; True without transactions."""
        return True

    def commit_ended(self, commit: CommitDone) -> None:
        """A commit of the application ended."""

    def offsets_fetched(self, fetched: OffsetsFetched) -> None:
        """A question for committed offsets was answered."""

    def gone(self) -> None:
        """The process ended: fetch nothing, and wait for nothing."""
        self._fetched.clear()
        if self._poll_ends is not None:
            self._poll_ends.cancel()

    # --- listeners

    def call(self, call: ListenerCall) -> None:
        """Call a listener as soon as the application is inside poll() or close()."""
        self._calls.append(call)

    def close(self) -> None:
        """The application is inside close(): listeners run there."""
        self.closing = True
        self.polling = True
        if self._poll_ends is not None:
            self._poll_ends.cancel()
            self._poll_ends = None

    def _call_listener(self, call: ListenerCall) -> None:
        consumer = self._consumer
        self._listener = call
        self._last_polled_ms = self._scheduler.now_ms
        self._scheduler.events += 1
        if isinstance(call, LosePartitions):
            self.let_go(call.partitions)
        name = _CALL_NAMES[type(call)]
        consumer.note(f"{name}_begins", partitions=call.partitions)
        self._observer.listener_begins(consumer, name, call.partitions)
        self._before_listener(call, lambda: self._run_listener(call, name))

    def _before_listener(self, call: ListenerCall, go_on: Callable[[], None]) -> None:
        """Do what the application has to do before the user's listener runs; *go_on* is called then."""
        go_on()

    def _run_listener(self, call: ListenerCall, name: str) -> None:
        consumer, behaviour = self._consumer, self._consumer.behaviour
        error: BaseException | None = None
        if self._user_code is not None:
            error = self._user_error(getattr(self._user_code, f"on_partitions_{name}"), call)
        if error is None and behaviour.listener_raises and consumer.chance(behaviour.listener_raises):
            error = RuntimeError("simulated")
        takes_ms = consumer.draw(*behaviour.listener_ms)
        if behaviour.hang and consumer.chance(behaviour.hang):
            takes_ms += consumer.draw(1, 2 * consumer.config.rebalance_timeout_ms)
            consumer.note("listener_hangs", ms=takes_ms)
        consumer.later(takes_ms, lambda: self._listener_ended(call, name, error))

    def _user_error(self, listener: Callable[..., object], call: ListenerCall) -> BaseException | None:
        try:
            listener(self._consumer, sorted(tip.topic_partition for tip in call.partitions))
        except AssertionError:
            raise  # an assertion of the test that plays the run
        except Exception as error:  # noqa: BLE001  as in a real poll(): the member is told, and goes on
            return error
        return None

    def _listener_ended(self, call: ListenerCall, name: str, error: BaseException | None) -> None:
        consumer = self._consumer
        if consumer.closed:
            return
        self._scheduler.events += 1
        self._listener = None
        raised = error is not None
        self._observer.listener_ended(consumer, name, call.partitions, error)
        if isinstance(call, RevokePartitions) and not raised:
            self.let_go(call.partitions)
        consumer.note(f"{name}_raised" if raised else f"{name}_ended")
        consumer.step(ListenerDone(call.token, error))
        self.pump()
