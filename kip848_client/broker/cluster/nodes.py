"""The nodes of one cluster: their ids and addresses, and whether they run. Opens and closes their ports.

Not here: leaders (`placement`), and the steps after a node died (`fail_over`).
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from kip848_client.errors import ConfigError

if TYPE_CHECKING:
    from kip848_client.broker.net.server import Server

__all__ = ["Node", "NodeSnapshot", "NodeState", "Nodes"]

_BACKLOG: Final = 512

NodeState = Literal["running", "paused", "stopped"]


class NodeSnapshot(msgspec.Struct, frozen=True):
    """One node at one moment.

    Attributes:
        bootstrap_server: ``host:port`` of this node alone.
        state: ``running``; ``paused``: it takes requests and answers none; ``stopped``: its port is closed.
        leads: the partitions of topics that it leads, as (topic, partition), ascending.
    """

    node_id: int
    host: str
    port: int
    rack: str | None
    state: NodeState
    leads: tuple[tuple[str, int], ...]

    @property
    def bootstrap_server(self) -> str:
        """``host:port`` for clients that should begin with this node."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Node:
    """One node. Its port stays its own while it is stopped, so that it can come back.

    Args:
        bind_host: the address to listen on.
        host: the address that is sent to clients.
        port: 0 takes a free one in `bind`.
    """

    def __init__(self, node_id: int, *, bind_host: str, host: str, port: int, rack: str | None) -> None:
        self.node_id: Final = node_id
        self.host: Final = host
        self.rack: Final = rack
        self._bind_host: Final = bind_host
        self._socket: socket.socket | None = None
        self.port = port
        self.server: Server | None = None

    @property
    def state(self) -> NodeState:
        """Whether it serves."""
        if self.server is None:
            return "stopped"
        return "paused" if self.server.paused else "running"

    def bind(self) -> None:
        """Take the port. Connections are refused until the node serves.

        Raises:
            ConfigError: the port is taken.
        """
        if self._socket is None:
            self._socket = _bound(self._bind_host, self.port)
            self.port = self._socket.getsockname()[1]

    async def start(self, server: Server) -> None:
        """Serve on its port.

        Raises:
            ConfigError: the port was taken by another process.
        """
        self.bind()
        bound, self._socket = self._socket, None
        assert bound is not None
        try:
            bound.listen(_BACKLOG)
            await server.start(bound)
        except OSError as error:
            bound.close()
            raise _cannot_listen(error, self._bind_host, self.port) from error
        self.server = server

    async def stop(self, *, abort: bool, reset: bool = False, keep_port: bool) -> None:
        """Close its port and every connection.

        Args:
            abort: drop unsent answers.
            reset: end connections by a TCP reset.
            keep_port: let no other process have the port.
        """
        server, self.server = self.server, None
        if server is not None:
            if reset:
                server.reset()
            await server.stop(abort=abort)
        if keep_port:
            self.bind()
        else:
            self.close()

    def close(self) -> None:
        """Give the port back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Nodes:
    """All nodes of one cluster, by id.

    Args:
        node_ids: ascending, each with its port; 0 takes a free one.
        racks: of the nodes, in the same order; empty if they have none.
    """

    def __init__(self, node_ids: Mapping[int, int], *, bind_host: str, host: str, racks: Sequence[str] = ()) -> None:
        self._nodes: Final = {
            node_id: Node(node_id, bind_host=bind_host, host=host, port=port, rack=racks[place] if racks else None)
            for place, (node_id, port) in enumerate(node_ids.items())
        }

    def __iter__(self) -> Iterator[Node]:
        """All nodes, by ascending id."""
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, node_id: int) -> Node:
        """One node.

        Raises:
            KeyError: there is none of that id.
        """
        return self._nodes[node_id]

    def get(self, node_id: int) -> Node | None:
        """One node, or None."""
        return self._nodes.get(node_id)

    @property
    def ports(self) -> dict[int, int]:
        """Node id -> its port."""
        return {node.node_id: node.port for node in self}

    def bind(self) -> None:
        """Take all ports.

        Raises:
            ConfigError: one is taken; all others are given back.
        """
        try:
            for node in self:
                node.bind()
        except ConfigError:
            self.close()
            raise

    def close(self) -> None:
        """Give all ports back that no server has."""
        for node in self:
            node.close()

    async def start(self, make_server: Callable[[int], Server]) -> None:
        """Let all of them serve.

        Raises:
            ConfigError: a port was taken meanwhile; none serves.
        """
        try:
            for node in self:
                await node.start(make_server(node.node_id))
        except ConfigError:
            await self.stop(abort=True)
            raise

    async def stop(self, *, abort: bool) -> None:
        """Stop all of them for good."""
        for node in self:
            await node.stop(abort=abort, keep_port=False)


def _bound(host: str, port: int) -> socket.socket:
    """A socket that has the port and does not listen yet, so that connections are refused."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere the option would let another process have the port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if bound.family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise _cannot_listen(error, host, port) from error
    return bound


def _cannot_listen(error: OSError, host: str, port: int) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(f"port {port} on {host} is taken; choose another, or 0 for a free one")
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}")
