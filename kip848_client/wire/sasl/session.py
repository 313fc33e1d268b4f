"""Sessions that end (KIP-368): a connection that is authenticated again and again, each time before the broker ends it.

Owns the times. `authentication` has the conversation; `connection` says who waits meanwhile, and what a failure does.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager
from typing import Final, Protocol

import anyio

from kip848_client.errors import AuthenticationError, ConnectionLostError, Kip848Error, RequestTimeoutError
from kip848_client.wire.sasl.authentication import Speaker, log_in
from kip848_client.wire.sasl.mechanism import MakeSaslClient

LOGIN_TIMEOUT_MS: Final = 30_000
"""For each request of a login."""
LOGIN_INTERVAL_MIN_S: Final = 1.05
"""Kafka refuses to authenticate a connection twice within a second."""
_LEFT_MIN_S: Final = 0.05
"""With less than this left of a session, a new connection comes sooner than a login on the old one."""

_random: Final = random.SystemRandom()


class AuthenticatedConnection(Speaker, Protocol):
    """The part of a connection that is needed here."""

    async def wait_closed(self) -> None:
        """Return when the connection broke or was closed."""
        ...

    def only_login(self) -> AbstractContextManager[None]:
        """Hold other requests back during the block."""
        ...


async def renew_sessions(
    connection: AuthenticatedConnection, make_client: MakeSaslClient, *, session_ms: int
) -> Kip848Error | None:
    """Authenticate again before each session ends, as long as the connection lives and sessions end.

    While *make_client* fails for a passing reason it is asked again, until the session is almost over.

    Args:
        session_ms: of the session that has just begun; > 0.

    Returns:
        Why the connection cannot go on; None if it is closed, or its session has no end any more.
    """
    logged_in_s = anyio.current_time()
    ends_s = logged_in_s + session_ms / 1000
    while (left_s := ends_s - (now_s := anyio.current_time())) > _LEFT_MIN_S:
        # Not all at the same part of the session: connections that were opened together would do it together.
        wait_s = max(left_s * _random.uniform(0.75, 0.85), logged_in_s + LOGIN_INTERVAL_MIN_S - now_s)
        with anyio.move_on_after(min(wait_s, left_s)):
            await connection.wait_closed()
            return None
        if wait_s >= left_s:
            break  # too short to be renewed: a token that was almost spent
        try:
            client = await make_client()
        except AuthenticationError as failure:
            return failure
        except (ConnectionLostError, RequestTimeoutError):
            continue
        try:
            with connection.only_login():
                session_ms = await log_in(connection, client, timeout_ms=LOGIN_TIMEOUT_MS, again=True)
        except Kip848Error as failure:
            return failure
        if session_ms == 0:
            return None
        logged_in_s = anyio.current_time()
        ends_s = logged_in_s + session_ms / 1000
    return ConnectionLostError("the session with the broker is over")
