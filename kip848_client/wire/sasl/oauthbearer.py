"""OAUTHBEARER (RFC 7628, KIP-255): a token is shown, and judged by a function that the server is given."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from kip848_client.common.model import OAuthToken
from kip848_client.errors import AuthenticationError, ConnectionLostError
from kip848_client.wire.sasl.mechanism import SaslRefusal, without_secret
from kip848_client.wire.sasl.unsecured_jws import BearerClaims, TokenError

_FIRST_MESSAGE: Final = re.compile(r"n,(?:a=(?P<acting_as>[^,\x01]+))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)*)\x01")
_BEARER: Final = re.compile(r"(?i:bearer) +(?P<token>[-_.~+/=A-Za-z0-9]+)")
_NOT_VALID: Final = '{"status":"invalid_token"}'
"""Kafka's answer to a token that is not valid. It does not say why."""
_SEPARATOR: Final = "\x01"
_TOLD_MAX: Final = 200


class OAuthBearerClient:
    """Shows *token*; a refusal comes in two steps, the second of which is the error code.

    Args:
        token: its parts were checked by `kip848_client.logins.source`.
        now_s: wall clock, in seconds since 1970.
    """

    mechanism: Final = "OAUTHBEARER"

    def __init__(self, token: OAuthToken, *, now_s: Callable[[], float] = time.time) -> None:
        self._token: Final = token
        self._now_s = now_s
        self.identity: Final = f"the token of {token.principal!r}" if token.principal else "the token"

    def without_secret(self, text: str) -> str:
        """*text*, unless it repeats the token."""
        return without_secret(text, self._token.value)

    def first(self) -> bytes:
        """The GS2 header without a channel binding or authorisation id, the token, the extensions."""
        pairs = [("auth", f"Bearer {self._token.value}"), *self._token.extensions]
        told = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs)
        return f"n,,{_SEPARATOR}{told}{_SEPARATOR}".encode()

    def answer(self, challenge: bytes) -> None:
        """Take the server's answer, which is empty if the token is good.

        Raises:
            AuthenticationError: the token is refused. A server may wait for one more byte before it says so itself;
                we hang up instead.
            ConnectionLostError: the same for a token that has expired meanwhile; the next one may be good.
        """
        if challenge:
            told = self.without_secret(challenge.decode("utf-8", "replace"))[:_TOLD_MAX]
            if self._now_s() >= self._token.expires_s:
                raise ConnectionLostError(f"the token expired while it was shown to the broker: {told}")
            raise AuthenticationError(
                f"the broker refused the token: {told}; check that the broker trusts its issuer, and that the token is "
                "for this cluster (scope, audience)"
            )


class OAuthBearerServer:
    """Takes a token from the client; refuses in two steps, the first of which only the client can end.

    Args:
        validate: returns the claims of a token, or raises TokenError.
    """

    mechanism: Final = "OAUTHBEARER"

    def __init__(self, validate: Callable[[str], BearerClaims]) -> None:
        self._validate: Final = validate
        self.refusal: str | None = None
        """Why the token is not valid. The client is not told."""
        self.user: str | None = None
        self.expires_s: float | None = None
        """When the token expires, in seconds since 1970; None before the end."""

    def answer(self, message: bytes) -> bytes:
        """Judge the token; after a bad one take the byte that says that the client knows.

        Raises:
            SaslRefusal: that byte came, or the message is none of OAUTHBEARER, or names another user than the token.
        """
        if self.refusal is not None:
            raise SaslRefusal(_NOT_VALID)
        matched = _FIRST_MESSAGE.fullmatch(message.decode("utf-8", "replace"))
        if matched is None:
            raise SaslRefusal("Authentication failed: Invalid OAUTHBEARER client first message")
        pairs = dict(pair.split("=", 1) for pair in matched["pairs"].split(_SEPARATOR) if pair)
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            raise SaslRefusal("Authentication failed: Invalid OAUTHBEARER client first message: 'auth' not specified")
        try:
            claims = self._validate(bearer["token"])
        except TokenError as error:
            self.refusal = str(error)
            return _NOT_VALID.encode()
        if matched["acting_as"] not in (None, claims.user):
            raise SaslRefusal(
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name"
            )
        self.user, self.expires_s = claims.user, claims.expires_s
        return b""
