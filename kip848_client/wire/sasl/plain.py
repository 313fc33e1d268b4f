"""PLAIN (RFC 4616): name and password as they are. Only for an encrypted connection.

Kafka does not apply SASLprep, and neither do we: names and passwords are compared as UTF-8.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from kip848_client.errors import AuthenticationError
from kip848_client.wire.sasl.mechanism import SaslRefusal, without_secret

_PARTS: Final = 3
_REFUSED: Final = "Authentication failed: Invalid username or password"
"""Kafka's words."""


class PlainClient:
    """Shows the password once."""

    mechanism: Final = "PLAIN"

    def __init__(self, *, username: str, password: str) -> None:
        self.identity: Final = f"user {username!r}"
        self._password: Final = password
        self._message: Final = f"\0{username}\0{password}".encode()

    def without_secret(self, text: str) -> str:
        """*text*, unless it repeats the password."""
        return without_secret(text, self._password)

    def first(self) -> bytes:
        """``[authorisation id] NUL name NUL password``; without an authorisation id we act as ourselves."""
        return self._message

    def answer(self, challenge: bytes) -> None:
        """The server has nothing to say but that it is well.

        Raises:
            AuthenticationError: it says something.
        """
        if challenge:
            raise AuthenticationError(f"the broker answered PLAIN with {len(challenge)} bytes; none are allowed")


class PlainServer:
    """Compares with known passwords, in a time that does not depend on where they differ.

    Args:
        passwords: by user name.
    """

    mechanism: Final = "PLAIN"

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords: Final = passwords
        self.user: str | None = None

    def answer(self, message: bytes) -> bytes:
        """Take the only message there is.

        Raises:
            SaslRefusal: it is none, or name and password do not belong together.
        """
        parts = message.split(b"\0")
        if len(parts) != _PARTS or self.user is not None:
            raise SaslRefusal("Invalid SASL/PLAIN response: expected 3 tokens, got " + str(len(parts)))
        try:
            acting_as, name = parts[0].decode(), parts[1].decode()
        except UnicodeDecodeError:
            raise SaslRefusal(_REFUSED) from None
        known = self._passwords.get(name)
        right = hmac.compare_digest(parts[2], (known or "").encode())
        if known is None or not right or not parts[2]:
            raise SaslRefusal(_REFUSED)
        if acting_as not in ("", name):
            raise SaslRefusal(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = name
        return b""
