"""Makes the login of each new connection: a fresh SASL conversation, from the settings.

A token is waited for on a thread of its own: heartbeats go on meanwhile. If it does not come, the thread, a daemon, is
left behind. Runs on the background thread otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from typing import Final

from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.common.logs import LogEvent, log_event
from kip848_client.common.model import OAuthToken, SaslSettings
from kip848_client.config.security import check_user
from kip848_client.errors import IllegalStateError, Kip848Error, RequestTimeoutError
from kip848_client.wire.sasl.mechanism import SaslClient
from kip848_client.wire.sasl.oauthbearer import OAuthBearerClient
from kip848_client.wire.sasl.plain import PlainClient
from kip848_client.wire.sasl.scram import ScramClient

_NONCE_BYTES: Final = 24


class Credentials:
    """Called for every login; see `kip848_client.wire.sasl.mechanism.MakeSaslClient`.

    Args:
        settings: as whom to log in.
        token_timeout_ms: for a token.
    """

    def __init__(self, settings: SaslSettings, *, token_timeout_ms: int) -> None:
        self._settings = settings
        self._token_timeout_ms = token_timeout_ms

    def set_user(self, username: str, password: str) -> None:
        """Log in as this user from the next login on (any thread).

        Raises:
            IllegalStateError: the login is with tokens.
            ConfigError: a value is empty, or cannot be sent.
        """
        if self._settings.token is not None:
            raise IllegalStateError("set_sasl_credentials() is for PLAIN and SCRAM; this login is with tokens")
        check_user(username, password)
        self._settings = SaslSettings(self._settings.mechanism, username=username, password=password)

    async def __call__(self) -> SaslClient:
        """Make one conversation.

        Raises:
            ConnectionLostError, RequestTimeoutError: there is no token now, or not in time.
            AuthenticationError: there will be none.
        """
        settings = self._settings
        if settings.token is not None:
            return OAuthBearerClient(await self._fetch_token(settings.token))
        if settings.mechanism == PlainClient.mechanism:
            return PlainClient(username=settings.username, password=settings.password)
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return ScramClient(settings.mechanism, username=settings.username, password=settings.password, nonce=nonce)

    async def _fetch_token(self, fetch: Callable[[], OAuthToken]) -> OAuthToken:
        try:
            async with asyncio.timeout(self._token_timeout_ms / 1_000):
                return await _on_a_thread(fetch)
        except Kip848Error:
            raise  # those of a source are logged there
        except TimeoutError as error:
            late = RequestTimeoutError(f"{self._settings.token_source} gave no token in {self._token_timeout_ms} ms")
            log_event(logging.WARNING, LogEvent.OAUTH_FAILED, error=late)
            raise late from error


async def _on_a_thread(fetch: Callable[[], OAuthToken]) -> OAuthToken:
    loop = asyncio.get_running_loop()
    fetched: asyncio.Future[OAuthToken] = loop.create_future()

    def report(token: OAuthToken | None, error: BaseException | None) -> None:
        if fetched.done():  # abandoned meanwhile
            return
        if error is not None:
            fetched.set_exception(error)
        elif token is not None:
            fetched.set_result(token)

    def run() -> None:
        token, failure = None, None
        try:
            token = fetch()
        except BaseException as error:  # noqa: BLE001  the waiting caller raises it
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the waiting caller
            loop.call_soon_threadsafe(report, token, failure)

    daemon_thread(run, "kip848-oauth-cb").start()
    return await fetched
