"""OAUTHBEARER at the embedded broker: which tokens let a client in, as whom, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Producer

from kip848_client import Consumer
from kip848_client.errors import AuthenticationError, ConfigError, ErrorCode
from kip848_client.testing import BrokerSasl, EmbeddedBroker, Listener, ManualClock, unsecured_token
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.messages.metadata import MetadataRequest
from kip848_client.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kip848_client.wire.messages.sasl_handshake import SaslHandshakeRequest

BEARER: Final = ("OAUTHBEARER",)
NOW_S: Final = 1_700_000_000
"""Where the wall clock of a `ManualClock` begins."""
NOT_VALID: Final = b'{"status":"invalid_token"}'
SIGNED: Final = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4iLCJleHAiOjk5OTk5OTk5OTl9.c2lnbmF0dXJl"
ALLOWED: Final = "kip848.allow.unencrypted.credentials"
FAST: Final = {"connection.failed.authentication.delay.ms": 0}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(sasl=BrokerSasl(mechanisms=BEARER), config=FAST, clock=ManualClock()) as running:
        yield running


@pytest.fixture
def connection(broker: EmbeddedBroker) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap_servers) as opened:
        yield opened


def first_message(token: str, *, acting_as: str = "") -> bytes:
    return f"n,{acting_as},\x01auth=Bearer {token}\x01traceId=7\x01\x01".encode()


def say(connection: RawConnection, message: bytes) -> SaslAuthenticateResponse:
    return connection.ask(SaslAuthenticateRequest(auth_bytes=message), version=2)


def show(connection: RawConnection, token: str, **options: str) -> SaslAuthenticateResponse:
    """Log in with a token."""
    assert connection.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), version=1).error_code == 0
    return say(connection, first_message(token, **options))


def token_for(user: str, *, seconds: float = 60) -> str:
    return unsecured_token(user, expires_s=NOW_S + seconds)


def test_clients_log_in_with_tokens_that_their_oauth_cb_makes() -> None:
    """A service whose cluster has OAUTHBEARER is tested with its own oauth_cb; ACLs know it by the token's user."""
    with EmbeddedBroker({"orders": 1}, sasl=BrokerSasl(mechanisms=BEARER), acls=True) as broker:
        broker.acls.allow("ann", "WRITE", topic="orders")
        broker.acls.allow("bob", "READ", topic="orders")
        broker.acls.allow("bob", "READ", group="billing")

        def settings(user: str) -> dict[str, object]:
            expires_s = time.time() + 300
            return {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": broker.security_protocol,
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (unsecured_token(user, expires_s=expires_s), expires_s),
            }

        producer = Producer(settings("ann"))
        producer.produce("orders", b"tea")
        assert producer.flush(10) == 0
        conf = settings("bob") | {"group.id": "billing", "auto.offset.reset": "earliest", ALLOWED: True}
        with Consumer(conf) as consumer:
            consumer.subscribe(["orders"])
            message = consumer.poll(10)
        assert message is not None
        assert message.value() == b"tea"


def test_a_refused_token_is_final_for_our_client() -> None:
    """A token of another issuer does not get better by asking again."""
    with EmbeddedBroker({"orders": 1}, sasl=BrokerSasl(mechanisms=BEARER)) as broker:
        conf = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "billing",
            "security.protocol": broker.security_protocol,
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (SIGNED, time.time() + 300),
            ALLOWED: True,
        }
        with Consumer(conf) as consumer:
            consumer.subscribe(["orders"])
            with pytest.raises(AuthenticationError, match="invalid_token"):
                consumer.poll(10)


