"""One connection to one broker: dial, agree on versions, send requests, match answers.

Owns correlation ids, time-outs and the end of the connection. Does not retry, does not choose brokers, knows no
protocol rule beyond frames and ApiVersions: a request that was written is never written again (its failure goes up).

Requests may overlap; the broker answers each connection in order. No task reads or writes: asyncio calls this object
when bytes arrive, and each request says what to call with its answer. One timer serves the deadlines of all requests.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar, cast

import anyio
import anyio.abc

from kip848_client.errors import (
    AuthenticationError,
    Kip848Error,
    MessageValueError,
    ProtocolError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import decode_response, encode_request, frame, peek_correlation_id, refused_size
from kip848_client.wire.connection_end import Answer, ConnectionEnd, told
from kip848_client.wire.dialling import agree_on_versions, dial
from kip848_client.wire.schema import Request, Response
from kip848_client.wire.tls_failures import explain_alert

if TYPE_CHECKING:
    from kip848_client.wire.sasl.mechanism import MakeSaslClient, SaslClient

ResponseT = TypeVar("ResponseT", bound=Response)

RESPONSE_SIZE_MAX_DEFAULT: Final = 64 * 1024 * 1024
"""Bytes; a larger claim is taken for damage or for another protocol, not for an answer."""

_CONNECT_TIMEOUT_MS_DEFAULT: Final = 10_000
_RECEIVE_SIZE: Final = 65536
_LARGE_BYTES: Final = 65_536
"""From this size on a request may be the reason why a broker closes the connection."""
_CORRELATION_ID_MAX: Final = 2**31 - 1
_INT32: Final = struct.Struct(">i")


class Connection(asyncio.BufferedProtocol):
    """A connection that is up. Made by `connect` or `open_connection`; any number of tasks may send on it."""

    def __init__(self, *, peer: str, client_id: str | None, response_size_max: int) -> None:
        self.peer: Final = peer
        """``host:port``, for messages."""
        self.api_versions: Mapping[int, tuple[int, int]] = MappingProxyType({})
        """The broker's versions: API key to (lowest version, highest version)."""
        self._loop: Final = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._client_id: Final = client_id
        self._response_size_max: Final = response_size_max
        self._received: Final = memoryview(bytearray(_RECEIVE_SIZE))
        """Where bytes arrive. asyncio makes a buffer of 256 KiB for each call of an ordinary protocol."""
        self._incomplete: Final = bytearray()
        """The beginning of a frame whose end has not arrived."""
        self._pending: Final[dict[int, _Pending]] = {}
        self._next_correlation_id = 0
        self._heard = False
        self._end: ConnectionEnd | None = None
        self._ended: Final = asyncio.Event()
        self._transport_gone: Final = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._versions: Final[dict[tuple[type, int | None], int]] = {}
        self._logging_in: asyncio.Event | None = None
        """While this connection authenticates again: requests wait, because the broker takes none in between."""
        self._last_of_opening = 0
        """Correlation id after the last request that agreeing on versions sent."""
        self._login_begun = False
        self._logged_in = False

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
                order, so later ones would be late as well.
            max_version: never use a version above this.

        Returns:
            The answer, with or without error codes.

        Raises:
            UnsupportedVersionError: no common version, or it lacks a field that is set.
            MessageValueError: a value does not fit its field; nothing was sent.
            RequestTimeoutError: no answer in time; the broker may or may not have acted. The connection is closed.
            ConnectionLostError: the connection ended before the answer; the broker may or may not have acted.
            ProtocolError: the answer is not one. The connection is closed.
        """
        version = self.version_for(cast("type[Request[Response]]", type(request)), max_version=max_version)
        if self._logging_in is not None:
            timeout_ms = await self._await_login(timeout_ms)
        if request.WIRE.api_key == ApiKey.PRODUCE and getattr(request, "acks", None) == 0:
            raise MessageValueError("a ProduceRequest with acks=0 is never answered; send it with acks 1 or -1")
        return await self.exchange(request, version, timeout_ms)

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
        with anyio.CancelScope(shield=True):
            await self._transport_gone.wait()

    def agreed(self, versions: Mapping[int, tuple[int, int]]) -> None:
        """ApiVersions was answered with *versions*."""
        self.api_versions = MappingProxyType(versions)
        self._last_of_opening = self._next_correlation_id

    async def log_in(self, client: SaslClient, *, timeout_ms: int) -> int:
        """Authenticate; see `kip848_client.wire.sasl.authentication.log_in`."""
        from kip848_client.wire.sasl.authentication import log_in  # here: most connections need none

        self._login_begun = True
        session_ms = await log_in(self, client, timeout_ms=timeout_ms)
        self._logged_in = True
        return session_ms

    async def keep_logged_in(self, make_client: MakeSaslClient, session_ms: int) -> None:
        """Authenticate again before each session ends; a failure ends the connection."""
        from kip848_client.wire.sasl.session import renew_sessions  # here: most connections need none

        failure = await renew_sessions(self, make_client, session_ms=session_ms)
        if failure is not None:
            refused = isinstance(failure, AuthenticationError)
            self._finish(ConnectionEnd(f"authenticating again failed: {failure}", refused=refused, cause=failure))

    @contextmanager
    def only_login(self) -> Iterator[None]:
        """Hold requests of `send` back during the block, because the broker takes none while it authenticates."""
        self._logging_in = asyncio.Event()
        try:
            yield
        finally:
            self._logging_in.set()
            self._logging_in = None

    async def _await_login(self, timeout_ms: int) -> int:
        """Wait while the connection authenticates again; returns the rest of *timeout_ms*."""
        deadline = anyio.current_time() + timeout_ms / 1000
        with anyio.CancelScope(deadline=deadline) as scope:
            while self._logging_in is not None:
                await self._logging_in.wait()
        if scope.cancelled_caught:
            raise RequestTimeoutError(f"{self.peer} took more than {timeout_ms} ms to authenticate again")
        return max(1, int((deadline - anyio.current_time()) * 1000))

    # --- one request

    async def exchange(self, request: Request[ResponseT], version: int, timeout_ms: int) -> ResponseT:
        """As `send`, in this very version, and also while the connection is being opened or authenticates again."""
        answered: asyncio.Future[Response] = self._loop.create_future()

        def on_end(answer: Answer) -> None:
            if answered.done():
                return  # cancelled: the caller stopped waiting
            if isinstance(answer, Kip848Error):
                answered.set_exception(answer)
            else:
                answered.set_result(answer)

        pending = self._begin(request, version, timeout_ms, on_end)
        try:
            return cast("ResponseT", await answered)
        except asyncio.CancelledError:
            pending.abandoned = True
            raise

    def start(
        self,
        request: Request[Response],
        *,
        timeout_ms: int,
        max_version: int | None = None,
        on_end: Callable[[Answer], None],
    ) -> bool:
        """As `send`, without a task that waits: *on_end* is called with what `send` would return or raise.

        It is called once, and not before this has returned.

        Returns:
            False if the request has to wait because the connection authenticates again: nothing was sent.

        Raises:
            UnsupportedVersionError, MessageValueError, ConnectionLostError: nothing was sent, nothing will be called.
        """
        if self._logging_in is not None:
            return False
        version = self.version_for(type(request), max_version=max_version)
        self._begin(request, version, timeout_ms, on_end)
        return True

    def _begin(
        self, request: Request[Response], version: int, timeout_ms: int, on_end: Callable[[Answer], None]
    ) -> _Pending:
        if self._end is not None:
            raise self._end.failure()
        assert self._transport is not None
        correlation_id = self._next_correlation_id
        payload = encode_request(request, api_version=version, correlation_id=correlation_id, client_id=self._client_id)
        self._next_correlation_id = correlation_id + 1 if correlation_id < _CORRELATION_ID_MAX else 0
        deadline = self._loop.time() + timeout_ms / 1000
        pending = _Pending(request, version, deadline, timeout_ms, on_end, size=len(payload))
        self._pending[correlation_id] = pending
        if self._alarm is None or deadline < self._alarm.when():
            self._set_alarm(deadline)
        if not self._transport.is_closing():  # asyncio logs a warning for each write after the connection broke
            self._transport.write(frame(payload))
        return pending

    # --- the end

    def _finish(self, end: ConnectionEnd) -> None:
        """Nothing is sent or received any more; waiting requests end with the reason. Only the first call counts."""
        if self._end is not None:
            return
        self._end = end
        self._ended.set()
        self._set_alarm(None)
        if self._transport is not None:
            self._transport.abort()
        waiting = list(self._pending.values())
        self._pending.clear()
        for pending in waiting:
            pending.end(end.failure())

    def _broken(self, failure: BaseException) -> ConnectionEnd:
        refusal = explain_alert(failure, peer=self.peer)
        if refusal is not None:  # in TLS 1.3 a server refuses our certificate only after the handshake
            return ConnectionEnd(str(refusal), refused=True, cause=failure)
        return ConnectionEnd(f"the connection to {self.peer} broke: {told(failure)}{self._hint()}", cause=failure)

    def _hint(self) -> str:
        """The likely reason of an end without one, by how far the conversation came."""
        if not self._heard:
            if self._transport is not None and self._transport.get_extra_info("sslcontext") is not None:
                return " before it said anything; it may demand a certificate from us (ssl.certificate.location)"
            return " before it said anything; it may expect TLS, or not be a Kafka broker"
        large = max(self._pending.values(), key=lambda pending: pending.size, default=None)
        if large is not None and large.size >= _LARGE_BYTES:
            name = f"{type(large.request).__name__} (version {large.version})"
            return f" instead of answering a {name} of {large.size:,} bytes, which may be too large for it"
        if self._login_begun:
            return "" if self._logged_in else " in the middle of the login"
        answered = self._next_correlation_id - len(self._pending)
        if self._pending and answered <= self._last_of_opening:
            return " instead of answering the first request; it may demand SASL (security.protocol, sasl.mechanism)"
        return ""

    def _violated(self, reason: str, cause: ProtocolError) -> None:
        self._finish(ConnectionEnd(reason, violation=True, cause=cause))

    # --- deadlines

    def _set_alarm(self, deadline: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if deadline is None else self._loop.call_at(deadline, self._on_alarm)

    def _on_alarm(self) -> None:
        """End the connection if a request is late; else wait for the next one that may be."""
        assert self._alarm is not None
        now, self._alarm = self._alarm.when(), None
        expected = [pending for pending in self._pending.values() if not pending.abandoned]
        late = [pending for pending in expected if pending.deadline <= now]
        for pending in late:
            pending.timed_out_at = self.peer
        if late:
            reason = f"the connection to {self.peer} was closed: a request was not answered in time"
            self._finish(ConnectionEnd(reason))
        elif expected:
            self._set_alarm(min(pending.deadline for pending in expected))

    # --- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker is connected."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        del sizehint
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes arrived: hand out the answers that are complete."""
        self._heard = True
        incomplete = self._incomplete
        try:
            if incomplete:
                incomplete += self._received[:nbytes]
                taken = self._hand_out_frames(incomplete, len(incomplete))
                del incomplete[:taken]
            else:
                taken = self._hand_out_frames(self._received, nbytes)
                incomplete += self._received[taken:nbytes]
        except ProtocolError as failure:
            self._violated(str(failure), failure)

    def eof_received(self) -> bool:
        """The broker will send nothing more, so nothing that waits will be answered."""
        self._closed_by_peer()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; the first who said why is right."""
        self._transport_gone.set()
        if exc is None:
            self._closed_by_peer()
        else:
            self._finish(self._broken(exc))

    def _closed_by_peer(self) -> None:
        if self._end is None:
            self._finish(ConnectionEnd(f"{self.peer} closed the connection{self._hint()}"))

    def _hand_out_frames(self, data: bytearray | memoryview, end: int) -> int:
        """Hand out the complete frames of *data*; returns how many bytes they took."""
        position = 0
        while end - position >= 4 and self._end is None:
            (size,) = _INT32.unpack_from(data, position)
            if not 4 <= size <= self._response_size_max:
                start = bytes(data[position : position + 4])
                raise refused_size(start, peer=self.peer, size_max=self._response_size_max)
            stop = position + 4 + size
            if stop > end:
                break
            self._hand_out(bytes(data[position + 4 : stop]))
            position = stop
        return position

    def _hand_out(self, payload: bytes) -> None:
        correlation_id = peek_correlation_id(payload)
        pending = self._pending.pop(correlation_id, None)
        if pending is None:
            if not 0 <= correlation_id < self._next_correlation_id:
                raise ProtocolError(f"{self.peer} answered request {correlation_id}, which was never sent")
            return  # a second answer to the same request: the first one counted
        if not self._pending:
            self._set_alarm(None)
        if pending.abandoned:
            return
        try:
            # Other clients ignore bytes after the last field too, and librdkafka's mock cluster sends one in Metadata.
            _, response = decode_response(
                pending.request.WIRE.api_key, payload, api_version=pending.version, allow_trailing=True
            )
        except ProtocolError as failure:
            self._violated(f"{self.peer} sent a damaged answer: {failure}", failure)
            assert self._end is not None
            pending.end(self._end.failure())
            return
        pending.on_end(response)


class _Pending:
    """A request whose answer has not come."""

    __slots__ = ("abandoned", "deadline", "on_end", "request", "size", "timed_out_at", "timeout_ms", "version")

    def __init__(
        self,
        request: Request[Response],
        version: int,
        deadline: float,
        timeout_ms: int,
        on_end: Callable[[Answer], None],
        *,
        size: int,
    ) -> None:
        self.request = request
        self.size = size
        """In bytes."""
        self.version = version
        self.deadline = deadline
        """On the loop's clock, in seconds."""
        self.timeout_ms = timeout_ms
        self.on_end = on_end
        self.timed_out_at: str | None = None
        """The broker that did not answer in time."""
        self.abandoned = False
        """Whether its sender was cancelled; the answer is dropped then."""

    def end(self, failure: Kip848Error) -> None:
        """There will be no answer, because of *failure* or because the request itself was late."""
        if self.abandoned:
            return
        if self.timed_out_at is not None:
            name = f"{type(self.request).__name__} (version {self.version})"
            failure = RequestTimeoutError(f"no answer to {name} from {self.timed_out_at} in {self.timeout_ms} ms")
        self.on_end(failure)


