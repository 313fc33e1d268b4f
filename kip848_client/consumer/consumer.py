"""`Consumer`: the public, synchronous consumer.

Owns the calls: their signatures (confluent_kafka's, so that programs port by changing an import), their arguments and
their texts. What they do together is in `core`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Never, NoReturn, Self

from msgspec.structs import replace

from kip848_client.common.callables import (
    USE_ASYNC_CONSUMER,
    check_methods_not_async,
    check_not_async,
    check_takes,
)
from kip848_client.common.clock import Clock
from kip848_client.common.logs import LogEvent
from kip848_client.common.model import (
    NamedPartition,
    SubscriptionPattern,
    describe_partitions,
)
from kip848_client.config import ConfigValue, merge_settings
from kip848_client.config.other_clients import missing_attribute, refuse_milliseconds, refuse_seek
from kip848_client.consumer.core import CLOSE_TIMEOUT_S, LAG_TIMEOUT_S, ConsumerCore
from kip848_client.consumer.group.filling import Filling
from kip848_client.consumer.group.health import ConsumerHealth
from kip848_client.consumer.group.listener_invoker import ListenerEffect
from kip848_client.consumer.group.translation import (
    CommitCallback,
    assign_positions,
    check_commit_callback,
    check_partition,
    check_partitions,
    check_times,
    commit_offsets,
    flag,
    librdkafka_s,
    limit_ms,
    public_callback,
    public_offsets,
    read_subscription,
    record_count,
    seek_position,
)
from kip848_client.consumer.listeners import (
    LISTENER_METHODS,
    CallableListener,
    ConsumerRebalanceListener,
    ListenerCallbacks,
    RebalanceCallback,
    read_listener,
)
from kip848_client.consumer.records.data_plane import (
    TopicPartition,
    internal,
    public,
)
from kip848_client.consumer.records.error_messages import is_error
from kip848_client.consumer.records.fetcher import first_offsets
from kip848_client.consumer.records.message import K_co, Message, V_co
from kip848_client.errors import (
    ArgumentTypeError,
    IllegalStateError,
)
from kip848_client.journal import Journal
from kip848_client.member.core.events import AssignPartitions, LeaveMode, StartCause, StartReason
from kip848_client.member.core.states import MemberState
from kip848_client.member.processing.limits import Limits
from kip848_client.member.processing.settings import (
    BUFFER_BYTES,
    DRAIN_S,
    GRACE_S,
    SLICE_MS,
    SLICE_RECORDS,
    ProcessSettings,
)
from kip848_client.member.processing.work import Order, ProcessingFailure, ProcessingStatus

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tenacity import BaseRetrying

    from kip848_client.consumer.processing.dead_letters import DeadLetters
    from kip848_client.consumer.processing.outputs import HandlerOutputs
    from kip848_client.consumer.processing.record_copy import RecordCopy
    from kip848_client.consumer.processing.retry_topics import RetryTopics
    from kip848_client.consumer.processing.slices import HandlerTransaction
    from kip848_client.consumer.records.data_plane import ClusterMetadata, Producer

PREFETCH_RECORDS: Final = 256
"""Records that one poll() takes from librdkafka at most; the next calls return all but the first."""

BATCH_RECORDS: Final = 500
"""Default size of a batch of batches()."""

HAND_OVER_TIMEOUT_S: Final = 8.0
"""Default time-out of hand_over(): ``docker stop`` kills after 10 s."""


class Consumer(Generic[K_co, V_co]):
    """A member of a consumer group (KIP-848) that reads the records of its partitions.

    One thread at a time may read: call poll() and consume(), iterate, seek, subscribe and assign. Any other thread may
    meanwhile commit, ask, pause and resume, hand over and close, also while that one is inside a listener and waits
    for them. A thread of the library sends heartbeats. Errors are raised, never returned as messages. Rebalances
    happen, and listeners run, inside poll(), consume(), unsubscribe() and close().

    Args:
        config: Kafka's property names as librdkafka spells them; docs/porting.md has the differences.
        journal: where the client writes its event log.
        clock: tells the time of intervals and deadlines; a test can move its own.
        settings: override *config*: ``Consumer(conf, logger=log)``, ``Consumer(**conf)``.

    Raises:
        ConfigError: a key or value is wrong; the message says what to do.

    Example::

        with Consumer({"bootstrap.servers": "...", "group.id": "orders", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["orders"])
            for message in consumer:
                handle(message)
                consumer.commit(message)
    """

    def __init__(
        self,
        config: Mapping[str, ConfigValue] | None = None,
        *,
        journal: Journal | None = None,
        clock: Clock | None = None,
        **settings: ConfigValue,
    ) -> None:
        self._core: Final[ConsumerCore[K_co, V_co]] = ConsumerCore(
            merge_settings(config, settings), journal=journal, clock=clock
        )

    # --- group

    def subscribe(
        self,
        topics: Iterable[str | SubscriptionPattern] | SubscriptionPattern,
        listener: ConsumerRebalanceListener | RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        *,
        on_assign: RebalanceCallback | None = None,
    ) -> None:
        """Subscribe to these topics, in place of earlier ones. The consumer joins the group in the background.

        Partitions are assigned, and listeners called, in poll(). The first one has max.poll.interval.ms from here on.

        Args:
            topics: names, `SubscriptionPattern` objects, or names that start with ``^``, which are patterns (RE2,
                matched by the coordinator against whole names). An empty list is `unsubscribe`.
            listener: called when partitions are assigned, revoked or lost. A function in this place is *on_assign*:
                ``subscribe(topics, on_assign, on_revoke, on_lost)`` works as in confluent_kafka.
            on_assign, on_revoke, on_lost: the same as callables ``(consumer, partitions)``.

        Raises:
            ConfigError: a name is blank, or both a listener and callables are given.
            IllegalStateError: partitions are assigned by hand, or the consumer is closed.
        """
        core = self._core
        with core.gate:
            core.group.check_usable()
            subscription = read_subscription(topics)
            called, on_assign = read_listener(
                listener, on_assign, on_revoke, on_lost, kinds=(ConsumerRebalanceListener,)
            )
            for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
                check_not_async(callback, name=name, instead=USE_ASYNC_CONSUMER)
            check_methods_not_async(called, *LISTENER_METHODS, instead=USE_ASYNC_CONSUMER)
            if on_assign or on_revoke or on_lost:
                called = CallableListener(on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
            if not subscription:
                core.group.unsubscribe(timeout_ms=core.group.default_api_timeout_ms, waits=not core.as_messages)
                return
            core.group.subscribe(subscription, ListenerCallbacks(self, called) if called is not None else None)
            core.unmet_topics = frozenset(subscription.topics)
            core.silence.begin()

    def request_reassignment(self, reason: int) -> None:
        """Request a new assignment by the group's client-side assignor. Returns at once.

        The local assignors' metadata() is called first, so that the new assignment uses the result. Calls within one
        second of another one count as one, with the last *reason*.

        Args:
            reason: a number that the assignor defines, -128..127 and not 0; `PartitionAssignor.assign` sees the last
                one as `MemberSpec.reason`.

        Raises:
            IllegalStateError: ``group.local.assignors`` is not set, or the consumer is closed.
            ConfigError: *reason* is 0 or too large.
        """
        self._core.gate.check_process()
        self._core.group.request_reassignment(reason)

    def unsubscribe(self) -> None:
        """Leave the group, after on_partitions_revoked for all partitions. Ends a manual assignment as well.

        With enable.auto.commit, returned records are committed first; a listener that unsubscribes must commit itself.
        Waits for the coordinator's answer, at most default.api.timeout.ms; inside a listener, and with
        errors.as.messages, it does not wait: on_partitions_revoked runs in the next poll() or close().

        Raises:
            ListenerError: the listener raised; the consumer has left anyway.
        """
        core = self._core
        core.check_not_handling("unsubscribe")
        with core.gate:
            core.count_in_hand_as_done()
            core.group.unsubscribe(timeout_ms=core.group.default_api_timeout_ms, waits=not core.as_messages)
            if not core.group.listener_effect and not core.as_messages:
                core.fetcher.stop_all()

    # --- records

    def poll(self, timeout: float | None = -1.0, *, timeout_ms: None = None) -> Message[K_co, V_co] | None:
        """Take part in rebalances, and return the next record.

        Args:
            timeout: seconds; negative or None waits for ever.
            timeout_ms: refused: it is kafka-python's.

        Returns:
            A record; None after the timeout, also before subscribe(). With enable.partition.eof=true also messages with
            the ``error().code()`` `KafkaError._PARTITION_EOF`, but no other errors.

        Raises:
            ListenerError: a listener raised; the rebalance goes on with the next poll().
            BrokerError: the broker refused a request; every later call raises a ``fatal`` one again.
            Kip848Error: any other error of this library; see `kip848_client.errors`.
            IllegalStateError: the consumer is closed, also by another thread during this call; another thread reads;
                the call comes from a listener; or it would wait for ever, because nothing is subscribed or assigned.
            ConfigError: *timeout* is not a number.
        """
        core = self._core
        if core.values is not None:
            opened = core.fill(Filling(1, timeout))
            return opened[0] if opened else None
        # The fast path: ownership has not changed since the last check, and a record is ready.
        ready = core.ready
        if not (ready and core.mark is core.manager.mark and core.gate.owner is None):
            if timeout_ms is not None:
                refuse_milliseconds("poll", timeout_ms)
            with core.gate:
                batch = core.next_batch(Filling(PREFETCH_RECORDS, timeout))
                if not batch:
                    return None
                if core.as_messages and is_error(batch[0]):
                    return batch[0]
                # In front: after a resume() `ready` may hold more than the batch that was taken from it.
                ready.extendleft(reversed(batch))
                core.fetcher.on_the_way = False
        # Python handles Ctrl-C at calls: there is none between here and the caller.
        try:
            message: Message[K_co, V_co] = ready[0]
            core.in_hand = (message,)
            del ready[0]
        except IndexError:
            raise core.closed_elsewhere() from None
        return message

    def consume(
        self, num_messages: int = 1, timeout: float | None = -1.0, *, timeout_ms: None = None
    ) -> list[Message[K_co, V_co]]:
        """Take part in rebalances, and wait for *num_messages* records, or as many as come within *timeout*.

        A rebalance, hand_over() and 64 MiB of values end the wait early, with what has come of the partitions that
        stay; what came of others goes to their new owners. `batches` waits for the first record only.

        Args:
            num_messages: how many, 0 to 1,000,000.
            timeout: seconds; negative or None waits until *num_messages* have come.
            timeout_ms: refused: it is kafka-python's.

        Returns:
            Records, and ends of partitions as from `poll`; empty if none came in time. With a deserialiser of your own
            that leaves records out there may be fewer.

        Raises:
            Kip848Error: what `poll` raises.
        """
        if timeout_ms is not None:
            refuse_milliseconds("consume", timeout_ms)
        return self._core.read(record_count(num_messages), timeout, linger_s=None)

    def batches(
        self, num_messages: int = BATCH_RECORDS, timeout: float | None = -1.0, *, linger_s: float = 0.0
    ) -> Iterator[list[Message[K_co, V_co]]]:
        """``for batch in consumer.batches()``: iterate over lists of records; ends when the consumer closes.

        Args:
            num_messages: maximum size of a batch.
            timeout: seconds until an empty batch is yielded without a record; negative or None: never.
            linger_s: how many seconds a batch waits for more records after its first one; 0 yields what is at hand,
                which has the least latency. For bulk inserts: ``batches(500, linger_s=1.0)``.
        """
        core = self._core
        record_count(num_messages)
        while not core.is_over():
            try:
                batch = core.read(num_messages, timeout, linger_s=linger_s)
            except IllegalStateError:
                if core.is_over():  # another thread closed the consumer
                    return
                raise
            yield batch

    def __iter__(self) -> Iterator[Message[K_co, V_co]]:
        """Yield records for ever; ends when the consumer is closed, or has handed over.

        Raises:
            IllegalStateError: nothing is subscribed or assigned.
        """
        core = self._core
        while not core.is_over():
            try:
                message = self.poll(1.0 if core.group.wants_records else None)
            except IllegalStateError:
                if core.is_over():  # another thread closed the consumer
                    return
                raise
            if message is not None:
                yield message

    def process(
        self,
        handler: Callable[[Message[K_co, V_co]], object]
        | Callable[[list[Message[K_co, V_co]]], object]
        | Callable[[RecordCopy], object]
        | Callable[[Message[K_co, V_co], HandlerOutputs], object]
        | Callable[[list[Message[K_co, V_co]], HandlerOutputs], object]
        | Callable[[RecordCopy, HandlerOutputs], object]
        | Callable[[Message[K_co, V_co], HandlerTransaction], object]
        | Callable[[list[Message[K_co, V_co]], HandlerTransaction], object],
        *,
        concurrency: int = 10,
        limits: Limits | None = None,
        order: Order = "key",
        retry: BaseRetrying | None = None,
        on_error: Literal["stop", "skip"] = "stop",
        dead_letter: DeadLetters | None = None,
        retry_later: RetryTopics | None = None,
        on_failure: Callable[[ProcessingFailure], object] | None = None,
        until: Literal["end"] | None = None,
        timeout_s: float | None = None,
        batch: Sequence[int] | None = None,
        split: bool = False,
        buffer: int | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        drain_s: float = DRAIN_S,
        grace_s: float = GRACE_S,
        outputs: Producer | None = None,
        transactional: Producer | None = None,
        slice_records: int = SLICE_RECORDS,
        slice_ms: int = SLICE_MS,
        executor: Executor | Callable[[], Executor] | None = None,
    ) -> None:
        """Call *handler* with each record, many at once, until the consumer has handed over or a handler failed.

        Order is kept within a lane: the records of one key in one partition (``order="key"``; those without a key have
        no order), of one partition, or of none. What is done beyond the first record that is not done is noted in the
        commit's metadata, so that a new owner does not repeat it. Rebalances let running handlers end before partitions
        are given away; see docs/processing.md for what is repeated after which death.

        While it runs, poll(), consume(), seek() and commit() are refused. Afterwards automatic commits stay off, and
        positions are at the first record that is not done.

        Args:
            handler: ``handler(record)``, called in a thread; with *batch* ``handler(records)``. A long one asks
                `kip848_client.processing_cancelled` now and then whether it should end.
            concurrency: handlers that run at once; an executor may have fewer workers.
            limits: a `kip848_client.Limits`: calls a second, in all and of each key; what holds for single topics.
            order: ``"key"``, ``"partition"`` or ``"none"``.
            retry: a ``tenacity.Retrying`` object: which exceptions are tried again, how often, after which time. Other
                lanes go on meanwhile. Its ``before``, ``after`` and ``before_sleep`` are called. None: never, but for
                `kip848_client.RetryLater`.
            on_error: of a record that failed for good. ``"stop"`` ends process() with a `ProcessingError`, and the
                record is not committed; ``"skip"`` logs it and counts it as done.
            dead_letter: where it goes instead; a `DeadLetters`.
            retry_later: a `RetryTopics`: after the attempts of *retry* a record waits in other topics, for minutes or
                hours, and holds nothing here. It has failed for good after the last of them.
            on_failure: called with a `ProcessingFailure` for each call of the handler that failed, before what follows;
                it should return soon. If it raises, process() ends with a `ProcessingError`.
            until: ``"end"``: return once all partitions are read to their ends and everything in hand is done, for
                batch jobs and tests. A member without partitions returns, too.
            timeout_s: how long one call may take; afterwards it counts as having raised `TimeoutError`. The thread
                goes on, and its slot is free when it ends.
            batch: (most records, milliseconds), or a list of the two: the handler gets a list of records of one lane,
                as soon as there are so many or the first has waited so long.
            split: the records of a batch that failed for good are handled again one by one, each in a list of its own
                and with attempts of its own.
            buffer: records in hand above which partitions are paused; twice the concurrency if None.
            buffer_bytes: bytes of keys and values in hand at which reading stops; the last record may exceed them.
            drain_s: how long a revocation waits for running handlers, within 0.8 of max.poll.interval.ms; it
                should be less than what a deployment waits before it kills.
            grace_s: how long the end waits for them.
            outputs: a `confluent_kafka.Producer` for what handlers produce, which get a second argument, a
                `HandlerOutputs`, for that. The record is done once all of it is acknowledged; if a record is refused,
                the handler has failed. What a handler gives to a producer itself may be lost: its record is committed
                when it returns.
            transactional: a `confluent_kafka.Producer` with a ``transactional.id``, for exactly once: the handler gets
                a second argument, a `HandlerTransaction`, to produce with. If it returns, what it has produced is
                written in one transaction with its record's offset. See docs/exactly-once.md.
            slice_records, slice_ms: a transaction is written once so many records are done, or the first of them has
                waited so many milliseconds.
            executor: a pool of your own; with a ``ProcessPoolExecutor`` the handler gets a copy of the record. If it is
                a function that makes the pool (``lambda: ProcessPoolExecutor(4)``), a record that ends its process
                fails with a `HandlerDiedError`, and the others go on in a new pool; otherwise process() ends.

        Raises:
            ProcessingError: a handler failed for good, or all slots are taken by handlers that do not end.
            ProducerFencedError, TransactionFailedError: another process has taken the ``transactional.id``, or the
                producer cannot go on. End the process.
            Kip848Error: the last commit failed, as commit() would.
            ConfigError: an argument is wrong.
            IllegalStateError: nothing is subscribed, or process() runs already.
        """
        from kip848_client.consumer.processing.threads import ThreadProcessor

        check_not_async(handler, name="handler", instead=USE_ASYNC_CONSUMER)
        settings = ProcessSettings(
            concurrency=concurrency,
            limits=limits,
            order=order,
            retry=retry,
            on_error=on_error,
            dead_letter=dead_letter,
            retry_later=retry_later,
            on_failure=on_failure,
            until=until,
            timeout_s=timeout_s,
            batch=batch,
            split=split,
            buffer=buffer,
            buffer_bytes=buffer_bytes,
            drain_s=drain_s,
            grace_s=grace_s,
            outputs=outputs,
            transactional=transactional,
            slice_records=slice_records,
            slice_ms=slice_ms,
        )
        check_takes(handler, *settings.handler_arguments, name="handler")
        ThreadProcessor(self._core, handler, settings, executor).run()

    def processing_status(self) -> ProcessingStatus | None:
        """What ``process()`` has in hand, and why it waits; None while it does not run. From any thread."""
        processor = self._core.processor
        return None if processor is None else processor.status()

    def change_processing(self, *, concurrency: int | None = None, limits: Limits | None = None) -> None:
        """Change what ``process()`` was given, while it runs. From any thread, also from a handler.

        Returns at once. Handlers that run go on, also if there are more than may by now. Calls that began before count
        for new limits.

        Args:
            concurrency: handlers that run at once; None leaves it as it is.
            limits: take the place of all that there are; ``Limits()`` has none. None leaves them as they are.

        Raises:
            ConfigError, ArgumentTypeError: one is wrong; nothing is changed.
            IllegalStateError: process() does not run.
        """
        processor = self._core.processor
        if processor is None:
            raise IllegalStateError("process() does not run; give it concurrency= and limits= when it is called")
        processor.change(concurrency=concurrency, limits=limits)

    # --- offsets

    def commit(
        self,
        message: Message[Any, Any] | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
        *,
        timeout_s: float | None = None,
        on_commit: CommitCallback | None = None,
    ) -> list[TopicPartition] | None:
        """Commit offsets: of one message, of the given partitions, or of all records returned so far.

        With enable.auto.offset.store=false the last case commits the offsets of `store_offsets`.

        Any thread may call it. During a rebalance: until on_partitions_revoked has returned, the partitions that go are
        committed like others, and the next owner begins there. Afterwards they are refused.

        Args:
            message: commits the offset after it.
            offsets: partitions with the next offset to read.
            asynchronous: return at once. A failure goes to *on_commit*, else to on_commit of the configuration. Else
                one that passes (a broker is away, a rebalance) is logged, and another, as of a missing right, is
                raised by a later call.
            timeout_s: seconds, for a synchronous commit; default.api.timeout.ms if None, negative waits for ever.
            on_commit: ``(error or None, partitions)``, called from a later poll(), consume(), commit() or close().

        Returns:
            Committed partitions, or None if asynchronous. Inside on_partitions_revoked, partitions of a topic that was
            deleted meanwhile are left out and logged.

        Raises:
            CommitFailedError: the partitions belong to another member now, or may do so.
            RequestTimeoutError: no answer in time; the commit may have been applied.
            BrokerError: the coordinator refused it.
            IllegalStateError: process() runs, or a block of `transaction`.
        """
        core = self._core
        core.check_not_processing("commit")
        if core.in_transaction:
            raise IllegalStateError(
                "commit() is refused inside transaction(): the block commits these offsets together with what it has "
                "produced"
            )
        core.gate.check_process()
        chosen = commit_offsets(message, offsets)
        asynchronous = flag(asynchronous, name="asynchronous")
        check_commit_callback(on_commit)
        if chosen is None:
            core.group.check_usable()
            chosen = core.committable()
        else:
            core.fetcher.processed(chosen)
        core.committed_by_hand.update(chosen)
        if asynchronous:
            core.group.commit_async(chosen, public_callback(on_commit) if on_commit is not None else None)
            return None
        committed = core.group.commit_sync(chosen, timeout_ms=core.timeout_ms(timeout_s))
        return public_offsets(committed)

    def store_offsets(
        self, message: Message[Any, Any] | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Mark records as processed, for automatic commits and commit() without arguments. Sends nothing.

        Only with enable.auto.offset.store=false. Otherwise all returned records count as processed when the next
        poll() begins. Any thread may call it. What is stored of a partition is forgotten when it is given away, after
        on_partitions_revoked.

        Args:
            message: the offset after it is stored.
            offsets: partitions with the next offset to read.

        Raises:
            IllegalStateError: a partition is not assigned to this consumer, or enable.auto.offset.store is on.
        """
        core = self._core
        core.check_not_processing("store_offsets")
        core.gate.check_process()
        if core.group.thread.stored is None:
            raise IllegalStateError("store_offsets() needs enable.auto.offset.store=false; set it")
        chosen = commit_offsets(message, offsets, call="store_offsets")
        if chosen is None:
            raise IllegalStateError("store_offsets() takes a message or offsets")
        self._check_assigned(chosen, call="store_offsets")
        core.fetcher.processed(chosen)
        core.fetcher.stored.update(chosen)

    def committed(self, partitions: list[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """Read the group's committed offsets and their metadata; OFFSET_INVALID where there is none. From any thread.

        Metadata is None if none was committed, and ends before the NUL with which confluent_kafka commits it.

        Args:
            timeout: seconds; default.api.timeout.ms if None, negative waits for ever.
        """
        return self._core.committed(partitions, timeout)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The next offset that poll() will return; OFFSET_INVALID while unknown. Without metadata.

        From any thread; while partitions are being revoked, where they will be read on.
        """
        core = self._core
        wanted = [internal(partition) for partition in check_partitions(partitions, call="position")]
        known = core.between_reads(lambda: core.fetcher.positions(wanted))
        return [public(p, known.get(p) or core.fetcher.sought(p)) for p in wanted]

    def seek(self, partition: TopicPartition, *others: Never) -> None:
        """Continue *partition* at its offset (>= 0, OFFSET_BEGINNING or OFFSET_END) in the next poll().

        Args:
            others: refused: other clients give the offset apart.

        Raises:
            IllegalStateError: the partition is not assigned to this consumer, or the offset is invalid.
        """
        core = self._core
        if others:
            refuse_seek((partition, *others))
        core.check_not_processing("seek")
        with core.gate:
            name, position = seek_position(partition)
            self._check_assigned([name], call="seek")
            core.committed_by_hand.pop(name, None)
            if core.group.listener_effect is None:
                core.group.thread.perform_starts()
            if position.offset < 0:
                core.fetcher.detach([name])
            elif core.fetcher.seek(name, position):
                core.sought[name] = position
                core.group.thread.starts[name] = StartCause(StartReason.SOUGHT)
                return
            core.group.seek(name, position)

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Return no records of *partitions* until `resume`. Revocation ends the pause.

        From any thread: a call that is returning records at this moment may still return some of them. Partitions that
        are not assigned to this consumer are ignored and logged: they may have been revoked.
        """
        core = self._core
        names = self._owned(partitions, call="pause")
        if core.processor is not None:
            core.processor.user_paused.update(names)
        core.between_reads(lambda: core.fetcher.pause(names))

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Return records of *partitions* again; unassigned ones are ignored, as in `pause`."""
        core = self._core
        names = self._owned(partitions, call="resume")
        processor = core.processor
        if processor is not None:
            processor.user_paused.difference_update(names)
            names = [name for name in names if not processor.stays_paused(name)]
        core.between_reads(lambda: core.fetcher.resume(names))

    def paused(self) -> list[TopicPartition]:
        """Partitions that are paused, sorted."""
        self._core.gate.check_process()
        return [public(partition) for partition in sorted(self._core.fetcher.paused)]

    def _owned(self, partitions: list[TopicPartition], *, call: str) -> list[NamedPartition]:
        core = self._core
        core.gate.check_process()
        core.group.check_usable()
        assigned = core.group.assigned
        names = [internal(partition) for partition in check_partitions(partitions, call=call)]
        others = sorted(set(names) - assigned)
        if others:
            core.group.listeners.observer.log(
                logging.INFO, LogEvent.NOT_ASSIGNED, call=f"{call}()", partitions=describe_partitions(others)
            )
        return [name for name in names if name in assigned]

    def _check_assigned(self, partitions: Iterable[NamedPartition], *, call: str) -> None:
        core = self._core
        core.group.check_usable()
        assigned = core.group.assigned
        for name in partitions:
            if name not in assigned:
                raise IllegalStateError(
                    f"{name} is not assigned to this consumer{core.group.why_gone}; {call}() takes assigned partitions"
                )

    # --- assignment by hand

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read exactly these partitions, without membership.

        Inside on_partitions_assigned it means: start them at their offsets. There it must name every partition that
        was just assigned, and none that this member does not own.

        Args:
            partitions: each starts at its offset (>= 0, OFFSET_BEGINNING or OFFSET_END), else at its committed offset,
                else by auto.offset.reset.

        Raises:
            IllegalStateError: topics are subscribed to; or inside a listener, the group assigns other partitions.
        """
        core = self._core
        with core.gate:
            effect = core.group.listener_effect
            if effect is not None:
                self._assign_inside(effect, partitions, call="assign", must_name_all=True)
                return
            core.group.assign(assign_positions(partitions), in_hand=self._in_hand_offsets())
            core.silence.begin()
            core.unmet_topics = frozenset(partition.topic for partition in core.group.manual)

    def unassign(self) -> None:
        """End a manual assignment. Inside on_partitions_revoked it does nothing: the library releases partitions.

        Raises:
            IllegalStateError: inside on_partitions_assigned.
        """
        core = self._core
        with core.gate:
            if core.group.listener_effect is None:
                core.group.assign({})
            else:
                self._refuse_unassigning("unassign")

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add to a manual assignment; inside on_partitions_assigned `assign`, for some of the partitions.

        Raises:
            IllegalStateError: as for `assign`.
        """
        core = self._core
        with core.gate:
            effect = core.group.listener_effect
            if effect is not None:
                self._assign_inside(effect, partitions, call="incremental_assign", must_name_all=False)
                return
            kept = dict.fromkeys(core.group.manual)
            added = assign_positions(partitions, call="incremental_assign")
            core.group.assign({**kept, **added}, in_hand=self._in_hand_offsets())
            core.silence.begin()
            core.unmet_topics = frozenset(partition.topic for partition in core.group.manual)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Take from a manual assignment; inside a listener as `unassign`.

        Raises:
            IllegalStateError: inside on_partitions_assigned.
        """
        core = self._core
        with core.gate:
            gone = {internal(partition) for partition in check_partitions(partitions, call="incremental_unassign")}
            if core.group.listener_effect is None:
                kept = {p: None for p in core.group.manual if p not in gone}
                core.group.assign(kept, in_hand=self._in_hand_offsets())
            elif gone:
                self._refuse_unassigning("incremental_unassign")

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer owns, sorted.

        From any thread. Those that are being revoked are among them until on_partitions_revoked has returned.
        """
        self._core.gate.check_process()
        return [public(partition) for partition in sorted(self._core.group.assigned)]

    def _in_hand_offsets(self) -> dict[NamedPartition, int]:
        """The first offset of each partition that the last poll() returned, unless the application stores offsets."""
        core = self._core
        if not core.in_hand or not core.config.auto_offset_store:
            return {}
        return first_offsets(reversed(core.fetcher.unprocessed(core.in_hand, core.committed_by_hand)))

    def _assign_inside(
        self, effect: ListenerEffect, partitions: list[TopicPartition], *, call: str, must_name_all: bool
    ) -> None:
        """Start partitions at their offsets, if that leaves every partition with the member that the group chose."""
        core = self._core
        positions = assign_positions(partitions, call=call)
        if not isinstance(effect, AssignPartitions):
            if positions:
                raise IllegalStateError(
                    f"{call}() inside on_revoke or on_lost: these partitions go to other members; nothing can be "
                    "assigned here, so leave the call out"
                )
            return  # the library releases the partitions itself
        foreign = positions.keys() - core.group.assigned
        if foreign:
            raise IllegalStateError(
                f"{call}() inside on_assign names {describe_partitions(foreign)}, which this member does not own; give "
                "it the partitions that the callback got"
            )
        missing = {partition.topic_partition for partition in effect.partitions} - positions.keys()
        if missing and must_name_all:
            raise IllegalStateError(
                f"{call}() inside on_assign leaves out {describe_partitions(missing)}: no other member reads them, as "
                "the group assigned them to this one; name them too, and pause() what is to be read later"
            )
        for partition, position in positions.items():
            if position is not None:
                core.fetcher.mark(partition, position)
                core.group.seek(partition, position)

    def _refuse_unassigning(self, call: str) -> None:
        if isinstance(self._core.group.listener_effect, AssignPartitions):
            raise IllegalStateError(
                f"{call}() inside on_assign: no other member would read the partitions, as the group assigned them to "
                "this one; pause() what is to be read later"
            )

    # --- questions to the cluster

    def list_topics(self, topic: str | None = None, timeout: float = -1.0) -> ClusterMetadata:
        """Describe the cluster: ``confluent_kafka.admin.ClusterMetadata``.

        Args:
            topic: only this one; all if None.
            timeout: seconds; negative waits for ever.

        Raises:
            RequestTimeoutError, ConnectionLostError: no answer.
        """
        timeout, fetcher = librdkafka_s(timeout), self._core.fetcher
        if topic is not None and not isinstance(topic, str):
            raise ArgumentTypeError(f"list_topics() takes the name of one topic, or none for all, got {topic!r}")
        return self._core.ask(
            "list_topics", lambda left_s: fetcher.list_topics(topic, timeout=left_s), timeout_s=timeout
        )

    def cluster_id(self, timeout: float = -1.0) -> str | None:
        """The id of the cluster; None if the brokers have none.

        Args:
            timeout: seconds; negative waits for ever.

        Raises:
            RequestTimeoutError, ConnectionLostError: no answer.
        """
        found: str | None = self.list_topics(timeout=timeout).cluster_id
        return found

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1.0, cached: bool = False
    ) -> tuple[int, int]:
        """The lowest and the next offset of a partition.

        Args:
            timeout: seconds; negative waits for ever.
            cached: return the values of the last fetch without a request; OFFSET_INVALID before one.

        Raises:
            RequestTimeoutError, ConnectionLostError, BrokerError: no answer.
        """
        check_partition(partition, call="get_watermark_offsets")
        return self._core.watermarks(partition, librdkafka_s(timeout), cached=flag(cached, name="cached"))

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1.0) -> list[TopicPartition]:
        """For each partition, whose offset field holds ms since 1970: the first offset at or after that time.

        Args:
            timeout: seconds; negative waits for ever.

        Raises:
            RequestTimeoutError, ConnectionLostError, BrokerError: no answer.
            IllegalStateError: a partition has no time.
        """
        named = check_times(partitions)
        fetcher, timeout = self._core.fetcher, librdkafka_s(timeout)
        if not named:
            return []  # librdkafka would call that an invalid argument
        return self._core.ask(
            "offsets_for_times",
            lambda left_s: fetcher.plane.offsets_for_times(named, timeout=left_s),
            timeout_s=timeout,
            partitions=named,
        )

    def lag(self, timeout_s: float | None = LAG_TIMEOUT_S) -> dict[TopicPartition, int]:
        """The distance of each assigned partition to its end, as of its last fetch. From any thread.

        For a paused partition, which is not fetched, the leader is asked; without an answer the last fetch counts.

        Args:
            timeout_s: seconds, for questions about partitions that are paused or not fetched yet; negative: for ever.

        Returns:
            Partitions whose position is not known yet are absent.

        Raises:
            RequestTimeoutError, ConnectionLostError, BrokerError: no answer about a partition not fetched yet.
        """
        return self._core.lag(timeout_s)

    # --- this member

    @property
    def state(self) -> MemberState:
        """The member's state: UNJOINED, STABLE, RECONCILING, RELEASING_ASSIGNMENT or FATAL."""
        return MemberState.FATAL if self._core.group.thread.fatal is not None else self._core.group.view.state

    @property
    def member_id(self) -> str:
        """The member id; made by the client, constant for the life of the consumer."""
        return self._core.group.view.member_id

    @property
    def member_epoch(self) -> int:
        """The epoch of the member; -1 outside the group."""
        return self._core.group.view.member_epoch

    def group_instance_id(self) -> str | None:
        """The static slot of this member, from any thread: ``group.instance.id``, or what it took from its pool.

        With ``group.instance.id.takeover=wait`` or a pool, None while it stands by and outside the group.
        """
        core = self._core
        return core.group.view.instance_id if core.config.slots.slots else core.config.group_instance_id

    def health(self) -> ConsumerHealth:
        """The health of this consumer, for a liveness or readiness probe. May be called on any thread; never waits.

        The lag is that of the poll() after the probe before; see `ConsumerHealth`.
        """
        return replace(self._core.health.look(), processing=self.processing_status())

    def memberid(self) -> str:
        """`member_id`, as confluent_kafka spells it."""
        return self.member_id

    def group_metadata(self) -> bytes:
        """The group metadata for ``producer.send_offsets_to_transaction(offsets, ...)``. From any thread.

        Call it when you send, because the epoch changes. A member that was removed, or left, keeps its last epoch, so
        that its transaction is refused. Without an epoch the coordinator would accept its offsets, even of partitions
        that another member has processed since.

        Raises:
            Kip848Error: the installed librdkafka uses another layout of these bytes.
        """
        return self._core.group_metadata()

    consumer_group_metadata = group_metadata

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use this user for new connections and renewed sessions; for PLAIN and SCRAM.

        Open connections stay. After an `AuthenticationError` make a new consumer instead.

        Raises:
            IllegalStateError: the consumer does not log in with a user and a password.
        """
        core = self._core
        core.gate.check_process()
        core.group.check_usable()
        core.opener.set_user(username, password)
        core.data_plane.update({"sasl.username": username, "sasl.password": password})
        core.between_reads(lambda: core.fetcher.plane.set_sasl_credentials(username, password))

    # --- handing over, closing

    def hand_over(self, timeout_s: float | None = HAND_OVER_TIMEOUT_S) -> None:
        """Leave without a gap: keep reading while the other members prepare, then revoke everything.

        Returns at once. Keep polling: poll() returns records until the others are ready, or the time is up. Then
        on_partitions_revoked runs, poll() and consume() return nothing, and iterations end. Then call close(). The
        others read the partitions in about a tenth of a second; after a plain close() they notice only with their next
        heartbeats. If the group cannot be described (an old broker, no rights on the group) this is a plain
        revocation, which is logged once. Nobody waits for members that hand over as well, and the last ones of a group
        leave at once. With the classic protocol reading ends at once.

        Signal handlers and any thread may call it. Before subscribe(), or with assign(), there is nothing to give:
        reading ends at once. After close() it does nothing.

        Args:
            timeout_s: seconds for all of it, negative for ever. The others get at most three quarters, for which their
                heartbeat interval and a little is enough; the rest is for listeners, and for handlers of process() that
                have to end. Give more if these take long, and less than what is left until the process is killed.

        Example::

            signal.signal(signal.SIGTERM, lambda *_: consumer.hand_over())
            for message in consumer:
                handle(message)
            consumer.close()
        """
        self._core.group.hand_over(timeout_ms=limit_ms(timeout_s, default_ms=int(HAND_OVER_TIMEOUT_S * 1_000)))

    @property
    def handed_over(self) -> bool:
        """Whether `hand_over` is complete: this consumer owns nothing and will get nothing."""
        return self._core.group.handed_over

    def close(self, timeout_s: float | None = CLOSE_TIMEOUT_S, mode: LeaveMode = LeaveMode.DEFAULT) -> None:
        """Commit returned records (with enable.auto.commit), run on_partitions_revoked, leave the group, close.

        All returned records count as processed, as in confluent_kafka: call it when the last one is done. A ``with``
        block that ends by an exception leaves out what the last poll() or consume() returned: that is read again. So
        does close() in another thread than the living one that reads. The call of that one ends with an
        `IllegalStateError`, its iteration and its process() without one; close() waits for them, and listeners run
        here.

        Returns by its deadline even if no broker answers; the leave is sent in any case. A second call does nothing.

        Args:
            timeout_s: seconds; negative waits for ever.
            mode: whether to leave the group; matters mostly for static members.

        Raises:
            ListenerError: the listener raised; everything was closed anyway.
            TopicAuthorizationError, GroupAuthorizationError: the last automatic commit was refused; the same is true.
            RequestTimeoutError: another thread did not come out of its listener or its process() in time.
            Kip848Error: an asynchronous commit failed for good, and no call has raised it yet. What a poll() would
                have raised is logged instead (``member.error_dropped``), so that close() in ``finally`` hides no other
                exception.
        """
        self._core.close(timeout_s, mode, in_hand_is_done=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._core.close(CLOSE_TIMEOUT_S, LeaveMode.DEFAULT, in_hand_is_done=exc is None)
        except Exception as error:
            if exc is None:
                raise
            # The block's own exception matters more than a later error of close().
            self._core.group.listeners.observer.log(logging.WARNING, LogEvent.ERROR_DROPPED, error=repr(error))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a consumer cannot be sent to another process, or copied; make one there")

    def __repr__(self) -> str:
        core = self._core
        view = core.group.view
        state = "closed" if core.group.closed else self.state.name
        return (
            f"<Consumer group={core.config.group_id!r} client={core.config.client_id!r} state={state} "
            f"member_id={view.member_id!r} member_epoch={view.member_epoch}>"
        )

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute
        __getattr__ = missing_attribute


def core_of(consumer: Consumer[K_co, V_co]) -> ConsumerCore[K_co, V_co]:
    """What *consumer* is made of, for its other faces: `AsyncConsumer` and `transaction`."""
    return consumer._core  # noqa: SLF001  users need not see it
