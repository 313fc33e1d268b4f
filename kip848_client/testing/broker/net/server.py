"""TCP: connections, frames and their limits, answers in order. Reads nothing inside a frame.

A frame is four bytes of length and a request; `dispatch` makes a `RequestContext` of it. Several requests of one
connection may be open at once; answers leave in the order of the requests. A peer that breaks a limit loses its own
connection, and nothing else happens. Limits, all from `BrokerConfig`:

* a frame longer than ``socket.request.max.bytes`` (before authentication: ``sasl.server.max.receive.size``) is refused
  from its first four bytes, before memory is taken;
* a frame that is not complete ``kip848.incomplete.frame.max.ms`` after its first byte closes its connection;
* after ``kip848.unanswered.requests.max`` open requests, while the peer does not read its answers, or while it
  is throttled, nothing more is read from it;
* more than ``max.connections`` connections, or than the process may have files, are closed at once; idle ones after
  ``connections.max.idle.ms``;
* after `_TURN_S` of one peer's requests the others have their turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import math
import socket
import ssl
import struct
from asyncio.trsock import TransportSocket
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, cast

from kip848_client.errors import ProtocolError
from kip848_client.testing.broker.config import BrokerConfig
from kip848_client.testing.broker.net.context import ANONYMOUS, RequestContext
from kip848_client.testing.broker.net.listener_security import distinguished_name
from kip848_client.testing.broker.net.refusals import Refusals, connections_that_files_allow
from kip848_client.wire.codec import RequestHeader

_LENGTH: Final = struct.Struct(">i")
_LENGTH_BYTES: Final = 4
_TLS_HANDSHAKE: Final = 0x1603
"""The first bytes of a TLS connection, where a frame has the upper half of its length."""
_BACKLOG: Final = 512
_WRITE_BYTES: Final = 65_536
_RECEIVE_BYTES: Final = 262_144
_SWEEP_MS_MIN: Final = 10
_SWEEP_MS_MAX: Final = 1000
_TURN_S: Final = 0.01
"""How long one connection's requests are handled before the others have their turn, in seconds."""
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time to linger: closing sends RST."""


class Server:
    """All connections of one node. Lives on the broker's loop.

    Args:
        open_request: makes the context of a frame and starts its handler; raises ProtocolError for other bytes.
        encode: bytes of an answered context, frame length included; empty for an answer that is not sent.
        on_refused: called with the reason why a connection was refused; of many in a short time only with their number.
        on_gone: called with each connection that has ended, for any reason.
        ssl_context: given, connections are TLS.
        authenticated: False if a connection has to be trusted (`ClientConnection.trust`) before it may send large
            frames or stay; True if every one is.
        node_id: the node that listens here, for the contexts of its requests.
        numbers: of the connections; shared by the servers of one cluster.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        open_request: Callable[[bytes, ClientConnection], None],
        encode: Callable[[RequestContext], bytes],
        on_refused: Callable[[str], None],
        on_gone: Callable[[ClientConnection], None] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        authenticated: bool = True,
        node_id: int = -1,
        numbers: Iterator[int] | None = None,
    ) -> None:
        self.authenticated: Final = authenticated
        self.node_id: Final = node_id
        self.paused: bool = False
        """While it is set, nothing that was read is handled, no answer leaves, and no connection is closed; see
        `resume`."""
        self.encrypted: Final = ssl_context is not None
        self._ssl_context: Final = ssl_context
        self.config = config
        self.open_request: Final = open_request
        self.encode: Final = encode
        self._refusals: Final = Refusals(on_refused)
        self._on_gone: Final = on_gone
        self._connections: Final[set[ClientConnection]] = set()
        self._files_max: Final = connections_that_files_allow()
        self.receive_buffer: Final = memoryview(bytearray(_RECEIVE_BYTES))
        """One buffer for all connections: each takes its bytes out before the next one reads.
        Without it asyncio makes a buffer of this size for each heartbeat, which costs as much as to answer it."""
        self._numbers: Final = numbers or itertools.count(1)
        self._listeners: Final[list[asyncio.Server]] = []
        self._sweep_timer: asyncio.TimerHandle | None = None
        shortest = min(config.incomplete_frame_ms_max, config.connection_idle_ms_max, config.authentication_ms_max)
        self._sweep_s: Final = min(max(shortest // 4, _SWEEP_MS_MIN), _SWEEP_MS_MAX) / 1000

    async def start(self, *listening: socket.socket) -> None:
        """Serve on sockets that are bound already; a connection knows by its number the one to which it came."""
        loop = asyncio.get_running_loop()
        handshake_s = None if self._ssl_context is None else self.config.authentication_ms_max / 1000
        for listener, each in enumerate(listening):
            server = await loop.create_server(
                functools.partial(ClientConnection, self, listener),
                sock=each,
                backlog=1,  # asyncio accepts, and without a file left reports a failure, so many times in a turn
                ssl=self._ssl_context,
                ssl_handshake_timeout=handshake_s,
            )
            each.listen(_BACKLOG)
            self._listeners.append(server)

    async def stop(self, *, abort: bool = False) -> None:
        """Close the listening socket and every connection.

        Args:
            abort: drop unsent answers, as if the process had died.
        """
        for listener in self._listeners:
            for listening in listener.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())
                shut_down(listening)
        # A client accepted in this turn gets its transport in the next, and only from an open listener.
        await asyncio.sleep(0)
        for listener in self._listeners:
            listener.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._refusals.close()
        for connection in tuple(self._connections):
            connection.close(abort=abort)
        # Closed transports report connection_lost in the next turns of the loop; peers that do not read are cut off.
        for _ in range(3):
            await asyncio.sleep(0)
        for connection in tuple(self._connections):
            connection.close(abort=True)
        await asyncio.sleep(0)
        if self._ssl_context is None:  # with TLS it may wait for a handshake that never ends
            for listener in self._listeners:
                await listener.wait_closed()

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._connections)

    def reset(self) -> None:
        """End every connection by a TCP reset, as those of a machine that was switched off and on."""
        for connection in tuple(self._connections):
            connection.reset()

    def resume(self) -> None:
        """Handle the requests that were read since it was paused, and send the answers, in order."""
        self.paused = False
        for connection in tuple(self._connections):
            connection.resume()

    def disconnect(self) -> None:
        """Close every connection without sending the remaining answers; new ones are served."""
        for connection in tuple(self._connections):
            connection.close(abort=True)

    def refuse(self, connection: ClientConnection, reason: str) -> None:
        """Close *connection* because of a violation, and log it."""
        self._refusals.report(reason, peer=connection.client_host)
        connection.close(abort=True)

    def add(self, connection: ClientConnection) -> int:
        """Count *connection* in and return its number."""
        self._connections.add(connection)
        if self._sweep_timer is None:
            self._arm_sweep()
        return next(self._numbers)

    def why_full(self) -> str | None:
        """Why one more connection is too many; None if it is not."""
        count = len(self._connections)
        if count >= self.config.connections_max:
            return (
                f"more than max.connections={self.config.connections_max} connections; raise it in the broker's config"
            )
        if count >= self._files_max:
            return f"more than {self._files_max} connections, which is what this process can serve; see ulimit -n"
        return None

    def remove(self, connection: ClientConnection) -> None:
        """Count *connection* out."""
        self._connections.discard(connection)
        if self._on_gone is not None:
            self._on_gone(connection)

    def _arm_sweep(self) -> None:
        self._sweep_timer = asyncio.get_running_loop().call_later(self._sweep_s, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        now = asyncio.get_running_loop().time()
        for connection in () if self.paused else tuple(self._connections):
            reason = connection.overdue(now)
            if reason is not None:
                self.refuse(connection, reason)
        if self._connections:
            self._arm_sweep()


def shut_down(open_socket: socket.socket | TransportSocket | None) -> None:
    """End a socket for good. A forked child may hold a copy, and closing ours alone would leave it open."""
    if open_socket is not None:
        with contextlib.suppress(OSError):  # the peer was faster, or the platform does not know it for listening
            open_socket.shutdown(socket.SHUT_RDWR)


class ClientConnection(asyncio.BufferedProtocol):
    """One client connection: cuts frames, keeps open requests in order, applies back-pressure."""

    __slots__ = (
        "_buffer",
        "_closed",
        "_cutting",
        "_encoded",
        "_encoded_bytes",
        "_frame_begun_s",
        "_frame_bytes_max",
        "_frame_waits",
        "_half_closed",
        "_last_active_s",
        "_loop",
        "_mutes",
        "_open",
        "_reading",
        "_resetting",
        "_server",
        "_socket",
        "_transport",
        "_trusted_by_s",
        "_writing_paused",
        "client_host",
        "connection_id",
        "listener",
        "node_id",
        "principal",
    )

    def __init__(self, server: Server, listener: int = 0) -> None:
        self._server: Final = server
        self.listener: Final = listener
        self.node_id: Final = server.node_id
        self._loop: Final = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._socket: TransportSocket | None = None
        self._buffer = bytearray()
        self._open: Final[deque[RequestContext]] = deque()
        self._encoded: list[bytes] = []
        self._encoded_bytes = 0
        self._cutting = False
        self._reading = True
        self._writing_paused = False
        self._mutes = 0
        self._closed = False
        self._resetting = False
        self._half_closed = False
        self._frame_waits = False  # a complete frame is in the buffer
        self._frame_begun_s: float | None = None
        self._last_active_s = self._loop.time()
        config = server.config
        self._frame_bytes_max = config.frame_bytes_max if server.authenticated else config.unauthenticated_bytes_max
        self._trusted_by_s = (
            math.inf if server.authenticated else self._last_active_s + config.authentication_ms_max / 1000
        )
        self.client_host: str = ""
        self.connection_id: int = 0
        self.principal: str = ANONYMOUS

    # --- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._socket = transport.get_extra_info("socket")  # a TLS transport forgets it when it is lost
        if self._socket is not None:
            # asyncio sets it for sockets that name their protocol, which accepted ones do not. With Nagle's algorithm
            # an answer waits up to 40 ms for the peer's kernel to acknowledge the previous one.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername")
        self.client_host = f"/{peer[0]}" if peer else "/unknown"
        if certificate := transport.get_extra_info("peercert"):
            self.principal = f"User:{distinguished_name(certificate['subject'])}"
        full = self._server.why_full()
        if full is not None:
            self._server.refuse(self, full)
            return
        self.connection_id = self._server.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone, or we closed: forget its parked requests."""
        self._closed = True
        if not self._resetting:
            shut_down(self._socket)
        self._server.remove(self)
        self._buffer.clear()
        open_requests = tuple(self._open)
        self._open.clear()
        for context in open_requests:
            context.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        del sizehint
        return self._server.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes arrived: cut frames from them."""
        if self._closed:
            return
        self._last_active_s = self._loop.time()
        data = self._server.receive_buffer[:nbytes]
        if self._buffer:
            self._buffer += data
            self._cut_frames(self._buffer)
        else:
            self._cut_frames(data)  # usually whole frames, which then are copied once and not three times

    def eof_received(self) -> bool:
        """The peer will send no more: close, after the long polls are answered. With TLS asyncio closes at once."""
        is_polling = all(context.done or context.outlives_eof or context.at_work for context in self._open)
        if self._server.encrypted or not is_polling or not (self._open or self._frame_waits):
            return False
        self._half_closed = True
        return True

    def pause_writing(self) -> None:
        """The peer does not read its answers fast enough: take no more requests from it."""
        self._writing_paused = True
        self._pause_or_resume_reading()

    def resume_writing(self) -> None:
        """The peer has read its answers."""
        self._writing_paused = False
        self._last_active_s = self._loop.time()
        self._cut_waiting_frames()

    # --- for dispatch

    @property
    def closed(self) -> bool:
        """Whether nothing is read from it or sent to it any more."""
        return self._closed

    def begin(self, header: RequestHeader, *, now_ms: int, node_id: int) -> RequestContext:
        """Make the context of a request. Its answer waits for those of earlier requests.

        Args:
            node_id: the node that the request is for.
        """
        context = RequestContext(
            self.answered,
            api_key=header.api_key,
            api_version=header.api_version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            client_host=self.client_host,
            connection_id=self.connection_id,
            now_ms=now_ms,
            node_id=node_id,
            listener=self.listener,
            principal=self.principal,
        )
        self._open.append(context)
        return context

    def answered(self, context: RequestContext) -> None:
        """*context* has its answer: send all answers that are due."""
        if self._cutting or self._server.paused or not self._open:
            return
        if not self._open[0].done:
            if context.at_work:
                self._loop.call_soon(self._cut_waiting_frames)
            return
        try:
            self._encode_answers()
            self._write_encoded()
        except ProtocolError as error:
            self.refuse(str(error))
            return
        self._close_if_served()
        if not self._reading:
            # Frames may wait. Handle them in their own turn of the loop, since the caller is still busy with its
            # answer.
            self._loop.call_soon(self._cut_waiting_frames)

    def trust(self, user: str) -> None:
        """The peer has logged in as *user*: large frames are taken, and it may stay."""
        self.principal = f"User:{user}"
        self._frame_bytes_max = self._server.config.frame_bytes_max
        self._trusted_by_s = math.inf

    def send_bare(self, data: bytes) -> None:
        """Send bytes that answer no request of Kafka's; only while no request is open."""
        self._encoded.append(data)
        self._encoded_bytes += len(data)

    def refuse(self, reason: str) -> None:
        """Close this connection because of a violation."""
        self._server.refuse(self, reason)

    def mute(self) -> None:
        """Read nothing more from the peer, and handle nothing, until as many calls of `unmute`."""
        self._mutes += 1
        self._frame_begun_s = None  # its rest is not read
        self._pause_or_resume_reading()

    def unmute(self) -> None:
        """Read on, in a turn of the loop of its own."""
        self._mutes -= 1
        self._loop.call_soon(self._cut_waiting_frames)

    def reset(self) -> None:
        """End the connection by a TCP reset, as when the peer's machine has forgotten it."""
        if self._closed or self._transport is None or self._socket is None:
            return
        self._closed = self._resetting = True
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()

    # --- for the server

    def overdue(self, now_s: float) -> str | None:
        """Why the connection has to go by now, or None."""
        config = self._server.config
        if self._frame_begun_s is not None and (now_s - self._frame_begun_s) * 1000 >= config.incomplete_frame_ms_max:
            return f"a frame was not complete after {config.incomplete_frame_ms_max} ms"
        if now_s >= self._trusted_by_s:
            return f"not authenticated after {config.authentication_ms_max} ms"
        idle = not self._open or self._writing_paused or self._half_closed
        if idle and (now_s - self._last_active_s) * 1000 >= config.connection_idle_ms_max:
            return f"idle for {config.connection_idle_ms_max} ms"
        return None

    def close(self, *, abort: bool) -> None:
        """Close the connection; with *abort* at once, without sending the remaining answers."""
        self._closed = True
        if self._transport is None:
            return
        if abort:
            shut_down(self._socket)
            self._transport.abort()
        elif not self._transport.is_closing():
            # Closed twice, a TLS transport of Python 3.11 loses its connection, and could not be aborted any more.
            self._transport.close()

    def resume(self) -> None:
        """The server was paused: handle the requests in the buffer, and send their answers."""
        self._cut_waiting_frames()

    # --- internals

    def _cut_waiting_frames(self) -> None:
        self._cut_frames(self._buffer)

    def _cut_frames(self, received: memoryview | bytearray) -> None:
        """Open the requests in *received*: `_buffer`, or what came while that was empty. The rest waits there."""
        if self._cutting:
            return
        if self._server.paused:
            if received is not self._buffer:
                self._buffer += received
            return
        self._cutting = True
        try:
            if self._open:
                self._encode_answers()
            self._cut_frames_until_limit(received)
            self._write_encoded()
        except ProtocolError as error:
            self.refuse(str(error))
        finally:
            self._cutting = False
        self._pause_or_resume_reading()
        self._close_if_served()

    def _cut_frames_until_limit(self, received: memoryview | bytearray) -> None:
        server, config = self._server, self._server.config
        limit, frame_bytes_max = config.unanswered_requests_max, self._frame_bytes_max
        start, end = 0, len(received)
        turn_ends_s = 0.0
        self._frame_waits = False
        while not self._closed and end - start >= _LENGTH_BYTES:
            (length,) = _LENGTH.unpack_from(received, start)
            if not 0 <= length <= frame_bytes_max:
                if length >> 16 == _TLS_HANDSHAKE:
                    raise ProtocolError("the client speaks TLS, and this port does not; see its security.protocol")
                raise ProtocolError(f"a frame says it has {length} bytes; allowed are 0 to {frame_bytes_max}")
            if end - start - _LENGTH_BYTES < length:
                break
            if self._mutes or self._writing_paused or len(self._open) >= limit or self._is_at_work():
                self._frame_waits = True
                break
            now_s = self._loop.time()
            if not turn_ends_s:
                turn_ends_s = now_s + _TURN_S
            elif now_s >= turn_ends_s:
                self._frame_waits = True
                self._loop.call_soon(self._cut_waiting_frames)
                break
            start += _LENGTH_BYTES
            frame = bytes(received[start : start + length])
            start += length
            self._frame_begun_s = None
            server.open_request(frame, self)
            # Answers are written together, a system call each is dear; but not more than a socket takes at once.
            self._encode_answers()
            if self._encoded_bytes >= _WRITE_BYTES:
                self._write_encoded()
        if self._closed:
            return
        buffer = self._buffer
        if received is buffer:
            if start:
                del buffer[:start]
        elif start < end:
            buffer += received[start:]
        if not buffer or self._frame_waits or self._mutes:
            self._frame_begun_s = None
        elif self._frame_begun_s is None:
            self._frame_begun_s = self._loop.time()

    def _is_at_work(self) -> bool:
        """Whether the last request is handled in slices that have not ended: the next one must not overtake it."""
        return bool(self._open) and self._open[-1].at_work and not self._open[-1].done

    def _write_encoded(self) -> None:
        if not self._encoded:
            return
        parts, self._encoded, self._encoded_bytes = self._encoded, [], 0
        if not self._closed and self._transport is not None:
            self._last_active_s = self._loop.time()
            if len(parts) == 1:
                self._transport.write(parts[0])
            else:
                self._transport.writelines(parts)

    def _encode_answers(self) -> None:
        open_requests = self._open
        while open_requests and open_requests[0].done and not self._closed:
            context = open_requests.popleft()
            payload = self._server.encode(context)
            if payload:
                self._encoded.append(payload)
                self._encoded_bytes += len(payload)
            if context.cut_to is not None:
                self._write_encoded()
                self.close(abort=False)

    def _pause_or_resume_reading(self) -> None:
        if self._closed or self._transport is None:
            return
        limit = self._server.config.unanswered_requests_max
        full = self._mutes or self._writing_paused or self._frame_waits or len(self._open) >= limit
        if full and self._reading:
            self._reading = False
            self._transport.pause_reading()
        elif not full and not self._reading:
            self._reading = True
            self._transport.resume_reading()

    def _close_if_served(self) -> None:
        """Close a connection whose peer will send no more and has all its answers."""
        if self._half_closed and not (self._open or self._frame_waits or self._closed):
            self.close(abort=False)
