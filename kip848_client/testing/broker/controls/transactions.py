"""``broker.transactions``: shows the transactional ids that producers have used, waits for them, and aborts one."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from typing import Final

from kip848_client.common.typed import text
from kip848_client.errors import ConfigError, RequestTimeoutError
from kip848_client.testing.broker.controls.live import LiveBroker
from kip848_client.testing.broker.coordinators.transaction_host import TransactionSnapshot
from kip848_client.testing.broker.net.loop_thread import wait_s
from kip848_client.testing.transactions.transaction import TransactionState

_STATES: Final = tuple(state.title for state in TransactionState)


class BrokerTransactions:
    """The transactional ids of a broker: iteration yields a snapshot of each, by id.

    Example::

        broker.transactions.wait_for("billing-1", "Ongoing")
        broker.transactions.abort("billing-1")
    """

    def __init__(self, live: LiveBroker) -> None:
        self._live: Final = live

    def __iter__(self) -> Iterator[TransactionSnapshot]:
        return iter(self._live.on_loop(lambda state: state.transactions.snapshots()))

    def get(self, transactional_id: str) -> TransactionSnapshot | None:
        """The current snapshot of a transactional id; None if there is none."""
        return next((each for each in self if each.transactional_id == transactional_id), None)

    def wait_for(self, transactional_id: str, state: str, *, timeout_s: float = 30.0) -> TransactionSnapshot:
        """Wait until a transactional id is in *state*, and return it as it was then.

        Args:
            state: as Kafka names it: ``Empty``, ``Ongoing``, ``PrepareCommit``, ``PrepareAbort``, ``CompleteCommit`` or
                ``CompleteAbort``.
            timeout_s: seconds to wait.

        Raises:
            ConfigError: there is no such state.
            RequestTimeoutError: it did not reach the state in time; the message shows the transaction as it is.
            IllegalStateError: the broker was stopped meanwhile.
        """
        named = next((each for each in _STATES if each.lower() == state.lower()), None)
        if named is None:
            raise ConfigError(f"no transaction is ever {state!r}; its states are {', '.join(_STATES)}")
        future: concurrent.futures.Future[TransactionSnapshot] = concurrent.futures.Future()
        self._live.on_loop(lambda broker: broker.transactions.add_waiter(transactional_id, named, future))
        try:
            return future.result(wait_s(timeout_s))
        except concurrent.futures.TimeoutError:
            now = self.get(transactional_id) if self._live.running else None
            raise RequestTimeoutError(
                f"transactional id {transactional_id!r}: not in state {state} within {timeout_s} s; "
                f"{'there is no such id' if now is None else now}"
            ) from None
        finally:
            future.cancel()

    def abort(self, transactional_id: str) -> None:
        """Abort an open transaction and fence its producer, as when it has taken too long.

        Raises:
            IllegalStateError: there is no such open transaction.
        """
        text(transactional_id, name="transactional_id")
        self._live.on_loop(lambda state: state.transactions.abort(transactional_id))
