"""Decides who may use a connection, and for how long: SASL at the embedded broker (KIP-43, KIP-152, KIP-368).

Lives on the broker's loop, between the server and the dispatcher; a broker without SASL has none of it. Before a
connection is authenticated only ApiVersions and the two SASL requests are taken, and only small ones
(``sasl.server.max.receive.size``); anything else closes it, as in Kafka. The mechanisms themselves are pure and live in
`kip848_client.wire`.

With ``connections.max.reauth.ms``, or with its token, a session ends: the client is told when, may authenticate again
on the same connection (as the same user, by the same mechanism), and loses the connection with the first other request
after that.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import secrets
import struct
from collections.abc import Callable
from typing import Final

from kip848_client.common.clock import Clock, TimerHandle
from kip848_client.errors import ErrorCode, ProtocolError
from kip848_client.testing.broker.config import BrokerConfig
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.net.listener_security import BrokerSasl
from kip848_client.testing.broker.net.server import ClientConnection
from kip848_client.testing.broker.security.scram_users import SALT_BYTES, Users
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.codec import frame
from kip848_client.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kip848_client.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kip848_client.wire.sasl.mechanism import SaslRefusal, SaslServer
from kip848_client.wire.sasl.oauthbearer import OAuthBearerServer
from kip848_client.wire.sasl.plain import PlainServer
from kip848_client.wire.sasl.scram import ITERATIONS_MIN, SCRAM_MECHANISMS, ScramCredential, ScramServer
from kip848_client.wire.sasl.unsecured_jws import BearerClaims, TokenError, read_unsecured_token

_API_KEY: Final = struct.Struct(">h")
_NONCE_BYTES: Final = 24
_LATEST_S: Final = 1e15
"""A token may say that it expires later than any clock can count."""
_FRAMED_FROM: Final = 1
"""Version of SaslHandshake since which the mechanism's bytes travel in SaslAuthenticate, and not bare."""


class _Stage(enum.Enum):
    """The progress of one connection's login."""

    STRANGER = "not authenticated"
    """No mechanism was agreed on yet. Ends with SaslHandshake."""
    PROVING = "authenticating"
    """A mechanism was agreed on. Ends when it is content, or refuses."""
    KNOWN = "authenticated"
    """Everything is served. Ends with the session, or with the next SaslHandshake."""
    REFUSED = "refused"
    """The refusal is on its way; nothing is taken any more."""


_TAKEN: Final = {
    _Stage.STRANGER: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    _Stage.PROVING: frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}),
    _Stage.REFUSED: frozenset[ApiKey](),
}
"""Requests that get an answer at all. A second SaslHandshake gets a refusal."""

_IN_A_DEAD_SESSION: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""Requests that get an answer after a session has ended."""


class _Session:
    """One connection's authentication."""

    __slots__ = ("connection", "ends_ms", "lifetime_ms", "mechanism", "server", "stage", "unframed", "user")

    def __init__(self, connection: ClientConnection) -> None:
        self.connection: Final = connection
        self.stage = _Stage.STRANGER
        self.mechanism = ""
        self.user: str | None = None
        self.server: SaslServer | None = None
        self.unframed = False
        self.ends_ms: int | None = None
        self.lifetime_ms: int | None = None


