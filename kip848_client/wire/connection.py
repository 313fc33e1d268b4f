"""One connection to one broker: dial, agree on versions, send requests, match answers. The only anyio in `wire`.

Owns correlation ids, time-outs and the end of the connection. Does not retry, does not choose brokers, knows no
protocol rule beyond frames and ApiVersions: a request that was written is never written again (its failure goes up).

Requests may overlap; the broker answers each connection in order. Whoever sends while another task is writing only adds
its frame to what that task writes next, so there is one writer and no lock. One task reads. A request costs two
wake-ups: the reader's, and that of the task that waits for the answer. Another task sleeps until a request is late.
"""

from __future__ import annotations

import functools
import math
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Final, NoReturn, TypeVar, cast

import anyio
import anyio.abc

from kip848_client.errors import (
    AuthenticationError,
    ConnectionLostError,
    ErrorCode,
    MessageValueError,
    ProtocolError,
    RequestTimeoutError,
    UnsupportedVersionError,
    error_name,
)
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import decode_response, encode_request, frame, peek_correlation_id, refused_size
from kip848_client.wire.connection_end import ConnectionEnd, told
from kip848_client.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kip848_client.wire.schema import Request, Response

__all__ = ["Connection", "connect", "open_connection", "RESPONSE_SIZE_MAX_DEFAULT"]

ResponseT = TypeVar("ResponseT", bound=Response)

RESPONSE_SIZE_MAX_DEFAULT: Final = 64 * 1024 * 1024
"""Bytes; a larger claim is taken for damage or for another protocol, not for an answer."""

_CONNECT_TIMEOUT_MS_DEFAULT: Final = 10_000
_RECEIVE_SIZE: Final = 65536
_CORRELATION_ID_MAX: Final = 2**31 - 1
_INT32: Final = struct.Struct(">i")


