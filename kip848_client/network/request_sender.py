"""Connections by node, and requests over them. The only thing ever retried here is opening a connection.

A request that was written is never written again: its failure goes to the caller, and the member's core decides (two
layers that both retry multiply, and a resent delta heartbeat breaks the rule that a retry is full). Runs on the
background thread only. Knows the meaning of no
request but the one by which it sees that a broker is of the same cluster.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

import anyio
import anyio.abc

from kip848_client.common.clock import Clock
from kip848_client.common.model import BrokerNode
from kip848_client.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionLostError,
    ErrorCode,
    OtherClusterError,
    RequestTimeoutError,
)
from kip848_client.wire.connection_end import Answer
from kip848_client.wire.messages.metadata import MetadataRequest
from kip848_client.wire.schema import Request, Response

_SILENT_MS: Final = 250
"""How long one broker is tried before the next one is tried as well, as for the addresses of one name (RFC 8305)."""
_CLOSED: Final = "the client is closed"

ResponseT = TypeVar("ResponseT", bound=Response)


class BrokerConnection(Protocol):
    """A connection to a broker: what `kip848_client.wire.connection` offers, and what tests put in its place."""

    @property
    def api_versions(self) -> Mapping[int, tuple[int, int]]:
        """API key -> (lowest, highest) version that the peer offers."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the connection broke or was closed."""
        ...

    async def send(self, request: Request[ResponseT], *, timeout_ms: int, max_version: int | None = None) -> ResponseT:
        """Write one request and wait for its answer; closes itself on time-out, so that no late answer can arrive."""
        ...

    def start(
        self,
        request: Request[Response],
        *,
        timeout_ms: int,
        max_version: int | None = None,
        on_end: Callable[[Answer], None],
    ) -> bool:
        """As `send`, if nothing has to be waited for first; *on_end* is called later with the answer or the failure."""
        ...

    async def wait_closed(self) -> None:
        """Return when the connection broke or was closed."""
        ...

    async def aclose(self) -> None:
        """Close; outstanding requests fail as `ConnectionLostError`."""
        ...


class OpenConnection(Protocol):
    """Dials, and does everything up to the answer of ApiVersions."""

    async def __call__(
        self,
        *,
        host: str,
        port: int,
        timeout_ms: int,
        tasks: anyio.abc.TaskGroup,
        cluster_id: str | None = None,
        node_id: int = -1,
    ) -> BrokerConnection:
        """Open one connection, in one attempt; what reads it runs in *tasks* until the connection ends.

        Args:
            cluster_id, node_id: the broker that is meant, if both are known.

        Raises:
            BrokerError: REBOOTSTRAP_REQUIRED: it is another broker.
        """
        ...


