"""Logging in over a connection: SaslHandshake, then SaslAuthenticate until the mechanism is content (KIP-43, KIP-152).

Owns the order of requests and what a refusal means. Knows no mechanism (`sasl_*`) and opens nothing (`connection`).
"""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

from kip848_client.common.error_codes import RETRIABLE, ErrorCode, error_name
from kip848_client.errors import AuthenticationError, ConnectionLostError, UnsupportedVersionError
from kip848_client.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kip848_client.wire.messages.sasl_handshake import SaslHandshakeRequest
from kip848_client.wire.sasl.mechanism import SaslClient
from kip848_client.wire.schema import Request, Response

ResponseT = TypeVar("ResponseT", bound=Response)

_FRAMED_FROM: Final = 1
"""Version of SaslHandshake since which the mechanism's bytes travel in SaslAuthenticate."""
_TOLD_MAX: Final = 300


class Speaker(Protocol):
    """The part of a connection that is needed here."""

    @property
    def peer(self) -> str:
        """``host:port``."""
        ...

    def version_for(self, request_class: type[Request[Response]], *, max_version: int | None = None) -> int:
        """The version that both sides speak."""
        ...

    async def exchange(self, request: Request[ResponseT], version: int, timeout_ms: int) -> ResponseT:
        """Send at once and wait for the answer."""
        ...


async def log_in(connection: Speaker, client: SaslClient, *, timeout_ms: int, again: bool = False) -> int:
    """Authenticate *connection* with *client*, which is good for this once. Also for doing it again (KIP-368).

    Args:
        timeout_ms: for each of the requests; at most four.
        again: the connection is authenticated already, so that SASL is known to be expected.

    Returns:
        Milliseconds after which the broker wants it done again; 0 if never.

    Raises:
        AuthenticationError: the broker refuses, or the mechanism found that it does not know our secret.
        ConnectionLostError, RequestTimeoutError, ProtocolError: as the connection raises them.
    """
    peer = connection.peer
    await _agree_on_mechanism(connection, client.mechanism, timeout_ms, again=again)
    version = connection.version_for(SaslAuthenticateRequest)
    message: bytes | None = client.first()
    response = SaslAuthenticateResponse()
    while message is not None:
        response = await connection.exchange(SaslAuthenticateRequest(auth_bytes=message), version, timeout_ms)
        if response.error_code:
            told = client.without_secret(response.error_message or "no reason was given")[:_TOLD_MAX]
            text = f"{peer} refused {client.identity} ({client.mechanism}): {error_name(response.error_code)}: {told}"
            raise (ConnectionLostError if response.error_code in RETRIABLE else AuthenticationError)(text)
        try:
            message = client.answer(response.auth_bytes)
        except AuthenticationError as refusal:
            raise AuthenticationError(f"{peer}: {refusal}") from refusal
    return max(0, response.session_lifetime_ms)


async def _agree_on_mechanism(connection: Speaker, mechanism: str, timeout_ms: int, *, again: bool) -> None:
    peer = connection.peer
    try:
        version = connection.version_for(SaslHandshakeRequest)
    except UnsupportedVersionError as error:
        raise AuthenticationError(f"{peer} offers no SASL; check the port and security.protocol") from error
    if version < _FRAMED_FROM:
        raise AuthenticationError(f"{peer} speaks SASL as Kafka did before 1.0; that is not spoken here")
    answer = await connection.exchange(SaslHandshakeRequest(mechanism=mechanism), version, timeout_ms)
    match answer.error_code:
        case 0:
            return
        case ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(sorted(answer.mechanisms)) or "none"
            raise AuthenticationError(f"{peer} does not take {mechanism}; set sasl.mechanism to one of: {offered}")
        case ErrorCode.ILLEGAL_SASL_STATE if again:
            raise ConnectionLostError(f"{peer} does not let a connection authenticate again now")
        case ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationError(f"{peer} expects no SASL on this port; check the port and security.protocol")
        case code:
            raise AuthenticationError(f"{peer} refused {mechanism}: {error_name(code)}")
