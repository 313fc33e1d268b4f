"""One source of OAUTHBEARER tokens for both planes: the user's ``oauth_cb``, and the last token that it returned.

The callback is never called twice at the same time, and only when the last token has spent three quarters of its life:
both planes renew later than that, so that each renewal shows the broker a new token.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from kip848_client.common.model import OAuthToken
from kip848_client.errors import AuthenticationError, ConnectionLostError, Kip848Error

_MILLISECONDS_FROM: Final = 100_000_000_000
"""An expiry after the year 5000 is one in milliseconds, and its token would never be renewed."""

_RENEW_AFTER: Final = 0.75
"""Part of a token's life. librdkafka asks again after 0.8 of it."""


class OAuthTokens:
    """Callable as confluent-kafka calls an ``oauth_cb``. Safe for several threads; blocks while the callback runs.

    Args:
        callback: takes sasl.oauthbearer.config, returns (token, expiry in seconds since 1970[, principal[,
            extensions]]).
        config: the value of sasl.oauthbearer.config, or None.
        now_s: wall clock, in seconds since 1970.
    """

    def __init__(
        self, callback: Callable[..., object], config: str | None, *, now_s: Callable[[], float] = time.time
    ) -> None:
        self._callback = callback
        self._config = config
        self._now_s = now_s
        self._lock = threading.Lock()
        self._token: OAuthToken | None = None
        self._renew_s = 0.0

    def token(self) -> OAuthToken:
        """A token that is good for a while.

        Raises:
            ConnectionLostError: the callback raised, or returned a token that has expired; it may do better later.
            AuthenticationError: it did not return a token, or raised this error itself.
        """
        with self._lock:
            if self._token is None or self._now_s() >= self._renew_s:
                self._token = self._ask()
                asked_s = self._now_s()
                self._renew_s = asked_s + (self._token.expires_s - asked_s) * _RENEW_AFTER
            return self._token

    def __call__(self, config: str | None = None) -> tuple[str, float, str, dict[str, str]]:
        """For librdkafka: (token, expiry in seconds since 1970, principal, extensions)."""
        token = self.token()
        return token.value, token.expires_s, token.principal, dict(token.extensions)

    def _ask(self) -> OAuthToken:
        try:
            returned = self._callback(self._config)
        except Kip848Error:
            raise
        except Exception as error:
            # Only the class: a message of the user's HTTP library may well contain the token or a client secret.
            raise ConnectionLostError(f"oauth_cb raised {type(error).__name__}; no token to log in with") from error
        token = read_token(returned)
        if token.expires_s <= self._now_s():
            late_s = self._now_s() - token.expires_s
            raise ConnectionLostError(
                f"oauth_cb returned a token that expired {late_s:.0f} s ago; its second value is time.time() plus the "
                "seconds that the token lives"
            )
        return token

    def __reduce__(self) -> tuple[type[OAuthTokens], tuple[object, ...]]:
        return OAuthTokens, (self._callback, self._config)


def read_token(returned: object) -> OAuthToken:
    """Read what an ``oauth_cb`` returned.

    Raises:
        AuthenticationError: it is not (token, expiry[, principal[, extensions]]), or a part has characters that the
            mechanism cannot carry. The message never contains the token.
    """
    if not isinstance(returned, tuple) or not 2 <= len(returned) <= 4:
        raise AuthenticationError(
            f"oauth_cb returned {type(returned).__name__}; it must return (token, expiry in seconds since 1970"
            "[, principal[, extensions]])"
        )
    value, expires_s, *rest = returned
    principal = rest[0] if rest and rest[0] is not None else ""
    extensions = rest[1] if len(rest) > 1 and rest[1] is not None else {}
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable() or " " in value:
        raise AuthenticationError(
            "oauth_cb returned a token that is not printable ASCII text without spaces (RFC 6750)"
        )
    if isinstance(expires_s, bool) or not isinstance(expires_s, (int, float)):
        raise AuthenticationError(f"oauth_cb returned an expiry of type {type(expires_s).__name__}; seconds are needed")
    if expires_s > _MILLISECONDS_FROM:
        raise AuthenticationError(
            f"oauth_cb returned the expiry {expires_s:.0f}, as if in milliseconds; seconds since 1970 are needed"
        )
    if not isinstance(principal, str):
        raise AuthenticationError(f"oauth_cb returned a principal of type {type(principal).__name__}; text is needed")
    if not isinstance(extensions, dict):
        raise AuthenticationError(f"oauth_cb returned extensions of type {type(extensions).__name__}; a dict is needed")
    for name, text in extensions.items():
        fits = isinstance(name, str) and isinstance(text, str) and name.isascii() and name.isalpha() and name != "auth"
        if not fits or not all(character.isprintable() or character in "\r\n\t" for character in text):
            raise AuthenticationError(
                "oauth_cb returned an extension that OAUTHBEARER cannot carry (RFC 7628, KIP-342)"
            )
    return OAuthToken(value, float(expires_s), principal, tuple(extensions.items()))
