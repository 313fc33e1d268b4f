"""`Admin` and `AsyncAdmin`: each call is a question of `groups`, `offsets`, `topics`, `resets` or `transactions`.

The questions run in one event loop, on a thread that the first call starts; connections live until the client is
closed. Any number of threads or tasks may call at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import anyio
import anyio.to_thread

from kip848_client.admin import groups, offsets, resets, topics, transactions, workers
from kip848_client.admin.cluster import Cluster
from kip848_client.aio.owner_thread import teller
from kip848_client.common.daemon_thread import daemon_thread, no_event_loop
from kip848_client.config import ConfigValue, ConsumerConfig, merge_settings, parse_consumer_config, unlisted_keys
from kip848_client.errors import IllegalStateError
from kip848_client.network.connection_opener import ConnectionOpener
from kip848_client.network.ownership import HomeProcess
from kip848_client.network.queues import Latch

P = ParamSpec("P")
ValueT = TypeVar("ValueT")

_CLIENT_ID: Final = "kip848-admin"
_JOIN_S: Final = 5.0


class _LoopThread:
    """The event loop of one client. Started by the first call."""

    def __init__(self, config: ConsumerConfig, *, await_broker: bool) -> None:
        self._config: Final = config
        self._opener: Final = ConnectionOpener(config)
        self._await_broker: Final = await_broker
        self._home: Final = HomeProcess()
        self._lock: Final = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._ready = Latch()
        self._failure: BaseException | None = None
        """Why the thread has no loop."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._context = contextvars.Context()
        self._cluster: Cluster | None = None

    def submit(self, question: Callable[[Cluster], Coroutine[Any, Any, ValueT]]) -> Future[ValueT]:
        """Have a question asked.

        Raises:
            IllegalStateError: the client is closed.
            ForkedProcessError: this is a child of the process that made it.
            OutOfResourcesError: the process may have no more files or threads; a later call tries again.
        """
        self._home.check()
        with self._lock:
            if self._closed:
                raise IllegalStateError("this client is closed; make a new one")
            if self._thread is None:
                self._start()
            assert self._loop is not None
            assert self._cluster is not None
            # Not in the context of the caller, which may say that trio runs here.
            context = self._context.copy()
            return context.run(asyncio.run_coroutine_threadsafe, question(self._cluster), self._loop)

    def _start(self) -> None:
        thread = daemon_thread(self._run, "kip848-admin")
        thread.start()
        self._ready.wait()
        if self._failure is None:
            self._thread = thread
            return
        failure, self._failure = self._failure, None
        self._ready = Latch()
        if isinstance(failure, OSError):
            raise no_event_loop(failure) from failure
        raise failure

    def _run(self) -> None:
        try:
            anyio.run(self._main)
        except BaseException as error:
            if self._ready.is_set():
                raise
            self._failure = error  # raised where the loop is waited for
            self._ready.set()

    async def _main(self) -> None:
        async with anyio.create_task_group() as tasks:
            self._cluster = Cluster(self._config, self._opener, tasks, await_broker=self._await_broker)
            self._context = contextvars.copy_context()
            self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
            self._ready.set()
            await self._stopping.wait()
            await self._cluster.sender.aclose()
            tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """Close connections soon; calls that wait end with an error. May be called again."""
        with self._lock:
            self._closed = True
            if self._loop is not None and self._stopping is not None and not self._home.left:
                with contextlib.suppress(RuntimeError):  # it has ended
                    self._loop.call_soon_threadsafe(self._stopping.set)

    def join(self) -> None:
        """Wait for the end of the thread."""
        if self._thread is not None and not self._home.left:
            self._thread.join(_JOIN_S)


class _Client:
    """The parts that both clients share.

    Args:
        config: bootstrap.servers and security, as for a consumer; other keys of a consumer are allowed.
        await_broker: wait for the first broker for as long as a call may take. By default a call fails at once if none
            can be reached, until one was reached for the first time.
        settings: more of *config*, as keyword arguments.

    Raises:
        ConfigError: a key or value is wrong, or a certificate cannot be read.
    """

    def __init__(
        self, config: Mapping[str, ConfigValue] | None = None, *, await_broker: bool = False, **settings: ConfigValue
    ) -> None:
        given = {"group.id": _CLIENT_ID, "client.id": _CLIENT_ID, **merge_settings(config, settings)}
        parsed = parse_consumer_config(given)
        if unlisted := unlisted_keys(parsed.data_plane):
            from kip848_client.consumer.records.data_plane import create_record_consumer  # here: it loads librdkafka

            asked = {key: parsed.data_plane[key] for key in ("bootstrap.servers", "group.id", *sorted(unlisted))}
            # It refuses what a consumer refuses. A key of a producer is no mistake here, of which it would warn.
            create_record_consumer({**asked, "log_level": 2}).close()
        self._thread: Final = _LoopThread(parsed, await_broker=await_broker)
        weakref.finalize(self, self._thread.stop)


def _closed_meanwhile() -> IllegalStateError:
    return IllegalStateError("this client was closed before the answer came")


