"""TLS and SASL against Apache Kafka, both planes: join, rebalance, commit, sessions that end, and refusals."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError

from kip848_client import MemberState
from kip848_client.errors import AuthenticationError, Kip848Error
from kip848_client.network.credentials import Credentials
from kip848_client.wire.connection import Connection
from kip848_client.wire.sasl.mechanism import SaslClient
from tests.interop.conftest import require_kafka
from tests.interop.kafka_broker import KafkaBroker
from tests.interop.real.group import Group
from tests.interop.real.members import OurMember
from tests.interop.real.secured import (
    FORMAT_ARGUMENTS,
    LISTENERS,
    SCRAM,
    Clients,
    Tokens,
    secured_properties,
)
from tests.security.certificates import Authority
from tests.support.driving import drive

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 4
SESSION_MS = 6_000
"""connections.max.reauth.ms of the broker: every connection has to log in again after that."""


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """A broker whose sessions are short, and what its clients set."""
    require_kafka()
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "authority")
    properties = secured_properties(folder, authority, session_ms=SESSION_MS)
    with KafkaBroker(properties=properties, listeners=LISTENERS, format_arguments=FORMAT_ARGUMENTS) as broker:
        yield Clients(broker, authority)


@pytest.fixture
def broker(clients: Clients) -> KafkaBroker:
    """Records and administrators use its listener without security."""
    return clients.broker


@pytest.fixture
def topic(group: Group) -> str:
    """A topic of the test's own."""
    return group.topic(partitions=PARTITIONS)


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by the mechanism with each login of a control plane."""
    counted: list[str] = []
    original = Credentials.__call__

    async def counting(self: Credentials) -> SaslClient:
        client = await original(self)
        counted.append(client.mechanism)
        return client

    monkeypatch.setattr(Credentials, "__call__", counting)
    return counted


def lost_connections(*members: OurMember) -> list[str]:
    return [event.event for member in members for event in member.journal.events if event.event == "coordinator_lost"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mechanism", SCRAM)
def test_members_share_commit_and_stay_while_their_sessions_are_renewed_under_load(
    group: Group, clients: Clients, topic: str, logins: list[str], mechanism: str
) -> None:
    """SASL_SSL as in production: every record once, although each connection logs in again every few seconds."""
    errors: list[KafkaError] = []
    conf = {**clients.login(mechanism), "error_cb": errors.append}
    first = group.ours("first", **conf).subscribe(topic)
    second = group.ours("second", **conf).subscribe(topic)

    def under_load(condition: Callable[[], object]) -> Callable[[], object]:
        def holds() -> object:
            group.write(topic, 5, partitions=PARTITIONS)
            for member in (first, second):
                if member.partitions:
                    member.raw.commit(on_commit=lambda *_: None)  # one that a lost connection took is done again
            return condition()

        return holds

    drive(first, second, until=under_load(lambda: group.is_settled(first, second)), what="two members")
    begun = len(logins)
    drive(
        first,
        second,
        until=under_load(lambda: len(logins) >= begun + 8),  # four connections, twice each
        what="sessions that were renewed twice",
    )
    assert group.is_settled(first, second)
    moved_once = [member.kinds for member in (first, second)]
    first.close()  # leaves over a connection whose login is not its first, and the other takes over
    drive(second, until=lambda: len(second.partitions) == PARTITIONS, what="everything to the second")
    group.read_all(second)
    second.raw.commit(asynchronous=False)

    group.assert_read_once()
    assert group.committed_all()
    assert len(lost_connections(first, second)) <= 1, "a busy machine may let one session end; without renewal all do"
    assert all("lost" not in kinds for kinds in moved_once)
    assert not [error for error in errors if error.code() == KafkaError._AUTHENTICATION]


@pytest.mark.timeout(240)
def test_without_renewal_the_broker_ends_the_connection(
    group: Group, clients: Clients, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof that the test above tests something: sessions do end here."""

    async def never(_self: Connection, _make: object, _session_ms: int) -> None:
        return

    monkeypatch.setattr(Connection, "keep_logged_in", never)
    member = group.ours("forgetful", **clients.login("SCRAM-SHA-256")).subscribe(topic)
    drive(member, until=lambda: lost_connections(member), what="the end of a session")
    assert member.raw.state is not MemberState.FATAL


