"""Decodes frames, calls their handlers, and encodes the answers. Knows headers and versions, no API.

Requests that cannot be handled:

* not a request at all, one with too many elements (``kip848.request.max.elements``), an API that is not served, or a
  version of it that is not: the connection is closed, as Apache Kafka does (there is no answer that such a client
  could read). ApiVersions of a newer version is answered in
  version 0;
* a handler that raises: the error is logged and journaled, the client gets UNKNOWN_SERVER_ERROR where the response
  has a field for it, else its connection is closed. Other clients are not affected. Handlers raise ProtocolError for
  what only closing the connection can say (a Produce without an answer that failed).

A handler that is a generator has `_SLICE_S` at a time; then the requests of other connections have their turn. A group
whose requests take long has its turns, too (`group_turns`): thousands of members may join at once.
"""

from __future__ import annotations

import logging
import struct
from typing import Any, Final, cast

from kip848_client.common.logs import BROKER_LOGGER, LogEvent, log_event
from kip848_client.errors import ErrorCode, Kip848Error, ProtocolError, UnsupportedVersionError
from kip848_client.journal import JournalEvent
from kip848_client.testing.broker.apis import Api, ApiTable
from kip848_client.testing.broker.apis.api_versions import unsupported_version
from kip848_client.testing.broker.net.context import RequestContext, Slices
from kip848_client.testing.broker.net.faults import Faults
from kip848_client.testing.broker.net.group_turns import GroupTurns
from kip848_client.testing.broker.net.request_log import RequestLog
from kip848_client.testing.broker.net.server import ClientConnection
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import decode_request, encode_response, frame, peek_request_header
from kip848_client.wire.messages import message_pair
from kip848_client.wire.schema import Request, Response, fields_of

_KEY_AND_VERSION: Final = struct.Struct(">hh")
_SLICE_S: Final = 0.01
"""How long one request is handled before other connections have their turn, in seconds."""


