"""`BlockingConsumer`: an AsyncConsumer behind the synchronous API, so that tests of `Consumer` can be run against it.

Each call goes into an event loop in another thread. Listeners run there and call back into the test's listener in a
worker thread, from which the same calls may be made.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import anyio
import anyio.from_thread
import anyio.to_thread

from kip848_client import ConsumerRebalanceListener
from kip848_client.aio.consumer import AsyncConsumer, AsyncConsumerRebalanceListener
from kip848_client.common.clock import Clock
from kip848_client.config import ConfigValue
from kip848_client.journal import Journal

_HERE = threading.local()


class BlockingConsumer:
    """Every method of AsyncConsumer, waiting; properties and private attributes as they are.

    Args:
        portal: into the event loop.
        config, journal, clock: as for `Consumer`.
    """

    def __init__(
        self,
        portal: anyio.from_thread.BlockingPortal,
        config: Mapping[str, ConfigValue],
        *,
        journal: Journal | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._portal = portal
        on_commit = config.get("on_commit")
        if callable(on_commit):
            config = {**config, "on_commit": _in_thread(on_commit)}
        self.awaited = AsyncConsumer(config, journal=journal, clock=clock)

    def subscribe(
        self, topics: Any, listener: ConsumerRebalanceListener | None = None, **callbacks: Callable[..., object] | None
    ) -> None:
        given = {
            name: _in_thread(callback, self) if callable(callback) else callback for name, callback in callbacks.items()
        }
        wrapped = _Wrapped(self, listener) if isinstance(listener, ConsumerRebalanceListener) else listener
        self._call(self.awaited.subscribe, topics, wrapped, **given)

    def commit(self, *args: Any, **kwargs: Any) -> Any:
        if callable(kwargs.get("on_commit")):
            kwargs["on_commit"] = _in_thread(kwargs["on_commit"])
        return self._call(self.awaited.commit, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return getattr(self.awaited._consumer, name)
        found = getattr(self.awaited, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *args, **kwargs: self._call(found, *args, **kwargs)

    def __iter__(self) -> Iterator[Any]:
        messages = aiter(self.awaited)

        async def following() -> Any:
            return await anext(messages, None)

        while (message := self._call(following)) is not None:
            yield message

    def batches(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        batches = self.awaited.batches(*args, **kwargs)

        async def following() -> Any:
            return await anext(batches, None)

        while (batch := self._call(following)) is not None:
            yield batch

    def __enter__(self) -> Self:
        self._call(self.awaited.__aenter__)
        return self

    def __exit__(self, *error: object) -> None:
        self._call(self.awaited.__aexit__, *error)

    def __repr__(self) -> str:
        return repr(self.awaited)

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        async def call() -> Any:
            return await function(*args, **kwargs)

        if getattr(_HERE, "is_worker", False):
            return anyio.from_thread.run(call)  # inside a listener
        return self._portal.call(call)


class _Wrapped(AsyncConsumerRebalanceListener):
    """A test's listener, called in a worker thread."""

    def __init__(self, consumer: BlockingConsumer, listener: ConsumerRebalanceListener) -> None:
        self._consumer = consumer
        self._listener = listener

    async def on_partitions_assigned(self, consumer: AsyncConsumer, partitions: Any) -> None:
        await _in_worker(self._listener.on_partitions_assigned, self._consumer, partitions)

    async def on_partitions_revoked(self, consumer: AsyncConsumer, partitions: Any) -> None:
        await _in_worker(self._listener.on_partitions_revoked, self._consumer, partitions)

    async def on_partitions_lost(self, consumer: AsyncConsumer, partitions: Any) -> None:
        await _in_worker(self._listener.on_partitions_lost, self._consumer, partitions)


async def _in_worker(callback: Callable[..., object], *args: object) -> None:
    def call() -> None:
        _HERE.is_worker = True
        try:
            callback(*args)
        finally:
            _HERE.is_worker = False

    await anyio.to_thread.run_sync(call)


def _in_thread(callback: Callable[..., object], consumer: BlockingConsumer | None = None) -> Callable[..., object]:
    async def call(first: object, partitions: object) -> None:
        await _in_worker(callback, first if consumer is None else consumer, partitions)

    return call