class RequestSender:
    """Sends one request at a time to the broker that is asked for, over connections that it keeps.

    Args:
        bootstrap: the brokers to begin with; asked in turn, from a random one on, without waiting long for each.
        open_connection: one attempt to open a connection.
        tasks: where connections are read.
        clock: for the time that opening may take.
        rng: picks the first bootstrap server and spreads retries.
        backoff_ms, backoff_max_ms: between attempts to open a connection (retry.backoff.ms, retry.backoff.max.ms).
        setup_timeout_ms: for one attempt (socket.connection.setup.timeout.ms).
        rebootstraps: whether the bootstrap servers are asked again once nodes of the cluster are known
            (metadata.recovery.strategy).
        asks_cluster: ask the first broker for its cluster, because nothing else tells it to `learn_nodes`.
        sleep: waits between attempts, instead of `anyio.sleep`; takes seconds.
    """

    def __init__(
        self,
        *,
        bootstrap: Iterable[tuple[str, int]],
        open_connection: OpenConnection,
        tasks: anyio.abc.TaskGroup,
        clock: Clock,
        rng: random.Random,
        backoff_ms: int = 100,
        backoff_max_ms: int = 1_000,
        setup_timeout_ms: int = 30_000,
        rebootstraps: bool = True,
        asks_cluster: bool = False,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._bootstrap: Final = tuple(bootstrap)
        self._open_connection = open_connection
        self._tasks = tasks
        self._clock = clock
        self._rng = rng
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._setup_timeout_ms = setup_timeout_ms
        self._rebootstraps: Final = rebootstraps
        self._asks_cluster: Final = asks_cluster
        self._sleep = sleep or anyio.sleep  # here, because it loads more of anyio
        self._cluster_id: str | None = None
        self._nodes: dict[int, BrokerNode] = {}
        self._by_node: dict[int, BrokerConnection] = {}
        self._any: BrokerConnection | None = None
        self._turn = rng.randrange(len(self._bootstrap))
        self._locks: dict[int | None, anyio.Lock] = {}
        self._closed = False

    def learn_nodes(self, nodes: Iterable[BrokerNode], *, cluster_id: str | None = None) -> None:
        """Remember the addresses that the cluster gives for its brokers; older ones that are absent are forgotten.

        Args:
            cluster_id: brokers of another cluster are refused from the first one on that is told.
        """
        if self._cluster_id is None:
            self._cluster_id = cluster_id
        self._nodes = {node.node_id: node for node in nodes}

    def rebootstrap(self) -> None:
        """Begin again with the bootstrap servers, if that is allowed: a broker said REBOOTSTRAP_REQUIRED (KIP-1102)."""
        if not self._rebootstraps:
            return
        self._nodes.clear()
        connection, self._any = self._any, None
        if connection is not None:
            self._tasks.start_soon(connection.aclose)

    async def any_broker(self, *, timeout_ms: int) -> BrokerConnection:
        """The connection for requests that every broker answers; opened if there is none.

        Raises:
            ConnectionLostError: no broker could be reached in *timeout_ms*.
            RequestTimeoutError: it could not be tried either: another request waits for a broker that does not answer.
            AuthenticationError: a broker refused us.
            OtherClusterError: brokers of another cluster were reached, and none of ours.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        lock = self._lock(None)
        with anyio.move_on_after(timeout_ms / 1_000) as scope:
            await lock.acquire()
        if scope.cancelled_caught:
            raise RequestTimeoutError(f"no broker was connected in {timeout_ms} ms")
        try:
            if self._any is None or self._any.closed:
                self._any = await self._unless_closed(await self._open_any(deadline_ms))
            return self._any
        finally:
            lock.release()

    async def node(self, node_id: int, *, timeout_ms: int) -> BrokerConnection:
        """The connection to one broker by its id; opened if there is none.

        Raises:
            ConnectionLostError: the id is unknown, or the broker could not be reached.
        """
        async with self._lock(node_id):
            known = self._by_node.get(node_id)
            if known is not None and not known.closed:
                return known
            node = self._nodes.get(node_id)
            if node is None:
                raise ConnectionLostError(f"broker {node_id} is not in the cluster's metadata")
            connection = await self.open(node, timeout_ms=timeout_ms)
            self._by_node[node_id] = connection
            return connection

    async def open(self, node: BrokerNode, *, timeout_ms: int) -> BrokerConnection:
        """Open a connection to *node* that the caller owns (the coordinator's); two attempts.

        Raises:
            ConnectionLostError: also if another broker has the node's address by now. The addresses of all nodes are
                forgotten then, so that the next request for any broker goes to a bootstrap server (KIP-899, KIP-1242).
            AuthenticationError, UnsupportedVersionError: as `wire.connection` raises them.
        """
        try:
            return await self._open(node, attempts=2, timeout_ms=timeout_ms)
        except BrokerError as error:
            if error.code != ErrorCode.REBOOTSTRAP_REQUIRED:
                raise
            if self._rebootstraps:
                self._nodes.clear()
            raise ConnectionLostError(str(error)) from error

    async def send_any(self, request: Request[ResponseT], *, timeout_ms: int) -> ResponseT:
        """Send to whichever broker is connected; *timeout_ms* covers opening and answering together."""
        deadline_ms = self._clock.now_ms() + timeout_ms
        connection = await self.any_broker(timeout_ms=timeout_ms)
        left_ms = max(1, deadline_ms - self._clock.now_ms())
        return await connection.send(request, timeout_ms=left_ms)

    async def aclose(self) -> None:
        """Close every connection that is kept here; new ones are refused from now on."""
        self._closed = True
        connections = [*self._by_node.values(), *([self._any] if self._any is not None else [])]
        self._by_node.clear()
        self._any = None
        for connection in connections:
            await connection.aclose()

    async def _open_any(self, deadline_ms: int) -> BrokerConnection:
        """Connect to the first of several brokers that answers: a silent one costs `_SILENT_MS`, not the time-out."""
        race = _Race()
        try:
            await self._run_race(race, deadline_ms)
        except BaseException:  # cancelled, although a connection may be there already
            if race.won is not None:
                await race.won.aclose()
            raise
        if race.won is not None:
            return race.won
        assert race.failure is not None, "one attempt at least was made"
        raise race.failure

    async def _run_race(self, race: _Race, deadline_ms: int) -> None:
        attempts = max(3, len(self._bootstrap) + 1)
        failures = 0
        async with anyio.create_task_group() as attempting:
            for number in range(1, attempts + 1):
                ended = race.begin()
                attempting.start_soon(self._take_part, race, ended, deadline_ms)
                if number == attempts:
                    break
                others_left = race.running < len(self._addresses)
                await self._wait(ended, _SILENT_MS if others_left else None, deadline_ms)
                if race.over.is_set() or self._clock.now_ms() >= deadline_ms:
                    break
                if ended.is_set():
                    failures += 1
                    backoff_ms = min(self._backoff_max_ms, self._backoff_ms << (failures - 1))
                    backoff_ms = round(backoff_ms * self._rng.uniform(0.8, 1.2))
                    if self._clock.now_ms() + backoff_ms >= deadline_ms:
                        break
                    await self._wait(race.over, backoff_ms, deadline_ms)
            if race.running and not race.over.is_set():
                race.last_began = True
                await race.over.wait()
            attempting.cancel_scope.cancel()

    async def _take_part(self, race: _Race, ended: anyio.Event, deadline_ms: int) -> None:
        left_ms = deadline_ms - self._clock.now_ms()
        try:
            connection = await self._open_once(*self._next_address(), deadline_ms=deadline_ms)
            await self._check_cluster(connection, deadline_ms=deadline_ms)
        except Exception as error:  # noqa: BLE001  raised by `_open_any`, outside of the group that would wrap it
            # Another bootstrap server may still lead to our cluster.
            is_final = not (_is_worth_another_attempt(error) or isinstance(error, OtherClusterError))
            if race.failure is not None and left_ms < _SILENT_MS and isinstance(error, RequestTimeoutError):
                error = race.failure  # this attempt had no time, and the one before tells why none succeeds
            race.failed(error, ended, final=is_final)
            return
        if race.over.is_set():
            await connection.aclose()
        else:
            race.won = connection
            race.end()

    async def _wait(self, event: anyio.Event, limit_ms: float | None, deadline_ms: int) -> None:
        """Wait for *event*, at most *limit_ms*, or without a limit if that would end after the deadline."""
        if limit_ms is None or self._clock.now_ms() + limit_ms >= deadline_ms:
            await event.wait()
            return
        async with anyio.create_task_group() as waiting:

            async def end() -> None:
                await self._sleep(limit_ms / 1_000)
                waiting.cancel_scope.cancel()

            waiting.start_soon(end)
            await event.wait()
            waiting.cancel_scope.cancel()

    async def _check_cluster(self, connection: BrokerConnection, *, deadline_ms: int) -> None:
        """See that a broker which was reached by an address alone is of our cluster."""
        if self._cluster_id is None and not self._asks_cluster:
            return
        left_ms = max(1, deadline_ms - self._clock.now_ms())
        try:
            found = await connection.send(MetadataRequest(topics=()), timeout_ms=left_ms)
        except BaseException:
            await connection.aclose()
            raise
        if self._cluster_id is None:
            self._cluster_id = found.cluster_id
        if found.cluster_id not in (None, self._cluster_id):
            await connection.aclose()
            raise OtherClusterError(
                f"the bootstrap servers lead to cluster {found.cluster_id} by now; this client began in cluster "
                f"{self._cluster_id}, and its positions and epochs mean nothing there. Nothing was read or run; make a "
                "new client if that cluster is meant"
            )

    async def _open(self, node: BrokerNode, *, attempts: int, timeout_ms: int) -> BrokerConnection:
        # Not with tenacity: importing it would delay the first connection of every consumer.
        deadline_ms = self._clock.now_ms() + timeout_ms
        failed = 0
        while True:
            try:
                return await self._open_once(node.host, node.port, deadline_ms=deadline_ms, node_id=node.node_id)
            except Exception as error:
                failed += 1
                if failed >= attempts or not _is_worth_another_attempt(error):
                    raise
                pause_ms = min(self._backoff_max_ms, self._backoff_ms << (failed - 1)) * self._rng.uniform(0.8, 1.2)
                if self._clock.now_ms() + pause_ms >= deadline_ms:
                    raise
            await self._sleep(pause_ms / 1_000)

    async def _open_once(self, host: str, port: int, *, deadline_ms: int, node_id: int = -1) -> BrokerConnection:
        if self._closed:
            raise ConnectionLostError(_CLOSED)
        left_ms = deadline_ms - self._clock.now_ms()
        if left_ms <= 0:
            raise RequestTimeoutError(f"no time left to connect to {host}:{port}")
        timeout_ms = min(left_ms, self._setup_timeout_ms)
        is_meant = self._cluster_id is not None and node_id >= 0
        connection = await self._open_connection(
            host=host,
            port=port,
            timeout_ms=timeout_ms,
            tasks=self._tasks,
            cluster_id=self._cluster_id if is_meant else None,
            node_id=node_id if is_meant else -1,
        )
        return await self._unless_closed(connection)

    async def _unless_closed(self, connection: BrokerConnection) -> BrokerConnection:
        """*connection*, if it was not opened while this sender was closed: nobody would close it."""
        if self._closed:
            await connection.aclose()
            raise ConnectionLostError(_CLOSED)
        return connection

    def _next_address(self) -> tuple[str, int]:
        # Brokers learned from the cluster come after the bootstrap list, in case all of that list are gone.
        known = self._addresses
        address = known[self._turn % len(known)]
        self._turn += 1
        return address

    @property
    def _addresses(self) -> list[tuple[str, int]]:
        nodes = [(node.host, node.port) for node in self._nodes.values()]
        known = nodes if nodes and not self._rebootstraps else [*self._bootstrap, *nodes]
        return list(dict.fromkeys(known))

    def _lock(self, key: int | None) -> anyio.Lock:
        return self._locks.setdefault(key, anyio.Lock())


class _Race:
    """Attempts to connect that run side by side."""

    def __init__(self) -> None:
        self.over: Final = anyio.Event()
        """There is a connection, or none can be expected any more."""
        self.won: BrokerConnection | None = None
        self.failure: Exception | None = None
        """The error of the attempt that failed last."""
        self.running = 0
        self._attempts: Final[list[anyio.Event]] = []
        self.last_began = False

    def begin(self) -> anyio.Event:
        """An attempt begins. Returns the event that is set when it, or the race, ends."""
        self.running += 1
        self._attempts.append(anyio.Event())
        return self._attempts[-1]

    def end(self) -> None:
        """End the race: no attempt is waited for any more."""
        self.over.set()
        for ended in self._attempts:
            ended.set()

    def failed(self, error: Exception, ended: anyio.Event, *, final: bool) -> None:
        """An attempt failed; *final*: so will the others."""
        self.running -= 1
        if not isinstance(self.failure, OtherClusterError):
            self.failure = error
        ended.set()
        if final or (self.last_began and not self.running):
            self.end()


def _is_worth_another_attempt(error: BaseException) -> bool:
    if isinstance(error, (AuthenticationError, OtherClusterError)):
        return False
    return isinstance(error, (ConnectionLostError, RequestTimeoutError))
