"""`transaction`: a block whose records and offsets are written together, for both consumers."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, overload

from kip848_client.aio.consumer import AsyncConsumer, behind
from kip848_client.aio.owner_thread import OwnerThread
from kip848_client.consumer.consumer import Consumer, core_of
from kip848_client.consumer.transactions.transaction import Transaction
from kip848_client.errors import ArgumentTypeError

if TYPE_CHECKING:
    from kip848_client.consumer.records.data_plane import Producer

_GRACE_S: Final = 5.0
"""How long a cancelled block waits for the end of its transaction."""


class AsyncTransaction:
    """A `Transaction` whose calls run on the consumer's thread."""

    def __init__(self, inner: Transaction, thread: OwnerThread) -> None:
        self._inner: Final = inner
        self._thread: Final = thread

    async def __aenter__(self) -> None:
        await self._run(self._inner.__enter__, undo=lambda _: self._inner.abort())

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._run(partial(self._inner.__exit__, exc_type, exc, traceback))

    async def _run(self, work: Callable[[], None], *, undo: Callable[[None], object] | None = None) -> None:
        try:
            await self._thread.run(work, interruptible=False, grace_s=_GRACE_S, undo=undo)
        except Exception:
            raise
        except BaseException:
            self._inner.calls.give_up_s = time.monotonic()
            raise


@overload
def transaction(producer: Producer, consumer: Consumer[Any, Any]) -> Transaction: ...


@overload
def transaction(producer: Producer, consumer: AsyncConsumer[Any, Any]) -> AsyncTransaction: ...


def transaction(
    producer: Producer, consumer: Consumer[Any, Any] | AsyncConsumer[Any, Any]
) -> Transaction | AsyncTransaction:
    """``with transaction(producer, consumer):``, and ``async with`` for an `AsyncConsumer`.

    The block begins a transaction of the producer. Its end sends the offsets of all records that the consumer has
    returned since the last one, and commits: what the block has produced and these offsets are written together, or
    neither is. If the block raises, or is cancelled, the transaction is aborted, and the records are read again by
    those who own their partitions. What times out is repeated, also while no broker answers.

    Call ``init_transactions()`` before the consumer subscribes: it ends a transaction that a killed process left open,
    for which the group's offsets wait. With an `AsyncConsumer` the producer's delivery callbacks run on the consumer's
    thread.

    Args:
        producer: a `confluent_kafka.Producer` with a ``transactional.id``, for this consumer alone.
        consumer: with ``enable.auto.commit=false``.

    Raises:
        TransactionAbortedError: leaving the block: it was aborted, for example because partitions were given away
            between reading and the end of the block. Go on.
        ProducerFencedError, TransactionFailedError: another process has taken the ``transactional.id``, or the producer
            cannot go on. End the process.
        IllegalStateError: the producer is not initialised, or has a transaction open; or process() runs.
        ConfigError: automatic commits are on, the producer has no ``transactional.id``, or is of another kind.

    Example::

        for batch in consumer.batches():
            with suppress(TransactionAbortedError), transaction(producer, consumer):
                for message in batch:
                    producer.produce("invoices", transform(message))
    """
    if isinstance(consumer, AsyncConsumer):
        core, thread = behind(consumer)
        return AsyncTransaction(Transaction(producer, core), thread)
    if isinstance(consumer, Consumer):
        return Transaction(producer, core_of(consumer))
    raise ArgumentTypeError(f"{consumer!r} is not a Consumer or AsyncConsumer of this library")
