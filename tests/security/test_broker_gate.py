"""The embedded broker's gate: what a connection may do before, during and after it has logged in."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip848_client.common.clock import ManualClock
from kip848_client.errors import ConfigError, ErrorCode
from kip848_client.testing import BrokerSasl, BrokerTls, EmbeddedBroker, Listener
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.codec import frame
from kip848_client.wire.messages.api_versions import ApiVersionsRequest
from kip848_client.wire.messages.describe_cluster import DescribeClusterRequest
from kip848_client.wire.messages.find_coordinator import FindCoordinatorRequest
from kip848_client.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kip848_client.wire.messages.sasl_handshake import SaslHandshakeRequest
from kip848_client.wire.sasl.scram import ScramClient

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
EVERY = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@contextmanager
def serving(config: Mapping[str, int] | None = None, *, clock: ManualClock | None = None) -> Iterator[EmbeddedBroker]:
    properties = {"connection.failed.authentication.delay.ms": 0} | dict(config or {})
    with EmbeddedBroker(sasl=BrokerSasl(USERS, EVERY), config=properties, clock=clock) as broker:
        yield broker


@contextmanager
def connected(config: Mapping[str, int], *, clock: ManualClock | None = None) -> Iterator[RawConnection]:
    """A connection to a broker with these properties."""
    with serving(config, clock=clock) as broker, RawConnection(broker.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with serving() as running:
        yield running


def handshake(connection: RawConnection, mechanism: str) -> int:
    return connection.ask(SaslHandshakeRequest(mechanism=mechanism), version=1).error_code


def say(connection: RawConnection, message: bytes) -> SaslAuthenticateResponse:
    return connection.ask(SaslAuthenticateRequest(auth_bytes=message), version=2)


def log_in(connection: RawConnection, user: str = "alice", *, mechanism: str = "PLAIN") -> SaslAuthenticateResponse:
    assert handshake(connection, mechanism) == 0
    if mechanism == "PLAIN":
        return say(connection, f"\0{user}\0{USERS[user]}".encode())
    client = ScramClient(mechanism, username=user, password=USERS[user], nonce="n")
    proof = client.answer(say(connection, client.first()).auth_bytes)
    assert proof is not None
    last = say(connection, proof)
    assert client.answer(last.auth_bytes) is None
    return last


def is_served(connection: RawConnection) -> bool:
    return bool(connection.ask(DescribeClusterRequest(), version=0).cluster_id)


@pytest.mark.parametrize("mechanism", EVERY)
def test_who_logs_in_is_served(connection: RawConnection, mechanism: str) -> None:
    """Versions may be asked for before; everything else after."""
    assert connection.ask(VERSIONS, version=3).error_code == 0
    answer = log_in(connection, mechanism=mechanism)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert is_served(connection)


@pytest.mark.parametrize("said_before", ["nothing", "versions", "handshake", "half of a login"])
def test_a_request_before_the_login_closes_the_connection(
    broker: EmbeddedBroker, connection: RawConnection, said_before: str
) -> None:
    """However far a stranger comes, nothing but the login is taken."""
    if said_before == "versions":
        connection.ask(VERSIONS, version=3)
    if said_before in ("handshake", "half of a login"):
        handshake(connection, "SCRAM-SHA-256")
    if said_before == "half of a login":
        say(connection, b"n,,n=alice,r=abc")
    connection.send(FindCoordinatorRequest(key="g"), version=0)
    assert connection.is_closed_by_peer()
    assert not broker.requests.of("FindCoordinator")


def test_a_stranger_cannot_make_the_broker_take_memory(broker: EmbeddedBroker) -> None:
    """The limit before the login is small, and is checked on the first four bytes; after it large requests are fine."""
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.socket.sendall(struct.pack(">i", 524_289))
        assert connection.is_closed_by_peer()
    with RawConnection(broker.bootstrap_servers) as connection:
        log_in(connection)
        many = FindCoordinatorRequest(key_type=0, coordinator_keys=tuple(f"group-{n:0>200}" for n in range(3_000)))
        assert len(connection.ask(many, version=4).coordinators) == 3_000


def test_a_stranger_that_says_nothing_is_sent_away() -> None:
    """Connections are limited; who does not log in must not hold one."""
    with connected({"kip848.authentication.max.ms": 50}) as connection:
        assert connection.is_closed_by_peer()


def test_who_has_logged_in_may_stay() -> None:
    """The time limit closes connections that never log in, and must not cut off clients that did."""
    with serving({"kip848.authentication.max.ms": 200}) as broker:
        with RawConnection(broker.bootstrap_servers) as known, RawConnection(broker.bootstrap_servers) as stranger:
            log_in(known)
            assert stranger.is_closed_by_peer()
            assert is_served(known)


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("PLAIN", b"\0alice\0bob-secret"),
        ("PLAIN", b"\0nobody\0alice-secret"),
        ("PLAIN", b"garbage"),
        ("SCRAM-SHA-256", b"garbage"),
    ],
)
def test_a_wrong_login_is_told_and_the_connection_closed(
    connection: RawConnection, mechanism: str, message: bytes
) -> None:
    """Clients show the reason; no second try on one connection. Nothing secret is in the answer."""
    handshake(connection, mechanism)
    answer = say(connection, message)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "secret" not in (answer.error_message or "")
    assert connection.is_closed_by_peer()


def test_a_wrong_proof_is_told_after_a_while_and_nothing_is_taken_meanwhile() -> None:
    """``connection.failed.authentication.delay.ms`` keeps an attacker from trying passwords quickly."""
    with connected({"connection.failed.authentication.delay.ms": 50}) as connection:
        handshake(connection, "PLAIN")
        connection.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), version=2)
        connection.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), version=2)
        answer = connection.read(SaslAuthenticateRequest())
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert connection.is_closed_by_peer()


def test_a_wrong_password_of_an_old_client_closes_the_connection_after_the_same_while() -> None:
    """Clients from before Kafka 1.0 have no place for a reason; passwords cannot be tried quickly that way either."""
    with connected({"connection.failed.authentication.delay.ms": 300_000}) as connection:
        connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), version=0)
        connection.socket.sendall(frame(b"\0alice\0wrong"))
        connection.socket.sendall(frame(b"\0alice\0alice-secret"))
        connection.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.socket.recv(1)


def test_a_login_does_not_reveal_which_users_exist(broker: EmbeddedBroker) -> None:
    """A made-up user gets a challenge like anybody else, and the same salt when asked again."""
    salts = []
    for user in ("nobody", "nobody", "alice"):
        with RawConnection(broker.bootstrap_servers) as connection:
            handshake(connection, "SCRAM-SHA-256")
            client = ScramClient("SCRAM-SHA-256", username=user, password="guess", nonce="n")
            challenge = say(connection, client.first()).auth_bytes.decode()
            assert challenge.endswith(",i=4096")
            salts.append(challenge.split(",")[1])
            proof = client.answer(challenge.encode())
            assert proof is not None
            answer = say(connection, proof)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "invalid credentials" in (answer.error_message or "")
    assert salts[0] == salts[1] != salts[2]
    assert len(salts[0]) == len(salts[2])


def test_an_unknown_mechanism_is_answered_with_those_there_are(connection: RawConnection) -> None:
    """A client can then say which one to set."""
    answer = connection.ask(SaslHandshakeRequest(mechanism="GSSAPI"), version=1)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, EVERY)
    assert connection.is_closed_by_peer()


def test_requests_of_sasl_out_of_order_are_answered_so(broker: EmbeddedBroker) -> None:
    """A second handshake, a second login; or the connection is closed, as Kafka does."""
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.send(SaslAuthenticateRequest(auth_bytes=b"x"), version=2)
        assert connection.is_closed_by_peer()
    with RawConnection(broker.bootstrap_servers) as connection:
        handshake(connection, "PLAIN")
        assert handshake(connection, "PLAIN") == ErrorCode.ILLEGAL_SASL_STATE
        assert connection.is_closed_by_peer()
    with RawConnection(broker.bootstrap_servers) as connection:
        log_in(connection)
        assert say(connection, b"x").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert handshake(connection, "PLAIN") == ErrorCode.ILLEGAL_SASL_STATE
        assert is_served(connection)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_clients_from_before_kafka_1_0_log_in_as_they_did(connection: RawConnection, mechanism: str) -> None:
    """After SaslHandshake version 0 the mechanism's bytes come bare."""
    assert connection.ask(SaslHandshakeRequest(mechanism=mechanism), version=0).error_code == 0
    if mechanism == "PLAIN":
        connection.socket.sendall(frame(b"\0alice\0alice-secret"))
        assert connection.read_frame() == b""
    else:
        client = ScramClient(mechanism, username="alice", password="alice-secret", nonce="n")
        connection.socket.sendall(frame(client.first()))
        proof = client.answer(connection.read_frame())
        assert proof is not None
        connection.socket.sendall(frame(proof))
        assert client.answer(connection.read_frame()) is None
    assert is_served(connection)


