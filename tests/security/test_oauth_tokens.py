"""One source of tokens for both planes: when the callback is asked again, and what it may return."""

from __future__ import annotations

import threading

import pytest

from kip848_client.errors import AuthenticationError, ConnectionLostError, OutOfResourcesError
from kip848_client.logins.callback import CallbackSource, read_token
from kip848_client.logins.oauth_tokens import OAuthTokens
from tests.support.waiting import TIMEOUT_S, wait_until


class Issuer:
    """An ``oauth_cb`` whose tokens last 100 s, and the wall clock that it lives by."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.asked_with: list[str | None] = []

    def __call__(self, config: str | None) -> tuple[str, float, str, dict[str, str]]:
        self.asked_with.append(config)
        return f"token{len(self.asked_with)}", self.now_s + 100, "alice", {"tenant": "t"}

    def clock(self) -> float:
        return self.now_s


def test_both_planes_get_the_same_token_until_three_quarters_of_its_life() -> None:
    """If each plane asked for itself, they could be two different users to the broker."""
    issuer = Issuer()
    tokens = OAuthTokens(CallbackSource(issuer, "scope=x"), now_s=issuer.clock)
    assert tokens.token().value == "token1"
    issuer.now_s += 74
    assert tokens("ignored") == ("token1", 1_100.0, "alice", {"tenant": "t"})
    issuer.now_s += 1
    assert tokens() == ("token2", 1_175.0, "alice", {"tenant": "t"})
    assert tokens.token().value == "token2"
    assert issuer.asked_with == ["scope=x", "scope=x"]


def test_the_callback_is_never_called_twice_at_the_same_time() -> None:
    """A user's callback need not be safe for threads."""
    inside = threading.Semaphore(1)
    overlaps = []

    def callback(_: str | None) -> tuple[str, float]:
        overlaps.append(not inside.acquire(blocking=False))
        inside.release()
        return "t", 2e10

    tokens = OAuthTokens(CallbackSource(callback, None))
    threads = [threading.Thread(target=tokens.token) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == [False]


def test_a_callback_that_raises_may_do_better_later_and_its_words_are_not_repeated() -> None:
    """A token server that is away for a minute must not end the member; its error may contain the client's secret."""

    def callback(_: str | None) -> tuple[str, float]:
        raise OSError("https://user:canary@issuer refused")

    with pytest.raises(ConnectionLostError, match="oauth_cb raised OSError") as failure:
        OAuthTokens(CallbackSource(callback, None)).token()
    assert not isinstance(failure.value, AuthenticationError)
    assert "canary" not in str(failure.value)


def test_a_callback_may_say_itself_that_it_is_of_no_use_to_try_again() -> None:
    """AuthenticationError is fatal to the member, and comes out as it went in."""

    def callback(_: str | None) -> tuple[str, float]:
        raise AuthenticationError("the account is closed")

    with pytest.raises(AuthenticationError, match="the account is closed"):
        OAuthTokens(CallbackSource(callback, None)).token()


def test_an_expired_token_is_not_shown_to_a_broker() -> None:
    """A clock that is wrong, or a cache that is stale: said in words before the broker says no."""
    with pytest.raises(ConnectionLostError, match="expired 5 s ago"):
        OAuthTokens(CallbackSource(lambda _: ("t", 95.0), None), now_s=lambda: 100.0).token()


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ("canary", "returned str; it must return"),
        (None, "returned NoneType"),
        (("canary",), "must return"),
        (("canary", 1.0, "p", {}, 5), "must return"),
        (("", 1.0), "not printable ASCII"),
        (("can ary", 1.0), "not printable ASCII"),
        (("canary\x01auth=x", 1.0), "not printable ASCII"),
        ((b"canary", 1.0), "not printable ASCII"),
        (("canary", "tomorrow"), "expiry of type str"),
        (("canary", True), "expiry of type bool"),
        (("canary", 1_795_765_095_000), "as if in milliseconds"),  # it would never be renewed
        (("canary", 1.0, 5), "principal of type int"),
        (("canary", 1.0, "p", [1]), "extensions of type list"),
        (("canary", 1.0, "p", {"auth": "x"}), "extension"),
        (("canary", 1.0, "p", {"a=b": "x"}), "extension"),
        (("canary", 1.0, "p", {"a": "x\x01y"}), "extension"),
    ],
)
def test_what_is_no_token_is_refused_without_being_shown(returned: object, told: str) -> None:
    """The author of the callback learns what is wrong; the log does not learn the token."""
    with pytest.raises(AuthenticationError, match=told) as refusal:
        read_token(returned)
    assert "canary" not in str(refusal.value)


def test_who_waits_for_a_renewal_that_could_not_begin_begins_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process had no thread left for a moment: the other one, which has no token, would wait for ever."""
    tokens = OAuthTokens(CallbackSource(lambda _: ("t", 2e10), None))
    got: list[str] = []
    other = threading.Thread(target=lambda: got.append(tokens.token().value), daemon=True)

    class NoThread:
        def start(self) -> None:
            monkeypatch.undo()
            other.start()
            wait_until(lambda: tokens._changed._waiters)  # type: ignore[attr-defined]
            raise OutOfResourcesError("no more threads")

    monkeypatch.setattr("kip848_client.logins.oauth_tokens.daemon_thread", lambda *_: NoThread())
    with pytest.raises(OutOfResourcesError):
        tokens.token()
    other.join(TIMEOUT_S)
    assert got == ["t"]
