"""OAUTHBEARER (RFC 7628, KIP-255): a token is shown. Client side only; the embedded broker does not judge tokens."""

from __future__ import annotations

from typing import Final

from kip848_client.errors import AuthenticationError
from kip848_client.model import OAuthToken
from kip848_client.wire.sasl.mechanism import without_secret

__all__ = ["OAuthBearerClient"]

_SEPARATOR: Final = "\x01"
_TOLD_MAX: Final = 200


class OAuthBearerClient:
    """Shows *token*; a refusal comes in two steps, the second of which is the error code.

    Args:
        token: its parts were checked by `kip848_client.wire.sasl.oauth_tokens`.
    """

    mechanism: Final = "OAUTHBEARER"

    def __init__(self, token: OAuthToken) -> None:
        self._token: Final = token
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
        """
        if challenge:
            told = self.without_secret(challenge.decode("utf-8", "replace"))[:_TOLD_MAX]
            raise AuthenticationError(f"the broker refused the token that oauth_cb returned: {told}")
