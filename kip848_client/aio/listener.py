"""What an application is told about a rebalance when it uses `AsyncConsumer`: in its event loop, with or without await.

Owns the interface and the bridge from the synchronous one. When a listener is called is decided in `member/`, and by
whom in `owner_thread`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from kip848_client.client.data_plane import ErrorDetails, PublicTopicPartition
from kip848_client.errors import ConfigError
from kip848_client.listener import ConsumerRebalanceListener

if TYPE_CHECKING:
    from kip848_client.aio.consumer import AsyncConsumer
    from kip848_client.consumer import Consumer

AsyncRebalanceCallback: TypeAlias = "Callable[[AsyncConsumer, list[PublicTopicPartition]], object]"
"""``callback(consumer, partitions)``; what it returns is awaited if it can be."""

AsyncCommitCallback: TypeAlias = Callable[[ErrorDetails | None, list[PublicTopicPartition]], object]
"""``callback(error or None, partitions)``; what it returns is awaited if it can be."""

CallOut: TypeAlias = Callable[[Callable[[], object]], None]


class AsyncConsumerRebalanceListener:
    """Told when partitions come and go. Override what you need; every method does nothing by itself.

    Methods run in the event loop, in the task that awaits ``poll()``, ``consume()``, ``unsubscribe()`` or ``close()``,
    one at a time, while heartbeats go on in the background. All calls of the consumer but close(), poll() and consume()
    may be awaited from inside. What a method raises comes out of that call as `ListenerError`; a later ``poll()``
    repeats the step. A method that is cancelled with its task is called again, too.

    Source:
        Kafka's ``ConsumerRebalanceListener``.
    """

    async def on_partitions_assigned(self, consumer: AsyncConsumer, partitions: list[PublicTopicPartition]) -> None:
        """Called after a rebalance with what is new, also if that is nothing. Fetching starts when it returned.

        ``await consumer.seek(partition)``, or ``await consumer.assign(partitions)`` with offsets, decides where to
        start; otherwise the committed offset does, and without one ``auto.offset.reset``.
        """

    async def on_partitions_revoked(self, consumer: AsyncConsumer, partitions: list[PublicTopicPartition]) -> None:
        """Called before partitions are handed over; they are paused already. The last chance to commit."""

    async def on_partitions_lost(self, consumer: AsyncConsumer, partitions: list[PublicTopicPartition]) -> None:
        """Called when partitions may belong to somebody else already; a commit fails. Calls revoked by default."""
        await self.on_partitions_revoked(consumer, partitions)


AnyListener: TypeAlias = AsyncConsumerRebalanceListener | ConsumerRebalanceListener


class BridgedListener(ConsumerRebalanceListener):
    """A listener of an `AsyncConsumer`, as the synchronous consumer below it calls one.

    Args:
        living: the AsyncConsumer.
        call_out: runs a function in the event loop and waits for its end.
        on_assign, on_revoke, on_lost: the user's; without *on_lost*, *on_revoke* is called.
    """

    def __init__(
        self,
        living: Callable[[], AsyncConsumer],
        call_out: CallOut,
        *,
        on_assign: AsyncRebalanceCallback | None,
        on_revoke: AsyncRebalanceCallback | None,
        on_lost: AsyncRebalanceCallback | None,
    ) -> None:
        self._living: Final = living
        self._call_out: Final = call_out
        self._on_assign: Final = on_assign
        self._on_revoke: Final = on_revoke
        self._on_lost: Final = on_lost if on_lost is not None else on_revoke

    def on_partitions_assigned(self, consumer: Consumer, partitions: list[PublicTopicPartition]) -> None:
        """Have *on_assign* called."""
        self._tell(self._on_assign, partitions)

    def on_partitions_revoked(self, consumer: Consumer, partitions: list[PublicTopicPartition]) -> None:
        """Have *on_revoke* called."""
        self._tell(self._on_revoke, partitions)

    def on_partitions_lost(self, consumer: Consumer, partitions: list[PublicTopicPartition]) -> None:
        """Have *on_lost* called."""
        self._tell(self._on_lost, partitions)

    def _tell(self, callback: AsyncRebalanceCallback | None, partitions: list[PublicTopicPartition]) -> None:
        if callback is not None:
            self._call_out(lambda: callback(self._living(), partitions))


def methods_of(
    listener: object,
) -> tuple[AsyncRebalanceCallback, AsyncRebalanceCallback, AsyncRebalanceCallback | None]:
    """The callables for assigned, revoked and lost of a listener of either kind.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(listener, (AsyncConsumerRebalanceListener, ConsumerRebalanceListener)):
        raise ConfigError(
            "listener must be an AsyncConsumerRebalanceListener or a ConsumerRebalanceListener, "
            f"got {type(listener).__name__}"
        )
    # The default of the synchronous class would drop what an overridden on_partitions_revoked returns to be awaited.
    lost = type(listener).on_partitions_lost is not ConsumerRebalanceListener.on_partitions_lost
    return (
        cast("AsyncRebalanceCallback", listener.on_partitions_assigned),
        cast("AsyncRebalanceCallback", listener.on_partitions_revoked),
        cast("AsyncRebalanceCallback", listener.on_partitions_lost) if lost else None,
    )
