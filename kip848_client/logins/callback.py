"""The user's ``oauth_cb`` as a source of tokens, called as confluent-kafka calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kip848_client.common.model import OAuthToken
from kip848_client.errors import AuthenticationError, ConnectionLostError, Kip848Error
from kip848_client.logins.source import checked_token


class CallbackSource:
    """Asks a callable that the user wrote.

    Args:
        callback: takes sasl.oauthbearer.config, returns (token, expiry in seconds since 1970[, principal[,
            extensions]]).
        config: the value of sasl.oauthbearer.config, or None.
    """

    name: Final = "oauth_cb"

    def __init__(self, callback: Callable[..., object], config: str | None) -> None:
        self._callback = callback
        self._config = config

    def fetch(self, now_s: float) -> OAuthToken:
        """Call it.

        Raises:
            ConnectionLostError: it raised, or returned a token that has expired; it may do better later.
            AuthenticationError: it did not return a token, or raised this error itself.
        """
        try:
            returned = self._callback(self._config)
        except Kip848Error:
            raise
        except Exception as error:
            # Only the class: a message of the user's HTTP library may well contain the token or a client secret.
            raise ConnectionLostError(f"oauth_cb raised {type(error).__name__}; no token to log in with") from error
        token = read_token(returned)
        if token.expires_s <= now_s:
            late_s = now_s - token.expires_s
            raise ConnectionLostError(
                f"oauth_cb returned a token that expired {late_s:.0f} s ago; its second value is time.time() plus the "
                "seconds that the token lives"
            )
        return token

    def has_changed(self) -> bool:
        """Never: the callback is asked when its token grows old."""
        return False

    def __reduce__(self) -> tuple[type[CallbackSource], tuple[object, ...]]:
        return CallbackSource, (self._callback, self._config)


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
    return checked_token(*returned, who="oauth_cb")