async def connect(
    host: str,
    port: int,
    *,
    client_id: str | None,
    task_group: anyio.abc.TaskGroup,
    ssl_context: ssl.SSLContext | None = None,
    sasl_client: MakeSaslClient | None = None,
    connect_timeout_ms: int = _CONNECT_TIMEOUT_MS_DEFAULT,
    response_size_max: int = RESPONSE_SIZE_MAX_DEFAULT,
    cluster_id: str | None = None,
    node_id: int = -1,
) -> Connection:
    """Dial a broker and agree on versions. On asyncio only. Close the connection with `Connection.aclose`.

    Args:
        host: name or address; also the name that a TLS certificate must bear.
        port: TCP port.
        client_id: sent with every request; brokers log it and count quotas by it.
        task_group: where a login is renewed until the connection ends; that never fails the task group.
        ssl_context: given, the connection is TLS.
        sasl_client: given, the connection is authenticated, and again before each session ends.
        connect_timeout_ms: for dialling, TLS, ApiVersions and SASL together.
        response_size_max: bytes; a longer answer is refused.
        cluster_id, node_id: the broker that is meant; either both or none.

    Raises:
        BrokerError: REBOOTSTRAP_REQUIRED: the peer is another broker.
        ConnectionLostError: no connection, or it ended before ApiVersions was answered.
        AuthenticationError: TLS refused the certificate or the peer, or SASL did.
        RequestTimeoutError: *connect_timeout_ms* passed.
        UnsupportedVersionError: no common version of ApiVersions itself.
        ProtocolError: the peer does not speak Kafka's protocol.
    """
    peer = f"{host}:{port}"
    with anyio.move_on_after(connect_timeout_ms / 1000) as scope:
        connection = Connection(peer=peer, client_id=client_id, response_size_max=response_size_max)
        await dial(host, port, peer=peer, context=ssl_context, protocol=connection)
        try:
            agreed = await agree_on_versions(
                connection, timeout_ms=connect_timeout_ms, cluster_id=cluster_id, node_id=node_id
            )
            connection.agreed(agreed)
            if sasl_client is not None:
                session_ms = await connection.log_in(await sasl_client(), timeout_ms=connect_timeout_ms)
                if session_ms > 0:
                    task_group.start_soon(connection.keep_logged_in, sasl_client, session_ms, name=f"login at {peer}")
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
    sasl_client: MakeSaslClient | None = None,
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
                sasl_client=sasl_client,
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