@pytest.mark.parametrize(
    "token",
    [
        "no-token",
        SIGNED,
        "e30.e30.",
        token_for("ann", seconds=0),
        token_for(""),
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4iLCJleHAiOiJzb29uIn0.",  # {"sub": "ann", "exp": "soon"}
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4iLCJleHAiOjk5OTk5OTk5OTksImlhdCI6OTk5OTk5OTk5OH0.",  # issued in the future
        token_for("ann").removesuffix("."),
        token_for("ann") + "c2ln",
    ],
)
def test_a_token_that_is_not_valid_is_refused_as_by_kafka(connection: RawConnection, token: str) -> None:
    """The broker says so in two steps (RFC 7628), and clients wait for the second; why, it keeps to itself."""
    challenge = show(connection, token)
    assert (challenge.error_code, challenge.auth_bytes) == (ErrorCode.NONE, NOT_VALID)
    refusal = say(connection, b"\x01")
    assert refusal.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert refusal.error_message == NOT_VALID.decode()
    assert connection.is_closed_by_peer()


@pytest.mark.parametrize("message", [b"", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"\xff" * 9])
def test_what_is_no_message_of_the_mechanism_is_refused(connection: RawConnection, message: bytes) -> None:
    """Any bytes are an answer or a refusal, and never an error inside the broker."""
    assert connection.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), version=1).error_code == 0
    assert say(connection, message).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_client_cannot_act_as_another_than_its_token_says(connection: RawConnection) -> None:
    """Otherwise any token would do for every user."""
    assert show(connection, token_for("ann"), acting_as="a=bob").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(("reauth_ms", "lifetime_ms"), [(0, 60_000), (5_000, 5_000), (90_000, 60_000)])
def test_a_session_ends_with_its_token(reauth_ms: int, lifetime_ms: int) -> None:
    """A token that has expired must not keep a connection; the client is told when to show a new one (KIP-368)."""
    config = {"connections.max.reauth.ms": reauth_ms} | FAST
    sasl = BrokerSasl(mechanisms=BEARER)
    with (
        EmbeddedBroker(sasl=sasl, config=config, clock=ManualClock()) as broker,
        RawConnection(broker.bootstrap_servers) as connection,
    ):
        assert show(connection, token_for("ann")).session_lifetime_ms == lifetime_ms
        broker.clock.advance(lifetime_ms - 1)
        assert show(connection, token_for("ann", seconds=300)).error_code == ErrorCode.NONE
        connection.ask(MetadataRequest(topics=()), version=12)
        broker.clock.advance(300_000)
        connection.send(MetadataRequest(topics=()), version=12)
        assert connection.is_closed_by_peer()


def test_a_session_does_not_pass_to_another_user(connection: RawConnection) -> None:
    """ACLs were asked for the first one."""
    assert show(connection, token_for("ann")).error_code == ErrorCode.NONE
    assert show(connection, token_for("bob")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_function_of_the_test_judges_tokens() -> None:
    """Signed tokens of the team's own issuer are checked with its library; whatever that raises is a refusal."""

    def validate(token: str) -> tuple[str, float]:
        answers = {"good": ("ann", NOW_S + 10), "old": ("ann", NOW_S), "endless": ("ann", float("inf"))}
        return answers[token]

    sasl = BrokerSasl({"bob": "secret"}, ("PLAIN", *BEARER), validate_token=validate)
    with EmbeddedBroker(sasl=sasl, config=FAST, clock=ManualClock()) as broker:
        answers = {}
        for token in ("good", "endless", "old", "unknown"):
            with RawConnection(broker.bootstrap_servers) as connection:
                answers[token] = show(connection, token)
    assert {token: answer.auth_bytes for token, answer in answers.items()} == {
        "good": b"",
        "endless": b"",
        "old": NOT_VALID,
        "unknown": NOT_VALID,
    }
    assert answers["good"].session_lifetime_ms == 10_000


def test_tokens_that_prove_nothing_are_for_this_machine_only() -> None:
    """Anyone in the network can make an unsecured token, and read one that is not encrypted."""
    with pytest.raises(ConfigError, match="validate_token"):
        EmbeddedBroker(
            listeners=[Listener("0.0.0.0", advertised_host="x")], allow_remote=True, sasl=BrokerSasl(mechanisms=BEARER)
        )
    sasl = BrokerSasl(mechanisms=BEARER, validate_token=lambda _: ("ann", 0.0))
    with pytest.raises(ConfigError, match="add TLS"):
        EmbeddedBroker(listeners=[Listener("0.0.0.0", advertised_host="x")], allow_remote=True, sasl=sasl)
