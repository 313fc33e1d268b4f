"""What ``process()`` does to its consumer, on the consumer's thread. Others are refused the same calls meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kip848_client.common.model import NamedPartition, OffsetAndMetadata, describe_partitions
from kip848_client.consumer.processing.callbacks import OnPartitions, ProcessingCallbacks
from kip848_client.consumer.records.data_plane import OFFSET_BEGINNING, Message, TopicPartition, internal
from kip848_client.errors import (
    DeserializationError,
    IllegalStateError,
    Kip848Error,
    RequestTimeoutError,
    TransactionAbortedError,
)
from kip848_client.member.processing.work import ProcessingStatus

if TYPE_CHECKING:
    from kip848_client.consumer.core import ConsumerCore
    from kip848_client.consumer.processing.driver import Driver
    from kip848_client.consumer.processing.retry_topics import RetryTopics

_COMMIT_INTERVAL_MS: Final = 5_000
_COMMIT_TIMEOUT_S: Final = 10.0
Offsets = Mapping[NamedPartition, OffsetAndMetadata]


def _figures(status: Callable[[], ProcessingStatus]) -> dict[str, Callable[[], float]]:
    """The functions behind `telemetry.PROCESS_GAUGES`, called on the collector's thread."""
    return {
        "kip848.process.running": lambda: status().running,
        "kip848.process.waiting.slot": lambda: status().waiting_slot,
        "kip848.process.waiting.lane": lambda: status().waiting_lane,
        "kip848.process.waiting.retry": lambda: status().waiting_retry,
        "kip848.process.waiting.dead.letter": lambda: status().waiting_dead_letter,
        "kip848.process.waiting.output": lambda: status().waiting_output,
        "kip848.process.paused.partitions": lambda: status().paused,
        "kip848.process.oldest.seconds": lambda: status().oldest_s,
        "kip848.process.lag.seconds": lambda: status().lag_s,
        "kip848.process.done.total": lambda: status().done,
        "kip848.process.retries.total": lambda: status().retries,
        "kip848.process.dead.letters.total": lambda: status().dead_letters,
        "kip848.process.retry.later.total": lambda: status().retry_later,
        "kip848.process.held.partitions": lambda: status().held,
        "kip848.process.skipped.total": lambda: status().skipped,
        "kip848.process.abandoned.total": lambda: status().abandoned,
    }


