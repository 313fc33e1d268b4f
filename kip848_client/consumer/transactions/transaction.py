"""``with transaction(producer, consumer)``: the offsets of what was read go into the producer's transaction."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

from kip848_client.common.model import NamedPartition, OffsetAndMetadata, describe_partitions
from kip848_client.consumer.records.data_plane import public
from kip848_client.consumer.transactions.producer_calls import ProducerCalls
from kip848_client.errors import ConfigError, TransactionAbortedError

if TYPE_CHECKING:
    from kip848_client.config.consumer import ConsumerConfig
    from kip848_client.consumer.group.group_member import GroupMember
    from kip848_client.consumer.records.fetcher import Fetcher
    from kip848_client.network.ownership import OneThread


class TransactedConsumer(Protocol):
    """The parts of a `Consumer` that a transaction uses."""

    _config: ConsumerConfig
    _group: GroupMember
    _gate: OneThread
    _fetcher: Fetcher
    _in_transaction: bool

    def group_metadata(self) -> bytes:
        """See `Consumer.group_metadata`."""
        ...

    def _check_not_processing(self, call: str) -> None: ...


class Transaction:
    """One block, see `kip848_client.transaction`.

    Attributes:
        calls: of its producer.
    """

    def __init__(self, producer: Any, consumer: TransactedConsumer) -> None:
        self.calls: Final = ProducerCalls(producer)
        self._consumer: Final = consumer
        if consumer._config.auto_commit_interval_ms is not None:
            raise ConfigError(
                "the offsets of a transaction must not be committed outside it: set enable.auto.commit=false, and do "
                "not call commit()"
            )

    def __enter__(self) -> None:
        consumer = self._consumer
        with consumer._gate:
            consumer._group.check_usable()
            consumer._check_not_processing("transaction")
        self.calls.begin()
        consumer._in_transaction = True

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._consumer._in_transaction = False
        if exc is None:
            self._commit()
        else:
            self.abort()

    def _commit(self) -> None:
        consumer, origins = self._consumer, self._consumer._fetcher.origins
        with consumer._gate:
            moved = self._moved()
            metadata = consumer.group_metadata()
            taken_away = sorted(origins.taken_away.union(consumer._group.lost(moved.keys())))
        if taken_away:
            self.abort()
            raise TransactionAbortedError(
                f"the transaction was aborted: {describe_partitions(taken_away)} were taken from this consumer"
                f"{consumer._group.why_gone} after their records were read here; their next owner reads them again"
            )
        try:
            self.calls.end([public(name, at) for name, at in sorted(moved.items())], metadata)
        except TransactionAbortedError:
            self._go_back()
            raise
        origins.committed(moved)

    def abort(self) -> None:
        """Abort, and have its records read again."""
        self._consumer._in_transaction = False
        self.calls.abort()
        self._go_back()

    def _moved(self) -> dict[NamedPartition, OffsetAndMetadata]:
        fetcher = self._consumer._fetcher
        return fetcher.origins.moved(fetcher.positions())

    def _go_back(self) -> None:
        consumer, fetcher = self._consumer, self._consumer._fetcher
        if consumer._group.closed:
            return
        with consumer._gate:
            for name, origin in fetcher.origins.go_back(fetcher.positions()).items():
                fetcher.seek(name, origin)
