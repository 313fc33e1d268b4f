"""What new connections log in with; the token callback runs on a thread of its own and may take its time."""

from __future__ import annotations

import logging
import threading

import anyio
import pytest

from kip848_client.common.model import OAuthToken, SaslSettings
from kip848_client.errors import AuthenticationError, ConnectionLostError, RequestTimeoutError
from kip848_client.logins.callback import CallbackSource
from kip848_client.logins.oauth_tokens import OAuthTokens
from kip848_client.network.credentials import Credentials

TOKEN = OAuthToken("abc", 2e10)


async def make(credentials: Credentials) -> bytes:
    return (await credentials()).first()


def test_each_scram_login_has_a_nonce_of_its_own() -> None:
    """A repeated nonce would let a recorded answer of the broker pass."""
    credentials = Credentials(SaslSettings("SCRAM-SHA-256", "alice", "canary"), token_timeout_ms=1_000)
    said = {anyio.run(make, credentials) for _ in range(5)}
    assert len(said) == 5
    assert all(message.startswith(b"n,,n=alice,r=") for message in said)


def test_plain_shows_name_and_password() -> None:
    """With ``sasl.mechanism=PLAIN`` the broker receives exactly the name and password of the configuration."""
    credentials = Credentials(SaslSettings("PLAIN", "alice", "canary"), token_timeout_ms=1_000)
    assert anyio.run(make, credentials) == b"\0alice\0canary"


def test_the_callback_runs_on_a_daemon_thread_while_the_loop_goes_on() -> None:
    """Heartbeats must not wait for a token server."""
    seen: list[threading.Thread] = []
    release = threading.Event()

    def fetch() -> OAuthToken:
        seen.append(threading.current_thread())
        assert release.wait(60)
        return TOKEN

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(make, Credentials(SaslSettings("OAUTHBEARER", token=fetch), token_timeout_ms=10_000))
            while not seen:  # noqa: ASYNC110  set by a thread
                await anyio.sleep(0.001)  # asked again until the time limit of the test
            release.set()  # set by the loop, which is therefore free

    anyio.run(main)
    assert seen[0] is not threading.current_thread()
    assert seen[0].daemon


def test_a_callback_that_hangs_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """Its thread is left behind; whatever it returns later is dropped."""
    release, ended = threading.Event(), threading.Event()

    def fetch() -> OAuthToken:
        release.wait(60)
        ended.set()
        return TOKEN

    credentials = Credentials(SaslSettings("OAUTHBEARER", token=fetch), token_timeout_ms=20)
    with caplog.at_level(logging.WARNING), pytest.raises(RequestTimeoutError, match="oauth_cb gave no token in 20 ms"):
        anyio.run(make, credentials)
    assert "consumer.oauth_failed" in caplog.text
    release.set()
    assert ended.wait(60)


@pytest.mark.parametrize(
    ("raised", "seen_as"),
    [
        (OSError("https://user:canary@issuer"), ConnectionLostError),
        (TimeoutError("canary"), ConnectionLostError),
        (AuthenticationError("closed account"), AuthenticationError),
    ],
)
def test_what_the_callback_raises_is_logged_without_its_words(
    raised: Exception, seen_as: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """Errors of HTTP libraries contain URLs, and URLs contain secrets."""

    def callback(_: str | None) -> tuple[str, float]:
        raise raised

    settings = SaslSettings("OAUTHBEARER", token=OAuthTokens(CallbackSource(callback, None)).token)
    with caplog.at_level(logging.DEBUG), pytest.raises(seen_as):
        anyio.run(make, Credentials(settings, token_timeout_ms=10_000))
    assert "consumer.oauth_failed" in caplog.text
    assert "canary" not in caplog.text
