"""SCRAM, both sides, without a network: published examples, a third implementation, and all that is refused."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
import scramp
from hypothesis import given
from hypothesis import strategies as st

from kip848_client.errors import AuthenticationError
from kip848_client.wire.sasl.mechanism import SaslRefusal
from kip848_client.wire.sasl.scram import SCRAM_MECHANISMS, ScramClient, ScramCredential, ScramServer, make_credential

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PASSWORD = "pencil"

mechanisms = pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)


def a_client(mechanism: str = "SCRAM-SHA-256", *, password: str = PASSWORD, nonce: str = "clientnonce") -> ScramClient:
    return ScramClient(mechanism, username="user", password=password, nonce=nonce)


def a_server(
    mechanism: str = "SCRAM-SHA-256", *, password: str = PASSWORD, nonce: str = "servernonce", iterations: int = 4096
) -> ScramServer:
    credential = make_credential(mechanism, password, salt=SALT, iterations=iterations)
    return ScramServer(mechanism, lambda _: credential, nonce=nonce)


def after_first(client: ScramClient, server_first: str) -> bytes | None:
    client.first()
    return client.answer(server_first.encode())


def test_the_example_of_rfc_7677_comes_out_byte_for_byte() -> None:
    """If this fails, no broker but our own would let us in."""
    client = ScramClient("SCRAM-SHA-256", username="user", password="pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    proof = client.answer(b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert proof == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def test_the_server_tells_the_example_of_rfc_7677() -> None:
    """The embedded broker must be a server to every client, not only to ours."""
    server = a_server(nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert server.answer(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    last = server.answer(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


@mechanisms
def test_another_implementation_of_the_server_lets_our_client_in(mechanism: str) -> None:
    """Two of our own that agree could be wrong together."""
    oracle = scramp.ScramMechanism(mechanism)
    kept = oracle.make_auth_info(PASSWORD, salt=SALT, iteration_count=4096)
    server = oracle.make_server(lambda _: kept)
    client = a_client(mechanism)
    server.set_client_first(client.first().decode())
    proof = client.answer(server.get_server_first().encode())
    assert proof is not None
    server.set_client_final(proof.decode())
    assert client.answer(server.get_server_final().encode()) is None


@mechanisms
def test_another_implementation_of_the_client_is_let_in_by_our_server(mechanism: str) -> None:
    """A SCRAM client that we did not write can log in to the embedded broker."""
    client = scramp.ScramClient([mechanism], "user", PASSWORD)
    server = a_server(mechanism)
    client.set_server_first(server.answer(client.get_client_first().encode()).decode())
    client.set_server_final(server.answer(client.get_client_final().encode()).decode())
    assert server.user == "user"


names = st.text(min_size=1).filter(lambda text: "\0" not in text)


@given(name=names, password=names, mechanism=st.sampled_from(sorted(SCRAM_MECHANISMS)))
def test_any_name_and_password_works(name: str, password: str, mechanism: str) -> None:
    """Commas and equals signs in a name must be escaped; spaces and letters beyond ASCII go through as they are."""
    credential = make_credential(mechanism, password, salt=b"salt", iterations=4096)
    asked: list[str] = []

    def credential_of(user: str) -> ScramCredential:
        asked.append(user)
        return credential

    server = ScramServer(mechanism, credential_of, nonce="s")
    client = ScramClient(mechanism, username=name, password=password, nonce="c")
    proof = client.answer(server.answer(client.first()))
    assert proof is not None
    assert client.answer(server.answer(proof)) is None
    assert server.user == name
    assert asked == [name]


@mechanisms
def test_a_wrong_password_is_refused_without_saying_what_was_wrong(mechanism: str) -> None:
    """An attacker learns nothing from the refusal, and neither password is in it."""
    client, server = a_client(mechanism, password="wrong-canary"), a_server(mechanism, password="right-canary")
    proof = client.answer(server.answer(client.first()))
    assert proof is not None
    with pytest.raises(SaslRefusal, match="invalid credentials") as refusal:
        server.answer(proof)
    assert "canary" not in str(refusal.value)
    assert server.user is None


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    """A server that took over the broker's address must be refused: this is what SCRAM has over PLAIN."""
    client = a_client()
    client.first()
    client.answer(b"r=clientnonceX,s=c2FsdA==,i=4096")
    with pytest.raises(AuthenticationError, match="signature is wrong"):
        client.answer(b"v=" + base64.b64encode(bytes(32)))


def test_the_servers_last_word_of_another_conversation_is_refused() -> None:
    """A recorded signature must not open a second connection."""
    recorded = a_server()
    first = a_client()
    proof = first.answer(recorded.answer(first.first()))
    assert proof is not None
    last = recorded.answer(proof)
    assert first.answer(last) is None

    second = a_client(nonce="anothernonce")
    second.answer(a_server(nonce="others").answer(second.first()))
    with pytest.raises(AuthenticationError, match="signature is wrong"):
        second.answer(last)


