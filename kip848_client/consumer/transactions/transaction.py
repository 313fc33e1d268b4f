"""``with transaction(producer, consumer)``: the offsets of what was read go into the producer's transaction."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from kip848_client.common.model import NamedPartition, OffsetAndMetadata, describe_partitions
from kip848_client.consumer.records.data_plane import public
from kip848_client.consumer.transactions.producer_calls import ProducerCalls
from kip848_client.errors import ConfigError, TransactionAbortedError

if TYPE_CHECKING:
    from kip848_client.consumer.core import ConsumerCore


class Transaction:
    """One block, see `kip848_client.transaction`.

    Attributes:
        calls: of its producer.
    """

    def __init__(self, producer: Any, core: ConsumerCore[Any, Any]) -> None:
        self.calls: Final = ProducerCalls(producer)
        self._core: Final = core
        if core.config.auto_commit_interval_ms is not None:
            raise ConfigError(
                "the offsets of a transaction must not be committed outside it: set enable.auto.commit=false, and do "
                "not call commit()"
            )

    def __enter__(self) -> None:
        core = self._core
        with core.gate:
            core.group.check_usable()
            core.check_not_processing("transaction")
        self.calls.begin()
        core.in_transaction = True

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._core.in_transaction = False
        if exc is None:
            try:
                self._commit()
            except TransactionAbortedError as error:  # which programs suppress, also if no repetition can succeed
                self._core.group.listeners.observer.transaction_aborted(error)
                raise
        else:
            self.abort()

    def _commit(self) -> None:
        core, origins = self._core, self._core.fetcher.origins
        with core.gate:
            moved = self._moved()
            metadata = core.group_metadata()
            taken_away = sorted(origins.taken_away.union(core.group.lost(moved.keys())))
        if taken_away:
            self.abort()
            raise TransactionAbortedError(
                f"the transaction was aborted: {describe_partitions(taken_away)} were taken from this consumer"
                f"{core.group.why_gone} after their records were read here; their next owner reads them again"
            )
        try:
            self.calls.end([public(name, at) for name, at in sorted(moved.items())], metadata)
        except TransactionAbortedError:
            self._go_back()
            raise
        origins.committed(moved)

    def abort(self) -> None:
        """Abort, and have its records read again."""
        self._core.in_transaction = False
        self.calls.abort()
        self._go_back()

    def _moved(self) -> dict[NamedPartition, OffsetAndMetadata]:
        fetcher = self._core.fetcher
        return fetcher.origins.moved(fetcher.positions())

    def _go_back(self) -> None:
        core, fetcher = self._core, self._core.fetcher
        if core.group.closed:
            return
        with core.gate:
            for name, origin in fetcher.origins.go_back(fetcher.positions()).items():
                fetcher.seek(name, origin)
