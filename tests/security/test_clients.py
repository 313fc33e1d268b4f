"""Real clients on the embedded broker with TLS and SASL: librdkafka, kafka-python, and our consumer on both planes."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import confluent_kafka
import pytest

from kip848_client import Consumer, EmbeddedBroker
from kip848_client.errors import AuthenticationError, ConfigError, ConnectionLostError, IllegalStateError, Kip848Error
from kip848_client.journal import JsonLinesJournal
from kip848_client.logins.callback import CallbackSource
from kip848_client.logins.oauth_tokens import OAuthTokens
from kip848_client.member.core.states import MemberState
from kip848_client.testing import BrokerSasl, BrokerTls
from tests.security.certificates import Authority, Identity
from tests.support.driving import dotted, quiet
from tests.support.telemetry_sdk import sdk_in_memory
from tests.support.waiting import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas through importlib.resources.read_text
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")]

PASSWORD: Final = "canary-password"
SESSION_MS: Final = 1_500
ALL_PARTITIONS: Final = 4

Conf = dict[str, Any]


@pytest.fixture
def tls(server_identity: Identity) -> BrokerTls:
    return BrokerTls(server_identity.certificate, server_identity.key)


@pytest.fixture(params=["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broker(tls: BrokerTls, mechanism: str) -> Iterator[EmbeddedBroker]:
    sasl = BrokerSasl({"alice": PASSWORD}, (mechanism,))
    with EmbeddedBroker({"orders": ALL_PARTITIONS}, tls=tls, sasl=sasl) as running:
        yield running


@pytest.fixture
def conf(broker: EmbeddedBroker, authority: Authority, mechanism: str) -> Conf:
    return secured(broker, authority, mechanism)


def secured(broker: EmbeddedBroker, authority: Authority, mechanism: str, *, password: str = PASSWORD) -> Conf:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(authority.ca_file),
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


def produce(conf: Conf, count: int) -> None:
    producer = confluent_kafka.Producer(quiet(conf))
    for number in range(count):
        producer.produce("orders", str(number), partition=number % ALL_PARTITIONS)
    assert producer.flush(20) == 0


def member(conf: Conf, group: str = "g", **more: object) -> Conf:
    return quiet(conf) | dotted({"group_id": group, "auto_offset_reset": "earliest", **more})


def test_our_consumer_reads_and_commits_over_both_planes(conf: Conf) -> None:
    """Join, rebalance, records, commit: everything that a consumer does, as a user who logged in."""
    produce(conf, 100)
    with Consumer(member(conf)) as first, Consumer(member(conf)) as second:
        values: list[object] = []
        for consumer in (first, second):
            consumer.subscribe(["orders"])

        def read() -> None:
            for consumer in (first, second):
                values.extend(message.value() for message in consumer.consume(100, 0.05))

        def is_shared() -> bool:
            read()
            return len(first.assignment()) == len(second.assignment()) == ALL_PARTITIONS // 2 and len(values) >= 100

        wait_until(is_shared, what="two members with half of the partitions each, and all records")
        first.commit(asynchronous=False)
        second.commit(asynchronous=False)
        every = [confluent_kafka.TopicPartition("orders", number) for number in range(ALL_PARTITIONS)]
        assert sum(found.offset for found in first.committed(every)) == 100
    assert len(set(values)) == 100


def test_librdkafkas_own_member_is_served(conf: Conf) -> None:
    """The broker serves a consumer of librdkafka over each way to log in."""
    produce(conf, 20)
    consumer = confluent_kafka.Consumer(member(conf, group_protocol="consumer"))
    consumer.subscribe(["orders"])
    values: list[object] = []

    def all_read() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value())
        return len(values) >= 20

    wait_until(all_read, what="20 records")
    consumer.close()


def test_kafka_python_is_served(broker: EmbeddedBroker, authority: Authority, mechanism: str) -> None:
    """A third implementation of TLS and of each mechanism."""
    settings = {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(authority.ca_file),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }
    producer = KafkaProducer(**settings)
    assert producer.send("orders", b"hello", partition=1).get(10).offset == 0
    producer.close()
    consumer = KafkaConsumer(**settings)
    consumer.assign([TopicPartition("orders", 1)])
    consumer.seek_to_beginning()
    found: list[bytes] = []

    def is_read() -> bool:
        for records in consumer.poll(timeout_ms=50).values():
            found.extend(record.value for record in records)
        return bool(found)

    wait_until(is_read, what="the record")
    consumer.close()
    assert found == [b"hello"]


def test_a_wrong_password_is_fatal_and_named_but_not_shown(
    broker: EmbeddedBroker, authority: Authority, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first poll() that learns of it raises, and so does every other: trying for ever would lock the account."""
    caplog.set_level(logging.DEBUG)
    conf = member(secured(broker, authority, mechanism, password="canary-wrong"))
    consumer = Consumer(conf)
    consumer.subscribe(["orders"])
    told: list[AuthenticationError] = []

    def is_refused() -> bool:
        try:
            consumer.poll(0.1)
        except AuthenticationError as error:
            told.append(error)
        return bool(told)

    wait_until(is_refused, what="the refusal")
    assert consumer.state is MemberState.FATAL
    assert "refused user 'alice'" in str(told[0])
    assert mechanism in str(told[0])
    with pytest.raises(RuntimeError, match="closed"):
        consumer._core.fetcher.plane.list_topics()  # librdkafka tries no more either
    tried = len(broker.requests.of("SaslAuthenticate"))
    with pytest.raises(AuthenticationError):
        consumer.poll(0.1)
    consumer.close()
    assert "canary" not in str(told[0])
    assert "canary" not in caplog.text
    assert len(broker.requests.of("SaslAuthenticate")) == tried


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """All spans and metrics of this test, as text."""
    with sdk_in_memory(monkeypatch) as (exporter, reader):

        def all_text() -> str:
            measured = reader.get_metrics_data()
            spans = "".join(span.to_json() for span in exporter.get_finished_spans())
            return spans + (measured.to_json() if measured is not None else "")

        yield all_text


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256"], indirect=True)
def test_no_secret_is_in_any_log_journal_metric_or_repr(
    tls: BrokerTls,
    authority: Authority,
    mechanism: str,
    caplog: pytest.LogCaptureFixture,
    exported: Callable[[], str],
) -> None:
    """Everything that is written about a whole life, at the most talkative level, librdkafka included."""
    caplog.set_level(logging.DEBUG)
    lines = io.StringIO()
    journal = JsonLinesJournal(lines)
    sasl = BrokerSasl({"alice": PASSWORD}, ("PLAIN", mechanism))
    written = []
    with EmbeddedBroker({"orders": 1}, tls=tls, sasl=sasl, journal=journal) as broker:
        for password in (PASSWORD, "canary-wrong"):
            for chosen in ("PLAIN", mechanism):
                said: list[str] = []
                conf = secured(broker, authority, chosen, password=password)
                conf |= {"group.id": "g", "debug": "security,broker,protocol", "logger": logging.getLogger("rdkafka")}
                with Consumer(conf, journal=journal) as consumer:
                    consumer.subscribe(["orders"])
                    written += [repr(consumer), repr(consumer._core.config), repr(consumer._core.group)]

                    def has_come_to_an_end(consumer: Consumer = consumer, said: list[str] = said) -> bool:
                        try:
                            consumer.poll(0.1)
                        except Kip848Error as error:
                            said.append(repr(error))
                            return True
                        return bool(consumer.assignment())

                    wait_until(has_come_to_an_end, what="an assignment, or a refusal")
                written += said
        written += [repr(entry) for entry in broker.requests]
        written += [repr(broker), repr(sasl)]
    written += [lines.getvalue(), caplog.text, exported()]
    assert "sasl" in caplog.text.lower()
    assert "kafka.consumer" in exported()
    for text in written:
        assert "canary" not in text


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"], indirect=True)
def test_members_stay_while_their_sessions_are_renewed(
    tls: BrokerTls, authority: Authority, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Sessions of 1.5 s under steady use: no connection is lost, no member is fenced, every record comes once."""
    caplog.set_level(logging.INFO)
    sasl = BrokerSasl({"alice": PASSWORD}, (mechanism,))
    config = {"connections.max.reauth.ms": SESSION_MS}
    with EmbeddedBroker({"orders": ALL_PARTITIONS}, tls=tls, sasl=sasl, config=config) as broker:
        conf = secured(broker, authority, mechanism)
        producer = confluent_kafka.Producer(quiet(conf))
        values: list[object] = []
        produced = 0
        with Consumer(member(conf, client_id="ours")) as consumer:
            consumer.subscribe(["orders"])

            def is_renewed() -> bool:
                nonlocal produced
                producer.produce("orders", str(produced))
                produced += 1
                producer.poll(0)
                values.extend(message.value() for message in consumer.consume(100, 0.01))
                consumer.commit()
                # Two connections of ours begin with one login each; librdkafka is of the same client id.
                return len(broker.requests.of("SaslHandshake", client_id="ours")) >= 10

            wait_until(is_renewed, what="renewals of the sessions")
            assert producer.flush(20) == 0

            def all_read() -> bool:
                values.extend(message.value() for message in consumer.consume(100, 0.05))
                return len(values) >= produced

            wait_until(all_read, what="every record")
            assert consumer.state is MemberState.STABLE
            heartbeats = broker.requests.of("ConsumerGroupHeartbeat", client_id="ours")
            assert len({entry.connection_id for entry in heartbeats}) == 1
        assert sorted(values, key=str) == sorted((str(number).encode() for number in range(produced)), key=str)
    assert "member.request_failed" not in caplog.text


def test_replaced_credentials_are_used_by_the_next_connections() -> None:
    """Passwords are rotated while consumers run; both planes must take the new one, and the member stays."""
    sasl = BrokerSasl({"alice": PASSWORD})
    config = {"group.consumer.session.timeout.ms": 60_000}
    with EmbeddedBroker({"orders": 2}, sasl=sasl, config=config) as broker:
        conf = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }
        with Consumer(member(conf, client_id="ours")) as consumer:
            consumer.subscribe(["orders"])
            wait_until(lambda: consumer.poll(0.05) or len(consumer.assignment()) == 2, what="an assignment")
            epoch = consumer.member_epoch
            with pytest.raises(ConfigError, match=r"sasl\.password is empty"):
                consumer.set_sasl_credentials("alice", "")
            consumer.set_sasl_credentials("alice", "rotated-canary")
            broker.stop()
            broker.set_users({"alice": "rotated-canary"})
            broker.start()
            producer = confluent_kafka.Producer(quiet(conf | {"sasl.password": "rotated-canary"}))
            producer.produce("orders", b"after", partition=1)
            assert producer.flush(20) == 0
            wait_until(lambda: consumer.poll(0.05), what="a record over a new connection")
            committed = consumer.commit(asynchronous=False)
            assert committed is not None
            assert [(one.partition, one.offset) for one in committed if one.offset > 0] == [(1, 1)]
            assert (consumer.state, consumer.member_epoch) == (MemberState.STABLE, epoch)


def test_a_member_whose_user_is_removed_gives_up_what_it_has(authority: Authority, tls: BrokerTls) -> None:
    """When its session cannot be renewed: the listener is told lost, poll() raises, and nothing is tried again."""
    sasl = BrokerSasl({"alice": PASSWORD})
    config = {"connections.max.reauth.ms": SESSION_MS, "group.consumer.session.timeout.ms": 60_000}
    with EmbeddedBroker({"orders": 2}, tls=tls, sasl=sasl, config=config) as broker:
        conf = secured(broker, authority, "SCRAM-SHA-512")
        consumer = Consumer(member(conf))
        lost: list[object] = []
        consumer.subscribe(["orders"], on_lost=lambda _, partitions: lost.extend(partitions))
        wait_until(lambda: consumer.poll(0.05) or len(consumer.assignment()) == 2, what="an assignment")
        broker.set_users({"alice": "another", "bob": "bobs"})
        told: list[AuthenticationError] = []

        def is_refused() -> bool:
            try:
                consumer.poll(0.05)
            except AuthenticationError as error:
                told.append(error)
            return bool(told and lost)

        wait_until(is_refused, what="the refusal, and the loss of everything")
        assert consumer.state is MemberState.FATAL
        assert "refused user 'alice'" in str(told[0])
        assert len(lost) == 2
        removed = consumer.member_id
        consumer.close()  # who is refused cannot leave: its session ends the membership
        broker.groups.expire_session("g", removed)
        with Consumer(member(conf | {"sasl.username": "bob", "sasl.password": "bobs"})) as other:
            other.subscribe(["orders"])
            wait_until(lambda: other.poll(0.05) or len(other.assignment()) == 2, what="everything for the next one")


def test_a_certificate_that_is_refused_is_fatal_too(tls: BrokerTls) -> None:
    """Raised from poll() with the cause; a broker is not what it says, or we do not know who vouches for it."""
    with EmbeddedBroker({"orders": 1}, tls=tls) as broker:
        conf = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "ssl",
        }
        consumer = Consumer(member(conf))
        consumer.subscribe(["orders"])
        with pytest.raises(AuthenticationError, match="authority"):
            wait_until(lambda: consumer.poll(0.1))
        assert consumer.state is MemberState.FATAL
        consumer.close()
        with pytest.raises(IllegalStateError):
            consumer.poll(0)


def test_a_turned_off_check_is_loud(tls: BrokerTls, caplog: pytest.LogCaptureFixture) -> None:
    """A user who reads the log of a service sees that it would talk to anybody."""
    with EmbeddedBroker({"orders": 1}, tls=tls) as broker:
        base: Conf = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "ssl", "group.id": "g"}
        for key, value in (
            ("enable.ssl.certificate.verification", False),
            ("ssl.endpoint.identification.algorithm", "none"),
        ):
            caplog.clear()
            Consumer(quiet(base | {key: value})).close()
            assert "consumer.tls_not_verified" in caplog.text
            assert key in caplog.text


def test_a_consumer_without_a_token_says_at_once_why() -> None:
    """confluent-kafka would wait ten seconds, and then say that it waited ten seconds."""

    def callback(_config: str | None) -> tuple[str, float]:
        raise OSError("canary")

    conf: Conf = {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "g",
        "security.protocol": "sasl_plaintext",
        "kip848.allow.unencrypted.credentials": "true",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": callback,
    }
    with pytest.raises(ConnectionLostError, match="oauth_cb raised OSError") as failure:
        Consumer(conf)
    assert "canary" not in str(failure.value)
    assert isinstance(failure.value.__cause__, OSError)


def test_librdkafka_takes_the_shared_source_of_tokens() -> None:
    """confluent-kafka calls oauth_cb from its own thread while the consumer is made."""
    asked: list[object] = []

    def callback(config: str) -> tuple[str, float]:
        asked.append(config)
        return "token", 2e10

    tokens = OAuthTokens(CallbackSource(callback, "scope=x"))
    settings = {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "g",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.config": "scope=x",
        "oauth_cb": tokens,
    }
    consumer = confluent_kafka.Consumer(quiet(settings))
    wait_until(lambda: asked, what="a call of oauth_cb")
    consumer.close()
    assert tokens.token().value == "token"
    assert asked == ["scope=x"]