class Authentication:
    """The gate of one broker.

    Args:
        sasl: the mechanisms that are offered, and what judges tokens.
        users: from now on these may log in; who is logged in stays until its session ends.
        open_request: where an admitted frame goes.
        on_refused: called with the reason of a failed login.
        call_later: runs something after a delay in ms.
    """

    def __init__(
        self,
        sasl: BrokerSasl,
        users: Users,
        config: BrokerConfig,
        *,
        clock: Clock,
        call_later: Callable[[int, Callable[[], None]], TimerHandle],
        on_refused: Callable[[str], None],
    ) -> None:
        self.mechanisms: Final = sasl.mechanisms
        self._validate_token: Final = sasl.validate_token
        self.open_request: Callable[[bytes, ClientConnection], None] = _not_wired
        self._config: Final = config
        self._clock: Final = clock
        self._call_later: Final = call_later
        self._on_refused: Final = on_refused
        self._users: Final = users
        self._fake_key: Final = secrets.token_bytes(32)
        self._sessions: Final[dict[int, _Session]] = {}

    # --- for the server

    def admit(self, data: bytes, connection: ClientConnection) -> None:
        """Pass a frame on if its connection may send it now.

        Raises:
            ProtocolError: it may not; the connection is to be closed.
        """
        session = self._sessions.get(connection.connection_id)
        if session is None:
            session = self._sessions[connection.connection_id] = _Session(connection)
        if session.unframed and session.stage is _Stage.PROVING:
            self._prove_unframed(session, data)
            return
        if session.stage is _Stage.REFUSED:
            return  # until the refusal is sent: a peer that talks on must not be cut off, and so hear it, any sooner
        api_key = _API_KEY.unpack_from(data)[0] if len(data) >= _API_KEY.size else -1
        if session.stage is not _Stage.KNOWN:
            if api_key not in _TAKEN[session.stage]:
                raise ProtocolError(f"a request with API key {api_key} came while the client was {session.stage.value}")
        elif api_key not in _IN_A_DEAD_SESSION and self._is_over(session):
            raise ProtocolError("the session is over: the client did not authenticate again in time")
        self.open_request(data, connection)

    def forget(self, connection: ClientConnection) -> None:
        """The connection has ended."""
        self._sessions.pop(connection.connection_id, None)

    # --- for the handlers of the two APIs

    def begin(self, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
        """Agree on a mechanism, for the first time or again."""
        session = self._sessions.get(context.connection_id)
        if session is None:  # gone while a fault held its request
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        if session.stage is _Stage.PROVING:
            self._refuse(session, "SaslHandshake came twice")
            context.cut_to = _WHOLE
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        if session.stage is not _Stage.STRANGER and session.ends_ms is None:
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        if request.mechanism not in self.mechanisms:
            self._refuse(session, f"mechanism {request.mechanism!r} is not offered")
            context.cut_to = _WHOLE
            return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=self.mechanisms)
        if session.mechanism not in ("", request.mechanism):
            self._refuse(session, f"the mechanism changed from {session.mechanism} to {request.mechanism}")
            context.cut_to = _WHOLE
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        session.mechanism = request.mechanism
        session.stage = _Stage.PROVING
        session.unframed = context.api_version < _FRAMED_FROM
        session.server = self._make_server(request.mechanism)
        return SaslHandshakeResponse(mechanisms=self.mechanisms)

    def proceed(self, request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse | None:
        """Give the mechanism what the client says; None if a refusal is sent later."""
        session = self._sessions.get(context.connection_id)
        if session is None or session.stage is not _Stage.PROVING:
            return illegal_state()
        try:
            answer = self._prove(session, request.auth_bytes)
        except SaslRefusal as refusal:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(refusal)
            )
            context.cut_to = _WHOLE
            # Later, so that passwords cannot be tried quickly over one connection after the other.
            self._call_later(self._config.failed_authentication_delay_ms, lambda: _reply(context, response))
            return None
        return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=self._session_ms(session))

    # --- internals

    def _prove_unframed(self, session: _Session, token: bytes) -> None:
        try:
            answer = self._prove(session, token)
        except SaslRefusal as refusal:
            # The old way has no place for a reason: the connection is closed, after the same while as with one.
            reason = str(refusal)
            self._call_later(
                self._config.failed_authentication_delay_ms, lambda: _close_refused(session.connection, reason)
            )
            return
        session.connection.send_bare(frame(answer))

    def _prove(self, session: _Session, message: bytes) -> bytes:
        server = session.server
        assert server is not None
        try:
            answer = server.answer(message)
            if isinstance(server, OAuthBearerServer) and server.refusal is not None:
                self._report(session, server.refusal)
            if server.user is not None and session.user not in (None, server.user):
                raise SaslRefusal("Authentication failed: cannot change principals during re-authentication")
        except SaslRefusal:
            self._refuse(session, "the credentials are wrong")
            raise
        if server.user is not None:
            session.stage = _Stage.KNOWN
            session.user = server.user
            session.server = None
            session.lifetime_ms = self._lifetime_ms(server)
            session.ends_ms = None if session.lifetime_ms is None else self._clock.now_ms() + session.lifetime_ms
            session.connection.trust(server.user)
        return answer

    def _is_over(self, session: _Session) -> bool:
        return session.ends_ms is not None and self._clock.now_ms() >= session.ends_ms

    def _session_ms(self, session: _Session) -> int:
        return session.lifetime_ms or 0 if session.stage is _Stage.KNOWN else 0

    def _lifetime_ms(self, server: SaslServer) -> int | None:
        """How long a session lasts that begins now: as long as is configured, and as its token; None for ever."""
        limits_ms = [self._config.connections_reauth_ms_max] if self._config.connections_reauth_ms_max else []
        if isinstance(server, OAuthBearerServer) and server.expires_s is not None:
            limits_ms.append(max(int(min(server.expires_s, _LATEST_S) * 1000) - self._clock.wall_ms(), 1))
        return min(limits_ms, default=None)

    def _refuse(self, session: _Session, why: str) -> None:
        session.stage = _Stage.REFUSED
        session.server = None
        self._report(session, why)

    def _report(self, session: _Session, why: str) -> None:
        self._on_refused(f"authentication from {session.connection.client_host} failed ({session.mechanism}): {why}")

    def _make_server(self, mechanism: str) -> SaslServer:
        if mechanism == PlainServer.mechanism:
            return PlainServer(self._users.passwords)
        if mechanism == OAuthBearerServer.mechanism:
            return OAuthBearerServer(self._claims_of)
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return ScramServer(mechanism, self._find_or_make_up(mechanism), nonce=nonce)

    def _claims_of(self, token: str) -> BearerClaims:
        if self._validate_token is None:
            return read_unsecured_token(token, now_ms=self._clock.wall_ms())
        try:
            user, expires_s = self._validate_token(token)
            claims = BearerClaims(str(user), float(expires_s))
        except Exception as error:  # the user's function: whatever it raises, the token is not valid
            raise TokenError(f"validate_token raised {type(error).__name__}") from error
        if not claims.user or not claims.expires_s * 1000 > self._clock.wall_ms():
            raise TokenError("validate_token returned no name of a user, or the token has expired")
        return claims

    def _find_or_make_up(self, mechanism: str) -> Callable[[str], ScramCredential]:
        return lambda user: self._users.credential(user, mechanism) or self._made_up(mechanism, user)

    def _made_up(self, mechanism: str, user: str) -> ScramCredential:
        """The salt for an unknown user name: always the same one, so that it does not reveal which users exist."""
        salt = hmac.digest(self._fake_key, f"{mechanism} {user}".encode(), "sha512")[:SALT_BYTES]
        length = hashlib.new(SCRAM_MECHANISMS[mechanism]).digest_size
        return ScramCredential(salt, ITERATIONS_MIN, secrets.token_bytes(length), bytes(length))


_WHOLE: Final = 2**31 - 1
"""`RequestContext.cut_to` that cuts nothing: the connection is closed after the answer."""


def illegal_state() -> SaslAuthenticateResponse:
    """The answer to SaslAuthenticate where it has no place, in Kafka's words."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )


def _close_refused(connection: ClientConnection, reason: str) -> None:
    if not connection.closed:
        connection.refuse(reason)


def _reply(context: RequestContext, response: SaslAuthenticateResponse) -> None:
    if not context.cancelled:
        context.reply(response)


def _not_wired(_data: bytes, _connection: ClientConnection) -> None:
    raise AssertionError("a request came before the broker was put together")
