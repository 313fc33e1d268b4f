"""The same logins, right and wrong, told to Apache Kafka and to the embedded broker: both answer alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from kip848_client import EmbeddedBroker
from kip848_client.testing import BrokerSasl
from kip848_client.testing.judge.broker.connection import RawConnection
from kip848_client.wire.messages.api_versions import ApiVersionsRequest
from kip848_client.wire.messages.describe_cluster import DescribeClusterRequest
from kip848_client.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kip848_client.wire.messages.sasl_handshake import SaslHandshakeRequest
from kip848_client.wire.sasl.scram import ScramClient
from tests.interop.conftest import require_kafka
from tests.interop.kafka_broker import KafkaBroker
from tests.interop.real.secured import FORMAT_ARGUMENTS, LISTENERS, PASSWORD, USER, secured_properties
from tests.security.certificates import Authority

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.slow]

SESSION_MS: Final = 60_000
RIGHT: Final = f"\0{USER}\0{PASSWORD}".encode()

Told = tuple[object, ...]
Step = str | bytes
"""``versions``, ``cluster``, a mechanism (its handshake), bytes (SaslAuthenticate), or ``scram`` (all its messages)."""

CONVERSATIONS: Final[dict[str, list[Step]]] = {
    "a login by PLAIN": ["versions", "PLAIN", RIGHT, "cluster"],
    "a login by SCRAM-SHA-256": ["SCRAM-SHA-256", "scram", "cluster"],
    "a login by SCRAM-SHA-512": ["SCRAM-SHA-512", "scram", "cluster"],
    "a request before the login": ["cluster"],
    "a request after the versions": ["versions", "cluster"],
    "a login without a handshake": [RIGHT],
    "an unknown mechanism": ["GSSAPI"],
    "two handshakes": ["PLAIN", "PLAIN"],
    "a wrong password": ["PLAIN", f"\0{USER}\0wrong".encode()],
    "an unknown user": ["PLAIN", b"\0nobody\0wrong"],
    "another identity": ["PLAIN", b"nobody" + RIGHT],
    "too few parts": ["PLAIN", b"x"],
    "no password": ["PLAIN", f"\0{USER}\0".encode()],
    "garbage for SCRAM": ["SCRAM-SHA-256", b"garbage"],
    "a wrong proof": ["SCRAM-SHA-256", f"n,,n={USER},r=abc".encode(), b"c=biws,r=abc,p=AAAA"],
    "a session renewed": ["PLAIN", RIGHT, "PLAIN", RIGHT, "cluster"],
    "a wrong password in a renewal": ["PLAIN", RIGHT, "PLAIN", b"\0alice\0wrong"],
    "a second login without a handshake": ["PLAIN", RIGHT, RIGHT],
}


CLOSED_BY_BOTH: Final[dict[str, list[Step]]] = {
    "a request in the middle": ["PLAIN", "cluster"],
    "a request while a session is renewed": ["PLAIN", RIGHT, "PLAIN", "cluster"],
    "another mechanism in a renewal": ["PLAIN", RIGHT, "SCRAM-SHA-256", "scram"],
    "an unknown user of SCRAM": ["SCRAM-SHA-256", b"n,,n=nobody,r=abc", b"c=biws,r=abc,p=AAAA"],
    "versions in the middle": ["PLAIN", "versions"],
}
"""Both refuse, with other words: see docs/security.md."""


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The SASL listeners of Kafka and of the embedded broker."""
    require_kafka()
    folder = tmp_path_factory.mktemp("differential")
    properties = secured_properties(folder, Authority(folder / "authority"), session_ms=SESSION_MS)
    sasl = BrokerSasl({USER: PASSWORD}, ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"))
    with (
        KafkaBroker(properties=properties, listeners=LISTENERS, format_arguments=FORMAT_ARGUMENTS) as kafka,
        EmbeddedBroker(sasl=sasl, config={"connections.max.reauth.ms": SESSION_MS}) as ours,
    ):
        yield kafka.endpoint("SASL"), ours.bootstrap_servers


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_both_answer_a_login_alike(sides: tuple[str, str], name: str) -> None:
    """A client that is tested against the embedded broker must not be surprised by a real one."""
    kafka, ours = (converse(address, CONVERSATIONS[name]) for address in sides)
    assert ours == kafka


@pytest.mark.parametrize("name", CLOSED_BY_BOTH)
def test_both_close_the_connection(sides: tuple[str, str], name: str) -> None:
    """The answers differ as documented; neither broker accepts the login."""
    for address in sides:
        told = converse(address, CLOSED_BY_BOTH[name])
        assert told[-1] == ("closed",)
        assert ("cluster", 0) not in told


def converse(address: str, steps: list[Step]) -> list[Told]:
    """What is answered to each step, and whether the connection is open in the end."""
    told: list[Told] = []
    mechanism = ""
    with RawConnection(address) as connection:
        try:
            for step in steps:
                if step in {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"}:
                    mechanism = str(step)
                    told.append((step, connection.ask(SaslHandshakeRequest(mechanism=mechanism), version=1).error_code))
                elif step == "scram":
                    told += scram(connection, mechanism)
                elif isinstance(step, bytes):
                    told.append(say(connection, step))
                elif step == "versions":
                    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
                    told.append((step, connection.ask(request, version=3).error_code))
                else:
                    told.append((step, connection.ask(DescribeClusterRequest(), version=0).error_code))
        except (EOFError, ConnectionResetError):
            return [*told, ("closed",)]
        return [*told, ("closed" if ended(connection) else "open",)]


def say(connection: RawConnection, message: bytes) -> Told:
    answer = connection.ask(SaslAuthenticateRequest(auth_bytes=message), version=2)
    # Lengths of nonces and salts are each broker's own; of an error only the code is compared.
    return ("authenticate", answer.error_code, answer.session_lifetime_ms, bool(answer.auth_bytes))


def scram(connection: RawConnection, mechanism: str) -> Iterator[Told]:
    client = ScramClient(mechanism, username=USER, password=PASSWORD, nonce="n")
    first = connection.ask(SaslAuthenticateRequest(auth_bytes=client.first()), version=2)
    yield ("first", first.error_code)
    if first.error_code:
        return
    proof = client.answer(first.auth_bytes)
    assert proof is not None
    final = connection.ask(SaslAuthenticateRequest(auth_bytes=proof), version=2)
    assert client.answer(final.auth_bytes) is None
    yield ("final", final.error_code, final.session_lifetime_ms)


def ended(connection: RawConnection) -> bool:
    """Whether the broker has closed the connection: else it would answer, or close it for being asked."""
    connection.socket.settimeout(0.5)
    try:
        return connection.is_closed_by_peer()
    except TimeoutError:
        return False