class Connection:
    """A connection that is up. Made by `connect` or `open_connection`; any number of tasks may send on it."""

    def __init__(
        self, stream: anyio.abc.ByteStream, *, peer: str, client_id: str | None, response_size_max: int
    ) -> None:
        self.peer: Final = peer
        """``host:port``, for messages."""
        self.api_versions: Mapping[int, tuple[int, int]] = MappingProxyType({})
        """What the broker speaks: API key to (lowest version, highest version)."""
        self._stream: Final = stream
        self._client_id: Final = client_id
        self._response_size_max: Final = response_size_max
        self._pending: Final[dict[int, _Pending]] = {}
        self._next_correlation_id = 0
        self._outgoing: list[bytes] = []
        self._writing = False
        self._heard = False
        self._end: ConnectionEnd | None = None
        self._ended: Final = anyio.Event()
        self._reader_scope: Final = anyio.CancelScope()
        self._watch_scope = anyio.CancelScope()
        self._versions: Final[dict[tuple[type, int | None], int]] = {}

    @property
    def closed(self) -> bool:
        """Whether the connection broke or was closed; nothing can be sent any more."""
        return self._end is not None

    @property
    def outstanding(self) -> int:
        """Requests that were sent and not answered, those given up included."""
        return len(self._pending)

    async def wait_closed(self) -> None:
        """Return when the connection broke or was closed, by either side."""
        await self._ended.wait()

    async def send(self, request: Request[ResponseT], *, timeout_ms: int, max_version: int | None = None) -> ResponseT:
        """Send *request* in the highest version that both sides speak, and wait for its answer.

        Args:
            request: what to send.
            timeout_ms: from now to the complete answer. When it passes the connection is closed: answers come in
                order, so whatever waits behind this one would be late as well.
            max_version: never use a version above this.

        Returns:
            The answer, whatever error codes are in it.

        Raises:
            UnsupportedVersionError: no common version, or it lacks a field that is set.
            MessageValueError: a value does not fit its field; nothing was sent.
            RequestTimeoutError: no answer in time; the broker may or may not have acted. The connection is closed.
            ConnectionLostError: the connection ended before the answer; the broker may or may not have acted.
            ProtocolError: the answer is not one. The connection is closed.
        """
        version = self.version_for(cast("type[Request[Response]]", type(request)), max_version=max_version)
        if request.WIRE.api_key == ApiKey.PRODUCE and getattr(request, "acks", None) == 0:
            raise MessageValueError("a ProduceRequest with acks=0 is never answered; send it with acks 1 or -1")
        return await self._exchange(request, version, timeout_ms)

    def version_for(self, request_class: type[Request[Response]], *, max_version: int | None = None) -> int:
        """The version in which `send` sends a *request_class*.

        Raises:
            UnsupportedVersionError: the broker does not serve that API, or in no version that we speak.
        """
        known = self._versions.get((request_class, max_version))
        if known is not None:
            return known
        spec = request_class.WIRE
        served = self.api_versions.get(spec.api_key)
        name = request_class.__name__
        if served is None:
            raise UnsupportedVersionError(f"{self.peer} does not serve {name} (API key {spec.api_key})")
        highest = min(served[1], spec.versions.last, spec.versions.last if max_version is None else max_version)
        if highest < max(served[0], spec.versions.first):
            limit = "" if max_version is None else f", at most {max_version} is wanted"
            raise UnsupportedVersionError(
                f"{self.peer} serves {name} in versions {served[0]}-{served[1]}; {spec.versions} is spoken here{limit}"
            )
        self._versions[request_class, max_version] = highest
        return highest

    async def aclose(self) -> None:
        """Close at once. Requests that wait fail with ConnectionLostError. May be called again."""
        self._finish(ConnectionEnd(f"the connection to {self.peer} was closed here"))
        self._reader_scope.cancel()
        self._watch_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(self._stream)

    async def run(self) -> None:
        """Read answers and watch time-outs until the connection ends. Raises nothing but cancellation."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_deadlines)
            await self._read_until_end()

    # One request

    async def _exchange(self, request: Request[ResponseT], version: int, timeout_ms: int) -> ResponseT:
        self._raise_if_ended()
        correlation_id = self._next_correlation_id
        payload = encode_request(request, api_version=version, correlation_id=correlation_id, client_id=self._client_id)
        self._next_correlation_id = correlation_id + 1 if correlation_id < _CORRELATION_ID_MAX else 0
        deadline = anyio.current_time() + timeout_ms / 1000
        if deadline < self._watch_scope.deadline:
            self._watch_scope.deadline = deadline
        pending = _Pending(deadline)
        self._pending[correlation_id] = pending
        try:
            await self._write(frame(payload))
            await pending.answered.wait()
        except BaseException:
            pending.abandoned = True  # cancelled from outside: nobody wants the answer any more
            raise
        if pending.payload is None:
            name = f"{type(request).__name__} (version {version})"
            if pending.timed_out:
                raise RequestTimeoutError(f"no answer to {name} from {self.peer} in {timeout_ms} ms")
            self._raise_if_ended()
            raise AssertionError(f"{name} was woken without an answer")
        try:
            # Nobody's client looks behind the last field, and librdkafka's mock cluster has a byte there in Metadata.
            _, response = decode_response(
                request.WIRE.api_key, pending.payload, api_version=version, allow_trailing=True
            )
        except ProtocolError as failure:
            await self._violated(f"{self.peer} sent a damaged answer: {failure}", failure)
        return cast("ResponseT", response)

    async def _write(self, data: bytes) -> None:
        """Write *data*, and whatever other tasks add meanwhile; or leave it to the task that is writing now.

        Not to be cancelled: half a frame would make all that follows unreadable, and other tasks' frames may be in it.
        A peer that does not read holds it no longer than the time-out of the oldest request.
        """
        self._outgoing.append(data)
        if self._writing:
            return
        self._writing = True
        try:
            with anyio.CancelScope(shield=True):
                while self._outgoing:
                    batch, self._outgoing = self._outgoing, []
                    await self._stream.send(batch[0] if len(batch) == 1 else b"".join(batch))
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as failure:
            self._finish(ConnectionEnd(f"the connection to {self.peer} broke: {told(failure)}", cause=failure))
            self._reader_scope.cancel()
        finally:
            self._writing = False

    # The end

    def _raise_if_ended(self) -> None:
        if self._end is not None:
            self._end.throw()

    def _finish(self, end: ConnectionEnd) -> None:
        """Nothing is sent or received from here on; all who wait are woken and told why. Only the first call counts."""
        if self._end is not None:
            return
        self._end = end
        self._ended.set()
        self._outgoing.clear()
        for pending in self._pending.values():
            pending.answered.set()
        self._pending.clear()

    async def _violated(self, reason: str, cause: BaseException | None = None) -> NoReturn:
        end = ConnectionEnd(reason, violation=True, cause=cause)
        self._finish(end)
        await self.aclose()
        end.throw()

    async def _watch_deadlines(self) -> None:
        """End the connection when a request is not answered in time.

        One sleeping task per connection, whose alarm a request only moves when it is due earlier, costs far less than
        a time-out scope for each request.
        """
        while self._end is None:
            now = anyio.current_time()
            late = [pending for pending in self._pending.values() if pending.deadline <= now and not pending.abandoned]
            if late:
                for pending in late:
                    pending.timed_out = True
                self._finish(
                    ConnectionEnd(f"the connection to {self.peer} was closed: a request was not answered in time")
                )
                await self.aclose()
                return
            alarm = min((p.deadline for p in self._pending.values() if not p.abandoned), default=math.inf)
            self._watch_scope = anyio.CancelScope(deadline=alarm)
            with self._watch_scope:
                await self._ended.wait()

    # Reading

    async def _read_until_end(self) -> None:
        """Hand answers out until the connection ends."""
        try:
            with self._reader_scope:
                await self._read_frames()
        except ProtocolError as failure:
            self._finish(ConnectionEnd(str(failure), violation=True, cause=failure))
        except anyio.EndOfStream as failure:
            hint = "" if self._heard else " without a word; it may expect TLS, or not be a Kafka broker"
            self._finish(ConnectionEnd(f"{self.peer} closed the connection{hint}", cause=failure))
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as failure:
            self._finish(ConnectionEnd(f"the connection to {self.peer} broke: {told(failure)}", cause=failure))
        finally:
            self._finish(ConnectionEnd(f"the connection to {self.peer} was closed here"))
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(self._stream)

    async def _read_frames(self) -> None:
        buffer = bytearray()
        receive = self._stream.receive
        while True:
            buffer += await receive(_RECEIVE_SIZE)
            self._heard = True
            position, end = 0, len(buffer)
            while end - position >= 4:
                (size,) = _INT32.unpack_from(buffer, position)
                if not 4 <= size <= self._response_size_max:
                    start = bytes(buffer[position : position + 4])
                    raise refused_size(start, peer=self.peer, size_max=self._response_size_max)
                stop = position + 4 + size
                if stop > end:
                    break
                self._hand_out(bytes(buffer[position + 4 : stop]))
                position = stop
            del buffer[:position]

    def _hand_out(self, payload: bytes) -> None:
        correlation_id = peek_correlation_id(payload)
        pending = self._pending.pop(correlation_id, None)
        if pending is None:
            raise ProtocolError(f"{self.peer} answered request {correlation_id}, which was never sent or is answered")
        if not pending.abandoned:
            pending.payload = payload
            pending.answered.set()


class _Pending:
    """A request whose answer has not come."""

    __slots__ = ("abandoned", "answered", "deadline", "payload", "timed_out")

    def __init__(self, deadline: float) -> None:
        self.answered = anyio.Event()
        self.deadline = deadline
        """On anyio's clock, in seconds."""
        self.timed_out = False
        self.payload: bytes | None = None
        self.abandoned = False
        """Its sender was cancelled: the answer is dropped."""


