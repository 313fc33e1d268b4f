"""What handlers of ``process(transactional=...)`` produce, and the transactions that hold it."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final

from kip848_client.consumer.processing.outputs import HandlerOutputs
from kip848_client.consumer.records.data_plane import KafkaError, KafkaException, public_commit
from kip848_client.consumer.transactions.producer_calls import ProducerCalls
from kip848_client.errors import TransactionAbortedError
from kip848_client.member.processing.outbox import Slice
from kip848_client.member.processing.work import Work

_QUEUE_WAIT_S: Final = 0.1
_PASSING: Final = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
"""Why a record was not written that is not to blame for it."""


class HandlerTransaction(HandlerOutputs):
    """What a handler of ``process(transactional=...)`` produces with: its second argument.

    What it produces is written in one transaction with the offset of its record, if it returns; if it raises, or does
    not end in time, nothing is.
    """


class OutputRefusedError(Exception):
    """A record that a handler produced cannot be written, today or later; ``__cause__`` says why."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.work: Final = work


def metadata_too_large(error: TransactionAbortedError) -> bool:
    """Whether the broker allows less metadata in a commit."""
    cause = error.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE


class SliceWriter:
    """Writes slices with one producer, on the consumer's thread."""

    def __init__(self, producer: Any) -> None:
        self.calls: Final = ProducerCalls(producer)
        self._refused: list[tuple[Work, KafkaError]] = []

    def write(self, slice_: Slice, group_metadata: bytes) -> None:
        """Write all of a slice, or nothing.

        Raises:
            OutputRefusedError: nothing was written, because of one record.
            TransactionAbortedError: nothing was written; it may be tried again.
            TransactionFailedError, IllegalStateError: the producer cannot go on.
        """
        self._refused = []
        self.calls.begin()
        for work in slice_.works:
            for record in work.outputs or ():
                try:
                    self._produce(work, record)
                except Exception as error:
                    self.calls.abort()
                    raise OutputRefusedError(work) from error
        offsets = [public_commit(name, at) for name, at in sorted(slice_.offsets.items())]
        try:
            self.calls.end(offsets, group_metadata)
        except TransactionAbortedError:
            for work, reason in self._refused:
                raise OutputRefusedError(work) from KafkaException(reason)
            raise

    def _produce(self, work: Work, record: dict[str, Any]) -> None:
        delivered = partial(self._delivered, work)
        while True:
            try:
                self.calls.producer.produce(**record, on_delivery=delivered)
            except BufferError:  # its queue is full
                self.calls.before_repeating()
                if time.monotonic() >= self.calls.give_up_s:
                    raise
                self.calls.producer.poll(_QUEUE_WAIT_S)
            else:
                return

    def _delivered(self, work: Work, error: KafkaError | None, _: object) -> None:
        if error is not None and error.code() not in _PASSING and not error.retriable():
            self._refused.append((work, error))