def test_the_servers_last_word_said_twice_is_refused() -> None:
    """Nothing may follow the end of a conversation."""
    client, server = a_client(), a_server()
    proof = client.answer(server.answer(client.first()))
    assert proof is not None
    last = server.answer(proof)
    client.answer(last)
    with pytest.raises(AuthenticationError, match="says more although the conversation is over"):
        client.answer(last)
    with pytest.raises(SaslRefusal, match="says more although the conversation is over"):
        server.answer(proof)


@pytest.mark.parametrize(
    ("server_first", "told"),
    [
        ("r=othernonce,s=c2FsdA==,i=4096", "does not continue ours"),
        ("r=clientnonce,s=c2FsdA==,i=4096", "does not continue ours"),
        ("r=clientnonceX,s=c2FsdA==,i=4095", "4096 are the least"),
        ("r=clientnonceX,s=c2FsdA==,i=1", "4096 are the least"),
        ("r=clientnonceX,s=c2FsdA==,i=131073", "131072 are the most"),
        ("r=clientnonceX,s=c2FsdA==,i=99999999999999999999", "not a number"),
        ("r=clientnonceX,s=c2FsdA==,i=-5000", "not a number"),
        ("r=clientnonceX,s=c2FsdA==,i=", "not a number"),
        ("r=clientnonceX,s=,i=4096", "no salt"),
        ("r=clientnonceX,s=***,i=4096", "not base64"),
        ("r=clientnonceX\x07,s=c2FsdA==,i=4096", "not allowed"),
        ("m=must,r=clientnonceX,s=c2FsdA==,i=4096", "'r' is not where"),
        ("s=c2FsdA==,r=clientnonceX,i=4096", "'r' is not where"),
        ("r=clientnonceX", "too short"),
        ("", "too short"),
    ],
)
def test_a_first_answer_that_breaks_the_rules_is_refused(server_first: str, told: str) -> None:
    """Each of these is a way to make the client prove something to the wrong one, or to keep it busy for an hour."""
    with pytest.raises(AuthenticationError, match=told):
        after_first(a_client(), server_first)


def test_the_servers_own_word_of_refusal_is_passed_on() -> None:
    """``e=`` is how a server of the RFC says no."""
    client = a_client()
    client.first()
    client.answer(b"r=clientnonceX,s=c2FsdA==,i=4096")
    with pytest.raises(AuthenticationError, match="refused user 'user': unknown-user"):
        client.answer(b"e=unknown-user")


def test_a_server_that_repeats_the_password_is_not_quoted() -> None:
    """A hostile server must not get the password into our logs."""
    client = a_client()
    client.first()
    client.answer(b"r=clientnonceX,s=c2FsdA==,i=4096")
    with pytest.raises(AuthenticationError) as refusal:
        client.answer(b"e=your password is " + PASSWORD.encode())
    assert PASSWORD not in str(refusal.value)


@pytest.mark.parametrize(
    "client_first",
    [
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a\x01c",
        b"n,,r=abc,n=user",
        b"n,,m=x,n=user,r=abc",
        b"\xff\xfe",
        b"",
    ],
)
def test_a_first_message_that_breaks_the_rules_is_refused(client_first: bytes) -> None:
    """The embedded broker is not there to be confused."""
    with pytest.raises(SaslRefusal):
        a_server().answer(client_first)


@pytest.mark.parametrize(
    "change",
    [
        lambda proof: proof.replace(b"c=biws", b"c=eSws"),
        lambda proof: proof.replace(b"servernonce", b"othernonce!"),
        lambda proof: proof[: proof.index(b",p=")],
        lambda proof: proof[: proof.index(b",p=")] + b",p=AAAA",
        lambda proof: proof[: proof.index(b",p=")] + b",p=!",
    ],
    ids=["channel", "nonce", "no proof", "short proof", "no base64"],
)
def test_a_proof_that_was_tampered_with_is_refused(change: Callable[[bytes], bytes]) -> None:
    """Only the exact proof of this conversation may let a client in."""
    client, server = a_client(), a_server()
    proof = client.answer(server.answer(client.first()))
    assert proof is not None
    with pytest.raises(SaslRefusal):
        server.answer(change(proof))
    assert server.user is None


@given(st.binary())
def test_any_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    """A peer's bytes end in the refusal that callers know, never in another exception."""
    client = a_client()
    client.first()
    with pytest.raises(AuthenticationError):
        client.answer(data)
    with pytest.raises(SaslRefusal):
        a_server().answer(data)


def test_secrets_are_in_no_repr() -> None:
    """A debugger's dump or a log of an object must not show them."""
    credential = make_credential("SCRAM-SHA-256", PASSWORD, salt=SALT)
    for shown in (repr(a_client()), repr(a_server()), repr(credential)):
        assert PASSWORD not in shown
        assert "stored_key" not in shown