async def connect(
    host: str,
    port: int,
    *,
    client_id: str | None,
    task_group: anyio.abc.TaskGroup,
    ssl_context: ssl.SSLContext | None = None,
    connect_timeout_ms: int = _CONNECT_TIMEOUT_MS_DEFAULT,
    response_size_max: int = RESPONSE_SIZE_MAX_DEFAULT,
) -> Connection:
    """Dial a broker and agree on versions; its tasks run in *task_group* until the connection ends.

    They never fail the task group. Close the connection with `Connection.aclose`.

    Args:
        host: name or address; also the name that a TLS certificate must bear.
        port: TCP port.
        client_id: sent with every request; brokers log it and count quotas by it.
        task_group: where the connection's tasks run.
        ssl_context: given, the connection is TLS.
        connect_timeout_ms: for dialling, TLS and ApiVersions together.
        response_size_max: bytes; a longer answer is refused.

    Raises:
        ConnectionLostError: no connection, or it ended before ApiVersions was answered.
        AuthenticationError: TLS refused the certificate or the peer.
        RequestTimeoutError: *connect_timeout_ms* passed.
        UnsupportedVersionError: no common version of ApiVersions itself.
        ProtocolError: the peer does not speak Kafka's protocol.
    """
    peer = f"{host}:{port}"
    with anyio.move_on_after(connect_timeout_ms / 1000) as scope:
        stream = await _dial(host, port, peer, ssl_context)
        connection = Connection(stream, peer=peer, client_id=client_id, response_size_max=response_size_max)
        task_group.start_soon(connection.run, name=f"connection to {peer}")
        try:
            await _agree_on_versions(connection, connect_timeout_ms)
        except BaseException:
            await connection.aclose()
            raise
        return connection
    assert scope.cancelled_caught
    raise RequestTimeoutError(f"no connection to {peer} in {connect_timeout_ms} ms")