@pytest.mark.timeout(240)
def test_tokens_are_renewed_for_both_planes_together(
    group: Group, clients: Clients, topic: str, logins: list[str]
) -> None:
    """OAUTHBEARER with tokens of eight seconds: a new one for each renewal, one callback for both planes."""
    tokens = Tokens(life_s=8)
    # librdkafka logs in again with each new token as well; two logins within a second Kafka refuses, and it reconnects.
    conf = {**clients.login("OAUTHBEARER"), "oauth_cb": tokens}
    member = group.ours("bearer", **conf).subscribe(topic)

    def renewed() -> bool:
        group.write(topic, 5, partitions=PARTITIONS)
        return tokens.made >= 3 and len(logins) >= 6

    drive(member, until=renewed, what="renewed tokens")
    group.read_all(member)
    group.assert_read_once()
    assert len(lost_connections(member)) <= 1, "a busy machine may let one session end; without renewal all do"
    assert tokens.made < len(logins) + 3  # both planes share them


def until_refused(member: OurMember, topic: str) -> Kip848Error:
    told: list[Kip848Error] = []
    member.subscribe(topic)

    def refused() -> bool:
        try:
            member.take()
        except Kip848Error as error:
            told.append(error)
        return bool(told)

    drive(until=refused, what="a refusal")
    return told[0]


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("unknown authority", "ssl.ca.location"),
        ("no certificate", "set ssl.certificate.location"),
        ("a stranger's certificate", "signed by an authority that it trusts"),
        ("an invalid token", "refused the token"),
        ("SASL where there is none", "expects no SASL"),
    ],
)
def test_each_refusal_names_its_cause(
    group: Group, clients: Clients, topic: str, tmp_path_factory: pytest.TempPathFactory, case: str, told: str
) -> None:
    """Java's engine sends other alerts than OpenSSL: what users read must be right for it too."""
    scram = clients.login("SCRAM-SHA-256")
    stranger = Authority(tmp_path_factory.mktemp("stranger")).issue("client", "client.example")
    conf = {
        "unknown authority": {key: value for key, value in scram.items() if key != "ssl.ca.location"},
        "no certificate": {
            key: value for key, value in clients.certificate(stranger).items() if key not in _OWN_CERTIFICATE
        },
        "a stranger's certificate": clients.certificate(stranger),
        "an invalid token": {**clients.login("OAUTHBEARER"), "oauth_cb": lambda _: ("abc.def.", 2e10)},
        "SASL where there is none": {
            **clients.login("SCRAM-SHA-256", listener="SASL"),
            "bootstrap.servers": clients.broker.bootstrap_servers,
        },
    }[case]
    member = group.ours("refused", **conf)
    error = until_refused(member, topic)
    assert isinstance(error, AuthenticationError)
    assert told in str(error)
    assert member.raw.state is MemberState.FATAL


_OWN_CERTIFICATE = {"ssl.certificate.location", "ssl.key.location"}


@pytest.mark.parametrize(
    ("listener", "protocol", "told"),
    [
        ("SASL", "plaintext", "may demand SASL"),
        ("SECURE", "plaintext", "expects TLS"),
        ("PLAINTEXT", "ssl", "may not be one for TLS"),
    ],
)
def test_a_wrong_port_is_explained_in_the_log_or_the_error(
    group: Group,
    clients: Clients,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    listener: str,
    protocol: str,
    told: str,
) -> None:
    """Kafka hangs up without a word, so it is tried again; a warning in the log says what it may mean."""
    caplog.set_level(logging.WARNING, logger="kip848_client")
    conf = {"bootstrap.servers": clients.broker.endpoint(listener), "security.protocol": protocol}
    member = group.ours("lost", **conf).subscribe(topic)

    def explained() -> bool:
        with contextlib.suppress(Kip848Error):
            member.take()
        return told in caplog.text

    drive(until=explained, what="an explanation")
    with contextlib.suppress(Kip848Error):  # what was logged may not have been raised yet
        member.raw.close(timeout_s=2.0)
