"""PLAIN and OAUTHBEARER without a network."""

from __future__ import annotations

import pytest

from kip848_client.common.model import OAuthToken
from kip848_client.errors import AuthenticationError, ConnectionLostError
from kip848_client.wire.sasl.mechanism import SaslRefusal
from kip848_client.wire.sasl.oauthbearer import OAuthBearerClient
from kip848_client.wire.sasl.plain import PlainClient, PlainServer


def test_plain_is_what_the_rfc_says() -> None:
    """No authorisation id, then name and password, as UTF-8."""
    client = PlainClient(username="jürgen", password="pöncil")
    assert client.first() == "\0jürgen\0pöncil".encode()
    client.answer(b"")
    with pytest.raises(AuthenticationError, match="none are allowed"):
        client.answer(b"well done")


@pytest.mark.parametrize("message", ["\0alice\0secret", "alice\0alice\0secret"])
def test_plain_lets_the_right_password_in(message: str) -> None:
    """Clients write PLAIN with or without an authorization id; both must be let in."""
    server = PlainServer({"alice": "secret"})
    assert server.answer(message.encode()) == b""
    assert server.user == "alice"


@pytest.mark.parametrize(
    "message",
    [
        b"\0alice\0wrong",
        b"\0alice\0",
        b"\0bob\0secret",
        b"\0\0",
        b"bob\0alice\0secret",
        b"alice\0secret",
        b"\0alice\0secret\0",
        b"\0\xff\0secret",
        b"",
    ],
)
def test_plain_refuses_everything_else(message: bytes) -> None:
    """The refusal does not say whether the name is known, nor repeats the password."""
    server = PlainServer({"alice": "secret"})
    with pytest.raises(SaslRefusal) as refusal:
        server.answer(message)
    assert "secret" not in str(refusal.value)
    assert server.user is None


def test_a_token_is_shown_as_the_rfc_says() -> None:
    """With its extensions, each ended by ^A (RFC 7628, KIP-342)."""
    client = OAuthBearerClient(OAuthToken("abc.def", 1.0, "alice", (("traceId", "7"),)))
    assert client.first() == b"n,,\x01auth=Bearer abc.def\x01traceId=7\x01\x01"
    client.answer(b"")


def test_a_refused_token_is_named_as_the_cause_and_not_shown() -> None:
    """The broker's reason helps; the token in it would be a leak."""
    client = OAuthBearerClient(OAuthToken("abc.def", 2e10))
    with pytest.raises(AuthenticationError, match=r"refused the token.*invalid_token"):
        client.answer(b'{"status":"invalid_token"}')
    with pytest.raises(AuthenticationError) as refusal:
        client.answer(b"no good: abc.def")
    assert "abc.def" not in str(refusal.value)
    assert "abc.def" not in repr(OAuthToken("abc.def", 1.0))


def test_a_token_that_expired_on_its_way_does_not_end_the_member() -> None:
    """A machine that paused for a second shows it too late; a refusal would be final, and the next token is good."""
    client = OAuthBearerClient(OAuthToken("abc.def", 1.0))
    with pytest.raises(ConnectionLostError, match="expired while it was shown") as failure:
        client.answer(b'{"status":"invalid_token"}')
    assert not isinstance(failure.value, AuthenticationError)