class ConsumerAccess:
    """A consumer, as its ``process()`` uses it."""

    def __init__(self, core: ConsumerCore[Any, Any]) -> None:
        self._core: Final = core
        config = core.config
        self.group_id: Final = config.group_id
        self.client_id: Final = config.client_id
        self.commit_interval_s: Final = (config.auto_commit_interval_ms or _COMMIT_INTERVAL_MS) / 1000
        self.rebalance_timeout_s: Final = config.max_poll_interval_ms / 1000

    @contextmanager
    def taken(
        self, processor: Driver, *, on_assigned: OnPartitions, on_revoked: OnPartitions, on_lost: OnPartitions
    ) -> Iterator[None]:
        """Let *processor* commit in place of the automatic commits, and be told of rebalances.

        Automatic commits stay off afterwards: what process() has left is not done.

        Raises:
            IllegalStateError: it processes already, or nothing is subscribed or assigned.
        """
        core = self._core
        group = core.group
        if core.processor is not None:
            raise IllegalStateError("process() runs already; one at a time")
        group.check_usable()
        if not group.wants_records:
            raise IllegalStateError("nothing is subscribed or assigned: process() would wait for ever; subscribe first")
        core.processor = processor
        values = core.values
        if values is not None:
            values.originals = processor.originals
        group.thread.stored = dict
        listeners = group.listeners
        own = ProcessingCallbacks(listeners.callbacks, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)
        listeners.callbacks = own
        processor.telemetry.offer(_figures(processor.status))
        try:
            yield
        finally:
            processor.telemetry.withdraw()
            if listeners.callbacks is own:
                listeners.callbacks = own.inner
            if values is not None:
                values.originals = None
            core.processor = None

    def over(self) -> bool:
        """Whether no records will come any more."""
        group = self._core.group
        return group.closed or group.handed_over or group.thread.closing

    def ending(self) -> bool:
        """Whether it is to leave soon. From any thread."""
        return self._core.group.hand_over_wanted or self._core.group.thread.closing

    @property
    def leaves_by_s(self) -> float:
        """When handlers have to end because of hand_over(), by the monotonic clock; infinite without one."""
        return self._core.group.leaves_by_s

    @property
    def closed(self) -> bool:
        """Whether the consumer has left and takes no calls."""
        return self._core.group.closed

    def assigned(self) -> list[NamedPartition]:
        """The present partitions."""
        return sorted(self._core.group.assigned)

    def caught_up(self) -> bool:
        """Whether all partitions are read to their ends, as of their last fetches."""
        core = self._core
        view, manual = core.group.view, core.group.manual
        if not manual and (view.member_epoch <= 0 or view.news_expected or view.awaiting_app):
            return False
        try:
            lags = core.lag()
        except Kip848Error:  # it is not known now
            return False
        return len(lags) == len(self.assigned()) and not any(lags.values())

    def positions(self, names: Collection[NamedPartition]) -> dict[NamedPartition, int]:
        """Where partitions are read next, of those that are known to be read."""
        with self._core.gate:
            positions = self._core.fetcher.positions(names)
        return {name: position.offset for name, position in positions.items() if position.offset >= 0}

    def consume(self, count: int, timeout_s: float, *, bytes_max: int) -> list[Message]:
        """Records at hand, else the first that comes in *timeout_s*.

        Args:
            bytes_max: of keys and values; only the last record may exceed it.
        """
        core = self._core
        core.processor_reads, core.fetcher.bytes_max = True, bytes_max
        try:
            found: list[Any] = core.read(count, timeout_s)
            return found
        finally:
            core.processor_reads, core.fetcher.bytes_max = False, None

    def consume_meanwhile(self, count: int, *, bytes_max: int) -> list[Message]:
        """In the middle of a revocation: records at hand of the other partitions. Errors are left to the next call."""
        core = self._core
        fetcher, ready, values = core.fetcher, core.ready, core.values
        if not ready:
            outer, fetcher.bytes_max = fetcher.bytes_max, bytes_max
            try:
                with fetcher.lock:
                    ready.extend(fetcher.read(count, timeout_s=0))
            finally:
                fetcher.bytes_max = outer
            fetcher.on_the_way = False
        fetcher.keep_readable(core.group.view.readable)
        taken: list[Message] = []
        while ready and len(taken) < count and not fetcher.eventful:
            try:
                wanted = values is None or values.open(ready[0])
            except DeserializationError:
                break
            message = ready.popleft()
            if wanted:
                taken.append(message)
        return taken

    def skip(self, message: Message) -> None:
        """Go on behind a record that a deserializer refused."""
        ready = self._core.ready
        if ready and ready[0].offset() == message.offset() and ready[0].partition() == message.partition():
            del ready[0]

    def pause(self, partitions: Collection[NamedPartition]) -> None:
        """Return no records of them."""
        with self._core.gate:
            self._core.fetcher.pause(self._here(partitions))

    def resume(self, partitions: Collection[NamedPartition]) -> None:
        """Return records of them again."""
        with self._core.gate:
            self._core.fetcher.resume(self._here(partitions))

    def hold(self, places: Mapping[NamedPartition, int]) -> None:
        """Return no records of partitions, and begin again at these offsets once they are released."""
        with self._core.gate:
            for name in self._here(places):
                self._seek(name, places[name])
            self._core.fetcher.pause(self._here(places))

    def release(self, places: Mapping[NamedPartition, int], *, but: Collection[NamedPartition]) -> None:
        """Read partitions from these offsets on.

        Args:
            but: those that stay paused.
        """
        with self._core.gate:
            self._core.fetcher.resume(self._here(name for name in places if name not in but))
            for name in self._here(places):  # last, so that it counts whatever librdkafka has fetched meanwhile
                self._seek(name, places[name])

    def begin_at_start(self, names: Collection[NamedPartition]) -> None:
        """Read partitions from their first records on, whatever ``auto.offset.reset`` says."""
        core = self._core
        if not names or core.config.auto_offset_reset == "earliest":
            return
        with core.gate:
            for name in self._here(names):
                core.fetcher.detach([name])
                core.group.seek(internal(TopicPartition(*name)), OffsetAndMetadata(OFFSET_BEGINNING))

    def check_topics(self, retries: RetryTopics) -> None:
        """See `RetryTopics.check`."""
        group = self._core.group
        subscribed: Collection[str] | None = {name.topic for name in group.manual}
        if not group.manual:
            subscribed = None if group.subscription.pattern is not None else group.subscription.topics
        retries.check(self._core.config, subscribed=subscribed)

    def _here(self, partitions: Iterable[NamedPartition]) -> list[NamedPartition]:
        assigned = self._core.group.assigned
        return [name for name in partitions if name in assigned]

    def committed(self, names: Collection[NamedPartition], *, insist: bool = False) -> list[TopicPartition]:
        """Committed offsets with their metadata.

        Args:
            insist: wait for the answer; else without one in time none are known, and records are repeated.
        """
        while True:
            try:
                return self._core.committed([TopicPartition(*name) for name in names])
            except RequestTimeoutError:
                if insist and self.ending():
                    raise
                if not insist:
                    return [TopicPartition(*name) for name in names]

    def commit(self, offsets: Offsets) -> None:
        """Commit and wait.

        Raises:
            Kip848Error: it was refused, or not answered in time.
        """
        with self._core.gate:
            self._core.group.commit_sync(dict(offsets), timeout_ms=int(_COMMIT_TIMEOUT_S * 1000))

    def commit_later(self, offsets: Offsets, on_end: Callable[[Kip848Error | None], object]) -> None:
        """Commit and go on; *on_end* is called on the consumer's thread, in a later call."""
        with self._core.gate:
            self._core.group.commit_async(dict(offsets), lambda error, _: on_end(error))

    def serve_commits(self) -> None:
        """Call the *on_end* of commits that have ended: what other calls do, too."""
        self._core.group.thread.run_commit_callbacks()

    def group_metadata(self, names: Collection[NamedPartition]) -> bytes:
        """The member and its epoch, for a transaction with offsets of *names*.

        Raises:
            TransactionAbortedError: the member has lost some.
        """
        metadata = self._core.group_metadata()
        if lost := self._core.group.lost(names):
            raise TransactionAbortedError(f"{describe_partitions(lost)} were lost")
        return metadata

    def go_back(self, low_marks: Mapping[NamedPartition, int]) -> None:
        """Set positions to what is not done, for who reads next."""
        core = self._core
        with core.gate:
            for name in self._here(low_marks):
                self._seek(name, low_marks[name])
                core.fetcher.origins.committed({name: OffsetAndMetadata(low_marks[name])})

    def _seek(self, name: NamedPartition, offset: int) -> None:
        position = OffsetAndMetadata(offset)
        if not self._core.fetcher.seek(name, position):
            self._core.group.seek(name, position)

    def wake(self) -> None:
        """End a wait for records early; from any thread."""
        self._core.group.thread.wake()
