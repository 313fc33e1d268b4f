"""The coordinator's own connections: one for requests that are answered at once, one for those that wait until a group
is complete.

`member/discovery` decides who the coordinator is, and when to look again.

Runs on the background thread only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import anyio
import anyio.abc

from kip848_client.common.model import BrokerNode
from kip848_client.errors import ConnectionLostError
from kip848_client.network.request_sender import BrokerConnection, RequestSender
from kip848_client.wire.connection_end import Answer
from kip848_client.wire.schema import Request, Response

ResponseT = TypeVar("ResponseT", bound=Response)

THROTTLE_MS_MAX: Final = 10_000
"""No pause is longer: a session ends meanwhile, and no quota of Kafka's asks for as much (its windows are 1 s)."""


class CoordinatorManager:
    """Keeps one connection to the node that the member names; a new node replaces the old connection.

    Args:
        sender: opens the connection.
        on_disconnected: called with the node id when the connection breaks.
    """

    def __init__(self, sender: RequestSender, *, on_disconnected: Callable[[int], None]) -> None:
        self._sender = sender
        self._on_disconnected = on_disconnected
        self._connection: BrokerConnection | None = None
        self._node: BrokerNode | None = None
        self._round_connection: BrokerConnection | None = None
        self._rounds = 0
        self._round_busy = False
        """A request on the other connection has no answer yet."""
        self._pause_ends_s = 0.0
        self._paused: set[anyio.CancelScope] = set()
        """One for each request that waits for the end of the pause."""

    @property
    def api_versions(self) -> Mapping[int, tuple[int, int]]:
        """API key -> (lowest, highest) version that the coordinator offers; none without a connection."""
        return {} if self._connection is None else self._connection.api_versions

    async def connect(
        self, node: BrokerNode, *, timeout_ms: int, tasks: anyio.abc.TaskGroup
    ) -> Mapping[int, tuple[int, int]]:
        """Open the connection to *node* and close the one before.

        Returns:
            API key -> (lowest, highest) version that the coordinator offers.

        Raises:
            ConnectionLostError, AuthenticationError, UnsupportedVersionError: it could not be opened.
        """
        await self.aclose()
        connection = await self._sender.open(node, timeout_ms=timeout_ms)
        try:
            await self.aclose()  # another call may have been faster
        except BaseException:  # cancelled
            await connection.aclose()
            raise
        self._connection = connection
        self._node = node
        self._pause_ends_s = 0.0
        tasks.start_soon(self._report_loss, connection, node.node_id, name=f"coordinator {node}")
        return connection.api_versions

    async def send(
        self, request: Request[ResponseT], *, timeout_ms: int, max_version: int | None, urgent: bool = False
    ) -> ResponseT:
        """Send *request* on the coordinator's connection, after the pause that its last answers asked for.

        Args:
            timeout_ms: from when it is sent.
            urgent: end the pause, also for the requests that wait for its end: the consumer leaves or closes.

        Raises:
            ConnectionLostError: there is no connection; nothing is opened for it.
            RequestTimeoutError, ProtocolError, UnsupportedVersionError: as the connection raises them.
        """
        connection = self._connection
        if urgent:
            await self._end_pause()
        elif connection is not None:
            await self._pause(connection)
        if connection is None or connection.closed:
            raise ConnectionLostError("the connection to the coordinator is gone")
        response = await connection.send(request, timeout_ms=timeout_ms, max_version=max_version)
        self.answered(response)
        return response

    def start(
        self,
        request: Request[Response],
        *,
        timeout_ms: int,
        max_version: int | None,
        on_end: Callable[[Answer], None],
        urgent: bool = False,
    ) -> bool:
        """As `send`, if it can be sent at once. The callback for the answer must call `answered`.

        Args:
            urgent: the member leaves: a request of `send_round` that waits for its connection would join it again, and
                is not sent.

        Returns:
            False if it has to be sent by `send`: there is a pause, or no connection.

        Raises:
            ConnectionLostError, UnsupportedVersionError: as the connection raises them.
        """
        connection = self._connection
        if urgent:
            self._rounds += 1
        if connection is None or self._pause_ends_s > time.monotonic():
            return False
        return connection.start(request, timeout_ms=timeout_ms, max_version=max_version, on_end=on_end)

    def answered(self, response: Response) -> None:
        """Begin the pause that *response* asks for, if it does."""
        throttle_ms: int = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            ends_s = time.monotonic() + min(throttle_ms, THROTTLE_MS_MAX) / 1_000
            self._pause_ends_s = max(self._pause_ends_s, ends_s)

    async def send_round(self, request: Request[ResponseT], *, timeout_ms: int, max_version: int | None) -> ResponseT:
        """Send a request that is answered late, on a connection of its own to the same node, so that nothing waits.

        A request that is still without an answer there is not wanted any more: its connection is closed. One that still
        waits for its connection is not sent.

        Raises:
            ConnectionLostError: there is no coordinator, or the connection broke.
            RequestTimeoutError, ProtocolError, UnsupportedVersionError: as the connection raises them.
        """
        coordinator = self._connection
        if coordinator is None or coordinator.closed or self._node is None:
            raise ConnectionLostError("the connection to the coordinator is gone")
        self._rounds += 1
        number = self._rounds
        if self._round_busy:
            await self._close_round()
        connection = self._round_connection
        if connection is None or connection.closed:
            connection = await self._sender.open(self._node, timeout_ms=timeout_ms)
            if number != self._rounds or self._connection is not coordinator:
                await connection.aclose()
                raise ConnectionLostError("a later request took its place, the member left, or the coordinator is gone")
            await self._close_round()
            self._round_connection = connection
        self._round_busy = True
        try:
            return await connection.send(request, timeout_ms=timeout_ms, max_version=max_version)
        finally:
            if self._round_connection is connection:
                self._round_busy = False

    async def _close_round(self) -> None:
        connection, self._round_connection = self._round_connection, None
        self._round_busy = False
        if connection is not None:
            await connection.aclose()

    async def _pause(self, connection: BrokerConnection) -> None:
        """A broker that throttles us reads nothing meanwhile, and requests would only time out (KIP-219)."""
        while (left_s := self._pause_ends_s - time.monotonic()) > 0 and not connection.closed:
            with anyio.move_on_after(left_s) as scope:
                self._paused.add(scope)
                try:
                    await connection.wait_closed()
                finally:
                    self._paused.discard(scope)

    async def _end_pause(self) -> None:
        import anyio.lowlevel  # here, because throttling is rare

        self._pause_ends_s = 0.0
        for scope in self._paused:
            scope.cancel()  # ends the wait only; the request goes on
        while self._paused:  # waiting requests are written first: a commit after the leave would be refused
            await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close the connection, if there is one; its loss is not reported."""
        connection, self._connection = self._connection, None
        await self._close_round()
        if connection is not None:
            await connection.aclose()

    async def _report_loss(self, connection: BrokerConnection, node_id: int) -> None:
        await connection.wait_closed()
        if self._connection is connection:
            self._connection = None
            self._on_disconnected(node_id)
            await self._close_round()
