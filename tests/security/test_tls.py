"""TLS against the embedded broker: every certificate that must be refused is, and the message names the cause."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from kip848_client import EmbeddedBroker
from kip848_client.common.error_codes import ErrorCode
from kip848_client.common.model import TlsSettings
from kip848_client.errors import AuthenticationError, ConfigError, ConnectionLostError, Kip848Error, ProtocolError
from kip848_client.testing import BrokerSasl, BrokerTls
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.connection import open_connection
from kip848_client.wire.messages.describe_cluster import DescribeClusterRequest
from kip848_client.wire.messages.sasl_handshake import SaslHandshakeRequest
from kip848_client.wire.tls import client_context
from kip848_client.wire.tls_failures import explain_alert, explain_handshake
from tests.security.certificates import Authority, Identity

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def broker(server_identity: Identity) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tls=BrokerTls(server_identity.certificate, server_identity.key)) as running:
        yield running


@pytest.fixture
def strict_broker(server_identity: Identity, authority: Authority) -> Iterator[EmbeddedBroker]:
    """Demands a certificate of every client."""
    tls = BrokerTls(server_identity.certificate, server_identity.key, client_ca=authority.ca_file)
    with EmbeddedBroker(tls=tls) as running:
        yield running


async def ask(port: int, settings: TlsSettings | None, *, host: str = "127.0.0.1") -> str:
    """Connect, and have one request answered."""
    context = None if settings is None else client_context(settings)
    async with open_connection(host, port, client_id="c", ssl_context=context) as connection:
        return (await connection.send(DescribeClusterRequest(), timeout_ms=10_000)).cluster_id


def trusting(authority: Authority, **more: str | bool) -> TlsSettings:
    return TlsSettings(ca_location=str(authority.ca_file), **more)  # type: ignore[arg-type]


async def refused(
    port: int,
    settings: TlsSettings | None,
    *said: str,
    error: type[Kip848Error] = AuthenticationError,
    host: str = "127.0.0.1",
) -> Kip848Error:
    """Connecting fails with *error*, whose text has all of *said*; the error."""
    with pytest.raises(error) as failure:
        await ask(port, settings, host=host)
    assert all(words in str(failure.value) for words in said), failure.value
    return failure.value


@contextlib.contextmanager
def served_once(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port whose first connection *serve* gets, on a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            accepted, _ = listening.accept()
            with accepted:
                serve(accepted)

        server = threading.Thread(target=run)
        server.start()
        yield listening.getsockname()[1]
        server.join()


def at_most_tls_1_1(context: ssl.SSLContext) -> ssl.SSLContext:
    """*context*, which speaks only what is too old."""
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_broker_with_a_trusted_certificate_is_spoken_to(
    broker: EmbeddedBroker, authority: Authority, host: str
) -> None:
    """By any of the names in the certificate, addresses included."""
    assert await ask(broker.port, trusting(authority), host=host)


async def test_an_authority_may_be_given_as_text(broker: EmbeddedBroker, authority: Authority) -> None:
    """A container gets its certificate authority in a variable, and not as a file."""
    assert await ask(broker.port, TlsSettings(ca_pem=authority.ca_file.read_text()))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="names the files of such a folder")
async def test_an_authority_may_be_given_as_a_folder(
    broker: EmbeddedBroker, authority: Authority, tmp_path: Path
) -> None:
    """As distributions keep them: one file for each, named by a hash."""
    (tmp_path / "ca.pem").write_text(authority.ca_file.read_text())
    await anyio.run_process(["openssl", "rehash", str(tmp_path)])
    assert await ask(broker.port, TlsSettings(ca_location=str(tmp_path)))


async def test_an_expired_certificate_is_refused_by_name(authority: Authority) -> None:
    """The most common outage of all: the message must say it at once."""
    expired = authority.issue("expired", "127.0.0.1", lasted_days=1)
    with EmbeddedBroker(tls=BrokerTls(expired.certificate, expired.key)) as broker:
        await refused(broker.port, trusting(authority), "has expired")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_certificate_for_another_host_is_refused_by_name(authority: Authority, host: str) -> None:
    """Another holder of a certificate of the same company must not be taken for the broker."""
    other = authority.issue("other", "kafka.example")
    with EmbeddedBroker(tls=BrokerTls(other.certificate, other.key)) as broker:
        await refused(broker.port, trusting(authority), "is for other", host, host=host)
        assert await ask(broker.port, trusting(authority, verify_host_name=False), host=host)


async def test_an_unknown_authority_is_refused_and_the_key_to_set_is_named(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """A private authority is the rule with Kafka."""
    for settings in (TlsSettings(), trusting(Authority(tmp_path / "stranger"))):
        await refused(broker.port, settings, "authority", "ssl.ca.location")


async def test_a_certificate_signed_by_itself_is_refused_and_may_be_trusted() -> None:
    """Users of a test cluster often make a self-signed certificate first."""
    alone = Path(__file__).parents[1] / "wire" / "localhost.pem"
    with EmbeddedBroker(tls=BrokerTls(alone)) as broker:
        await refused(broker.port, TlsSettings(), "signed by itself")
        assert await ask(broker.port, TlsSettings(ca_location=str(alone)), host="localhost")


async def test_a_revoked_certificate_is_refused(broker: EmbeddedBroker, authority: Authority) -> None:
    """A key that was stolen is good for years otherwise (ssl.crl.location)."""
    stolen = authority.issue("stolen", "127.0.0.1")
    settings = trusting(authority, crl_location=str(authority.revoke(stolen)))
    with EmbeddedBroker(tls=BrokerTls(stolen.certificate, stolen.key)) as thief:
        await refused(thief.port, settings, "has been revoked")
    assert await ask(broker.port, settings)


async def test_nothing_is_checked_only_if_that_is_said(broker: EmbeddedBroker) -> None:
    """enable.ssl.certificate.verification=false, as loud in the log as it is dangerous."""
    assert await ask(broker.port, TlsSettings(verify_certificate=False))


async def test_plaintext_to_a_tls_port_is_explained(broker: EmbeddedBroker) -> None:
    """A user who forgot ``security.protocol`` is told that the broker expects TLS."""
    with pytest.raises((ConnectionLostError, ProtocolError), match=r"expects? TLS"):
        await ask(broker.port, None)


async def test_tls_to_a_plaintext_port_is_explained(authority: Authority) -> None:
    """The wrong port of the two that a broker usually has."""
    with EmbeddedBroker() as broker:
        await refused(broker.port, trusting(authority), "security.protocol", error=ConnectionLostError)


async def test_tls_to_something_that_answers_in_plain_text_is_refused(authority: Authority) -> None:
    """A web server, a Redis: it is there, but no retry makes it a broker with TLS."""

    def serve(accepted: socket.socket) -> None:
        accepted.recv(1)
        accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 100)
        accepted.recv(65536)

    with served_once(serve) as port:
        error = await refused(port, trusting(authority), "does not speak TLS")
    assert type(error) is AuthenticationError


async def test_old_versions_of_tls_are_not_spoken(broker: EmbeddedBroker, authority: Authority) -> None:
    """Neither by the client, nor by the embedded broker."""
    assert client_context(trusting(authority)).minimum_version is ssl.TLSVersion.TLSv1_2
    context = at_most_tls_1_1(ssl.create_default_context(cafile=authority.ca_file))
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as raw:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            context.wrap_socket(raw, server_hostname="127.0.0.1")


async def test_a_broker_that_offers_only_old_versions_is_refused(
    server_identity: Identity, authority: Authority
) -> None:
    """An attacker who forces TLS 1.1 could read along."""
    context = at_most_tls_1_1(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    context.load_cert_chain(server_identity.certificate, server_identity.key)

    def serve(accepted: socket.socket) -> None:
        with contextlib.suppress(OSError):
            context.wrap_socket(accepted, server_side=True).close()

    with served_once(serve) as port:
        error = await refused(port, trusting(authority), "TLS 1.2 is the lowest")
    assert type(error) is AuthenticationError


async def test_a_client_that_speaks_only_tls_1_2_is_served(broker: EmbeddedBroker, authority: Authority) -> None:
    """Java 8 and hardware load balancers speak no newer version."""
    context = client_context(trusting(authority))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with open_connection("127.0.0.1", broker.port, client_id="c", ssl_context=context) as connection:
        assert (await connection.send(DescribeClusterRequest(), timeout_ms=10_000)).cluster_id


async def test_a_client_certificate_lets_in_where_one_is_demanded(
    strict_broker: EmbeddedBroker, authority: Authority, client_identity: Identity
) -> None:
    """Mutual TLS works with a certificate from files and with one from text."""
    files = trusting(
        authority, certificate_location=str(client_identity.certificate), key_location=str(client_identity.key)
    )
    texts = trusting(
        authority, certificate_pem=client_identity.certificate.read_text(), key_pem=client_identity.key.read_text()
    )
    assert await ask(strict_broker.port, files)
    assert await ask(strict_broker.port, texts)


@pytest.mark.parametrize("shown", ["none", "of a stranger", "expired"])
async def test_a_missing_or_bad_client_certificate_is_refused(
    strict_broker: EmbeddedBroker, authority: Authority, tmp_path: Path, shown: str
) -> None:
    """With TLS 1.3 the broker says so only after the handshake, which a client must not take for a lost connection."""
    certificate: dict[str, str | bool] = {}
    if shown != "none":
        issuer = authority if shown == "expired" else Authority(tmp_path / "stranger")
        bad = issuer.issue("bad-client", "client.example", lasted_days=1 if shown == "expired" else None)
        certificate = {"certificate_location": str(bad.certificate), "key_location": str(bad.key)}
    said = "ssl.certificate.location" if shown == "none" else "certificate"  # the key to set is named
    await refused(strict_broker.port, trusting(authority, **certificate), said, error=Kip848Error)


def said(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "final", "told"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", True, "set ssl.certificate.location"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", True, "set ssl.certificate.location"),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", True, "our certificate, which has expired"),
        ("TLSV1_ALERT_UNKNOWN_CA", True, "signed by an authority that it trusts"),
        ("SSLV3_ALERT_CERTIFICATE_REVOKED", True, "refuses our certificate"),
        ("TLSV1_ALERT_ACCESS_DENIED", True, "refuses our certificate"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", True, "no cipher in common"),
        ("TLSV1_ALERT_PROTOCOL_VERSION", True, "no common version"),
        ("WRONG_VERSION_NUMBER", True, "does not speak TLS"),
        ("DH_KEY_TOO_SMALL", True, "DH_KEY_TOO_SMALL"),
        ("TLSV1_ALERT_INTERNAL_ERROR", False, "INTERNAL_ERROR"),
        ("DECRYPTION_FAILED_OR_BAD_RECORD_MAC", False, "BAD_RECORD_MAC"),
    ],
)
def test_only_what_no_retry_cures_is_final(reason: str, final: bool, told: str) -> None:
    """A broker that is overloaded for a second must not stop its members; a certificate that it refuses must."""
    error = explain_handshake(said(reason), peer="kafka:9093")
    assert isinstance(error, AuthenticationError) is final
    assert told in str(error)
    assert str(error).startswith("TLS with kafka:9093")


def test_an_alert_in_the_middle_of_a_connection_is_a_lost_connection() -> None:
    """Only those about our certificate are more: TLS 1.3 sends them after the handshake."""
    assert explain_alert(said("TLSV1_ALERT_INTERNAL_ERROR"), peer="p") is None
    assert explain_alert(said("SSLV3_ALERT_BAD_CERTIFICATE"), peer="p") is not None
    assert explain_alert(ConnectionResetError(), peer="p") is None
    assert explain_alert(None, peer="p") is None


def test_a_broker_that_stops_in_the_middle_of_a_handshake_leaves_nothing_behind(server_identity: Identity) -> None:
    """A port scanner must not keep a test run from ending; warnings about open sockets are errors here."""
    with EmbeddedBroker(tls=BrokerTls(server_identity.certificate, server_identity.key)) as broker:
        raw = socket.create_connection(("127.0.0.1", broker.port), timeout=60)
        raw.sendall(b"\x16\x03\x01")
    with raw:
        with contextlib.suppress(ConnectionResetError):
            assert raw.recv(1) == b""


def test_a_broker_stops_although_a_client_whose_login_it_refused_keeps_the_connection(
    server_identity: Identity, authority: Authority
) -> None:
    """Otherwise ``with EmbeddedBroker(...)`` ends in an AttributeError of asyncio, if the machine is busy."""
    tls = BrokerTls(server_identity.certificate, server_identity.key)
    with EmbeddedBroker(tls=tls, sasl=BrokerSasl({"alice": "secret"}, ("PLAIN",))) as broker:
        context = client_context(trusting(authority))
        connection = RawConnection(broker.bootstrap_servers, tls=context)
        answer = connection.ask(SaslHandshakeRequest(mechanism="GSSAPI"), version=1)
    connection.close()

    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_a_handshake_that_does_not_end_is_given_up(server_identity: Identity) -> None:
    """Connections that never finish their handshake must not pile up in the broker."""
    tls = BrokerTls(server_identity.certificate, server_identity.key)
    with EmbeddedBroker(tls=tls, config={"kip848.authentication.max.ms": 50}) as broker:
        with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as raw:
            assert raw.recv(1) == b""


@pytest.mark.parametrize("broken", ["certificate", "key", "client_ca"])
def test_files_that_cannot_be_read_are_named(server_identity: Identity, broken: str) -> None:
    """The broker does not start with half of its security."""
    files = {"certificate": server_identity.certificate, "key": server_identity.key, "client_ca": None}
    for path in (Path("/no/such/file"), Path(__file__)):
        with pytest.raises(ConfigError):
            EmbeddedBroker(tls=BrokerTls(**{**files, broken: path}))  # type: ignore[arg-type]
