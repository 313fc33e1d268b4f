"""The last token of one source, for both planes, and its renewal.

The first that asks when three quarters of a token's life are over starts the renewal: both planes ask at that time,
later than that and before the end. It runs on a thread of its own, one at a time for each source. While it fails it is
tried again with growing pauses, and the old token is shown for as long as it is good. So an issuer that is away does
not end a login before its time, and no plane asks it more often because connections break.
"""

from __future__ import annotations

import copy
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final

from kip848_client.common.daemon_thread import daemon_thread
from kip848_client.common.logs import LogEvent, log_event
from kip848_client.common.model import OAuthToken
from kip848_client.errors import ConnectionLostError, Kip848Error
from kip848_client.logins.source import TokenSource

_RENEW_AFTER: Final = 0.75
"""Part of a token's life. librdkafka asks again after 0.8 of it."""
_LEFT: Final = 0.1
_LEFT_MAX_S: Final = 10.0
"""A token with less of its life left is not shown any more: it could end on its way, and a broker's no is final."""
_PATIENCE_S: Final = 5.0
"""How long a login waits for a new token while the old one is still good."""
BACKOFF_S: Final = 1.0
BACKOFF_MAX_S: Final = 30.0
_KEPT: Final = 64
"""Sources of one process that are remembered; each has one token."""

Wait = Callable[[threading.Condition, float], object]


