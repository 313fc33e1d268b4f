"""The coordinator's own connection. Who the coordinator is, and when to look again, is decided in `member/discovery`.

Runs on the background thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import anyio
import anyio.abc

from kip848_client.client.request_sender import Connection, RequestSender
from kip848_client.errors import ConnectionLostError
from kip848_client.model import BrokerNode
from kip848_client.wire.schema import Request, Response

ResponseT = TypeVar("ResponseT", bound=Response)


class CoordinatorManager:
    """Keeps one connection to the node that the member names; a new node replaces the old connection.

    Args:
        sender: opens the connection.
        on_disconnected: called with the node id when the connection ends although nobody here closed it.
    """

    def __init__(self, sender: RequestSender, *, on_disconnected: Callable[[int], None]) -> None:
        self._sender = sender
        self._on_disconnected = on_disconnected
        self._connection: Connection | None = None

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
        await self.aclose()  # another call may have been faster
        self._connection = connection
        tasks.start_soon(self._report_loss, connection, node.node_id, name=f"coordinator {node}")
        return connection.api_versions

    async def send(self, request: Request[ResponseT], *, timeout_ms: int, max_version: int | None) -> ResponseT:
        """Send *request* on the coordinator's connection.

        Raises:
            ConnectionLostError: there is no connection; nothing is opened for it.
            RequestTimeoutError, ProtocolError, UnsupportedVersionError: as the connection raises them.
        """
        connection = self._connection
        if connection is None or connection.closed:
            raise ConnectionLostError("the connection to the coordinator is gone")
        return await connection.send(request, timeout_ms=timeout_ms, max_version=max_version)

    async def aclose(self) -> None:
        """Close the connection, if there is one; its loss is not reported."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _report_loss(self, connection: Connection, node_id: int) -> None:
        await connection.wait_closed()
        if self._connection is connection:
            self._connection = None
            self._on_disconnected(node_id)
