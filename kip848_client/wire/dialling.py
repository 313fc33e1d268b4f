"""How a connection begins: TCP, TLS, and which versions both sides speak. `connection` has the rest."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from msgspec.structs import replace

from kip848_client.common.version import __version__
from kip848_client.errors import (
    BrokerError,
    ConnectionLostError,
    ErrorCode,
    ProtocolError,
    UnsupportedVersionError,
    error_name,
)
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.connection_end import told
from kip848_client.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kip848_client.wire.name_lookups import LOOKUPS
from kip848_client.wire.schema import Request, Response
from kip848_client.wire.tls_failures import explain_handshake, hung_up

ResponseT = TypeVar("ResponseT", bound=Response)

_Address: TypeAlias = tuple[int, int, int, str, Any]
"""One address of a name, as `socket.getaddrinfo` has it."""

_NEXT_ADDRESS_S: Final = 0.25
"""How long one address of a name is tried before the next one is tried as well (RFC 8305)."""


class Asker(Protocol):
    """The part of a connection that is needed here."""

    @property
    def peer(self) -> str:
        """``host:port``."""
        ...

    async def exchange(self, request: Request[ResponseT], version: int, timeout_ms: int) -> ResponseT:
        """Send at once and wait for the answer."""
        ...


async def dial(
    host: str, port: int, *, peer: str, context: ssl.SSLContext | None, protocol: asyncio.BaseProtocol
) -> None:
    """Connect *protocol*, with TLS if there is a *context*.

    Raises:
        ConnectionLostError: the peer cannot be reached, or closed the connection.
        AuthenticationError: TLS refused the certificate or the peer.
    """
    if not 0 < port < 65_536:  # brokers name brokers, and may be configured wrongly
        raise ConnectionLostError(f"no connection to {peer}: {port} is not a port")
    loop = asyncio.get_running_loop()
    try:
        connected = await _connect(host, port, loop)
        await loop.create_connection(
            lambda: protocol, sock=connected, ssl=context, server_hostname=None if context is None else host
        )
    except ssl.SSLError as failure:
        raise explain_handshake(failure, peer=peer) from failure
    except ConnectionResetError as failure:
        if context is None:
            raise ConnectionLostError(f"no connection to {peer}: {told(failure)}") from failure
        raise ConnectionLostError(hung_up(peer)) from failure
    except RuntimeError as failure:
        # Names are looked up in a thread, and none can be started while the interpreter ends.
        if not _no_more_threads(failure):
            raise
        raise ConnectionLostError(f"no connection to {peer}: the interpreter ends") from failure
    except (OSError, ValueError) as failure:  # ValueError: a name that no host can have
        raise ConnectionLostError(f"no connection to {peer}: {told(failure)}") from failure


async def _connect(host: str, port: int, loop: asyncio.AbstractEventLoop) -> socket.socket:
    """A socket to the address of *host* that answers first.

    asyncio has that too (``happy_eyeballs_delay``), but if it is cancelled, it leaves open what has just connected.
    """
    waiting = deque(await _addresses(host, port, loop))
    failure: BaseException | None = None
    tries: list[asyncio.Task[socket.socket]] = []
    try:
        while waiting or tries:
            if waiting:
                tries.append(loop.create_task(_try_address(waiting.popleft(), loop)))
            limit_s = _NEXT_ADDRESS_S if waiting else None
            done, _ = await asyncio.wait(tries, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                tries.remove(ended)
                failure = ended.exception()
                if failure is None:
                    return ended.result()
        raise failure or OSError(f"{host} has no address")
    finally:
        for late in tries:
            if not (late.cancel() or late.cancelled() or late.exception()):
                late.result().close()


async def _try_address(address: _Address, loop: asyncio.AbstractEventLoop) -> socket.socket:
    family, kind, protocol, _, where = address
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setblocking(False)
        await loop.sock_connect(opened, where)
    except BaseException:
        opened.close()
        raise
    return opened


async def _addresses(host: str, port: int, loop: asyncio.AbstractEventLoop) -> list[_Address]:
    """The addresses of *host*; those of IPv4 and IPv6 take turns."""
    # Of a str Python makes an international name, for which it loads tables: a millisecond.
    name = host.encode() if host.isascii() else host
    if _is_address(host):  # a name has to be looked up in a thread
        return list(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    found = await loop.run_in_executor(LOOKUPS, partial(socket.getaddrinfo, name, port, type=socket.SOCK_STREAM))
    by_family = [[one for one in found if one[0] == family] for family in dict.fromkeys(one[0] for one in found)]
    return [one for turn in itertools.zip_longest(*by_family) for one in turn if one is not None]


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):
            socket.inet_pton(family, host.partition("%")[0])
            return True
    return False


def _no_more_threads(failure: RuntimeError) -> bool:
    return "after shutdown" in str(failure) or "interpreter shutdown" in str(failure)


async def agree_on_versions(
    connection: Asker, *, timeout_ms: int, cluster_id: str | None = None, node_id: int = -1
) -> dict[int, tuple[int, int]]:
    """API key -> (lowest, highest) version that the broker speaks.

    Asked in our highest version, and once more in the broker's if that was too high (KIP-511).

    Args:
        cluster_id, node_id: the broker that is meant; either both or none. Brokers before 4.4 do not look at them.

    Raises:
        BrokerError: REBOOTSTRAP_REQUIRED: the peer is another broker (KIP-1242).
        UnsupportedVersionError: no common version of ApiVersions itself.
        ProtocolError: the peer does not speak Kafka's protocol.
    """
    own = ApiVersionsRequest.WIRE.versions
    version = own.last
    request = replace(versions_request(), cluster_id=cluster_id, node_id=node_id)
    response = await connection.exchange(request, version, timeout_ms)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        version = min(_served_versions(response).get(ApiKey.API_VERSIONS, (0, 0))[1], own.last - 1)
        response = await connection.exchange(request, max(version, 0), timeout_ms)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        raise UnsupportedVersionError(f"{connection.peer} refuses ApiVersions in version {version} as well")
    if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
        raise BrokerError(
            f"{connection.peer} is not node {node_id} of cluster {cluster_id} any more",
            code=ErrorCode.REBOOTSTRAP_REQUIRED,
        )
    if response.error_code:
        raise ProtocolError(f"{connection.peer} answers ApiVersions with {error_name(response.error_code)}")
    return _served_versions(response)


def versions_request() -> ApiVersionsRequest:
    """The question, with this library's name and version."""
    return ApiVersionsRequest(client_software_name="kip848-client", client_software_version=__version__)


def _served_versions(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {item.api_key: (item.min_version, item.max_version) for item in response.api_keys}
