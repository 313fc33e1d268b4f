"""What a rebalance listener of a consumer is, and how subscribe() reads it.

Does not own: when its methods are called (`group.listener_invoker`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from kip848_client.common.callables import (
    USE_ASYNC_CONSUMER,
    check_result_not_async,
    check_takes,
)
from kip848_client.common.model import (
    TopicIdPartition,
)
from kip848_client.consumer.records.data_plane import (
    TopicPartition,
    public,
)
from kip848_client.errors import (
    ConfigError,
)

if TYPE_CHECKING:
    from kip848_client.consumer.consumer import Consumer

_ListenerT = TypeVar("_ListenerT")
_CallbackT = TypeVar("_CallbackT")

LISTENER_METHODS: Final = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")
_METHOD_MEANT: Final[Mapping[str, str]] = {
    "assign": "on_partitions_assigned",
    "assigned": "on_partitions_assigned",
    "revoke": "on_partitions_revoked",
    "revoked": "on_partitions_revoked",
    "lost": "on_partitions_lost",
}
"""End of a method's name -> the method of a listener."""


RebalanceCallback: TypeAlias = "Callable[[Consumer, list[TopicPartition]], object]"
"""``callback(consumer, partitions)``, as in confluent-kafka."""


class ConsumerRebalanceListener:
    """Called when partitions are assigned, revoked or lost. Override what you need; the defaults do nothing.

    Methods run on the thread that calls ``poll()``, ``consume()``, ``unsubscribe()`` or ``close()``, one at a time,
    while heartbeats go on in the background. They may call any method of the consumer except close(), poll() and
    consume(). If a method raises, that call raises `ListenerError`, and a later ``poll()`` repeats the step.

    Source:
        Kafka's ``ConsumerRebalanceListener``.
    """

    def on_partitions_assigned(self, consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Called after a rebalance with the new partitions, possibly none. Fetching starts after it has returned.

        ``consumer.seek(partition)``, or ``consumer.assign(partitions)`` with offsets, sets where to start;
        the default is the committed offset, else ``auto.offset.reset``.
        """

    def on_partitions_revoked(self, consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Called before partitions are revoked; they are paused already. The last chance to commit."""

    def on_partitions_lost(self, consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Called when partitions may belong to another member already; a commit fails. Calls revoked by default."""
        self.on_partitions_revoked(consumer, partitions)


class CallableListener(ConsumerRebalanceListener):
    """A listener made from the callables of ``subscribe()``.

    Args:
        on_assign, on_revoke, on_lost: ``callback(consumer, partitions)``; without *on_lost*, *on_revoke* is called.
    """

    def __init__(
        self,
        *,
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._on_lost = on_lost if on_lost is not None else on_revoke

    def on_partitions_assigned(self, consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Call *on_assign*."""
        self._call("on_assign", self._on_assign, consumer, partitions)

    def on_partitions_revoked(self, consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Call *on_revoke*."""
        self._call("on_revoke", self._on_revoke, consumer, partitions)

    def on_partitions_lost(self, consumer: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        """Call *on_lost*, or *on_revoke* without one."""
        self._call("on_lost", self._on_lost, consumer, partitions)

    def _call(
        self,
        name: str,
        callback: RebalanceCallback | None,
        consumer: Consumer,
        partitions: list[TopicPartition],
    ) -> None:
        if callback is not None:
            check_result_not_async(callback(consumer, partitions), name=name, instead=USE_ASYNC_CONSUMER)


def read_listener(
    listener: object,
    on_assign: _CallbackT | None,
    on_revoke: _CallbackT | None,
    on_lost: _CallbackT | None,
    *,
    kinds: tuple[type[_ListenerT], ...],
) -> tuple[_ListenerT | None, _CallbackT | None]:
    """Check the listener arguments of subscribe().

    Args:
        listener: a listener of one of *kinds*; or any other callable, which is *on_assign*, as in confluent_kafka.

    Returns:
        The listener, and *on_assign*; at most one of them is not None.

    Raises:
        ConfigError: the listener is of another type or has a misspelt method, a callback cannot be called with
            (consumer, partitions), or both kinds are given.
    """
    names = " or ".join(kind.__name__ for kind in kinds)
    if isinstance(listener, type):
        raise ConfigError(f"listener is the class {listener.__name__}; give an instance of it: {listener.__name__}()")
    if callable(listener) and not isinstance(listener, kinds):
        if on_assign is not None:
            raise ConfigError("subscribe() was given on_assign twice: as its second argument, and by name")
        listener, on_assign = None, cast("_CallbackT", listener)
    given = [callback for callback in (on_assign, on_revoke, on_lost) if callback is not None]
    if listener is not None and given:
        raise ConfigError("give subscribe() a listener or on_assign/on_revoke/on_lost, not both")
    if listener is not None and not isinstance(listener, kinds):
        raise ConfigError(f"listener must be a {names}, or a function, got {type(listener).__name__}")
    if not all(callable(callback) for callback in given):
        raise ConfigError("on_assign, on_revoke and on_lost must be callables (consumer, partitions)")
    for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
        check_takes(callback, "consumer", "partitions", name=name)
    if listener is not None:
        _refuse_misspelt_method(listener, kinds)
        for name in LISTENER_METHODS:
            method = getattr(listener, name, None)
            check_takes(method, "consumer", "partitions", name=f"{type(listener).__name__}.{name}")
    return listener, on_assign


def _refuse_misspelt_method(listener: object, kinds: tuple[type, ...]) -> None:
    """A method that would never be called, such as ``on_revoke``, where the one that it was meant to be is missing."""
    kind = type(listener)
    for name in dir(kind):
        if not name.startswith("on_") or name in LISTENER_METHODS:
            continue
        meant = _METHOD_MEANT.get(name[3:].removeprefix("partitions_").removeprefix("partition_"))
        if meant is None:
            continue
        if any(getattr(kind, meant) is getattr(base, meant) for base in kinds):
            raise ConfigError(f"{kind.__name__}.{name} is never called; did you mean {meant}?")


class ListenerCallbacks:
    """Adapts a listener to `RebalanceCallbacks`: adds the consumer, and passes confluent_kafka's partitions.

    Args:
        consumer: passed to the listener; a weak reference, so that a dropped consumer can be collected.
        listener: the user's.
    """

    def __init__(self, consumer: Consumer[Any, Any], listener: ConsumerRebalanceListener) -> None:
        self._consumer = weakref.ref(consumer)
        self._listener = listener

    def assigned(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Call on_partitions_assigned."""
        self._call("on_partitions_assigned", self._listener.on_partitions_assigned, partitions)

    def revoked(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Call on_partitions_revoked."""
        self._call("on_partitions_revoked", self._listener.on_partitions_revoked, partitions)

    def lost(self, partitions: tuple[TopicIdPartition, ...]) -> None:
        """Call on_partitions_lost."""
        self._call("on_partitions_lost", self._listener.on_partitions_lost, partitions)

    def _call(self, name: str, method: RebalanceCallback, partitions: tuple[TopicIdPartition, ...]) -> None:
        consumer = self._consumer()
        assert consumer is not None, "listeners run inside a method of the consumer"
        check_result_not_async(method(consumer, _named(partitions)), name=name, instead=USE_ASYNC_CONSUMER)


def _named(partitions: tuple[TopicIdPartition, ...]) -> list[TopicPartition]:
    return [public(partition.topic_partition) for partition in partitions]
