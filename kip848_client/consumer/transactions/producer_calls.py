"""The transaction calls of a confluent_kafka producer: repeated while that helps, with errors that say what to do."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kip848_client.consumer.records.data_plane import KafkaError, KafkaException, TopicPartition
from kip848_client.errors import (
    ArgumentTypeError,
    ConfigError,
    IllegalStateError,
    Kip848Error,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionFailedError,
)

_CALLS: Final = (
    "produce",
    "flush",
    "init_transactions",
    "begin_transaction",
    "send_offsets_to_transaction",
    "commit_transaction",
    "abort_transaction",
)
_SLICE_S: Final = 2.0
"""How long one of these calls waits; a repeated one goes on where the last one was. Ctrl-C is served in between."""
_OFFSETS_SLICE_S: Final = 10.0
"""The same for the one that begins anew each time."""
_PAUSE_S: Final = 0.05
_FLUSH_S: Final = 2.0
"""How long records on their way may take before an abort; after an error of the transaction some are never sent."""
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        getattr(KafkaError, "PRODUCER_FENCED", KafkaError._FENCED),
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
_UNKNOWN_OUTCOME: Final = (
    "; whether the transaction was committed is not known. End the process: the next init_transactions() of its "
    "transactional.id settles it"
)


class ProducerCalls:
    """One producer with a ``transactional.id``.

    Args:
        producer: a `confluent_kafka.Producer`.

    Raises:
        ArgumentTypeError: it has no transactions, or is asynchronous.

    Attributes:
        give_up_s: on the monotonic clock: from then on nothing is repeated. Set by any thread.
        before_repeating: called before a call is repeated; it may set `give_up_s`.
    """

    def __init__(self, producer: Any) -> None:
        calls = [getattr(producer, name, None) for name in _CALLS]
        if not all(map(callable, calls)):
            raise ArgumentTypeError(f"{producer!r} has no transactions; give a confluent_kafka.Producer")
        if any(map(inspect.iscoroutinefunction, calls)):
            raise ArgumentTypeError(
                f"{type(producer).__name__} tells of a record that it could not queue only in a future, so that a "
                "transaction would be committed without it; give a confluent_kafka.Producer, whose produce() never "
                "waits, also in an event loop"
            )
        self.producer: Final = producer
        self.give_up_s: float = math.inf
        self.before_repeating: Callable[[], object] = bool

    def initialise(self) -> None:
        """Call ``init_transactions()``, unless the program has: it ends what a killed process left open.

        Raises:
            ConfigError: the producer has no transactional.id.
            ProducerFencedError, TransactionFailedError: see there.
        """
        try:
            self._insist(self.producer.init_transactions, slice_s=_SLICE_S)
        except KafkaException as error:
            if _reason(error).code() != KafkaError._STATE:
                raise _named(error, "init_transactions()") from error

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            ConfigError: the producer has no transactional.id.
            IllegalStateError: a transaction is open already, or the producer is not initialised.
            ProducerFencedError, TransactionFailedError: see there.
        """
        try:
            self.producer.begin_transaction()
        except KafkaException as error:
            raise _named(error, "begin_transaction()") from error

    def end(self, offsets: Sequence[TopicPartition], group_metadata: bytes) -> None:
        """Send offsets and commit.

        Raises:
            TransactionAbortedError: it could not be committed, and was aborted.
            ProducerFencedError, TransactionFailedError: see there.
        """
        producer, what = self.producer, "send_offsets_to_transaction()"
        try:
            if offsets:
                send = producer.send_offsets_to_transaction
                self._insist(send, list(offsets), group_metadata, slice_s=_OFFSETS_SLICE_S)
            what = "commit_transaction()"
            self._insist(producer.commit_transaction, slice_s=_SLICE_S)
        except KafkaException as error:
            failure = _named(error, what)
            if isinstance(failure, TransactionAbortedError):
                self.abort()
            raise failure from error

    def abort(self) -> None:
        """Abort the open transaction, after its records have arrived.

        If the broker dies while librdkafka 2.16 aborts with a record on its way, the first record of the next
        transaction gets the same sequence number in the same epoch, and the broker drops it as a repetition.

        Raises:
            ProducerFencedError, TransactionFailedError: see there.
        """
        try:
            self.producer.flush(_FLUSH_S)
        finally:
            self._abort()

    def _abort(self) -> None:
        try:
            self._insist(self.producer.abort_transaction, slice_s=_SLICE_S)
        except KafkaException as error:
            failure = _named(error, "abort_transaction()")
            if not isinstance(failure, IllegalStateError):  # else none is open
                raise failure from error

    def _insist(self, call: Callable[..., object], *arguments: object, slice_s: float) -> None:
        """Repeat a call that timed out: whether the broker did it is not known until it answers."""
        while True:
            began_s = time.monotonic()
            try:
                call(*arguments, slice_s)
            except KafkaException as error:
                if not _reason(error).retriable():
                    raise
                self.before_repeating()
                now_s = time.monotonic()
                if now_s >= self.give_up_s:
                    raise TransactionFailedError(f"{_reason(error).str()}{_UNKNOWN_OUTCOME}") from error
                if now_s - began_s < _PAUSE_S:
                    time.sleep(_PAUSE_S)  # librdkafka refused at once, and does not tell when it can be asked again
            else:
                return


def _reason(error: KafkaException) -> KafkaError:
    reason: KafkaError = error.args[0]
    return reason


def _named(error: KafkaException, call: str) -> Kip848Error:
    """Our exception for an error of a transaction call."""
    if isinstance(error, Kip848Error):
        return error
    reason = _reason(error)
    text = f"{call}: {reason.str()}"
    if reason.code() == KafkaError._NOT_CONFIGURED:
        return ConfigError(f"{text}; give the producer a transactional.id, another one in each process")
    if reason.code() in _FENCED and not reason.txn_requires_abort():
        return ProducerFencedError(
            f"{text}; another process has taken this transactional.id, or the transaction took longer than "
            "transaction.timeout.ms: end this process"
        )
    if reason.txn_requires_abort():
        return TransactionAbortedError(
            f"{text}; the transaction was aborted, and its records are read again. If a record was refused, an "
            "on_delivery function of produce() hears why"
        )
    if reason.code() == KafkaError._STATE and not reason.fatal():
        return IllegalStateError(
            f"{text}; call init_transactions() when the program starts. A producer has one transaction at a time"
        )
    return TransactionFailedError(f"{text}; the producer cannot go on: end this process")