class OAuthTokens:
    """Callable as confluent-kafka calls an ``oauth_cb``. Safe for several threads; blocks while a token is fetched.

    Args:
        source: where tokens come from.
        now_s: wall clock, in seconds since 1970.
        wait: waits on a condition, which is held, for so many seconds.
    """

    def __init__(
        self,
        source: TokenSource,
        *,
        now_s: Callable[[], float] = time.time,
        wait: Wait = threading.Condition.wait,
    ) -> None:
        self.source: Final = source
        self._now_s = now_s
        self._wait = wait
        self._changed = threading.Condition()
        self._token: OAuthToken | None = None
        self._renew_s = 0.0
        self._ends_s = 0.0
        self._failure: Kip848Error | None = None
        """Of the last attempt; None if that brought a token."""
        self._failures = 0
        self._retry_s = 0.0
        self._attempts = 0
        self._renewing = False

    def token(self, *, now: bool = False) -> OAuthToken:
        """A token that is good for a while.

        Args:
            now: ask the source, although it failed a moment ago.

        Raises:
            ConnectionLostError: there is none now; it may be there later.
            AuthenticationError: asking again would not help.
        """
        with self._changed:
            held = self._good_token()
            is_young = self._now_s() < self._renew_s
        # Without the lock, here and below, while others' code runs: it may take its time, or need a token itself.
        if held is not None and is_young and not self.source.has_changed():
            return held
        with self._changed:
            held = self._good_token()
            if self._failure is not None and not now and self._now_s() < self._retry_s:
                return self._old_token()
            if held is not None and self._renewing and self._failure is not None:
                return held  # the renewal fails, and goes on by itself
            before = self._attempts
            until_s = None if held is None else time.monotonic() + _PATIENCE_S
            self._changed.notify_all()  # a renewal that waits for its next attempt, while the token has expired
        while True:
            self._begin(before)
            with self._changed:
                left_s = None if until_s is None else until_s - time.monotonic()
                if self._attempts != before or (left_s is not None and left_s <= 0):
                    return self._old_token()
                if self._renewing:
                    self._changed.wait(left_s)

    def __call__(self, config: str | None = None) -> tuple[str, float, str, dict[str, str]]:
        """For librdkafka: (token, expiry in seconds since 1970, principal, extensions)."""
        token = self.token()
        return token.value, token.expires_s, token.principal, dict(token.extensions)

    def __repr__(self) -> str:
        return f"OAuthTokens({self.source.name})"

    def __reduce__(self) -> tuple[type[OAuthTokens], tuple[object, ...]]:
        return OAuthTokens, (self.source,)

    def _good_token(self) -> OAuthToken | None:
        return self._token if self._now_s() < self._ends_s else None

    def _old_token(self) -> OAuthToken:
        """What there is: the token, as long as it is good, or why there is none."""
        held = self._good_token()
        if held is not None:
            return held
        if self._failure is None:
            raise ConnectionLostError(f"the token of {self.source.name} has expired, and there is no new one yet")
        raise copy.copy(self._failure) from self._failure  # each thread needs a traceback of its own

    def _begin(self, attempts: int) -> None:
        """Start a renewal, unless one runs, or there was an attempt since there were so many."""
        claimed = False
        try:
            with self._changed:
                if self._renewing or self._attempts != attempts:
                    return
                self._renewing = claimed = True
            daemon_thread(self._renew, "kip848-oauth-tokens").start()
        except BaseException:
            if claimed:
                with self._changed:
                    self._renewing = False
                    self._changed.notify_all()  # who waits for it begins one
            raise

    def _renew(self) -> None:
        """Fetch a token, and try again while the old one is good."""
        try:
            while not self._attempt():
                with self._changed:
                    while self._good_token() is not None and (left_s := self._retry_s - self._now_s()) > 0:
                        self._wait(self._changed, min(left_s, self._ends_s - self._now_s()))
                    if self._good_token() is None:
                        return  # whoever needs a token asks again, and is told why there is none
        finally:
            with self._changed:
                self._renewing = False
                self._changed.notify_all()

    def _attempt(self) -> bool:
        """Ask the source once; whether there is nothing left to do."""
        token, failure = None, None
        try:
            token = self.source.fetch(self._now_s())
        except Kip848Error as error:
            failure = error
        except BaseException as error:  # noqa: BLE001  else those who wait would wait for ever
            failure = ConnectionLostError(f"{self.source.name} raised {type(error).__name__}")
            failure.__cause__ = error
        now_s = self._now_s()
        if token is not None and token.expires_s <= now_s:
            failure = ConnectionLostError(
                f"{self.source.name} returned a token that expired {now_s - token.expires_s:.0f} s ago; compare "
                "the clocks of both machines"
            )
        with self._changed:
            self._failure = failure
            if failure is None:
                assert token is not None
                self._token, self._failures = token, 0
                life_s = token.expires_s - now_s
                self._renew_s = now_s + life_s * _RENEW_AFTER
                self._ends_s = token.expires_s - min(life_s * _LEFT, _LEFT_MAX_S)
            else:
                self._retry_s = now_s + min(BACKOFF_MAX_S, BACKOFF_S * 2**self._failures)
                self._failures = min(self._failures + 1, 16)
            is_over = failure is None or self._good_token() is None
        if failure is not None:
            log_event(logging.WARNING, LogEvent.OAUTH_FAILED, error=failure)  # once, not for each that waits
        with self._changed:
            self._attempts += 1
            self._changed.notify_all()
        return is_over


class _Shared:
    """The tokens of this process, by source."""

    def __init__(self) -> None:
        self._tokens: Final[dict[TokenSource, OAuthTokens]] = {}
        self._lock = threading.Lock()

    def get(self, source: TokenSource) -> OAuthTokens:
        with self._lock:
            found = self._tokens.pop(source, None) or OAuthTokens(source)
            self._tokens[source] = found  # the last one used is the last to be forgotten
            while len(self._tokens) > _KEPT:
                del self._tokens[next(iter(self._tokens))]
            return found

    def begin_again(self) -> None:
        """After a fork: a thread that renewed is not there any more, and a lock may be held for ever."""
        self._tokens.clear()
        self._lock = threading.Lock()


_shared: Final = _Shared()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.begin_again)


def shared_tokens(source: TokenSource) -> OAuthTokens:
    """The tokens of *source* in this process: clients with the same settings log in with the same token."""
    return _shared.get(source)
