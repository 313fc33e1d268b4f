"""When a source is asked for a new token, and what is shown meanwhile: on a clock that tests move."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from kip848_client.common.model import OAuthToken
from kip848_client.errors import AuthenticationError, ConnectionLostError, Kip848Error
from kip848_client.logins.oauth_tokens import OAuthTokens
from tests.support.waiting import TIMEOUT_S, wait_until

LIFE_S: Final = 100.0


class Source:
    """Issues ``token1``, ``token2`` and so on, which live for `LIFE_S`; fails while `failure` is set."""

    name = "the source"

    def __init__(self) -> None:
        self.failure: Kip848Error | None = None
        self.asked = 0
        self.issued = 0
        self.changed = False
        self.gate = threading.Event()
        self.gate.set()
        self.when_looked_at: Callable[[], None] | None = None

    def fetch(self, now_s: float) -> OAuthToken:
        self.asked += 1
        assert self.gate.wait(60)
        if self.failure is not None:
            raise self.failure
        self.issued += 1
        self.changed = False
        return OAuthToken(f"token{self.issued}", now_s + LIFE_S)

    def has_changed(self) -> bool:
        if (look := self.when_looked_at) is not None:
            self.when_looked_at = None
            look()
        return self.changed


class Clock:
    """Wall clock and waits of one `OAuthTokens`."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.waiting = False

    def __call__(self) -> float:
        return self.now_s

    def wait(self, condition: threading.Condition, _seconds: float) -> None:
        self.waiting = True
        condition.wait(0.02)  # the caller looks at the clock again, which a test may have moved by then
        self.waiting = False

    def advance(self, seconds: float) -> None:
        """Move on; a renewal that waits for its next attempt sees it soon."""
        self.now_s += seconds


@pytest.fixture
def clock() -> Iterator[Clock]:
    moved = Clock()
    yield moved
    moved.advance(1e6)  # ends a renewal that still waits


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def tokens(source: Source, clock: Clock) -> OAuthTokens:
    return OAuthTokens(source, now_s=clock, wait=clock.wait)


def test_an_issuer_that_is_away_does_not_end_a_login_before_its_time(
    tokens: OAuthTokens, source: Source, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A token service that restarts would end every member that opens a connection in that minute."""
    assert tokens.token().value == "token1"
    source.failure = ConnectionLostError("the issuer is away")
    clock.advance(80)
    assert tokens.token().value == "token1"
    wait_until(lambda: clock.waiting, what="the pause before the next attempt")
    assert "consumer.oauth_failed" in caplog.text
    assert tokens.token().value == "token1"
    assert source.asked == 2  # the second ask did not reach the issuer
    source.failure = None
    clock.advance(2)
    wait_until(lambda: source.issued == 2, what="a second token")
    wait_until(lambda: tokens.token().value == "token2", what="it in use")


def test_pauses_between_attempts_grow(tokens: OAuthTokens, source: Source, clock: Clock) -> None:
    """A thousand clients that ask an issuer every second keep it from coming back."""
    tokens.token()
    source.failure = ConnectionLostError("away")
    clock.advance(80)
    tokens.token()
    pauses = []
    for attempt in range(2, 5):
        wait_until(lambda: clock.waiting and source.asked == attempt, what="a pause")  # noqa: B023
        pause = 0
        while source.asked == attempt:
            pause += 1
            clock.advance(1)
            wait_until(lambda: clock.waiting or source.asked > attempt, what="its answer")  # noqa: B023
            if pause >= 2 ** (attempt - 2):
                wait_until(lambda: source.asked > attempt, what="the next attempt")  # noqa: B023
        pauses.append(pause)
    assert pauses == [1, 2, 4]


def test_a_refusal_counts_only_when_the_last_token_has_expired(
    tokens: OAuthTokens, source: Source, clock: Clock
) -> None:
    """A secret that was changed at the issuer first must not stop members that are still logged in."""
    tokens.token()
    source.failure = AuthenticationError("wrong secret")
    clock.advance(89)
    assert tokens.token().value == "token1"
    wait_until(lambda: clock.waiting, what="the pause before the next attempt")
    clock.advance(1)  # with a tenth of its life left it could end on its way to a broker, whose no is final
    with pytest.raises(AuthenticationError, match="wrong secret"):
        tokens.token()


def test_without_a_token_the_last_failure_is_told_until_the_pause_is_over(
    tokens: OAuthTokens, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    """Each attempt to connect to each broker would be a question to the issuer, and a line in the log."""
    source.failure = ConnectionLostError("away")
    for _ in range(3):
        with pytest.raises(ConnectionLostError, match="away"):
            tokens.token()
    assert source.asked == 1
    assert caplog.text.count("consumer.oauth_failed") == 1
    source.failure = None
    assert tokens.token(now=True).value == "token1"  # a new client asks at once


def test_a_file_that_changed_is_read_although_its_token_is_good(tokens: OAuthTokens, source: Source) -> None:
    """Kubernetes writes a new token long before the old one ends; the old one may have been revoked."""
    assert tokens.token().value == "token1"
    source.changed = True
    assert tokens.token().value == "token2"


def test_one_thread_asks_for_many(tokens: OAuthTokens, source: Source) -> None:
    """Fifty consumers of a process that start together would ask fifty times."""
    source.gate.clear()
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(tokens.token().value)) for _ in range(20)]
    for thread in threads:
        thread.start()
    source.gate.set()
    for thread in threads:
        thread.join()
    assert set(found) == {"token1"}
    assert source.asked == 1


def test_an_error_that_nobody_foresaw_reaches_those_who_wait(tokens: OAuthTokens, source: Source) -> None:
    """Otherwise the consumer would wait for ever, and its thread's traceback would show the question."""

    def broken(_now_s: float) -> OAuthToken:
        raise RuntimeError("canary")

    source.fetch = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(ConnectionLostError, match="the source raised RuntimeError") as failure:
        tokens.token()
    assert "canary" not in str(failure.value)


def ask_in_another_thread(tokens: OAuthTokens) -> bool:
    """Whether another thread gets a token while this one is where it is."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(tokens.token().value), daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    return bool(found)


def test_a_log_handler_that_waits_for_a_client_gets_its_token(
    tokens: OAuthTokens, source: Source, clock: Clock
) -> None:
    """A handler that sends the log to Kafka would stand still for good, and every login of the process with it."""
    answers: list[bool] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "oauth_failed" in record.getMessage():
                answers.append(ask_in_another_thread(tokens))

    tokens.token()
    handler = Handler()
    logging.getLogger("kip848_client").addHandler(handler)
    try:
        source.failure = ConnectionLostError("away")
        clock.advance(80)
        tokens.token()
        wait_until(lambda: bool(answers), what="the log")
    finally:
        logging.getLogger("kip848_client").removeHandler(handler)
    assert answers == [True]


def test_a_slow_look_at_a_token_file_holds_up_no_other_client(tokens: OAuthTokens, source: Source) -> None:
    """The file may lie on a share that hangs, and a signal handler that interrupts the look closes its consumer."""
    answers: list[bool] = []
    tokens.token()
    source.when_looked_at = lambda: answers.append(ask_in_another_thread(tokens))
    tokens.token()
    assert answers == [True]
