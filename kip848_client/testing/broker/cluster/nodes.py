"""The nodes of one cluster: their ids and addresses, and whether they run. Opens and closes their ports.

Not here: leaders (`placement`), and the steps after a node died (`fail_over`).
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from kip848_client.common.addresses import in_url
from kip848_client.errors import ConfigError, Kip848Error, OutOfResourcesError

if TYPE_CHECKING:
    from kip848_client.testing.broker.net.server import Server

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
        return f"{in_url(self.host)}:{self.port}"


class Endpoint(NamedTuple):
    """The address of a node, as clients are told."""

    host: str
    port: int


class Listener(msgspec.Struct, frozen=True):
    """One of the addresses at which every node listens, such as one for a network of containers and one for the host.

    Args:
        host: the IP address to listen on.
        port: of the first node, others have the next ones; 0 takes a free one for each.
        advertised_host: what clients that came here are told; *host* if None.
        advertised_port: of the first node; *port* if None.
    """

    host: str = "127.0.0.1"
    port: int = 0
    advertised_host: str | None = None
    advertised_port: int | None = None


class _Door:
    """A listener of one node."""

    def __init__(self, listener: Listener, *, place: int, port: int) -> None:
        self._listener: Final = listener
        self._place: Final = place
        self.port = port
        self.socket: socket.socket | None = None

    def bind(self) -> None:
        if self.socket is None:
            self.socket = _bound(self._listener.host, self.port)
            self.port = self.socket.getsockname()[1]

    @property
    def endpoint(self) -> Endpoint:
        listener = self._listener
        port = self.port if listener.advertised_port is None else listener.advertised_port + self._place
        return Endpoint(listener.advertised_host or listener.host, port)

    def cannot_listen(self, error: OSError) -> ConfigError:
        return _cannot_listen(error, self._listener.host, self.port)


class Node:
    """One node. Its ports stay its own while it is stopped, so that it can come back.

    Args:
        place: in the order of the nodes, from 0.
        ports: of each listener; 0 takes a free one in `bind`.
    """

    def __init__(
        self, node_id: int, *, listeners: Sequence[Listener], place: int, ports: Sequence[int], rack: str | None
    ) -> None:
        self.node_id: Final = node_id
        self.rack: Final = rack
        self._doors: Final = tuple(
            _Door(each, place=place, port=port) for each, port in zip(listeners, ports, strict=True)
        )
        self.server: Server | None = None

    def endpoint(self, listener: int = 0) -> Endpoint:
        """What clients are told that came to a listener."""
        return self._doors[listener].endpoint

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """`endpoint` of each listener."""
        return tuple(door.endpoint for door in self._doors)

    @property
    def port(self) -> int:
        """The port of the first listener; 0 until it is bound, if it takes a free one."""
        return self._doors[0].port

    @property
    def ports(self) -> tuple[int, ...]:
        """`port` of each listener."""
        return tuple(door.port for door in self._doors)

    @property
    def state(self) -> NodeState:
        """Whether it serves."""
        if self.server is None:
            return "stopped"
        return "paused" if self.server.paused else "running"

    def bind(self) -> None:
        """Take the ports. Connections are refused until the node serves.

        Raises:
            ConfigError: the port is taken.
        """
        for door in self._doors:
            door.bind()

    async def start(self, server: Server) -> None:
        """Serve on its port.

        Raises:
            ConfigError: the port was taken by another process.
        """
        self.bind()
        bound = []
        for door in self._doors:
            assert door.socket is not None
            try:
                door.socket.listen(_BACKLOG)
            except OSError as error:
                self.close()
                raise door.cannot_listen(error) from error
            bound.append(door.socket)
        for door in self._doors:
            door.socket = None  # they belong to the server now
        await server.start(*bound)
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
        """Give the ports back."""
        for door in self._doors:
            if door.socket is not None:
                door.socket.close()
                door.socket = None


class Nodes:
    """All nodes of one cluster, by id.

    Args:
        node_ids: ascending, each with its port at each listener; 0 takes a free one.
        racks: of the nodes, in the same order; empty if they have none.
    """

    def __init__(
        self, node_ids: Mapping[int, Sequence[int]], listeners: Sequence[Listener], *, racks: Sequence[str] = ()
    ) -> None:
        self._nodes: Final = {
            node_id: Node(node_id, listeners=listeners, place=place, ports=ports, rack=racks[place] if racks else None)
            for place, (node_id, ports) in enumerate(node_ids.items())
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
    def ports(self) -> dict[int, tuple[int, ...]]:
        """Node id -> its port at each listener."""
        return {node.node_id: node.ports for node in self}

    def bind(self) -> None:
        """Take all ports.

        Raises:
            ConfigError: one is taken; all others are given back.
            OutOfResourcesError: the process may open no more files; likewise.
        """
        try:
            for node in self:
                node.bind()
        except Kip848Error:
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
    try:
        bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise OutOfResourcesError(
            f"no socket can be made for {host}:{port}: {error.strerror or error}; see ulimit -n"
        ) from error
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