def test_the_old_way_has_no_words_for_a_refusal(connection: RawConnection) -> None:
    """SaslHandshake version 0 has no error message: as in Kafka, the connection is closed."""
    connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), version=0)
    connection.socket.sendall(frame(b"\0alice\0wrong"))
    assert connection.is_closed_by_peer()


MECHANISM = st.sampled_from([*EVERY, "GSSAPI", ""])
TOKEN = st.sampled_from([b"\0alice\0alice-secret", b"\0alice\0bob-secret", b"n,,n=alice,r=abc", b""]) | st.binary()
STEP = st.one_of(
    st.builds(SaslHandshakeRequest, mechanism=MECHANISM),
    st.builds(SaslAuthenticateRequest, auth_bytes=TOKEN),
    st.just(VERSIONS),
    st.just(DescribeClusterRequest()),
)


@given(steps=st.lists(STEP, min_size=1, max_size=6), reauth_ms=st.sampled_from([0, 60_000]))
@settings(max_examples=60, deadline=None)
def test_only_the_right_password_opens_the_gate(
    steps: list[SaslHandshakeRequest | SaslAuthenticateRequest | ApiVersionsRequest | DescribeClusterRequest],
    reauth_ms: int,
) -> None:
    """No order of requests, and no bytes, may lead past the login."""
    right = b"\0alice\0alice-secret"
    with connected({"connections.max.reauth.ms": reauth_ms}) as connection:
        plain, known = False, False
        for step in steps:
            try:
                answer = connection.ask(step, version=1 if isinstance(step, SaslHandshakeRequest) else 0)
            except (EOFError, ConnectionError):
                return
            code: int = getattr(answer, "error_code")  # noqa: B009  every answer here has one
            match step:
                case SaslHandshakeRequest(mechanism=mechanism) if not code:
                    plain, known = mechanism == "PLAIN", False
                case SaslAuthenticateRequest(auth_bytes=said) if not code:
                    known = plain and said == right
                case DescribeClusterRequest():
                    assert known


