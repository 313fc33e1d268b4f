"""SASL: the interface that all mechanisms have in common. The mechanisms are `plain`, `scram` and `oauthbearer`.

Pure: a mechanism takes bytes and returns bytes. `authentication` and the embedded broker carry them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from kip848_client.errors import AuthenticationError


class SaslClient(Protocol):
    """The client's side of one authentication; good for one only."""

    @property
    def mechanism(self) -> str:
        """The mechanism's registered name."""
        ...

    @property
    def identity(self) -> str:
        """The user who logs in, for messages."""
        ...

    def without_secret(self, text: str) -> str:
        """*text* that a peer sent, without our secrets, which it may repeat."""
        ...

    def first(self) -> bytes:
        """The first bytes of the client, without a challenge."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """Answer the server; None when the server has proved what it must and nothing is left to say.

        Raises:
            AuthenticationError: the server does not know our secret, or refused us.
        """
        ...


MakeSaslClient = Callable[[], Awaitable[SaslClient]]
"""Makes what logs in one time. May take a while (a token is fetched) and fail as a connection does."""


class SaslServer(Protocol):
    """The server's side of one authentication; good for one only."""

    @property
    def user(self) -> str | None:
        """The authenticated user; None before the end."""
        ...

    def answer(self, message: bytes) -> bytes:
        """Answer the client; `user` is set when this is the last thing to say.

        Raises:
            SaslRefusal: the client did not prove its identity, or broke the mechanism's rules.
        """
        ...


def without_secret(text: str, secret: str) -> str:
    """*text*, unless it repeats *secret*."""
    return "its reason repeats the secret and is not shown" if secret in text else text


class SaslRefusal(AuthenticationError):
    """The client is refused. The message says nothing that helps to guess."""
