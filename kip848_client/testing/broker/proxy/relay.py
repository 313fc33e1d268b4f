"""One listener of the proxy: passes requests to one broker and answers back, and applies fault rules.

Each client connection has its own connection to the broker, so that the broker's state per connection (login, order of
requests) stays correct.
"""

from __future__ import annotations

import struct
from typing import Final

from kip848_client.common.clock import Clock
from kip848_client.errors import ErrorCode, Kip848Error, ProtocolError
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.net.faults import Faults
from kip848_client.testing.broker.net.request_log import RequestLog
from kip848_client.testing.broker.net.server import ClientConnection
from kip848_client.testing.broker.proxy.stand_ins import StandIn, behind_proxy
from kip848_client.testing.broker.proxy.upstream import Upstream
from kip848_client.testing.broker.topics.topic_names import KnownTopics
from kip848_client.testing.faults import OpaqueRequest
from kip848_client.testing.faults.perform import OnResponse
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    frame,
    peek_request_header,
)
from kip848_client.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kip848_client.wire.messages.metadata import MetadataResponse
from kip848_client.wire.messages.produce import ProduceRequest
from kip848_client.wire.schema import Request, Response

_INT32: Final = struct.Struct(">i")
_UNKNOWN_NODE: Final = -1


class _OpaqueResponse(Response, frozen=True):
    """An answer that we have no class for."""


class Relay:
    """The handling of frames by one listener; for `testing.broker.server.Server`.

    Args:
        host, port: of the broker.
        stand_in: where clients find the proxy in place of a broker.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        clock: Clock,
        faults: Faults,
        requests: RequestLog,
        topics: KnownTopics,
        stand_in: StandIn,
    ) -> None:
        self.host: Final = host
        self.port: Final = port
        self.node_id = _UNKNOWN_NODE
        self._clock: Final = clock
        self._faults: Final = faults
        self._requests: Final = requests
        self._topics: Final = topics
        self._stand_in: Final = stand_in
        self._upstreams: Final[dict[ClientConnection, Upstream]] = {}
        self._late: Final[set[Upstream]] = set()

    # --- for the server

    def open_request(self, data: bytes, connection: ClientConnection) -> None:
        """Pass one frame on, unless a fault rule takes it.

        Raises:
            ProtocolError: the frame has no header of a request.
        """
        header = peek_request_header(data)
        context = connection.begin(header, now_ms=self._clock.now_ms(), node_id=self.node_id)
        request = _decoded(data)
        self._requests._opened(context, request, size=len(data))
        if header.api_key == ApiKey.API_VERSIONS and header.api_version > ApiVersionsRequest.WIRE.versions.last:
            context.reply(_OLDER_API_VERSIONS)
            return

        def handle(message: Request[Response], its_context: RequestContext) -> None:
            payload = data if message is request else _encoded(message, context)
            self._pass_on(message, payload, its_context.reply, context=context, connection=connection)

        taken = self._faults._armed and self._faults._intercept(
            request, context, connection, node_id=self.node_id, handle=handle
        )
        if not taken:
            handle(request, context)

    def encode(self, context: RequestContext) -> bytes:
        """The frame of an answered request; empty if it is one without an answer.

        Raises:
            ProtocolError: a rule put something in its place that cannot be sent.
        """
        response, relayed = context.response, context.relayed
        if response is None:
            self._requests._answered(context, None, size=0)
            return b""
        if relayed is not None and relayed[0] is response:
            payload = _INT32.pack(context.correlation_id) + relayed[1][_INT32.size :]
        else:
            try:
                payload = encode_response(
                    response, api_version=context.api_version, correlation_id=context.correlation_id
                )
            except Kip848Error as error:
                raise ProtocolError(f"an answer could not be encoded: {error}") from error
        data = frame(payload)
        if context.cut_to is not None:
            data = data[: context.cut_to]
        self._requests._answered(context, None if context.cut_to is not None else response, size=len(data))
        return data

    def gone(self, connection: ClientConnection) -> None:
        """A client connection ended: so does the one to the broker."""
        upstream = self._upstreams.pop(connection, None)
        if upstream is not None:
            upstream.close()

    def close(self) -> None:
        """Close every connection to the broker."""
        for upstream in (*self._upstreams.values(), *self._late):
            upstream.close()
        self._upstreams.clear()
        self._late.clear()

    # --- internals

    def _pass_on(
        self,
        request: Request[Response],
        payload: bytes,
        reply: OnResponse,
        *,
        context: RequestContext,
        connection: ClientConnection,
    ) -> None:
        upstream = self._upstream_of(connection)
        if isinstance(request, ProduceRequest) and request.acks == 0:
            upstream.send(payload, None)
            reply(None)
            return

        def answered(answer: bytes) -> None:
            response = self._response_of(answer, context)
            reply(response)
            if upstream in self._late and upstream.idle:
                self._late.discard(upstream)
                upstream.close()

        upstream.send(payload, answered)

    def _upstream_of(self, connection: ClientConnection) -> Upstream:
        upstream = self._upstreams.get(connection)
        if upstream is not None:
            return upstream
        if connection.closed:
            # A rule let the request wait, and its client has gone meanwhile. It reaches the broker all the same.
            late = Upstream(self.host, self.port, on_lost=lambda: self._late.discard(late))
            self._late.add(late)
            return late
        upstream = Upstream(self.host, self.port, on_lost=lambda: self._broker_gone(connection))
        self._upstreams[connection] = upstream
        return upstream

    def _broker_gone(self, connection: ClientConnection) -> None:
        self._upstreams.pop(connection, None)
        connection.close(abort=False)

    def _response_of(self, answer: bytes, context: RequestContext) -> Response:
        try:
            _, received = decode_response(context.api_key, answer, api_version=context.api_version)
        except Kip848Error:
            received = _OpaqueResponse()
        if isinstance(received, MetadataResponse):
            for topic in received.topics:
                if topic.name:
                    self._topics.learn(topic.topic_id, topic.name)
        response = behind_proxy(received, self._stand_in)
        if response is received:
            context.relayed = (response, answer)
        return response


def _decoded(data: bytes) -> Request[Response]:
    try:
        return decode_request(data)[1]
    except Kip848Error:
        return OpaqueRequest(data)


def _encoded(message: Request[Response], context: RequestContext) -> bytes:
    """A request that a rule has changed.

    Raises:
        ProtocolError: it cannot be sent.
    """
    if isinstance(message, OpaqueRequest):
        return message.payload
    try:
        return encode_request(message, api_version=context.api_version, correlation_id=0, client_id=context.client_id)
    except Kip848Error as error:
        raise ProtocolError(f"a rewritten request could not be encoded: {error}") from error


_OLDER_API_VERSIONS: Final = ApiVersionsResponse(
    error_code=ErrorCode.UNSUPPORTED_VERSION,
    api_keys=(
        ApiVersion(
            api_key=ApiKey.API_VERSIONS,
            min_version=ApiVersionsRequest.WIRE.versions.first,
            max_version=ApiVersionsRequest.WIRE.versions.last,
        ),
    ),
)
"""The answer to a client that is newer than we are, which then asks again (KIP-511)."""