@asynccontextmanager
async def open_connection(
    host: str,
    port: int,
    *,
    client_id: str | None,
    ssl_context: ssl.SSLContext | None = None,
    connect_timeout_ms: int = _CONNECT_TIMEOUT_MS_DEFAULT,
    response_size_max: int = RESPONSE_SIZE_MAX_DEFAULT,
) -> AsyncIterator[Connection]:
    """As `connect`, with tasks of its own; the connection is closed at the end of the block."""
    failure: Exception | None = None
    async with anyio.create_task_group() as task_group:
        try:
            connection = await connect(
                host,
                port,
                client_id=client_id,
                task_group=task_group,
                ssl_context=ssl_context,
                connect_timeout_ms=connect_timeout_ms,
                response_size_max=response_size_max,
            )
            try:
                yield connection
            finally:
                await connection.aclose()
        except Exception as caught:  # noqa: BLE001  raised again below, outside of the group that would wrap it
            failure = caught
    if failure is not None:
        raise failure


async def _dial(host: str, port: int, peer: str, context: ssl.SSLContext | None) -> anyio.abc.ByteStream:
    try:
        if context is None:
            return await anyio.connect_tcp(host, port)
        return await anyio.connect_tcp(host, port, ssl_context=context, tls_standard_compatible=False)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as failure:
        raise ConnectionLostError(f"{peer} closed the connection during the TLS handshake") from failure
    except ssl.SSLError as failure:
        raise AuthenticationError(
            f"TLS with {peer} failed: {told(failure)}; check ssl.ca.location, the host name and the port"
        ) from failure
    except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as failure:
        raise ConnectionLostError(f"no connection to {peer}: {told(failure)}") from failure


async def _agree_on_versions(connection: Connection, timeout_ms: int) -> None:
    """Ask in our highest version, and once more in the broker's if that was too high (KIP-511)."""
    own = ApiVersionsRequest.WIRE.versions
    version = own.last
    request = ApiVersionsRequest(client_software_name="kip848-client", client_software_version=_own_version())
    response = await connection._exchange(request, version, timeout_ms)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        version = min(_served_versions(response).get(ApiKey.API_VERSIONS, (0, 0))[1], own.last - 1)
        response = await connection._exchange(request, max(version, 0), timeout_ms)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        raise UnsupportedVersionError(f"{connection.peer} refuses ApiVersions in version {version} as well")
    if response.error_code:
        raise ProtocolError(f"{connection.peer} answers ApiVersions with {error_name(response.error_code)}")
    connection.api_versions = MappingProxyType(_served_versions(response))


def _served_versions(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {item.api_key: (item.min_version, item.max_version) for item in response.api_keys}


@functools.cache
def _own_version() -> str:
    import importlib.metadata  # here: it doubles what importing this module costs, and is needed once a connection

    try:
        return importlib.metadata.version("kip848_client")
    except importlib.metadata.PackageNotFoundError:
        return "0"  # run from a checkout
