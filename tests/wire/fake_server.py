"""A loopback server that answers as a test tells it to. One script per accepted connection."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc

from kip848_client.wire.codec import RequestHeader, decode_request, encode_response, frame, peek_request_header
from kip848_client.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kip848_client.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kip848_client.wire.schema import Response

LONG_MS = 10_000
"""More than any of these tests takes."""


def heartbeat(epoch: int) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat without changes."""
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)


HEARTBEAT = heartbeat(3)

VERSIONS = ApiVersionsResponse(
    api_keys=(
        ApiVersion(api_key=18, min_version=0, max_version=4),
        ApiVersion(api_key=3, min_version=0, max_version=12),
        ApiVersion(api_key=8, min_version=2, max_version=9),
        ApiVersion(api_key=68, min_version=0, max_version=1),
        ApiVersion(api_key=0, min_version=3, max_version=9),
        ApiVersion(api_key=1, min_version=99, max_version=100),
    )
)


class Peer:
    """The server's end of one connection."""

    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        self.stream = stream
        self._buffer = b""

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._buffer += await self.stream.receive()
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    async def request(self) -> RequestHeader:
        """The header of the next request."""
        return peek_request_header(await self.frame())

    async def frame(self) -> bytes:
        """The next request, whole."""
        (size,) = struct.unpack(">i", await self._exactly(4))
        return await self._exactly(size)

    async def answer(self, to: RequestHeader, response: Response) -> None:
        """Send *response* as the answer to the request with header *to*."""
        await self.send(frame(encode_response(response, api_version=to.api_version, correlation_id=to.correlation_id)))

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self.stream.send(data)

    async def until_closed(self) -> None:
        """Read and drop until the client closes."""
        with anyio.move_on_after(10):
            try:
                while True:
                    await self.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return
        raise AssertionError("the client did not close its connection")


async def agree(peer: Peer) -> None:
    """Answer the first request, which asks for the versions."""
    await peer.answer(await peer.request(), VERSIONS)


@asynccontextmanager
async def serving(script: Callable[[Peer], Awaitable[None]]) -> AsyncIterator[int]:
    """Run *script* for each connection; gives the port. A script that fails, fails the test."""

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):  # the client went away
                await script(Peer(stream))

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


async def echo_epochs(peer: Peer) -> None:
    """Answer each heartbeat with its own epoch."""
    await agree(peer)
    while True:
        header, message = decode_request(await peer.frame())
        assert isinstance(message, ConsumerGroupHeartbeatRequest)
        await peer.answer(header, ConsumerGroupHeartbeatResponse(member_epoch=message.member_epoch))