# --- sessions that end (KIP-368)


def test_a_session_ends_with_the_first_request_after_its_time() -> None:
    """A user who was removed must not stay for ever on an old connection."""
    clock = ManualClock()
    with connected({"connections.max.reauth.ms": 1_000}, clock=clock) as connection:
        assert log_in(connection).session_lifetime_ms == 1_000
        clock.advance(999)
        assert is_served(connection)
        clock.advance(1)
        connection.send(DescribeClusterRequest(), version=0)
        assert connection.is_closed_by_peer()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_session_is_renewed_on_the_same_connection(mechanism: str) -> None:
    """Also when it has just ended: only other requests close the connection."""
    clock = ManualClock()
    with connected({"connections.max.reauth.ms": 1_000}, clock=clock) as connection:
        log_in(connection, mechanism=mechanism)
        for _ in range(3):
            clock.advance(1_500)
            assert log_in(connection, mechanism=mechanism).session_lifetime_ms == 1_000
            assert is_served(connection)


def test_nothing_else_is_taken_while_a_session_is_renewed() -> None:
    """Between the two requests of a login the sender is unknown."""
    with connected({"connections.max.reauth.ms": 60_000}) as connection:
        log_in(connection)
        handshake(connection, "PLAIN")
        connection.send(DescribeClusterRequest(), version=0)
        assert connection.is_closed_by_peer()