def _blocking(
    question: Callable[Concatenate[Cluster, P], Coroutine[Any, Any, ValueT]],
) -> Callable[Concatenate[Admin, P], ValueT]:
    """A method that asks *question* and waits for the answer."""

    def call(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> ValueT:
        future = self._thread.submit(lambda cluster: question(cluster, *args, **kwargs))
        try:
            return future.result()
        except CancelledError as error:
            raise _closed_meanwhile() from error
        finally:
            future.cancel()

    _describe(call, question)
    return call


def _awaited(
    question: Callable[Concatenate[Cluster, P], Coroutine[Any, Any, ValueT]],
) -> Callable[Concatenate[AsyncAdmin, P], Awaitable[ValueT]]:
    """A method that asks *question* and awaits the answer, in asyncio or trio."""

    async def call(self: AsyncAdmin, /, *args: P.args, **kwargs: P.kwargs) -> ValueT:
        answered, tell = anyio.Event(), teller()

        def wake(_: Future[ValueT]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the task with it
                tell(answered.set)

        future = self._thread.submit(lambda cluster: question(cluster, *args, **kwargs))
        future.add_done_callback(wake)
        try:
            await answered.wait()
            return future.result()
        except CancelledError as error:
            raise _closed_meanwhile() from error
        finally:
            future.cancel()

    _describe(call, question)
    return call


def _describe(call: Callable[..., object], question: Callable[..., object]) -> None:
    """Give *call* the name, the text and the parameters of *question*, but ``self`` for the cluster."""
    functools.update_wrapper(call, question)
    signature = inspect.signature(question)
    cluster, *others = signature.parameters.values()
    itself = cluster.replace(name="self", annotation=inspect.Parameter.empty)
    vars(call)["__signature__"] = signature.replace(parameters=[itself, *others])


class Admin(_Client):
    """Asks a cluster about its groups of every kind, their offsets, and transactions, and changes them.

    Used in a ``with`` block, or closed by `close`. Any number of threads may call at once. Every method takes
    ``timeout_s``, for the whole call with everything that is tried again. A question about several groups, partitions
    or transactions returns `Results`, in which an error for one of them does not hide the others.

    Example::

        with Admin({"bootstrap.servers": "127.0.0.1:9092"}) as admin:
            for group_id, lag in admin.lag(["billing", "shipping"]).values.items():
                print(group_id, lag.lag)
            plan = admin.plan_reset("billing", "earliest")
            admin.apply_reset(plan)
    """

    list_groups: Final = _blocking(groups.list_groups)
    describe_groups: Final = _blocking(groups.describe)
    lag: Final = _blocking(groups.lag)
    delete_groups: Final = _blocking(groups.delete_groups)
    remove_members: Final = _blocking(groups.remove_members)
    describe_workers: Final = _blocking(workers.describe_workers)
    drain_workers: Final = _blocking(workers.drain_workers)
    group_config: Final = _blocking(groups.group_config)
    committed_offsets: Final = _blocking(offsets.committed_offsets)
    commit_offsets: Final = _blocking(offsets.commit_offsets)
    delete_offsets: Final = _blocking(offsets.delete_offsets)
    plan_reset: Final = _blocking(resets.plan_reset)
    apply_reset: Final = _blocking(resets.apply_reset)
    list_topics: Final = _blocking(topics.list_topics)
    list_offsets: Final = _blocking(topics.list_offsets)
    features: Final = _blocking(topics.features)
    list_transactions: Final = _blocking(transactions.list_transactions)
    describe_transactions: Final = _blocking(transactions.describe_transactions)
    end_transactions: Final = _blocking(transactions.end_transactions)
    find_hanging_transactions: Final = _blocking(transactions.find_hanging_transactions)
    abort_hanging_transaction: Final = _blocking(transactions.abort_hanging_transaction)

    def close(self) -> None:
        """Close connections; calls in other threads end with an error. May be called again."""
        self._thread.stop()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncAdmin(_Client):
    """As `Admin`, for asyncio and trio: the same methods, awaited, in an ``async with`` block."""

    list_groups: Final = _awaited(groups.list_groups)
    describe_groups: Final = _awaited(groups.describe)
    lag: Final = _awaited(groups.lag)
    delete_groups: Final = _awaited(groups.delete_groups)
    remove_members: Final = _awaited(groups.remove_members)
    describe_workers: Final = _awaited(workers.describe_workers)
    drain_workers: Final = _awaited(workers.drain_workers)
    group_config: Final = _awaited(groups.group_config)
    committed_offsets: Final = _awaited(offsets.committed_offsets)
    commit_offsets: Final = _awaited(offsets.commit_offsets)
    delete_offsets: Final = _awaited(offsets.delete_offsets)
    plan_reset: Final = _awaited(resets.plan_reset)
    apply_reset: Final = _awaited(resets.apply_reset)
    list_topics: Final = _awaited(topics.list_topics)
    list_offsets: Final = _awaited(topics.list_offsets)
    features: Final = _awaited(topics.features)
    list_transactions: Final = _awaited(transactions.list_transactions)
    describe_transactions: Final = _awaited(transactions.describe_transactions)
    end_transactions: Final = _awaited(transactions.end_transactions)
    find_hanging_transactions: Final = _awaited(transactions.find_hanging_transactions)
    abort_hanging_transaction: Final = _awaited(transactions.abort_hanging_transaction)

    async def aclose(self) -> None:
        """Close connections; calls in other tasks end with an error. May be called again."""
        self._thread.stop()
        with anyio.CancelScope(shield=True), contextlib.suppress(RuntimeError):  # without a thread to wait in
            await anyio.to_thread.run_sync(self._thread.join)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