class Dispatcher:
    """Opens requests and encodes answers for one broker; a fault rule may come between."""

    def __init__(self, broker: BrokerState, *, apis: ApiTable, faults: Faults, requests: RequestLog) -> None:
        self._broker: Final = broker
        self._apis: Final = apis
        self._faults: Final = faults
        self._requests: Final = requests
        self._elements_max: Final = broker.config.request_elements_max
        self._closed = False
        self._turns: Final = GroupTurns(broker.loop)

    def open_request(self, data: bytes, connection: ClientConnection) -> None:
        """Decode one frame, give it to its handler and put its context into the connection's queue.

        Raises:
            ProtocolError: the frame is not a request that is served here.
        """
        if len(data) < _KEY_AND_VERSION.size:
            raise ProtocolError(f"a request of {len(data)} bytes is too short for its header")
        api_key, api_version = _KEY_AND_VERSION.unpack_from(data)
        api = self._apis.get(api_key)
        if api is None:
            raise ProtocolError(f"{api_name(api_key)} is not served here")
        if not api.version_min <= api_version <= api.version_max:
            if api_key == ApiKey.API_VERSIONS and api_version > api.version_max:
                self._answer_newer_api_versions(data, connection)
                return
            raise ProtocolError(
                f"{api_name(api_key)} version {api_version} is not served here; "
                f"versions {api.version_min} to {api.version_max} are"
            )
        try:
            header, request = decode_request(data, elements_max=self._elements_max)
        except (ProtocolError, UnsupportedVersionError) as error:
            raise ProtocolError(f"{api_name(api_key)} version {api_version} cannot be read: {error}") from error
        context = connection.begin(header, now_ms=self._broker.clock.now_ms(), node_id=connection.node_id)
        refused, sent = None, request
        if api.open_out is not None:
            opened = api.open_out(self._broker, request, context)
            request, refused = (request, opened) if isinstance(opened, Response) else (opened, None)
        self._broker.throttling.watch(request, context, connection, size_bytes=len(data))
        self._requests._opened(context, request, size=len(data), sent=sent)
        if refused is not None:
            context.reply(refused)
        elif not (self._faults._armed and self._is_faulty(api, request, context, connection)):
            self._handle(api, request, context)

    def encode(self, context: RequestContext) -> bytes:
        """The frame of an answered request; empty if it is one without an answer.

        Raises:
            ProtocolError: the answer cannot be sent, nor an error in its place.
        """
        if context.refused is not None:
            raise ProtocolError(context.refused)
        response = context.response
        if response is None:
            self._requests._answered(context, None, size=0)
            return b""
        try:
            data = self._frame(response, context)
        except Kip848Error as error:
            self._report_failure(error, context)
            response = _failure_response(context)
            if response is None:
                raise ProtocolError(f"the answer to {api_name(context.api_key)} could not be encoded") from error
            data = self._frame(response, context)
        if context.cut_to is not None and context.cut_to < len(data):
            data, response = data[: context.cut_to], None
        self._requests._answered(context, response, size=len(data))
        return data

    def close(self) -> None:
        """Go on with no request that is handled in slices: the broker stops."""
        self._closed = True
        self._turns.close()

    def _is_faulty(
        self, api: Api, request: Request[Response], context: RequestContext, connection: ClientConnection
    ) -> bool:
        return self._faults._intercept(
            request,
            context,
            connection,
            node_id=context.node_id,
            handle=lambda message, forked: self._handle(api, message, forked),
        )

    def _handle(self, api: Api, request: Request[Any], context: RequestContext) -> None:
        group_id: str | None = getattr(request, "group_id", None)
        if group_id is None:
            self._handle_now(api, request, context)
        elif not self._turns.run(group_id, lambda: self._handle_now(api, request, context)):
            context.at_work = True
            self._turns.wait(group_id, lambda: self._handle_later(api, request, context))

    def _handle_later(self, api: Api, request: Request[Any], context: RequestContext) -> None:
        try:
            self._handle_now(api, request, context)
        except ProtocolError as error:
            context.refuse(str(error))

    def _handle_now(self, api: Api, request: Request[Any], context: RequestContext) -> None:
        context.begin_work()
        try:
            if (access := self._broker.access) is not None:
                allowed = access.check(api.requires, request, context)
                if isinstance(allowed, Response):
                    context.reply(allowed)
                    return
                if allowed is not None:
                    request = allowed.request
                    context.amend(allowed.complete)
            handled = api.handle(self._broker, request, context)
            response = (
                self._slice(cast("Slices", handled), context) if api.in_slices else cast("Response | None", handled)
            )
        except ProtocolError:  # no answer can carry this error: close, and log the reason
            if context.done:
                return
            raise
        except Exception as error:  # a broken handler must not take the broker down
            self._report_failure(error, context)
            if context.done:
                return
            response = _failure_response(context)
            if response is None:
                raise ProtocolError(f"{api_name(context.api_key)} failed inside the broker") from error
        context.end_work()
        if response is not None:
            context.reply(response)

    def _slice(self, work: Slices, context: RequestContext) -> Response | None:
        """Go on with *work* for `_SLICE_S`; its answer, or None if there is none or it goes on in the next turn."""
        time_s = self._broker.loop.time
        ends_s = time_s() + _SLICE_S
        try:
            next(work)
            while time_s() < ends_s:
                next(work)
        except StopIteration as end:
            return cast("Response | None", end.value)
        context.at_work = True
        self._broker.loop.call_soon(self._go_on, work, context)
        return None

    def _go_on(self, work: Slices, context: RequestContext) -> None:
        if self._closed:
            return
        context.begin_work()
        try:
            response = self._slice(work, context)
        except ProtocolError as error:
            context.refuse(str(error))
            return
        except Exception as error:  # noqa: BLE001 - as in _handle
            self._report_failure(error, context)
            response = _failure_response(context)
            if response is None:
                context.refuse(f"{api_name(context.api_key)} failed inside the broker")
                return
        context.end_work()
        if response is not None:
            context.reply(response)

    def _answer_newer_api_versions(self, data: bytes, connection: ClientConnection) -> None:
        header = peek_request_header(data)
        context = connection.begin(header, now_ms=self._broker.clock.now_ms(), node_id=connection.node_id)
        context.reply(unsupported_version(self._broker))

    def _frame(self, response: Response, context: RequestContext) -> bytes:
        return frame(encode_response(response, api_version=context.api_version, correlation_id=context.correlation_id))

    def _report_failure(self, error: Exception, context: RequestContext) -> None:
        api = api_name(context.api_key)
        log_event(
            logging.ERROR,
            LogEvent.REQUEST_NOT_HANDLED,
            logger=BROKER_LOGGER,
            exc_info=error,
            api=api,
            version=context.api_version,
            client_id=context.client_id,
        )
        self._broker.journal.write(
            JournalEvent(
                ts_ms=self._broker.clock.wall_ms(),
                source="coordinator",
                event="request_failed",
                client_id=context.client_id,
                fields={"api": api, "error": f"{type(error).__name__}: {error}"},
            )
        )


def api_name(api_key: int) -> str:
    """An API for people: ``FETCH(1)``, ``API key 9999``."""
    try:
        return f"{ApiKey(api_key).name}({api_key})"
    except ValueError:
        return f"API key {api_key}"


def _failure_response(context: RequestContext) -> Response | None:
    context.leave_unamended()
    return _error_response(context.api_key, context.api_version, code=ErrorCode.UNKNOWN_SERVER_ERROR)


def _error_response(api_key: int, api_version: int, *, code: ErrorCode) -> Response | None:
    """*code* in the answer's own error field, if this version has one for the whole answer."""
    cls: type = message_pair(api_key).response
    for field in fields_of(cls):
        if field.name == "error_code" and field.versions.includes(api_version):
            response: Response = cls(error_code=code)
            return response
    return None