def test_a_session_cannot_pass_to_another_user_or_mechanism() -> None:
    """A connection belongs to one principal for its whole life."""
    with serving({"connections.max.reauth.ms": 60_000}) as broker:
        with RawConnection(broker.bootstrap_servers) as connection:
            log_in(connection, "alice")
            answer = log_in(connection, "bob")
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert connection.is_closed_by_peer()
        with RawConnection(broker.bootstrap_servers) as connection:
            log_in(connection, "alice")
            assert handshake(connection, "SCRAM-SHA-256") == ErrorCode.ILLEGAL_SASL_STATE
            assert connection.is_closed_by_peer()


def test_users_can_be_replaced_and_stay_so_after_a_restart(broker: EmbeddedBroker) -> None:
    """Sessions that are open stay; the next login is by the new password."""
    with RawConnection(broker.bootstrap_servers) as old:
        log_in(old)
        broker.set_users({"alice": "new", "carol": "c"})
        assert is_served(old)
    broker.stop()
    broker.start()
    for message, code in (
        (b"\0alice\0alice-secret", ErrorCode.SASL_AUTHENTICATION_FAILED),
        (b"\0bob\0bob-secret", ErrorCode.SASL_AUTHENTICATION_FAILED),
        (b"\0alice\0new", 0),
        (b"\0carol\0c", 0),
    ):
        with RawConnection(broker.bootstrap_servers) as connection:
            handshake(connection, "PLAIN")
            assert say(connection, message).error_code == code
    with pytest.raises(ConfigError):
        broker.set_users({})
    with pytest.raises(ConfigError, match="demands no login"):
        EmbeddedBroker().set_users(USERS)


# --- admission


ANYWHERE = "0.0.0.0"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "allow_remote"),
        ({"allow_remote": True}, "needs authentication"),
        ({"allow_remote": True, "tls": "server"}, "needs authentication"),
        ({"allow_remote": True, "sasl": ("PLAIN",)}, "PLAIN shows passwords"),
        ({"allow_remote": True, "sasl": ("SCRAM-SHA-256",)}, "advertised_host"),
        ({"allow_remote": True, "tls": "strict"}, "advertised_host"),
    ],
)
def test_others_are_served_only_with_authentication(
    given: dict[str, object], told: str, server_identity: object
) -> None:
    """A test broker on a laptop in a café must not be open to the café."""
    path = Path(__file__)
    tls = {"server": BrokerTls(path), "strict": BrokerTls(path, client_ca=path)}.get(str(given.pop("tls", "")))
    mechanisms = given.pop("sasl", None)
    sasl = BrokerSasl(USERS, mechanisms) if isinstance(mechanisms, tuple) else None
    with pytest.raises(ConfigError, match=told):
        EmbeddedBroker(listeners=[Listener(ANYWHERE)], tls=tls, sasl=sasl, **given)  # type: ignore[arg-type]


def test_a_broker_for_others_tells_clients_its_advertised_host() -> None:
    """0.0.0.0 is not an address that clients can connect to."""
    sasl = BrokerSasl(USERS)
    listener = Listener(ANYWHERE, advertised_host="127.0.0.1")
    with EmbeddedBroker(listeners=[listener], allow_remote=True, sasl=sasl) as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{broker.port}"
        with RawConnection(broker.bootstrap_servers) as connection:
            log_in(connection, mechanism="SCRAM-SHA-256")
            cluster = connection.ask(DescribeClusterRequest(), version=0)
        assert [node.host for node in cluster.brokers] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("users", "mechanisms"),
    [({}, EVERY), ({"": "x"}, EVERY), ({"a": ""}, EVERY), ({"a": "x\0"}, EVERY), (USERS, ()), (USERS, ("GSSAPI",))],
)
def test_users_and_mechanisms_that_make_no_sense_are_refused(
    users: dict[str, str], mechanisms: tuple[str, ...]
) -> None:
    """A wrong user or mechanism is refused at the start, without a password in message or repr."""
    with pytest.raises(ConfigError) as refusal:
        BrokerSasl(users, mechanisms)
    assert "secret" not in str(refusal.value)
    assert "secret" not in repr(BrokerSasl(USERS))
